"""The check of pairs of lists in one pass: it accepts what every single check accepts."""

from __future__ import annotations

import math
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamomd.features.kernels import csr_passes
from streamomd.features.kernels.csr_passes import are_canonical, checker

HIGHEST = 9
LARGEST = float(np.finfo(np.float32).max)
INDICES = st.sampled_from([-(2**31), -1, 0, 1, 5, HIGHEST, HIGHEST + 1, 2**31 - 1])
VALUES = st.sampled_from([0.0, -0.0, 1.0, -2.5, LARGEST, -LARGEST, math.inf, -math.inf, math.nan])
GOOD = st.lists(st.integers(0, HIGHEST), max_size=5, unique=True).map(sorted)
ROWS = st.lists(GOOD | st.lists(INDICES, max_size=3), max_size=9)


def accepted(rows: list[list[int]], values: list[float]) -> bool:
    """By the definition, entry by entry."""
    ascending = all(a < b for row in rows for a, b in pairwise(row))
    within = all(0 <= index <= HIGHEST for row in rows for index in row)
    return ascending and within and all(math.isfinite(value) for value in values)


def arrays(rows: list[list[int]], values: list[float]) -> tuple[Any, Any, Any]:
    begins = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return begins, np.array([*chain(*rows)], np.int32), np.array(values, np.float32)


@settings(deadline=None, max_examples=200)
@given(ROWS, st.data(), st.sampled_from([1, 4, 4096]))
def test_what_is_accepted(rows: list[list[int]], data: Any, tile: int) -> None:
    """Any rows, empty ones too, in tiles of any size."""
    count = sum(map(len, rows))
    drawn = st.lists(VALUES, min_size=count, max_size=count) | st.just([1.0] * count)
    values = data.draw(drawn)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csr_passes, "TILE", tile)
        found = are_canonical(*arrays(rows, values), HIGHEST, LARGEST)
    assert bool(found) == accepted(rows, values)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_compiled(dtype: str) -> None:
    """As uncompiled, of rows in several tiles, with one wrong entry anywhere, or none."""
    check, draw = checker(dtype), np.random.default_rng(0)
    for _ in range(300):
        counts = draw.integers(0, 90, 200)
        begins = np.concatenate(([0], np.cumsum(counts)))
        indices = np.concatenate([np.sort(draw.permutation(99)[:n]) for n in counts])
        given = begins, indices.astype(np.int32), draw.normal(size=len(indices)).astype(dtype)
        most = float(np.finfo(dtype).max)
        assert check(1 << 20, *given, 98, most)
        at = int(draw.integers(len(indices)))
        for wrong in (-1, 99):
            given[1][at], before = wrong, given[1][at]
            assert not check(1 << 20, *given, 98, most)
            given[1][at] = before
        row = int(np.searchsorted(begins, at, side="right")) - 1
        if at > begins[row]:
            given[1][at], before = given[1][at - 1], given[1][at]
            assert not check(1 << 20, *given, 98, most)
            given[1][at] = before
        for value in (np.nan, np.inf, -np.inf):
            given[2][at] = value
            assert not check(1 << 20, *given, 98, most)
