"""Retention: which commits are deleted, and in what order.

Delete manifests of this run, oldest first, then the parts and shared documents that no manifest
names any more. Objects that no manifest of this run names are never touched.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from streamomd.checkpoint.commit_reader import read_commit, sequences
from streamomd.checkpoint.documents import document_names
from streamomd.checkpoint.manifest import Commit, manifest_name
from streamomd.checkpoint.stores.contract import Store
from streamomd.checkpoint.transfers import in_flight
from streamomd.core.errors import CorruptionError, UsageError


@dataclass(eq=False)
class Retention:
    """Retains the last ``keep`` commits with their own parts, the commits after them, the last
    commit marked finite, however many follow it, the one before a pass that may be undone, and the
    last of each of ``keep_updates`` updates.
    """

    store: Store
    keep: int
    keep_updates: int = 0
    _known: dict[int, Commit | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise UsageError(f"checkpoint.keep is at least 1, not {self.keep}")

    def apply(self, newest: Commit) -> None:
        """Delete commits superseded by ``newest``, which was read back. Raises StorageError."""
        self._known[newest.sequence] = newest
        found = sequences(self.store)
        if found[-1:] != [newest.sequence]:
            # Another writer has taken over and owns the retention now.
            return
        there = {number: commit for number in found if (commit := self._commit(number))}
        for commit in self._superseded(there.values(), newest):
            self.store.delete(manifest_name(commit.sequence))
            del there[commit.sequence], self._known[commit.sequence]  # a run may make millions
            used = {name for other in there.values() for name in _objects(other)}
            delete_all(self.store, [name for name in _objects(commit) if name not in used])

    def _superseded(self, commits: Iterable[Commit], newest: Commit) -> list[Commit]:
        """Oldest first."""
        directories: set[str] = set()
        old = []
        own = sorted((c for c in commits if c.run == newest.run), key=lambda c: -c.sequence)
        retained = {c.directory for c in _last_of_updates(own)[: self.keep_updates]}
        finite = (c.directory for c in own if c.document.get("finite") is True)
        retained |= set(itertools.islice(finite, 1))
        retained |= {c.directory for c in own if c.sequence == newest.before_pass}
        for commit in own:
            # Directories are counted over all newer commits, so the retained ones have no gap,
            # except before commits that are not finite, and between updates.
            directories.add(commit.directory)
            if len(directories) > self.keep and commit.directory not in retained:
                old.append(commit)
        return old[::-1]

    def _commit(self, sequence: int) -> Commit | None:
        """None if it cannot be read: its parts are unknown, so it stays."""
        if sequence not in self._known:
            try:
                self._known[sequence] = read_commit(self.store, sequence)
            except CorruptionError:
                self._known[sequence] = None
        return self._known[sequence]


def delete_all(store: Store, names: Iterable[str]) -> None:
    """Delete objects, several at a time."""
    for _ in in_flight(store.delete, names, store.in_flight, lambda _: 0):
        pass


def _last_of_updates(commits: Sequence[Commit]) -> list[Commit]:
    """The last commit of each update, of commits from newest to oldest.

    A restored update counts again, so that those it undid can be restored in turn.
    """
    after = [None, *(commit.update for commit in commits)]
    return [
        commit for commit, number in zip(commits, after, strict=False) if commit.update != number
    ]


def _objects(commit: Commit) -> Iterator[str]:
    for entry in commit.parts:
        yield commit.part_name(entry)
    for kind, sha256 in commit.documents:
        yield from document_names(kind, sha256)
