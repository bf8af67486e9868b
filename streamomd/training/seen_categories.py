"""Which categories each column has had: a bit for each of its hashed coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from streamomd.core.column_values import SHIFT, Keys

MOST_BYTES = 64 << 20
"""Of the bits in a commit."""


@dataclass(eq=False)
class SeenCategories:
    """bits: uint64 (columns, words); coordinate c of a column is bit c % 64 of its word c // 64.

    Two categories of one column with the same coordinate are one; those of two columns are two.
    """

    bits: NDArray[np.uint64]

    @classmethod
    def none(cls, columns: int, bits: int) -> Self:
        """Of no rows yet. columns: those with categories, each with 2^bits coordinates."""
        return cls(np.zeros((columns, ((1 << bits) + 63) // 64), np.uint64))

    def unseen(self, keys: Keys) -> Keys:
        """Those of these categories that are not among them, ascending, each once; none if
        categories are not watched, without columns."""
        if not len(self.bits):
            return np.empty(0, np.int64)
        column, word, bit = self._places(keys)
        return np.unique(keys[self.bits[column, word] & bit == 0])

    def mark(self, keys: Keys) -> None:
        """Add categories."""
        column, word, bit = self._places(keys)
        np.bitwise_or.at(self.bits, (column, word), bit)

    def valid(self, keys: Keys, bits: int) -> Keys:
        """Those of these numbers that are categories of some column, ascending, each once."""
        column, at = keys >> SHIFT, keys & ((1 << SHIFT) - 1)
        return np.unique(keys[(column >= 0) & (column < len(self.bits)) & (at < 1 << bits)])

    def by_column(self, keys: Keys) -> NDArray[np.int64]:
        """How many of these categories each column has."""
        return np.bincount(keys >> SHIFT, minlength=len(self.bits))

    def _places(self, keys: Keys) -> tuple[Keys, Keys, NDArray[np.uint64]]:
        at = keys & ((1 << SHIFT) - 1)
        return keys >> SHIFT, at >> 6, np.uint64(1) << (at & 63).astype(np.uint64)
