"""One writer at a time, and commits that are made exactly once whatever the store answers."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from checkpoint_helpers import (
    KINDS,
    DictStore,
    a_run,
    begin,
    holds,
    load_all,
    make_store,
    numbers,
)

from streamomd.checkpoint import Writer, list_commits, write_document
from streamomd.checkpoint.manifest import manifest_name
from streamomd.core.errors import ConcurrentWriterError, StorageError


@pytest.mark.parametrize("kind", KINDS)
def test_the_later_writer_wins(kind: str, tmp_path: Path) -> None:
    """Resuming stops the older writer at its next commit, and names who took over."""
    store = make_store(kind, tmp_path)
    old = a_run(store, 1)
    new = Writer.take_over(store, load_all(store)[0])
    for _ in range(2):
        with pytest.raises(ConcurrentWriterError, match=r"pid \d+, started .* at commit 2") as told:
            old.commit({"rows": 99}, numbers(99))
        assert told.value.exit_code == 5
    new.commit({"rows": 20}, numbers(2))
    holds(store, 2)
    assert all(one["ok"] for one in list_commits(store, deep=True))


def test_a_commit_after_loading_is_not_lost() -> None:
    """Who loaded before another commit was made cannot take over past it."""
    store = DictStore()
    old = a_run(store, 1)
    loaded, _ = load_all(store)
    old.commit({"rows": 20}, numbers(2))
    with pytest.raises(ConcurrentWriterError):
        Writer.take_over(store, loaded)
    holds(store, 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("later", [2, 3])
def test_a_number_that_was_deleted_is_not_made_again(kind: str, later: int, tmp_path: Path) -> None:
    """A paused writer whose next number another has made and deleted is stopped all the same."""
    store = make_store(kind, tmp_path)
    old = a_run(store, 1, keep=1)
    new = Writer.take_over(store, load_all(store)[0], keep=1)
    for at in range(2, 2 + later):
        new.commit({"rows": 10 * at}, numbers(at))
    assert store.size(manifest_name(2)) is None
    with pytest.raises(ConcurrentWriterError, match=f"at commit {2 + later}"):
        old.commit({"rows": 99}, numbers(99))
    holds(store, 1 + later)
    new.commit({"rows": 70}, numbers(7))
    holds(store, 7)
    assert [one["rows"] for one in list_commits(store, deep=True)] == [70]


def test_a_commit_that_was_resumed_at_once_stands() -> None:
    """A writer paused right after its manifest, and overtaken from it, harms nobody and is done."""
    store = DictStore()
    old = a_run(store, 1, keep=1)
    others: list[Writer] = []

    def resume(deed: str, name: str) -> None:
        if name == manifest_name(2) and not others:
            others.append(Writer.take_over(store, load_all(store)[0], keep=1))

    store.after = resume
    assert old.commit({"rows": 20}, numbers(2)).sequence == 2
    holds(store, 2)
    assert all(one["ok"] for one in list_commits(store, deep=True) if one["sequence"] > 1)
    with pytest.raises(ConcurrentWriterError):
        old.commit({"rows": 30}, numbers(3))
    others[0].commit({"rows": 40}, numbers(4))
    holds(store, 4)


@pytest.mark.parametrize("round_", range(5))
def test_of_many_at_once_one_begins(round_: int, tmp_path: Path) -> None:
    """Of eight threads that begin on one disk at once, one does and seven are refused."""
    results: list[Any] = []
    gate = threading.Barrier(8)

    def start(at: int) -> None:
        store = make_store("local", tmp_path)
        gate.wait()
        try:
            results.append(Writer.begin(store, {"rows": 10 * at}, numbers(at)) and at)
        except (ConcurrentWriterError, FileExistsError) as error:
            results.append(error)

    threads = [threading.Thread(target=start, args=(at,)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [one for one in results if isinstance(one, int)]
    assert len(results) == 8
    holds(make_store("local", tmp_path), winner)


def raising(error: Exception, deed: str, name: str, times: int = 1) -> Any:
    """A fault of a ``DictStore``, a number of times."""
    left = [times]

    def fault(what: str, which: str) -> None:
        if (what, which) == (deed, name) and left[0]:
            left[0] -= 1
            raise error

    return fault


@pytest.mark.parametrize("error", [StorageError("500"), FileExistsError("412")])
def test_a_lost_reply_is_a_commit(error: Exception) -> None:
    """A manifest that was written, though the store says it was not, is read back and counts."""
    store = DictStore()
    writer = begin(store)
    store.after = raising(error, "create", manifest_name(1))
    assert writer.commit({"rows": 10}, numbers(1)).sequence == 1
    assert writer.commit({"rows": 20}, numbers(2)).sequence == 2
    holds(store, 2)


@pytest.mark.parametrize("error", [StorageError("500"), FileExistsError("412")])
def test_a_refused_manifest_is_tried_again(error: Exception) -> None:
    """A manifest that is not there after an error is written again at the same number."""
    store = DictStore()
    writer = begin(store)
    store.before = raising(error, "create", manifest_name(1), times=2)
    assert writer.commit({"rows": 10}, numbers(1)).sequence == 1
    holds(store, 1)


def test_a_store_that_stays_down_loses_nothing() -> None:
    """After StorageError the last commit stands, the writer goes on later, no litter stays."""
    store = DictStore()
    writer = begin(store)
    store.before = raising(StorageError("500"), "create", manifest_name(1), times=99)
    with pytest.raises(StorageError, match="commit 1 of dict failed: 500"):
        writer.commit({"rows": 10}, numbers(1))
    holds(store, 0)
    store.before = lambda deed, name: None
    writer.commit({"rows": 20}, numbers(2))
    assert holds(store, 2).commit.sequence == 1
    assert len([name for name in store.objects if name.startswith("data/")]) == 4


def test_an_attempt_that_landed_late_is_followed() -> None:
    """A manifest that was made while its outcome could not be read is found by the next commit."""
    store = DictStore()
    writer = begin(store)

    def goes_down(deed: str, name: str) -> None:
        store.before = raising(StorageError("down"), "size", manifest_name(1))
        raise StorageError("down")

    store.after = lambda deed, name: goes_down(deed, name) if deed == "create" else None
    with pytest.raises(StorageError):
        writer.commit({"rows": 10}, numbers(1))
    store.before = store.after = lambda deed, name: None
    holds(store, 1)
    assert writer.commit({"rows": 20}, numbers(2)).sequence == 2
    holds(store, 2)
    assert [one["ok"] for one in list_commits(store, deep=True)] == [True, True, True]


def test_a_part_that_is_not_whole_is_not_committed() -> None:
    """A part of another size than was written stops the commit."""
    store = DictStore()
    writer = begin(store)

    def shorten(deed: str, name: str) -> None:
        store.objects[name] = store.objects[name][:-1]

    store.after = shorten
    with pytest.raises(StorageError, match="was not written completely"):
        writer.commit({"rows": 10}, numbers(1))
    store.after = lambda deed, name: None
    holds(store, 0)


def test_a_document_that_is_not_whole_is_told() -> None:
    """A shared document of another size than was written is an error before a commit needs it."""
    store = DictStore()

    def shorten(deed: str, name: str) -> None:
        store.objects[name] = store.objects[name][:-1]

    store.after = shorten
    with pytest.raises(StorageError, match=r"names/.* was not written completely"):
        write_document(store, "names", {"1": ["a name"]})


def test_every_fault_of_a_commit_leaves_old_or_new() -> None:
    """An error before or after any operation of a commit leaves the old commit or the new one."""
    for place in ("before", "after"):
        for fails_at in range(30):
            store = DictStore()
            writer = begin(store, keep=1)
            left = [fails_at]

            def fault(deed: str, name: str, left: list[int] = left) -> None:
                left[0] -= 1
                if left[0] < 0:
                    raise StorageError("power failure")

            setattr(store, place, fault)
            try:
                made = writer.commit({"rows": 10}, numbers(1)).sequence
            except StorageError:
                made = -1
            store.before = store.after = lambda deed, name: None
            there = load_all(store)[0].commit.sequence
            holds(store, there)
            assert made in (-1, there)
        assert made == 1
