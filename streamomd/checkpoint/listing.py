"""What a checkpoint holds, commit by commit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

from streamomd.checkpoint.commit_list import (
    check_parent,
    check_size,
    read_commit,
    read_part,
    sequences,
)
from streamomd.checkpoint.commit_reader import refuse_none
from streamomd.checkpoint.documents import damaged
from streamomd.checkpoint.manifest import Commit
from streamomd.checkpoint.stores.contract import Store, confirmed
from streamomd.checkpoint.stores.local import LocalStore
from streamomd.checkpoint.temporary import temporary_files
from streamomd.core.errors import CorruptionError, DivergedError
from streamomd.core.finite import NOT_FINITE, part_problem


def commits(store: Store, *, deep: bool = False) -> list[dict[str, Any]]:
    """Every commit, oldest first, as dicts for JSON.

    Keys: sequence, run, kind, ok, problem, rows, epoch, parts, bytes, written.
    ``deep`` reads every byte and compares it with its hash; else manifests and sizes are enough. It
    also looks at every number: a commit that is not finite is not ok, its problem begins with
    NOT_FINITE. A commit that is ok may have a problem: a damaged document whose other copy is
    whole.

    Raises NoCommitError if there is none (or one of a newer streamomd), StorageError.
    """
    found = sequences(store)
    refuse_none(store, found)
    told = [_told(store, sequence, deep=deep) for sequence in found]
    return sorted([*told, *_missing(told)], key=lambda one: one["sequence"])


def left_temporary(store: Store) -> list[str]:
    """Paths of temporary files, which belong to no commit; [] where the store is remote.

    A writer removes those of dead processes of its own host; of others only a person can know.
    """
    return temporary_files(store.url) if isinstance(store, LocalStore) else []


def _missing(told: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The last one of each gap in a run: retention leaves none."""
    for before, after in itertools.pairwise(told):
        gap = after["sequence"] - 1
        if before["sequence"] != gap and before["run"] == after["run"] is not None:
            yield _row(gap, None, "its manifest is missing")


def _told(store: Store, sequence: int, *, deep: bool) -> dict[str, Any]:
    commit = None
    try:
        commit = read_commit(store, sequence)
        problems = _check(store, commit, deep=deep)
    except (CorruptionError, DivergedError) as error:
        return _row(sequence, commit, str(error))
    return _row(sequence, commit, "; ".join(problems), ok=True)


def _row(sequence: int, commit: Commit | None, problem: str, *, ok: bool = False) -> dict[str, Any]:
    return {
        "sequence": sequence,
        "run": commit.run if commit else None,
        "kind": commit.kind if commit else None,
        "ok": ok,
        "problem": problem,
        "rows": commit.document.get("rows") if commit else None,
        "epoch": _epoch(commit) if commit else None,
        "parts": len(commit.parts) if commit else None,
        "bytes": sum(entry.size for entry in commit.parts) if commit else None,
        "written": commit.written if commit else None,
    }


def _check(store: Store, commit: Commit, *, deep: bool) -> list[str]:
    """What is damaged and does no harm. Raises CorruptionError if the commit is not whole."""
    check_parent(store, commit)
    for entry in commit.parts:
        if deep:
            low, _, arrays = read_part(store, commit, entry)
            if found := part_problem(low, arrays):
                raise DivergedError(f"{NOT_FINITE}{found}")
        else:
            check_size(store, commit, entry)
    problems: list[str] = []
    for kind, sha256 in commit.documents if deep else ():
        problems += confirmed(partial(damaged, store, kind, sha256))
    return problems


def _epoch(commit: Commit) -> Any:
    cursor = commit.document.get("cursor")
    return cursor.get("epoch") if isinstance(cursor, dict) else commit.document.get("epoch")
