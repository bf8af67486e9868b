"""Commits of updates: which are retained, listed and restored, and the shards of each."""

from __future__ import annotations

from typing import Any

import pytest
from checkpoint_helpers import KINDS, DictStore, holds, load_all, make_store, numbers, plain

from streamomd.checkpoint import (
    Ledger,
    Store,
    Writer,
    list_commits,
    list_ledger,
    read_commit,
    read_ledger,
    restore_commit,
)
from streamomd.checkpoint.documents import document_names
from streamomd.checkpoint.manifest import manifest_name
from streamomd.core.errors import ConcurrentWriterError, NoCommitError, UsageError


class Run:
    """A run of updates; commit k holds ``numbers(k)``, and each update lists a shard."""

    def __init__(self, store: Store, *, keep: int = 2, keep_updates: int = 3) -> None:
        self.store, self.limits = store, {"keep": keep, "keep_updates": keep_updates}
        self.ledger = Ledger.from_fingerprints([{"url": "0", "rows": 10}])
        self.writer = Writer.begin(store, self.document(0, 0, 0), numbers(0), **self.limits)

    def document(self, at: int, update: int, finished: int) -> dict[str, Any]:
        named = {"update": {"number": update}} if update else {}
        return {
            **named,
            "rows": 10 * at,
            "finished": bool(finished),
            "finite": True,
            "segments": self.ledger.write(self.store),
        }

    def commit(self, update: int, *, finished: int = 1) -> int:
        at = self.writer.sequence + 1
        self.writer.commit(self.document(at, update, finished), numbers(at))
        return at

    def update(self, number: int, commits: int = 3) -> None:
        facts = {"url": f"{number}", "rows": number, "update": number}
        self.ledger.append([{**facts, "sequence": self.writer.sequence + 1}])
        for at in range(commits):
            self.commit(number, finished=at == commits - 1)

    def take_over(self) -> None:
        loaded, _ = load_all(self.store)
        self.writer = Writer.take_over(self.store, loaded, **self.limits)
        self.ledger = read_ledger(self.store, loaded.commit)


def sequences_of(store: Store) -> list[tuple[int, int]]:
    """Sequence and update of each commit; all are intact and none is missing."""
    rows = list_commits(store, deep=True)
    assert all(one["ok"] for one in rows), rows
    return [(one["sequence"], one["update"]) for one in rows]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keep_updates", [0, 1, 2, 3, 9])
@pytest.mark.parametrize("keep", [1, 2])
def test_the_last_commit_of_each_update_is_retained(
    keep: int, keep_updates: int, kind: str, tmp_path: Any
) -> None:
    """Of the last ``keep_updates`` ones, with the first run; others go as without updates."""
    store = make_store(kind, tmp_path)
    run = Run(store, keep=keep, keep_updates=keep_updates)
    run.commit(0)
    for number in range(1, 5):
        run.update(number)
    last = {1 + 3 * number: number for number in range(5)}  # of each update, by sequence
    newest = dict(list(last.items())[5 - min(5, keep_updates) :])
    by_count = {13 - at: 4 for at in range(keep)}
    assert dict(sequences_of(store)) == dict(sorted({**newest, **by_count}.items()))
    holds(store, 13)


def test_nothing_is_left_of_updates_that_go(tmp_path: Any) -> None:
    """Parts and segments that no retained commit names are deleted."""
    store = DictStore()
    run = Run(store, keep=1, keep_updates=2)
    for number in range(1, 30):
        run.update(number, 2)
    there = [read_commit(store, at) for at, _ in sequences_of(store)]
    assert len(there) == 2
    made = {manifest_name(one.sequence) for one in there}
    made |= {one.part_name(entry) for one in there for entry in one.parts}
    made |= {name for one in there for pair in one.documents for name in document_names(*pair)}
    assert set(store.objects) == made | {"FORMAT.json"}


def test_a_lost_manifest_is_reported(tmp_path: Any) -> None:
    """One inside an update, not those that retention left out between two."""
    store = DictStore()
    run = Run(store, keep=3, keep_updates=3)
    for number in range(1, 3):
        run.update(number)
    assert sequences_of(store) == [(0, 0), (3, 1), (4, 2), (5, 2), (6, 2)]
    del store.objects[manifest_name(5)]
    missing = [one for one in list_commits(store) if not one["ok"]]
    assert [(one["sequence"], one["problem"]) for one in missing] == [
        (5, "its manifest is missing")
    ]
    assert missing[0]["update"] is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_commit_is_restored(kind: str, tmp_path: Any) -> None:
    """Its document, parts and ledger are the newest; the run continues from them."""
    store = make_store(kind, tmp_path)
    run = Run(store)
    for number in range(1, 4):
        run.update(number)
    at = 6  # the last of update 2
    before = read_commit(store, at)
    parts = load_all(store, at)[1]
    found = restore_commit(store, at)
    assert (found.sequence, found.at, found.update, found.rows) == (10, 6, 2, 60)
    assert (found.undone_rows, found.undone_updates, found.undone_shards) == (30, (3,), ("3",))
    loaded, now = load_all(store)
    assert loaded.commit.sequence == 10
    assert dict(loaded.commit.document) == dict(before.document)
    assert now == parts == plain(numbers(6))
    assert [one["url"] for one in read_ledger(store, loaded.commit).shards] == ["0", "1", "2"]
    assert [one for one, _ in sequences_of(store)] == [3, 6, 8, 9, 10]

    with pytest.raises(ConcurrentWriterError):
        run.commit(3)
    run.take_over()
    run.update(3)
    assert [one["url"] for one in run.ledger.shards] == ["0", "1", "2", "3"]
    holds(store, 14)


