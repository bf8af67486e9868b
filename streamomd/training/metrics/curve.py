"""Where the history of a run is written down: at fixed numbers of rows, the same in every run."""

from __future__ import annotations

POINTS = 8  # an octave
EVENLY = 1024  # rows from which an octave has POINTS points


def next_point(rows: int) -> int:
    """The first point after ``rows`` rows: 1, 2, 4 … 1,024, then eight per octave.

    >>> [next_point(rows) for rows in (0, 1, 2, 3, 1000, 1024, 1152, 2047, 2048)]
    [1, 2, 4, 4, 1024, 1152, 1280, 2048, 2304]
    """
    octave = 1 << rows.bit_length() >> 1
    step = octave // POINTS if octave >= EVENLY else max(1, octave)
    return (rows // step + 1) * step
