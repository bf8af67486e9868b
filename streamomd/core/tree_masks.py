"""Margins of boosted trees without a walk: each value of a row rules out leaves, of all trees.

As QuickScorer (Lucchese et al. 2015): a leaf is a bit. All values of a column between two of its
thresholds rule out the same leaves, which a table has. What all columns leave is one bit a tree.
"""

from __future__ import annotations

import functools
import sys
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Floats

CHUNK = 64
"""Trees whose masks are side by side: the table of as many stays in the processor's second cache"""
BLOCK = 1024
"""while these rows are looked up in it."""
LEAVES = 32
"""Of a tree, at most."""
MOST_BYTES = 512 << 20
"""Of a table."""
HASH, SHIFT = 0x077CB531, 27
"""A sequence of de Bruijn: of its product with a power of two these bits differ for each power."""
_ALL = (1 << LEAVES) - 1
_PLACE = (1 << 47) - 1
"""A place so limited is known to be non-negative."""
_HASH, _SHIFT = np.uint32(HASH), np.uint32(SHIFT)
_HASHED = np.array([((HASH << bit) & _ALL) >> SHIFT for bit in range(LEAVES)])
"""The place of each bit."""


@dataclass(frozen=True)
class LeafMasks:
    """A growth's trees. columns: that they read. begins: of each one's thresholds, ascending, and
    where all end. table: (chunks, codes, CHUNK), the leaves that are left of each tree: of each
    column a code up to the first threshold, …, one above the last, and one where it is missing.
    leaves: (trees, LEAVES), by the hash of their bit."""

    columns: NDArray[np.int64]
    begins: NDArray[np.int64]
    thresholds: Floats
    table: NDArray[np.uint32]
    leaves: Floats

    @classmethod
    def of(
        cls, feature: NDArray[np.int32], value: Floats, right: NDArray[np.int32],
        nan_left: NDArray[np.int8], roots: NDArray[np.int64],
    ) -> Self:  # fmt: skip
        """Those of the nodes of a ``Growth``. Raises ValueError for more leaves, and for a table
        of too many bytes."""
        inner, leaf = np.flatnonzero(feature >= 0), np.flatnonzero(feature < 0)
        before = np.concatenate([[0], np.cumsum(feature < 0)])
        first, sizes = before[roots[:-1]], np.diff(before[roots])
        columns = np.unique(feature[inner]).astype(np.int64)
        if not len(columns):  # each tree is one leaf
            columns = np.zeros(1, np.int64)
        each = [np.unique(value[feature == column]) for column in columns]
        each = [some if len(some) else np.zeros(1) for some in each]
        begins = np.cumsum([0, *map(len, each)], dtype=np.int64)
        trees, codes = -(-len(sizes) // CHUNK) * CHUNK, begins[-1] + 2 * len(columns)
        if sizes.max(initial=0) > LEAVES or 4 * trees * codes > MOST_BYTES:
            raise ValueError("trees of more leaves or columns than this version saves")
        tree = np.searchsorted(roots, np.arange(len(feature)), side="right") - 1
        of, middle = tree[inner], right[inner]
        low, cut, high = (before[at] - first[of] for at in (inner, middle, _ends(feature, right)))
        of_left, of_right = _bits(low, cut), _bits(cut, high)
        below = np.full((codes, trees), _ALL, np.uint32)
        above = below.copy()
        for at, column in enumerate(columns.tolist()):
            start, missing = begins[at] + 2 * at, begins[at + 1] + 2 * at + 1
            here = feature[inner] == column
            code = start + np.searchsorted(each[at], value[inner[here]])
            np.bitwise_and.at(below, (code, of[here]), ~of_right[here])
            np.bitwise_and.at(above, (code + 1, of[here]), ~of_left[here])
            for some in (below[start:missing][::-1], above[start:missing]):
                np.bitwise_and.accumulate(some, axis=0, out=some)
            goes = np.where(nan_left[inner[here]] != 0, of_right[here], of_left[here])
            np.bitwise_and.at(below, (missing, of[here]), ~goes)
        below &= above
        below[:, : len(sizes)] &= _bits(np.zeros_like(sizes), sizes)
        below[:, len(sizes) :] = 0
        leaves = np.zeros((trees, LEAVES))
        leaves[tree[leaf], _HASHED[before[leaf] - first[tree[leaf]]]] = value[leaf]
        table = np.ascontiguousarray(below.reshape(codes, trees // CHUNK, CHUNK).swapaxes(0, 1))
        return cls(columns, begins, np.concatenate([np.empty(0), *each]), table, leaves)

    @cached_property
    def _lists(self) -> list[tuple[int, list[float], int]]:
        """Each column, its thresholds and its first code."""
        pairs = zip(self.columns.tolist(), self.begins.tolist(), self.begins[1:], strict=False)
        return [
            (column, self.thresholds[low:high].tolist(), low + 2 * at)
            for at, (column, low, high) in enumerate(pairs)
        ]

    @cached_property
    def _firsts(self) -> NDArray[np.uint32]:
        """Where each tree's leaves begin, (chunks, CHUNK)."""
        return (np.arange(len(self.leaves), dtype=np.uint32) * LEAVES).reshape(-1, CHUNK)

    @cached_property
    def _flat(self) -> tuple[Any, ...]:
        """As ``add_margins`` takes them."""
        arrays = self.table.reshape(-1), self.leaves.reshape(-1)
        return self.columns, self.begins, self.thresholds, *arrays

    def margins_of(self, x: Sequence[float], margins: int) -> list[float]:
        """The margins of a row, those of ``add_margins``, which is not compiled for it."""
        if not len(self.leaves):
            return margins * [0.0]
        if "numba" in sys.modules and (adder := margin_adder().ready):
            row = np.zeros(margins)
            adder(np.array(x, np.float64), len(x), *self._flat, margins, row)
            return row.tolist()
        codes = []
        for column, thresholds, first in self._lists:
            v = x[column]
            among = bisect_left(thresholds, v) if v == v else len(thresholds) + 1  # noqa: PLR0124
            codes.append(first + among)
        # Not by brackets: take() is three times as fast.
        found = self._leaves_of(np.bitwise_and.reduce(self.table.take(codes, 1), 1)).reshape(-1)
        if margins == 1:
            return [float(found.cumsum()[-1])]  # one by one, as sum() is not
        return [float(found[k::margins].cumsum()[-1]) for k in range(margins)]

    def margins_of_rows(self, x: Floats, margins: int) -> Floats:
        """The same of rows, (rows, margins)."""
        out = np.zeros((len(x), margins))
        if "numba" in sys.modules:  # a process that has read few rows may need none
            adder = margin_adder().compiled_after(len(x) * len(self.leaves))
            if adder is not None:
                adder(x.reshape(-1), x.shape[1], *self._flat, margins, out.reshape(-1))
                return out
        for low in range(0, len(x) if len(self.leaves) else 0, BLOCK):
            rows = x[low : low + BLOCK]
            left = np.full((len(self.table), len(rows), CHUNK), _ALL, np.uint32)
            for column, thresholds, first in self._lists:
                v = rows[:, column]
                among = np.searchsorted(thresholds, v)
                among[np.isnan(v)] = len(thresholds) + 1
                left &= self.table.take(first + among, 1)
            found = self._leaves_of(left.swapaxes(0, 1)).reshape(len(rows), -1)
            for k in range(margins):
                out[low : low + BLOCK, k] = found[:, k::margins].cumsum(1)[:, -1]
        return out

    def _leaves_of(self, left: NDArray[np.uint32]) -> Floats:
        """The leaf of each tree. left: its bit, (…, chunks, CHUNK), which is overwritten."""
        left *= _HASH
        left >>= _SHIFT
        left += self._firsts
        return self.leaves.take(left)


def _ends(feature: NDArray[np.int32], right: NDArray[np.int32]) -> NDArray[np.int64]:
    """Of each inner node, where the nodes below it end."""
    ends, children = [*range(1, len(feature) + 1)], right.tolist()
    inner = np.flatnonzero(feature >= 0)
    for node in reversed(inner.tolist()):
        ends[node] = ends[children[node]]
    return np.array(ends, np.int64)[inner]


def _bits(low: NDArray[np.int64], high: NDArray[np.int64]) -> NDArray[np.uint32]:
    """The bits from low to below high."""
    one = np.int64(1)
    return ((one << high) - (one << low)).astype(np.uint32)


UNCOMPILED = 1 << 14
"""Trees of rows before ``add_margins`` is compiled."""


@functools.cache
def margin_adder() -> Any:
    """``add_margins``, which begins uncompiled."""
    from streamomd.core.jit import LazyCompiled, int64, read, written  # late: it imports numba

    places, numbers = read("int64"), read("float64")
    given = [numbers, int64, places, places, numbers, read("uint32"), numbers]
    return LazyCompiled(add_margins, [*given, int64, written("float64")], UNCOMPILED)


def add_margins(
    x: Any, width: int, columns: Any, begins: Any, thresholds: Any, table: Any, leaves: Any,
    margins: int, out: Any,
) -> None:  # fmt: skip
    """Add the margins of rows, x (n * width,), to out (n * margins,): of each the leaves of trees
    k, k + margins, … in their order."""
    rows, used, trees = len(x) // width, len(columns), len(leaves) // LEAVES
    block = max(1, min(BLOCK, rows))  # of rows that are looked up together
    at, codes = np.empty(block, np.int64), np.empty(block * used, np.int64)
    masks = np.empty(CHUNK, np.uint32)
    every = begins[used] + 2 * used
    for low in range(0, rows, block):
        size = min(block, rows - low)
        for c in range(used):  # a search of all rows together has no branches
            place, begin, count = low * width + columns[c], begins[c], begins[c + 1] - begins[c]
            for row in range(size):
                at[row] = begin
            while count > 1:
                half = count >> 1
                for row in range(size):
                    v = x[(place + row * width) & _PLACE]
                    at[row] += half * (thresholds[(at[row] + half - 1) & _PLACE] < v)
                count -= half
            missing = begins[c + 1] + 2 * c + 1
            for row in range(size):
                v = x[(place + row * width) & _PLACE]
                code = at[row] + (thresholds[at[row] & _PLACE] < v) + 2 * c
                codes[c * block + row] = code if v == v else missing  # noqa: PLR0124
        for first in range(0, trees, CHUNK):
            begin = first // CHUNK * every
            for row in range(size):
                masks[:] = _ALL
                for c in range(used):
                    code = ((begin + codes[c * block + row]) * CHUNK) & _PLACE
                    for tree in range(CHUNK):
                        masks[tree] &= table[code + tree]
                for k in range(margins):
                    place = ((low + row) * margins + k) & _PLACE
                    total = out[place]
                    for tree in range((k - first) % margins, CHUNK, margins):
                        leaf = ((np.int64(masks[tree]) * HASH) & _ALL) >> SHIFT
                        total += leaves[((first + tree) * LEAVES + leaf) & _PLACE]
                    out[place] = total
