"""Who decodes faster, this process or the cluster? Both are tried on the first rows."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence

from streamomd.report import note
from streamomd.shards.read import Piece
from streamomd.stream import Rows, Source

TRIAL_SECONDS = 2.0
clock = time.monotonic


class Faster:
    """A source of rows that is the faster one of two, from some seconds on. They give the same."""

    def __init__(self, here: Source, there: Source) -> None:
        self._sources = {"this process": here, "the cluster": there}
        self._chosen = ""

    def rows(self, places: Sequence[int], start: tuple[int, int] = (0, 0)) -> Iterator[Piece[Rows]]:
        """Pieces in order, from place and row ``start`` on."""
        at = start
        if not self._chosen:
            rates = {}
            for name, source in self._sources.items():
                rate, at, ended = yield from _trial(source, places, at)
                if ended:
                    return
                rates[name] = rate
            self._chosen = max(rates, key=lambda name: rates[name])
            shown = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items())
            note(f"rows decoded and learned a second: {shown}; going on with {self._chosen}")
        yield from self._sources[self._chosen](places, at)


def _trial(
    source: Source, places: Sequence[int], start: tuple[int, int]
) -> Generator[Piece[Rows], None, tuple[float, tuple[int, int], bool]]:
    """Rows for some seconds; then rows a second, where to go on, and whether all are read.

    The clock begins after the first piece, so that starting counts for neither.
    """
    began: float | None = None
    rows, at = 0, start
    pieces = source(places, start)
    try:
        for piece in pieces:
            at = piece.position, piece.row + piece.rows
            yield piece
            now = clock()
            if began is None:
                began = now
                continue
            rows += piece.rows
            if now - began >= TRIAL_SECONDS:
                return rows / (now - began), at, False
        return 0.0, at, True
    finally:
        close = getattr(pieces, "close", None)
        if close is not None:
            close()
