"""Who decodes faster, this process or the cluster? Both are tried on the first rows.

Where this process alone would soon be done, the cluster is not tried: to find it slower, and to
take back what it was asked for, costs two seconds and more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

from streamomd.core.errors import ClusterError
from streamomd.shards.encoded_rows import Rows
from streamomd.shards.reader import Piece
from streamomd.training.progress import note
from streamomd.training.row_stream import Source

TRIAL_SECONDS = 2.0
WORTH_SECONDS = 30.0  # what must be left for a trial of the cluster to cost less than a tenth
HERE, THERE = "this process", "the cluster"
clock = time.monotonic


class FasterSource:
    """A source of rows that is the faster one of two, from some seconds on. They give the same.

    ready: whether there is a usable worker. left: rows to come, those of the next epochs with them.
    A cluster that fails is left; this process goes on alone.
    """

    def __init__(
        self, here: Source, there: Source, ready: Callable[[], bool], left: Callable[[], int]
    ) -> None:
        self._sources = {HERE: here, THERE: there}
        self._ready, self._left = ready, left
        self._chosen = ""
        self._at = 0, 0

    def rows(self, places: Sequence[int], start: tuple[int, int] = (0, 0)) -> Iterator[Piece[Rows]]:
        """Pieces in order, from place and row ``start`` on."""
        self._at = start
        if not self._chosen and not self._ready():
            note(f"the cluster has no usable worker: {HERE} decodes alone")
            self._chosen = HERE
        try:
            yield from self._followed(places)
        except ClusterError as error:
            note(f"{error}. {HERE} decodes alone from now on")
            self._chosen = HERE
            yield from self._sources[HERE](places, self._at)

    def _followed(self, places: Sequence[int]) -> Iterator[Piece[Rows]]:
        if not self._chosen:
            rates: dict[str, float] = {}
            for name in self._sources:
                rate = yield from self._trial(name, places)
                if rate is None:
                    return
                rates[name] = rate
                if name == HERE and self._left() < rate * WORTH_SECONDS:
                    break
            self._chosen = max(rates, key=lambda name: rates[name])
            shown = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items())
            note(f"rows decoded and learned a second: {shown}; going on with {self._chosen}")
        yield from self._told(self._chosen, places)

    def _trial(
        self, name: str, places: Sequence[int]
    ) -> Generator[Piece[Rows], None, float | None]:
        """Rows for some seconds; then rows a second, or None when all are read.

        The clock begins after the first piece, so that starting counts for neither.
        """
        began: float | None = None
        rows = 0
        with closing(self._told(name, places)) as pieces:
            for piece in pieces:
                yield piece
                now = clock()
                if began is None:
                    began = now
                    continue
                rows += piece.rows
                if now - began >= TRIAL_SECONDS:
                    return rows / (now - began)
        return None

    def _told(self, name: str, places: Sequence[int]) -> Generator[Piece[Rows], None, None]:
        """A source's pieces, keeping where the next one begins."""
        source: Any = self._sources[name](places, self._at)
        with closing(source) as pieces:
            for piece in pieces:
                self._at = piece.position, piece.row + piece.rows
                yield piece
