"""Restore: make an earlier commit the newest, with its ledger; undo what was learned since."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from streamomd.checkpoint.commit_list import first_sequence_of_run, read_commit
from streamomd.checkpoint.commit_reader import load
from streamomd.checkpoint.commit_writer import Writer
from streamomd.checkpoint.ledger import read_ledger
from streamomd.checkpoint.manifest import Commit
from streamomd.checkpoint.parts import Part
from streamomd.checkpoint.segments import Facts
from streamomd.checkpoint.stores.contract import Store
from streamomd.core.errors import CorruptionError, UsageError
from streamomd.core.urls import shown


class Restored(NamedTuple):
    """A commit that repeats an earlier one.

    undone_rows, undone_updates, undone_shards: rows, numbers of updates and URLs of shards that the
    newest commit has and this one has not; None if the newest commit cannot be read. Rows are
    negative where a commit is restored that has more, as one that was undone before.
    """

    sequence: int
    at: int
    rows: int
    update: int
    undone_rows: int | None
    undone_updates: tuple[int, ...] | None
    undone_shards: tuple[str, ...] | None

    def to_json(self) -> dict[str, Any]:
        """For a command's result."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in self._asdict().items()
        }


def restore_commit(store: Store, at: int) -> Restored:
    """Repeat commit ``at`` as the newest: its document, its parts and its ledger.

    Every byte of it is verified first. Other writers of the run stop at their next commit. The
    commits after it stay until retention deletes them, so they can be restored too.

    Raises NoCommitError if there is no such commit or it is not intact, UsageError for one of a run
    that was overwritten, ConcurrentWriterError if another process commits meanwhile, StorageError.
    """
    loaded = load(store, _ignore, at=at)
    commit = loaded.commit
    first = first_sequence_of_run(store, loaded.newest)
    if at < first:
        raise UsageError(
            f"commit {at} of {shown(store.url)} is of an earlier run, which train --restart "
            f"overwrote at commit {first}: continue from it in another checkpoint"
        )
    undone = _undone(store, commit, loaded.newest)
    writer = Writer.take_over(store, loaded)
    rows = int(commit.document.get("rows") or 0)
    return Restored(writer.sequence, at, rows, commit.update, *undone)


def _ignore(_: Commit) -> Callable[[Part], None]:
    return lambda _: None


def _undone(
    store: Store, commit: Commit, newest: int
) -> tuple[int | None, tuple[int, ...] | None, tuple[str, ...] | None]:
    try:
        last = read_commit(store, newest)
        known = {one["url"] for one in _learned(store, commit)}
        urls = [str(one["url"]) for one in _learned(store, last) if one["url"] not in known]
    except CorruptionError:
        return None, None, None
    rows = int(last.document.get("rows") or 0) - int(commit.document.get("rows") or 0)
    # Of an update that is not finished at the commit, the rest is undone.
    first = commit.update + bool(commit.document.get("finished"))
    return rows, tuple(range(first, last.update + 1)) if rows > 0 else (), tuple(urls)


def _learned(store: Store, commit: Commit) -> list[Facts]:
    return [one for one in read_ledger(store, commit).shards if "skipped" not in one]
