"""Numbers as categories in pairs of columns: bins that the first rows decide, without labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.core.batch import Floats
from streamomd.core.scalars import LARGEST
from streamomd.features.grow_trees import Gone, known_numbers
from streamomd.features.numeric import Numbers
from streamomd.features.plan import Plan, number_name

MOST = 8
"""Bins of a number."""
EXACT = 1.0 - 1e-9
"""Sums of weights are compared up to rounding, which the unit of weights changes."""


def edges_of(values: Floats, weights: Floats) -> tuple[float, ...]:
    """Where bins of about equal weight begin, but for the first one; a value each, if they are
    few. () of a number with one value. values: NaN where one is missing."""
    known = (np.abs(values) <= LARGEST) & (weights > 0.0)
    found, of = np.unique(values[known] + 0.0, return_inverse=True)  # -0.0 is 0.0
    if len(found) <= MOST:
        return tuple(found[1:].tolist())
    summed = np.cumsum(np.bincount(of, weights[known]))
    at = np.searchsorted(summed, EXACT * summed[-1] * np.arange(1, MOST) / MOST)
    return tuple(sorted({*found[np.maximum(at, 1)].tolist()}))


def codes_of(values: Floats, edges: Sequence[float]) -> NDArray[np.int64]:
    """The number of each value's bin, one more than the last of a missing one."""
    codes = np.searchsorted(np.array(edges), values, side="right")
    return np.where(np.isnan(values), len(edges) + 1, codes)


def binned(plan: Plan, table: Numbers, gone: Gone) -> dict[str, pa.Array]:
    """Numbers of rows as categories, by name; null where one is missing. table: numeric and vector
    coordinates, first. gone: where a value is missing, for each column with an indicator."""
    if not plan.bins:
        return {}
    numbers, found = known_numbers(plan, table, gone), {}
    for bins in plan.bins:
        codes = codes_of(numbers[:, bins.place], bins.edges)
        indices = pa.array(codes.astype(np.int32), mask=codes > len(bins.edges))
        names = pa.array(bins.names, pa.large_string())
        name = number_name(plan, bins.place)
        found[name] = pa.DictionaryArray.from_arrays(indices, names)
    return found
