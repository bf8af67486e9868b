"""What a checkpoint holds, commit by commit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

from streamomd.checkpoint.chain import check_parent, check_size, read_commit, read_part, sequences
from streamomd.checkpoint.documents import verified
from streamomd.checkpoint.manifest import Commit
from streamomd.checkpoint.reader import refuse_none
from streamomd.checkpoint.store import Store, confirmed
from streamomd.errors import CorruptionError


def commits(store: Store, *, deep: bool = False) -> list[dict[str, Any]]:
    """Every commit, oldest first, as dicts for JSON.

    Keys: sequence, run, kind, ok, problem, rows, epoch, parts, bytes, written.
    ``deep`` reads every byte and compares it with its hash; else manifests and sizes are enough.

    Raises NoCommitError if there is none (or one of a newer streamomd), StorageError.
    """
    found = sequences(store)
    refuse_none(store, found)
    told = [_told(store, sequence, deep=deep) for sequence in found]
    return sorted([*told, *_missing(told)], key=lambda one: one["sequence"])


def _missing(told: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The last one of each gap in a run: retention leaves none."""
    for before, after in itertools.pairwise(told):
        gap = after["sequence"] - 1
        if before["sequence"] != gap and before["run"] == after["run"] is not None:
            yield _row(gap, None, "its manifest is missing")


def _told(store: Store, sequence: int, *, deep: bool) -> dict[str, Any]:
    commit, problem = None, ""
    try:
        commit = read_commit(store, sequence)
        _check(store, commit, deep=deep)
    except CorruptionError as error:
        problem = str(error)
    return _row(sequence, commit, problem)


def _row(sequence: int, commit: Commit | None, problem: str) -> dict[str, Any]:
    return {
        "sequence": sequence,
        "run": commit.run if commit else None,
        "kind": commit.kind if commit else None,
        "ok": not problem,
        "problem": problem,
        "rows": commit.document.get("rows") if commit else None,
        "epoch": _epoch(commit) if commit else None,
        "parts": len(commit.parts) if commit else None,
        "bytes": sum(entry.size for entry in commit.parts) if commit else None,
        "written": commit.written if commit else None,
    }


def _check(store: Store, commit: Commit, *, deep: bool) -> None:
    check_parent(store, commit)
    for entry in commit.parts:
        if deep:
            read_part(store, commit, entry)
        else:
            check_size(store, commit, entry)
    for kind, sha256 in commit.documents.items() if deep else ():
        confirmed(partial(verified, store, kind, sha256))


def _epoch(commit: Commit) -> Any:
    cursor = commit.document.get("cursor")
    return cursor.get("epoch") if isinstance(cursor, dict) else commit.document.get("epoch")
