"""List and verify the commits of a checkpoint."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

from streamomd.checkpoint.commit_list import (
    check_parent,
    check_sizes,
    read_commit,
    read_parts,
    sequences,
)
from streamomd.checkpoint.commit_reader import require_commits
from streamomd.checkpoint.documents import damaged
from streamomd.checkpoint.manifest import Commit
from streamomd.checkpoint.stores.contract import Store, read_twice
from streamomd.checkpoint.stores.local import LocalStore
from streamomd.checkpoint.temporary import temporary_files
from streamomd.core.errors import CorruptionError, DivergedError
from streamomd.core.finite import NOT_FINITE, part_problem


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
