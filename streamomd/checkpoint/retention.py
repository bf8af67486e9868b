"""Retention: which commits are deleted, and in what order.

Delete manifests of this run, oldest first, then the parts and shared documents that no manifest
names any more. Objects that no manifest of this run names are never touched.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from streamomd.checkpoint.commit_reader import read_commit, sequences
from streamomd.checkpoint.manifest import Brief, Commit, manifest_name
from streamomd.checkpoint.stores.contract import Store, in_flight
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
    known: dict[int, Brief | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise UsageError(f"checkpoint.keep is at least 1, not {self.keep}")

    def apply(self, newest: Commit, found: Sequence[int] | None = None) -> None:
        """Delete commits superseded by ``newest``, which was read back. Raises StorageError.

        found: the sequences that the store lists after it, if they are known.
        """
        self.known[newest.sequence] = Brief.of(newest)
        found = sequences(self.store) if found is None else found
        if found[-1:] != [newest.sequence]:
            # Another writer has taken over and owns the retention now.
            return
        there = {number: commit for number in found if (commit := self._commit(number))}
        old = self._superseded(there.values(), newest)
        if self.store.consistent:
            # In one request: a manifest that outlives its parts is deleted with the next commit.
            names = [manifest_name(commit.sequence) for commit in old]
            self.store.delete_all([*names, *self._drop(there, old)])
            return
        for commit in old:
            self.store.delete(manifest_name(commit.sequence))
            delete_all(self.store, self._drop(there, [commit]))

    def earlier(self) -> list[Brief]:
        """The commits that exist, as far as they are known, for the next manifest."""
        return [brief for _, brief in sorted(self.known.items()) if brief is not None]

    def _drop(self, there: dict[int, Brief], old: Sequence[Brief]) -> list[str]:
        """Forget commits, and return the objects that no other names."""
        for commit in old:
            del there[commit.sequence], self.known[commit.sequence]  # a run may make millions
        used = {name for other in there.values() for name in other.objects}
        doomed = dict.fromkeys(name for commit in old for name in commit.objects)
        return [name for name in doomed if name not in used]

    def _superseded(self, commits: Iterable[Brief], newest: Commit) -> list[Brief]:
        """Oldest first."""
        directories: set[str] = set()
        old = []
        own = sorted((c for c in commits if c.run == newest.run), key=lambda c: -c.sequence)
        retained = {c.directory for c in _last_of_updates(own)[: self.keep_updates]}
        finite = (c.directory for c in own if c.finite)
        retained |= set(itertools.islice(finite, 1))
        retained |= {c.directory for c in own if c.sequence == newest.before_pass}
        for commit in own:
            # Directories are counted over all newer commits, so the retained ones have no gap,
            # except before commits that are not finite, and between updates.
            directories.add(commit.directory)
            if len(directories) > self.keep and commit.directory not in retained:
                old.append(commit)
        return old[::-1]

    def _commit(self, sequence: int) -> Brief | None:
        """None if it cannot be read: its parts are unknown, so it stays."""
        if sequence not in self.known:
            try:
                self.known[sequence] = Brief.of(read_commit(self.store, sequence))
            except CorruptionError:
                self.known[sequence] = None
        return self.known[sequence]


def delete_all(store: Store, names: Iterable[str]) -> None:
    """Delete objects, several at a time."""
    for _ in in_flight(store.delete, names, store.in_flight, lambda _: 0):
        pass


def _last_of_updates(commits: Sequence[Brief]) -> list[Brief]:
    """The last commit of each update, of commits from newest to oldest.

    A restored update counts again, so that those it undid can be restored in turn.
    """
    after = [None, *(commit.update for commit in commits)]
    return [
        commit for commit, number in zip(commits, after, strict=False) if commit.update != number
    ]
