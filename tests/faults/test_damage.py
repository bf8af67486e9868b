"""Damaged checkpoints: whatever bit is wrong, an older commit is loaded and told, or nothing is."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkpoint_helpers import KINDS, a_run, load_all, make_store, numbers, overwrite, plain

from streamomd.checkpoint import Store, Writer, list_commits, load, read_document, write_document
from streamomd.checkpoint.documents import document_names
from streamomd.checkpoint.manifest import manifest_name
from streamomd.core.errors import CorruptionError, NoCommitError, OutputExistsError

SHARED = {"k": [1, 2.5, None, "é"]}


def a_damaged_run(kind: str, folder: Path, ranges: int = 1) -> tuple[Store, Writer]:
    """Commits 0 and 1, each with a document of its own."""
    store = make_store(kind, folder)
    documents = [write_document(store, "names", {**SHARED, "at": at}) for at in (0, 1)]
    parts = [numbers(at, ranges=ranges) for at in (0, 1)]
    writer = Writer.begin(store, {"rows": 0, "names": documents[0]}, parts[0])
    writer.commit({"rows": 10, "names": documents[1]}, parts[1])
    return store, writer


def objects(store: Store) -> dict[str, str]:
    """What commit 1 needs, by kind."""
    commit = load(store, lambda commit: lambda part: None).commit
    return {
        "manifest": manifest_name(1),
        "part": commit.part_name(commit.parts[0]),
        "document": f"names/{commit.document['names']}.json",
    }


def falls_back(store: Store, seed: int, rejected: int, *, ranges: int = 1) -> str:
    """The older commit is loaded to the bit; why the newer one was not."""
    loaded, parts = load_all(store)
    assert parts == plain(numbers(seed, ranges=ranges))
    assert loaded.commit.document["rows"] == 10 * seed
    [(sequence, reason)] = loaded.rejected
    assert sequence == rejected
    return reason


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("what", ["manifest", "part", "document"])
def test_a_missing_object_is_told(kind: str, what: str, tmp_path: Path) -> None:
    """A commit of which an object is gone, a document in both copies, is not used, and it is told
    what is missing."""
    store, writer = a_damaged_run(kind, tmp_path)
    name = objects(store)[what]
    writer.commit({"rows": 20}, numbers(2, ranges=1))
    store.delete(name)
    store.delete(f"copies/{name}")
    with pytest.raises(NoCommitError, match=r"no commit 1 |missing"):
        load_all(store, at=1)
    assert load_all(store)[0].commit.sequence == 2
    two = load_all(store)[0].commit
    store.delete(two.part_name(two.parts[0]))
    loaded, parts = load_all(store)
    assert parts == plain(numbers(0, ranges=1))
    assert [sequence for sequence, _ in loaded.rejected] == [2, 1]
    assert all("missing" in reason for _, reason in loaded.rejected)


def test_swapped_parts_are_seen(kind: str, tmp_path: Path) -> None:
    """Two parts of a commit, or a part of two commits, exchanged: equal sizes deceive nobody."""
    store, _ = a_damaged_run(kind, tmp_path, ranges=3)
    commit, before = (load_all(store, at=at)[0].commit for at in (1, 0))
    second, third = (commit.part_name(commit.parts[at]) for at in (1, 2))
    older = before.part_name(before.parts[1])
    for one, other in ((second, third), (second, older)):
        mine, theirs = store.read(one), store.read(other)
        assert len(mine) == len(theirs)
        overwrite(store, one, theirs)
        falls_back(store, 0, 1, ranges=3)
        overwrite(store, one, mine)
    assert not load_all(store)[0].rejected


def test_manifests_in_each_others_place_are_seen(kind: str, tmp_path: Path) -> None:
    """An old manifest copied over a new one, two exchanged, or one of another run: none is used."""
    store = make_store(kind, tmp_path / "a")
    a_run(store, 2, keep=9)
    other = make_store(kind, tmp_path / "b")
    a_run(other, 2, keep=9)
    names = [manifest_name(at) for at in (0, 1, 2)]
    good = [store.read(name) for name in names]
    overwrite(store, names[2], good[1])
    assert "that of commit 1" in falls_back(store, 1, 2, ranges=2)
    overwrite(store, names[1], good[2])
    loaded, parts = load_all(store)
    assert parts == plain(numbers(0))
    assert [sequence for sequence, _ in loaded.rejected] == [2, 1]
    overwrite(store, names[1], good[1])
    overwrite(store, names[2], other.read(names[2]))
    assert "does not follow the existing commit 1" in falls_back(store, 1, 2, ranges=2)
    assert load_all(store, at=1)[1] == plain(numbers(1))


def test_where_the_mark_of_the_format_is_damaged_no_run_begins(kind: str, tmp_path: Path) -> None:
    """Some bits of FORMAT.json: what is loaded stays the same; a new run refuses to begin there."""
    store, _ = a_damaged_run(kind, tmp_path)
    good = store.read("FORMAT.json")
    for bit in range(0, 8 * len(good), 61):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        overwrite(store, "FORMAT.json", bytes(bad))
        assert load_all(store)[0].commit.sequence == 1
        with pytest.raises(OutputExistsError):
            Writer.begin(store, {}, numbers(0), restart=True)


def test_one_bad_reading_is_not_corruption(kind: str, tmp_path: Path) -> None:
    """A read that gives other bytes once, and the right ones then, loses no commit."""
    store, _ = a_damaged_run(kind, tmp_path)
    for name in objects(store).values():
        honest, lies = store.read, [name]

        def once(asked: str, most: int | None = None, honest=honest, lies=lies) -> bytes:
            data = honest(asked, most)
            return data[:-2] + b"??" if asked in lies and not lies.remove(asked) else data

        store.read = once
        assert load_all(store)[0].commit.sequence == 1
        assert not lies
        store.read = honest


def test_a_list_shows_what_verify_proves(kind: str, tmp_path: Path) -> None:
    """A flipped bit is found by ``deep`` only, a wrong size by both; each names the object."""
    store, _ = a_damaged_run(kind, tmp_path)
    for what, name in objects(store).items():
        good = store.read(name)
        if what == "document":
            store.delete(f"copies/{name}")
        overwrite(store, name, good[:-1] + bytes([good[-1] ^ 1]))
        [zero, one] = list_commits(store, deep=True)
        assert zero["ok"]
        assert not one["ok"]
        assert what == "manifest" or name.rpartition("/")[2] in one["problem"]
        assert list_commits(store)[1]["ok"] == (what != "manifest")
        overwrite(store, name, good[:-1])
        assert not list_commits(store, deep=True)[1]["ok"]
        assert list_commits(store)[1]["ok"] == (what == "document")
        overwrite(store, name, good)
        assert all(one["ok"] for one in list_commits(store, deep=True))


def test_damage_to_all_commits_is_an_error_that_tells_each(kind: str, tmp_path: Path) -> None:
    """Where no commit is whole nothing is loaded, and every reason is in the message."""
    store, _ = a_damaged_run(kind, tmp_path)
    for at in (0, 1):
        overwrite(store, manifest_name(at), b"{}\n")
    with pytest.raises(NoCommitError, match=r"(?s)commit 1: .*commit 0: ") as error:
        load_all(store)
    assert error.value.exit_code == 4


@pytest.mark.parametrize("which", ["", "copies/"])
def test_one_damaged_copy_of_a_document_rejects_no_commit(
    kind: str, which: str, tmp_path: Path
) -> None:
    """Every single flipped bit of either copy: the same commit is loaded, and verify names the
    object."""
    store, _ = a_damaged_run(kind, tmp_path)
    name = which + objects(store)["document"]
    good = store.read(name)
    for bit in range(8 * len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        overwrite(store, name, bytes(bad))
        loaded = load_all(store)[0]
        assert (loaded.commit.sequence, loaded.rejected) == (1, ())
    found = list_commits(store, deep=True)[1]
    assert found["ok"]
    assert found["problem"].startswith(f"{name} does not have the SHA-256")


@pytest.mark.parametrize("needs", [(), ("dataset",), ("names",), ("dataset", "names")])
def test_a_commit_needs_the_documents_that_are_asked_for(needs: tuple[str, ...]) -> None:
    """With the dataset corrupt in both copies a commit is whole for who needs only the names."""
    store = make_store("memory", Path())
    hashes = {kind: write_document(store, kind, SHARED) for kind in ("dataset", "names")}
    Writer.begin(store, {"rows": 0, **hashes}, numbers(0))
    for name in document_names("dataset", hashes["dataset"]):
        overwrite(store, name, b"{}")
    if "dataset" in needs:
        with pytest.raises(NoCommitError, match="does not have the SHA-256 in its name"):
            load(store, lambda commit: lambda part: None, needs=needs)
    else:
        assert not load(store, lambda commit: lambda part: None, needs=needs).rejected


def test_a_damaged_document_is_repaired_by_saving_it_again(kind: str, tmp_path: Path) -> None:
    """Its name is its hash: what it must be is known, so both copies are written again."""
    store = make_store(kind, tmp_path)
    sha256 = write_document(store, "dataset", SHARED)
    names = document_names("dataset", sha256)
    for bad in (b"", b"[]", store.read(names[0])[:-1]):
        for name in names:
            overwrite(store, name, bad)
        with pytest.raises(CorruptionError):
            read_document(store, "dataset", sha256)
        assert write_document(store, "dataset", SHARED) == sha256
        assert read_document(store, "dataset", sha256) == SHARED
