"""What alerts are computed from, as commits of older versions have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.column_values import SHIFT
from streamomd.training.column_statistics import NO_KEYS
from streamomd.training.seen_categories import SeenCategories

Arrays = dict[str, NDArray[Any]]


def is_of_older_version(arrays: Mapping[str, NDArray[Any]]) -> bool:
    """Whether arrays of ``Drift`` have one c for the window and the rows before it."""
    return "c" in arrays


def of_older_version(arrays: Mapping[str, NDArray[Any]], columns: int, bits: int) -> Arrays:
    """Arrays of ``ColumnWindows``. columns: how many have categories.

    Seen coordinates were those of all columns together: each column has had all of them, which
    hides new categories and reports no others. How many were new in the window is not known by
    column. Raises ValueError if they do not fit together.
    """
    made: Arrays = {"loss": arrays["loss"]} if "loss" in arrays else {}
    for name in ("before", "window"):
        made[name] = np.vstack([arrays["c"], arrays[name]])
    made["rows"] = arrays["rows"][:2].astype(np.int64)
    size, given = int(arrays["size"][0]), arrays["seen"].view(np.uint8)
    if size not in (0, 1 << bits) or 8 * len(given) < size:
        raise ValueError(f"metrics.driftseen has {8 * len(given)} bits of {size}")
    seen = SeenCategories.none(columns if size else 0, bits)
    coordinates = np.flatnonzero(np.unpackbits(given)[:size])
    for column in range(len(seen.bits)):
        seen.mark(coordinates + (column << SHIFT))
    return {**made, "seen": seen.bits, "categories": NO_KEYS}
