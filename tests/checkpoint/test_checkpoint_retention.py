"""Old commits are deleted; nothing else ever is."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from checkpoint_helpers import KINDS, DictStore, a_run, begin, holds, load_all, make_store, numbers

from streamomd.checkpoint import Store, Writer, list_commits, read_commit, write_document
from streamomd.checkpoint.documents import document_names
from streamomd.checkpoint.manifest import manifest_name
from streamomd.core.errors import StorageError, UsageError


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_last_commits_are_retained(kind: str, keep: int, tmp_path: Path) -> None:
    """Of seven commits the last ``keep`` stay, intact."""
    store = make_store(kind, tmp_path)
    a_run(store, 6, keep=keep)
    rows = list_commits(store, deep=True)
    assert [one["sequence"] for one in rows] == list(range(7 - keep, 7))
    assert all(one["ok"] for one in rows)


def test_nothing_is_left_of_deleted_commits(tmp_path: Path) -> None:
    """Parts, their folders and shared documents of deleted commits go too."""
    store = make_store("local", tmp_path)
    writer = begin(store, keep=2)
    for at in range(1, 5):
        names = write_document(store, "names", {"1": [f"name {at // 2}"]})
        writer.commit({"rows": at, "names": names}, numbers(at))
    run = tmp_path / "run"
    assert len(list(run.glob("data/*"))) == 2
    assert len(list(run.glob("names/*"))) == 2
    writer.commit({"rows": 5, "names": names}, numbers(5))
    assert len(list(run.glob("names/*"))) == 1
    assert all(one["ok"] for one in list_commits(store, deep=True))


def test_repeated_parts_live_as_long_as_a_commit_names_them() -> None:
    """However often a run is resumed, ``keep`` different states stay, and their parts."""
    store = DictStore()
    a_run(store, 2, keep=2)
    for _ in range(5):
        writer = Writer.take_over(store, load_all(store)[0], keep=2)
    assert len(list_commits(store)) == 2 + 5
    writer.commit({"rows": 30}, numbers(3))
    rows = list_commits(store, deep=True)
    assert [one["ok"] for one in rows] == [True] * 7
    writer.commit({"rows": 40}, numbers(4))
    assert [one["rows"] for one in list_commits(store, deep=True)] == [30, 40]


NAMES = (
    *(".tmp-1", "p000000000008-000000000009.safetensors", "x.json", "README", "ü\n", "a b"),
    *("000000000099.json.bak", "FORMAT.json.old", f"{'0' * 64}.json", "0000000000010.json"),
)


def strew(run: Path, draw: random.Random) -> None:
    """Foreign files and folders anywhere below a checkpoint, some with names much like its own."""
    folders = [run, *(path for path in run.rglob("*") if path.is_dir())]
    folders += [run / "dataset", run / "names", run / "restarts"]
    for at in range(20):
        folder = draw.choice(folders)
        if draw.random() < 0.3:
            folder /= f"{draw.randrange(9):012d}-{draw.getrandbits(32):08x}-00000000"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / draw.choice(NAMES)).write_bytes(bytes([at]))
    (run / "data" / "link").symlink_to(run.parent)


@pytest.mark.parametrize(
    "seed", [*range(20), *(pytest.param(one, marks=pytest.mark.slow) for one in range(20, 200))]
)
def test_foreign_files_stay(seed: int, tmp_path: Path) -> None:
    """Files and commits that this run did not make stay as they are, whatever their names."""
    store, draw = make_store("local", tmp_path), random.Random(seed)
    a_run(store, draw.randrange(3), keep=9)
    theirs = [one["sequence"] for one in list_commits(store)]
    run = tmp_path / "run"
    strew(run, draw)
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    keep = draw.randrange(1, 3)
    writer = begin(store, restart=True, keep=keep)
    for at in range(1, draw.randrange(2, 6)):
        strange = run / "data" / writer.last.directory / "not ours"
        strange.write_bytes(b"put between")
        before[strange] = b"put between"
        names = write_document(store, "names", {"1": [f"{at}"]})
        writer.commit({"rows": 10 * at, "names": names}, numbers(at))
    holds(store, at)
    assert {file: file.read_bytes() for file in before} == before
    ours = [one["sequence"] for one in list_commits(store, deep=True) if one["run"] == writer.run]
    assert ours == list(range(writer.sequence + 1 - keep, writer.sequence + 1))
    assert [one["sequence"] for one in list_commits(store)] == [*theirs, *ours]
    made = {name for one in (*theirs, *ours) for name in objects(store, one)}
    there = {str(file.relative_to(run)) for file in run.rglob("*") if file.is_file()}
    left = there - {str(file.relative_to(run)) for file in before} - made
    assert left == {f"restarts/{theirs[-1] + 1:012d}"}


def objects(store: Store, sequence: int) -> list[str]:
    """What a commit is made of."""
    commit = read_commit(store, sequence)
    shared = [name for one in commit.documents for name in document_names(*one)]
    return [manifest_name(sequence), *map(commit.part_name, commit.parts), *shared]


def test_a_manifest_that_cannot_be_read_stays() -> None:
    """What a damaged manifest names is not known, so neither it nor its parts are deleted."""
    store = DictStore()
    writer = a_run(store, 1, keep=1)
    store.objects[manifest_name(1)] = b"damaged"
    parts = [name for name in store.objects if name.startswith("data/")]
    fresh = Writer.begin(store, {"rows": 0}, numbers(0), keep=1, restart=True)
    fresh.commit({"rows": 10}, numbers(1))
    assert set(parts) <= set(store.objects)
    assert store.objects[manifest_name(1)] == b"damaged"
    assert writer.run != fresh.run


def test_manifests_go_before_their_parts_and_oldest_first() -> None:
    """At any moment every manifest that is there has its parts."""
    store = DictStore()
    writer = a_run(store, 6, keep=6)
    deleted: list[str] = []

    def check(deed: str, name: str) -> None:
        if deed == "delete":
            deleted.append(name)
            store.before = lambda deed, name: None
            assert all(one["ok"] for one in list_commits(store, deep=True))
            store.before = check

    store.before = check
    writer.retention.keep = 1
    writer.commit({"rows": 70}, numbers(7))
    assert [name for name in deleted if "commits" in name] == [
        manifest_name(at) for at in range(1, 7)
    ]
    assert len(deleted) == 6 * 3
    holds(store, 7)


def test_nothing_is_deleted_that_another_writer_may_use() -> None:
    """Once a later commit is there, an older writer deletes nothing."""
    store = DictStore()
    old = a_run(store, 3, keep=9)
    last = load_all(store)[0]
    Writer.take_over(store, last)
    before = dict(store.objects)
    old.retention.keep = 1
    old.retention.apply(last.commit)
    assert store.objects == before


def test_a_commit_stands_though_deleting_fails(caplog: pytest.LogCaptureFixture) -> None:
    """A store that does not delete costs room, said in a warning, and no commit."""
    store = DictStore()
    writer = begin(store, keep=1)

    def refuse(deed: str, name: str) -> None:
        if deed == "delete":
            raise StorageError("403")

    store.before = refuse
    writer.commit({"rows": 10}, numbers(1))
    assert "could not be deleted: 403" in caplog.text
    holds(store, 1)


def test_keeping_none_is_refused() -> None:
    """``keep`` is at least one."""
    with pytest.raises(UsageError, match="at least 1, not 0"):
        begin(DictStore(), keep=0)
