"""Loading: the newest commit that is whole, and why newer ones were not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial

from streamomd.checkpoint.commit_list import (
    begun_at,
    check_format,
    check_parent,
    check_size,
    read_commit,
    read_part,
    sequences,
)
from streamomd.checkpoint.documents import verified
from streamomd.checkpoint.manifest import KINDS, Commit
from streamomd.checkpoint.parts import Part
from streamomd.checkpoint.stores.contract import Store, confirmed
from streamomd.core.errors import CorruptionError, NoCommitError
from streamomd.core.urls import shown

Receive = Callable[[Commit], Callable[[Part], None]]


@dataclass(frozen=True)
class Loaded:
    """commit: the one that was read. rejected: (sequence, reason) of newer ones, newest first.
    newest: the highest sequence there was."""

    commit: Commit
    rejected: tuple[tuple[int, str], ...]
    newest: int


def load(
    store: Store, receive: Receive, *, at: int | None = None, needs: Collection[str] = KINDS
) -> Loaded:
    """Hand the newest commit that is whole, or commit ``at``, to a receiver, part by part.

    ``receive(commit)`` is called when every part is there with the size that the manifest says; it
    compares the manifest with what it expects before it allocates, and gives what takes the parts,
    each proven by its SHA-256. Where a later part proves corrupt, ``receive`` is called again with
    an older commit: it must begin afresh. Only proven corruption leads to an older commit, and only
    to one of the same run. needs: the kinds of shared documents without which a commit is not
    whole.

    Raises NoCommitError (none there, or none whole, or of a newer streamomd), StorageError.
    """
    check_format(store)
    found = sequences(store)
    refuse_none(store, found)
    while True:
        try:
            return _load(store, receive, found, at, needs)
        except NoCommitError:
            before, found = found[-1], sequences(store)
            # A run that goes on retires what is being read here: then there is newer to read.
            if at is not None or not found or found[-1] <= before:
                raise


def _load(
    store: Store, receive: Receive, found: list[int], at: int | None, needs: Collection[str]
) -> Loaded:
    rejected: list[tuple[int, str]] = []
    begun = 0 if at is not None else begun_at(store, found[-1])
    for sequence in _candidates(store, found, at):
        try:
            if sequence < begun:
                raise CorruptionError("it is of an earlier run, before a restart")
            commit = read_commit(store, sequence)
            _check_there(store, commit, needs)
            take = receive(commit)
            for entry in commit.parts:
                take(read_part(store, commit, entry))
        except CorruptionError as error:
            rejected.append((sequence, str(error)))
        else:
            return Loaded(commit, tuple(rejected), found[-1])
    reasons = "; ".join(f"commit {sequence}: {reason}" for sequence, reason in rejected[:10])
    raise NoCommitError(f"no usable commit in {shown(store.url)}: {reasons}")


def _candidates(store: Store, found: list[int], at: int | None) -> Iterator[int]:
    """Newest to oldest; one missing between two others is tried too, so that it is told."""
    if at is not None:
        if at not in found:
            there = f"{found[0]} to {found[-1]}"
            raise NoCommitError(f"no commit {at} in {shown(store.url)}: there are {there}")
        yield at
        return
    for place in range(len(found) - 1, -1, -1):
        yield found[place]
        if place and found[place - 1] != found[place] - 1:
            yield found[place] - 1


def refuse_none(store: Store, found: list[int]) -> None:
    """Raises NoCommitError if nothing was ever committed."""
    if not found:
        raise NoCommitError(
            f"no commit in {shown(store.url)}: nothing was kept there (is the URL right?)"
        )


def _check_there(store: Store, commit: Commit, needs: Collection[str]) -> None:
    """Raises CorruptionError unless all that a commit names is there."""
    check_parent(store, commit)
    for kind, sha256 in commit.documents:
        if kind in needs:
            confirmed(partial(verified, store, kind, sha256))
    for entry in commit.parts:
        confirmed(partial(check_size, store, commit, entry))
