"""The life of a checkpoint in a store that fails now and then, and what must stand at its end."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from checkpoint_helpers import load_all, numbers, plain
from kinds import Verdict

from streamomd.checkpoint import Part, Store, Writer, list_commits
from streamomd.core.errors import (
    ConcurrentWriterError,
    CorruptionError,
    NoCommitError,
    OutputExistsError,
    StorageError,
    StreamomdError,
)

HONEST: tuple[type[StreamomdError], ...] = (StorageError,)
"""What a store that fails, but does not lie, may lead to."""
LIED_TO = (StorageError, CorruptionError, NoCommitError, ConcurrentWriterError)
"""What one that tells an untruth may lead to: each is a named error, and nothing is done."""


def content(number: int) -> list[Part]:
    """What commit ``number`` holds: few parts, since every object costs requests; of every third
    commit several are in flight."""
    return numbers(number, ranges=1 if number % 3 else 4)


class BrokenPromiseError(Exception):
    """Something was found that may not be."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict)
        self.verdict = verdict


@dataclass
class Life:
    """A run of commits 0, 1, 2 …, of which number k holds ``content(k)``.

    ``sure``: the last that was reported made. ``tried``: the last that was attempted.
    """

    open_store: Callable[[], Store]
    draw: random.Random
    allowed: tuple[type[StreamomdError], ...]
    keep: int = 2
    writer: Writer | None = None
    sure: int = -1
    tried: int = -1
    told: bool = False
    """Whether anybody was told of a fault."""

    def live(self, count: int) -> None:
        """So many attempts, each with its own content; after a failure the process may die."""
        for at in range(count):
            self.tried = at
            try:
                self._attempt(at)
                self.sure = at
            except self.allowed:
                self.told = True
                if self.draw.random() < 0.5:
                    self.writer = None

    def _attempt(self, at: int) -> None:
        document = {"rows": 10 * at}
        if self.writer is None:
            store = self.open_store()
            try:
                self.writer = Writer.begin(store, document, content(at), keep=self.keep)
                return
            except OutputExistsError:
                self.writer = self._taken_over(store)
        self.writer.commit(document, content(at))

    def _taken_over(self, store: Store) -> Writer:
        loaded, parts = load_all(store)
        self.holds(loaded.commit.document["rows"] // 10, parts, bool(loaded.rejected))
        return Writer.take_over(store, loaded, keep=self.keep)

    def holds(self, number: int, parts: object, rejected: bool) -> None:
        """What was loaded is a commit of this life, and no older one than the last, unless told."""
        if parts != plain(content(number)) or number > self.tried:
            raise BrokenPromiseError(Verdict.SILENT)
        if number < self.sure:
            if not rejected:
                raise BrokenPromiseError(Verdict.SILENT)
            # Loading said so; who goes on from there has been told.
            self.sure, self.told = number, True


def judged(
    life: Life, calm: Callable[[], Store], *, count: int = 4, untidy: bool = False
) -> Verdict:
    """Live, then look by a way without faults: what was committed stands, and can be gone on from.

    ``untidy`` is true if the store lied, so that there may be halves of commits: of old ones that
    it did not delete, of a new one that it did not keep whole.
    """
    try:
        life.live(count)
        return end(life, calm(), untidy=untidy)
    except BrokenPromiseError as error:
        return error.verdict


def end(life: Life, calm: Store, *, untidy: bool) -> Verdict:
    """The verdict on what is there."""
    try:
        loaded, parts = load_all(calm)
    except NoCommitError:
        return Verdict.LOST if life.sure >= 0 else Verdict.NAMED
    number = loaded.commit.document["rows"] // 10
    # What a store that lies was given in pieces, and kept in part, stands there and is told of.
    if number < life.sure or (loaded.rejected and not untidy):
        return Verdict.LOST
    life.holds(number, parts, False)
    if not untidy and not all(one["ok"] for one in list_commits(calm, deep=True)):
        return Verdict.LOST
    after = life.tried + 1
    writer = Writer.take_over(calm, loaded, keep=life.keep)
    writer.commit({"rows": 10 * after}, content(after))
    if load_all(calm)[1] != plain(content(after)):
        return Verdict.SILENT
    return Verdict.NAMED if life.told else Verdict.SAME