def test_a_restore_is_undone() -> None:
    """The commits after the restored one stay as long as retention says, and can be restored."""
    store = DictStore()
    run = Run(store)
    for number in range(1, 4):
        run.update(number)
    restore_commit(store, 6)
    found = restore_commit(store, 9)
    assert (found.undone_rows, found.undone_updates, found.undone_shards) == (-30, (), ())
    loaded, parts = load_all(store)
    assert (loaded.commit.sequence, parts) == (11, plain(numbers(9)))
    run.take_over()
    run.update(4)
    assert [update for _, update in sequences_of(store)][-3:] == [3, 4, 4]
    holds(store, 15)


def test_restored_updates_count_again() -> None:
    """Retention counts an update that was restored as one more: the undone one before it goes when
    its turn comes, and until then it stays."""
    store = DictStore()
    run = Run(store, keep=1, keep_updates=3)
    for number in range(1, 3):
        run.update(number, 1)
    restore_commit(store, 1)  # the commits now: 0, 1, 2 and 3, which repeats 1
    run.take_over()
    run.update(2, 1)
    assert sequences_of(store) == [(1, 1), (2, 2), (3, 1), (4, 1), (5, 2)]
    run.update(3, 1)
    assert sequences_of(store) == [(1, 1), (3, 1), (4, 1), (5, 2), (6, 3)]
    run.update(4, 1)
    assert sequences_of(store) == [(5, 2), (6, 3), (7, 4)]


def test_a_commit_within_an_update() -> None:
    """The rest of its update is undone; the same commit again undoes nothing."""
    store = DictStore()
    run = Run(store, keep=9)
    run.update(1)
    found = restore_commit(store, 2)
    assert (found.undone_rows, found.undone_updates, found.undone_shards) == (10, (1,), ())
    found = restore_commit(store, 2)
    assert (found.undone_rows, found.undone_updates, found.undone_shards) == (0, (), ())


def test_what_cannot_be_restored() -> None:
    """A commit that is not there, is damaged, or is of a run that was overwritten; nothing is
    written then."""
    store = DictStore()
    run = Run(store, keep=9)
    run.update(1)
    with pytest.raises(NoCommitError, match="no commit 7"):
        restore_commit(store, 7)
    name = max(one for one in store.objects if one.startswith("data/000000000002"))
    store.objects[name] = store.objects[name][:-1] + b"?"
    with pytest.raises(NoCommitError, match="SHA-256"):
        restore_commit(store, 2)
    Writer.begin(store, {"rows": 0}, numbers(0), restart=True)
    before = dict(store.objects)
    with pytest.raises(UsageError, match="commit 3 of dict is of an earlier run"):
        restore_commit(store, 3)
    assert store.objects == before


def test_the_newest_commit_need_not_be_readable() -> None:
    """What it undid is not known then."""
    store = DictStore()
    run = Run(store, keep=9)
    run.update(1)
    store.objects[manifest_name(3)] = b"damaged"
    found = restore_commit(store, 2)
    assert (found.sequence, found.undone_rows, found.undone_shards) == (4, None, None)
    holds(store, 2)


def test_the_ledger_is_listed() -> None:
    """Shards in learned order with update and first commit; skipped ones separately, unless they
    were learned later."""
    store = DictStore()
    run = Run(store)
    run.update(1)
    place = {"update": 2, "sequence": 4}
    run.ledger.append([{"url": name, "skipped": f"{name} is bad", **place} for name in "xy"])
    run.ledger.append([{"url": "x", "rows": 5, "update": 3, "sequence": 5}])
    run.commit(3)
    found = list_ledger(store)
    assert found == {
        "shards": [
            {"url": "0", "rows": 10, "update": 0, "sequence": 0},
            {"url": "1", "rows": 1, "update": 1, "sequence": 1},
            {"url": "x", "rows": 5, "update": 3, "sequence": 5},
        ],
        "skipped": [{"url": "y", "reason": "y is bad", **place}],
    }
    store.objects[manifest_name(4)] = b"damaged"
    assert [one["url"] for one in list_ledger(store)["shards"]] == ["0", "1"]
    Writer.begin(store, {"rows": 0, "segments": []}, numbers(0), restart=True)
    assert list_ledger(store) == {"shards": [], "skipped": []}
    store.objects[manifest_name(5)] = b"damaged"
    with pytest.raises(NoCommitError, match="no usable ledger"):
        list_ledger(store)


@pytest.mark.parametrize("record", [None, 5, [], {"number": "7"}, {"number": True}, {}])
def test_a_strange_record_is_the_first_run(record: Any) -> None:
    """A manifest whose update has no number is listed as one without."""
    store = DictStore()
    Writer.begin(store, {"rows": 0, "update": record}, numbers(0))
    assert [one["update"] for one in list_commits(store)] == [0]
