"""Checkpoints: JSON documents with numbered parts of arrays, committed in sequence.

This package is independent of the model. Layout of a checkpoint (no object name is reused):

    FORMAT.json                                        name and version of the format
    data/<sequence>-<writer>-<attempt>/p<lo>-<hi>.safetensors    a commit's parts, written first
    dataset/<sha256>.json, names/<sha256>.json         documents that several commits share
    segments/<sha256>.bin                              segments of the ledger of shards, shared too
    copies/…/<sha256>.…                                second copies of the shared documents
    restarts/<sequence>                         the first commit of a run that overwrote another
    commits/<sequence>.json                            a commit: written last, exactly once

In a store where each request waits for an answer, small shared documents are in the commits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from streamomd.checkpoint.commit_reader import (
    Loaded,
    check_parent,
    check_sizes,
    first_sequence_of_run,
    load,
    read_commit,
    read_part,
    read_parts,
    require_commits,
    sequences,
)
from streamomd.checkpoint.commit_writer import Writer, write_parts
from streamomd.checkpoint.documents import damaged, read_document, write_document, write_shared
from streamomd.checkpoint.ledger import (
    Difference,
    Ledger,
    compare,
    explain,
    list_ledger,
    read_ledger,
    read_newest_ledger,
)
from streamomd.checkpoint.manifest import Commit
from streamomd.checkpoint.parts import Part, PartEntry, StoredParts, parse_entry
from streamomd.checkpoint.segments import Facts
from streamomd.checkpoint.stores.contract import Store, open_store, read_twice
from streamomd.checkpoint.stores.local import LocalStore, temporary_files
from streamomd.core.errors import CorruptionError, DivergedError, UsageError
from streamomd.core.finite import NOT_FINITE, part_problem
from streamomd.core.urls import shown

__all__ = [
    "Commit",
    "Difference",
    "Ledger",
    "Loaded",
    "Part",
    "PartEntry",
    "Restored",
    "Store",
    "StoredParts",
    "Writer",
    "compare",
    "explain",
    "list_commits",
    "list_ledger",
    "list_temporary_files",
    "load",
    "open_store",
    "parse_entry",
    "read_commit",
    "read_document",
    "read_ledger",
    "read_newest_ledger",
    "read_part",
    "read_parts",
    "restore_commit",
    "write_document",
    "write_parts",
    "write_shared",
]


def list_commits(store: Store, *, deep: bool = False) -> list[dict[str, Any]]:
    """Every commit, oldest first, as dicts for JSON.

    Keys: sequence, run, kind, ok, problem, rows, epoch, update, parts, bytes, written.
    ``deep`` reads every byte and compares hashes; otherwise manifests and sizes are checked. It
    also checks every number: a commit that is not finite is not ok, and its problem begins with
    NOT_FINITE. A commit that is ok may have a problem: a damaged document whose other copy is
    intact.

    Raises NoCommitError if there is none (or a newer streamomd wrote one), StorageError.
    """
    listed = sequences(store)
    require_commits(store, listed)
    checked = [_check_row(store, sequence, deep=deep) for sequence in listed]
    rows = [row for row, _ in checked]
    missing = _missing([commit for _, commit in checked])
    return sorted([*rows, *missing], key=lambda commit_row: commit_row["sequence"])


def list_temporary_files(store: Store) -> list[str]:
    """Paths of temporary files, which belong to no commit; [] if the store is remote.

    A writer removes those of dead processes on its own host; a user must check those of others.
    """
    return temporary_files(store.url) if isinstance(store, LocalStore) else []


def _missing(commits: list[Commit | None]) -> Iterator[dict[str, Any]]:
    """The last missing sequence of each gap in an update.

    Retention leaves gaps between two updates, before a commit that restored the one before it, and
    after a commit that records the list of an update: it has the state of the update before, and
    stays with it.
    """
    ends: dict[str, int] = {}
    for commit in commits:
        if commit is not None:
            ends.setdefault(commit.directory, commit.update)
    for before, after in itertools.pairwise(commits):
        if before is None or after is None or after.parent == before.sequence:
            continue
        gap, same = after.sequence - 1, before.run == after.run and before.update == after.update
        if before.sequence != gap and same and ends[before.directory] == before.update:
            yield _row(gap, None, "its manifest is missing")


def _check_row(store: Store, sequence: int, *, deep: bool) -> tuple[dict[str, Any], Commit | None]:
    commit = None
    try:
        commit = read_commit(store, sequence)
        problems = _check(store, commit, deep=deep)
    except (CorruptionError, DivergedError) as error:
        return _row(sequence, commit, str(error)), commit
    return _row(sequence, commit, "; ".join(problems), ok=True), commit


def _row(sequence: int, commit: Commit | None, problem: str, *, ok: bool = False) -> dict[str, Any]:
    return {
        "sequence": sequence,
        "run": commit.run if commit else None,
        "kind": commit.kind if commit else None,
        "ok": ok,
        "problem": problem,
        "rows": commit.document.get("rows") if commit else None,
        "epoch": _epoch(commit) if commit else None,
        "update": commit.update if commit else None,
        "parts": len(commit.parts) if commit else None,
        "bytes": sum(entry.size for entry in commit.parts) if commit else None,
        "written": commit.written if commit else None,
    }


def _check(store: Store, commit: Commit, *, deep: bool) -> list[str]:
    """Harmless damage (one of two copies). Raises CorruptionError if the commit is not intact."""
    check_parent(store, commit)
    if not deep:
        check_sizes(store, commit)
        return []
    for low, _, arrays in read_parts(store, commit):
        if found := part_problem(low, arrays):
            raise DivergedError(f"{NOT_FINITE}{found}")
    problems: list[str] = []
    for kind, sha256 in commit.documents:
        problems += read_twice(partial(damaged, store, kind, sha256))
    return problems


def _epoch(commit: Commit) -> Any:
    cursor = commit.document.get("cursor")
    return cursor.get("epoch") if isinstance(cursor, dict) else commit.document.get("epoch")


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
