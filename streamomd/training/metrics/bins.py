"""Fixed bins of scores: as many to each doubling, on both sides of 0, so that they fit any scale.

A bin's number is looked up by the upper bits of the float64 itself: sign, exponent and the first
digits. That takes 2 ns a score, asinh alone 3.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

FINE, COARSE = 7, 5
"""Binary digits that are distinguished: 128 and 32 bins a doubling."""
LEAST, MOST = -24, 40
"""Powers of two; what is nearer to 0, or farther, shares the outermost bins."""


def half(digits: int) -> int:
    """The bins above 0. Those of 0 and below come before them, that of NaN is the last of all."""
    return (MOST - LEAST) << digits


def bins(digits: int) -> int:
    """How many bins there are."""
    return 2 * half(digits) + 1


def binned(scores: NDArray[np.float64], digits: int) -> NDArray[np.int64]:
    """The number of each score's bin, of any shape; higher scores have higher numbers.

    >>> zero, low, high, none = binned(np.array([0.0, -1.5, 1.5, np.nan]), FINE)
    >>> bool(low < zero < half(FINE) <= high < none), int(none) == bins(FINE) - 1
    (True, True)
    """
    # Negative ones index the table's end, where the negative scores stand.
    found: NDArray[np.int64] = _table(digits)[
        np.ascontiguousarray(scores).view(np.int64) >> (52 - digits)
    ]
    return found


def centres(digits: int) -> NDArray[np.float64]:
    """The score in the middle of each bin but the last, ascending.

    >>> scores = np.array([-7.3, 0.11, 2.0])
    >>> np.abs(centres(FINE)[binned(scores, FINE)] / scores - 1.0).max() < 2.0**-FINE
    np.True_
    """
    place = np.arange(half(digits))
    digit = (place & ((1 << digits) - 1)) + 0.5
    above = np.ldexp(1.0 + digit / (1 << digits), LEAST + (place >> digits))
    return np.concatenate([-above[::-1], above])


@functools.cache
def _table(digits: int) -> NDArray[np.int64]:
    """Each bin by the upper bits: exponents of the positive numbers, then of the negative ones."""
    size, first, infinite = 1 << (11 + digits), (LEAST + 1023) << digits, 2047 << digits
    last = bins(digits) - 1  # of NaN; above 0 the bins end before it
    table = np.empty(2 * size, dtype=np.int64)
    above, below = table[:size], table[size:]
    above[:first] = half(digits)
    above[first : first + half(digits)] = np.arange(half(digits), last)
    above[first + half(digits) :] = last - 1
    np.subtract(last - 1, above, out=below)
    above[0] = below[0]  # +0 as -0: who is not above 0 is not predicted to be positive
    above[infinite + 1 :] = below[infinite + 1 :] = last
    return table
