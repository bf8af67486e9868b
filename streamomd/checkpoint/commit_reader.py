"""Loading: the newest intact commit, and why newer ones were rejected."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import NamedTuple

from streamomd.checkpoint.commit_list import (
    check_format,
    check_parent,
    check_sizes,
    first_sequence_of_run,
    read_commit,
    read_parts,
    sequences,
)
from streamomd.checkpoint.documents import read_verified
from streamomd.checkpoint.manifest import KINDS, Commit
from streamomd.checkpoint.no_commit import instead_of_commits
from streamomd.checkpoint.parts import Part
from streamomd.checkpoint.stores.contract import Store, read_twice
from streamomd.core.errors import CorruptionError, NoCommitError
from streamomd.core.urls import shown

Receiver = Callable[[Commit], Callable[[Part], None]]


class Loaded(NamedTuple):
    """commit: the one read. rejected: (sequence, reason) of newer ones, newest first.
    newest: the highest sequence in the store."""

    commit: Commit
    rejected: tuple[tuple[int, str], ...]
    newest: int


def load(
    store: Store, receive: Receiver, *, at: int | None = None, needs: Collection[str] = KINDS
) -> Loaded:
    """Pass the newest intact commit, or commit ``at``, to a receiver, part by part.

    ``receive(commit)`` is called when every part exists with the size in the manifest; it compares
    the manifest with what it expects before it allocates, and returns a function that takes the
    parts, each verified by SHA-256. If a later part is corrupt, ``receive`` is called again with an
    older commit and must start from scratch. Only proven corruption leads to an older commit, and
    only to one of the same run. needs: kinds of shared documents that an intact commit must have.

    Raises NoCommitError (none, none intact, or written by a newer streamomd), StorageError.
    """
    check_format(store)
    listed = sequences(store)
    require_commits(store, listed)
    while True:
        try:
            return _load(store, receive, listed, at, needs)
        except NoCommitError:
            before, listed = listed[-1], sequences(store)
            # A running writer deletes old commits while they are read here: then a newer one
            # exists.
            if at is not None or not listed or listed[-1] <= before:
                raise


def _load(
    store: Store, receive: Receiver, found: list[int], at: int | None, needs: Collection[str]
) -> Loaded:
    rejected: list[tuple[int, str]] = []
    first = 0 if at is not None else first_sequence_of_run(store, found[-1])
    for sequence in _candidates(store, found, at):
        try:
            if sequence < first:
                raise CorruptionError("it is of an earlier run, before a restart")
            commit = read_commit(store, sequence)
            _check_complete(store, commit, needs)
            receive_part = receive(commit)
            for part in read_parts(store, commit):
                receive_part(part)
        except CorruptionError as error:
            rejected.append((sequence, str(error)))
        else:
            return Loaded(commit, tuple(rejected), found[-1])
    reasons = "; ".join(f"commit {sequence}: {reason}" for sequence, reason in rejected[:10])
    raise NoCommitError(f"no usable commit in {shown(store.url)}: {reasons}")


def _candidates(store: Store, found: list[int], at: int | None) -> Iterator[int]:
    """Newest to oldest; a gap between two commits is tried too, so that it is reported."""
    if at is not None:
        if at not in found:
            existing = f"{found[0]} to {found[-1]}"
            raise NoCommitError(f"no commit {at} in {shown(store.url)}: there are {existing}")
        yield at
        return
    for place in range(len(found) - 1, -1, -1):
        yield found[place]
        if place and found[place - 1] != found[place] - 1:
            yield found[place] - 1


def require_commits(store: Store, found: list[int]) -> None:
    """Raises NoCommitError if nothing was ever committed."""
    if not found:
        raise NoCommitError(f"no commit in {shown(store.url)}: {instead_of_commits(store.url)}")


def _check_complete(store: Store, commit: Commit, needs: Collection[str]) -> None:
    """Raises CorruptionError unless everything that a commit names exists."""
    check_parent(store, commit)
    for kind, sha256 in commit.documents:
        if kind in needs:
            read_twice(partial(read_verified, store, kind, sha256))
    check_sizes(store, commit)
