"""Retention: which commits are deleted, and in what order.

Deleted are manifests of this run, oldest first, then the parts and shared documents that no
manifest names any more. What no manifest of this run names is never touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from streamomd.checkpoint.commit_list import read_commit, sequences
from streamomd.checkpoint.documents import document_names
from streamomd.checkpoint.manifest import Commit, manifest_name
from streamomd.checkpoint.stores.contract import Store
from streamomd.core.errors import CorruptionError, UsageError


@dataclass(eq=False)
class Retention:
    """Keeps the last ``keep`` commits that have parts of their own, and what comes after them; and
    the last one whose document says that its numbers are finite, however many follow it.
    """

    store: Store
    keep: int
    _known: dict[int, Commit | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise UsageError(f"checkpoint.keep is at least 1, not {self.keep}")

    def apply(self, newest: Commit) -> None:
        """Delete what is superseded by ``newest``, which was read back. Raises StorageError."""
        self._known[newest.sequence] = newest
        found = sequences(self.store)
        if found[-1:] != [newest.sequence]:
            # Somebody has taken over: it is theirs now.
            return
        there = {number: commit for number in found if (commit := self._commit(number))}
        for commit in self._superseded(there.values(), newest.run):
            self.store.delete(manifest_name(commit.sequence))
            del there[commit.sequence]
            used = {name for other in there.values() for name in _objects(other)}
            for name in _objects(commit):
                if name not in used:
                    self.store.delete(name)

    def _superseded(self, commits: Iterable[Commit], run: str) -> list[Commit]:
        """Oldest first."""
        directories: set[str] = set()
        old = []
        own = sorted((c for c in commits if c.run == run), key=lambda commit: -commit.sequence)
        finite = next((c.directory for c in own if c.document.get("finite") is True), "")
        for commit in own:
            # Once too many, always too many: what is kept of a run has no gap, but for one before
            # commits that are not finite.
            directories.add(commit.directory)
            if len(directories) > self.keep and commit.directory != finite:
                old.append(commit)
        return old[::-1]

    def _commit(self, sequence: int) -> Commit | None:
        """None if it cannot be read: then it is not known what is its own, and it stays."""
        if sequence not in self._known:
            try:
                self._known[sequence] = read_commit(self.store, sequence)
            except CorruptionError:
                self._known[sequence] = None
        return self._known[sequence]


def _objects(commit: Commit) -> Iterator[str]:
    for entry in commit.parts:
        yield commit.part_name(entry)
    for kind, sha256 in commit.documents:
        yield from document_names(kind, sha256)
