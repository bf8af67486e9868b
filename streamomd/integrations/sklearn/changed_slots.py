"""The parts of a state without the slots that still have their first value: small pickles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.engine.state import Arrays, Layout, State

Part = tuple[int, int, dict[str, Any]]
SHARE = 4
"""An array is saved whole if more than one number in ``SHARE`` changed."""


def changed(parts: Iterator[tuple[int, int, Arrays]], layout: Layout) -> list[Part]:
    """Each part with what differs, to the bit, from the start of a state of this layout: an array,
    or the places and values in its flat form."""
    found = []
    for (low, high, arrays), (_, _, first) in zip(parts, State.start(layout).parts(), strict=True):
        saved = {name: _difference(array, first.get(name)) for name, array in arrays.items()}
        found.append((low, high, saved))
    return found


def filled(parts: list[Part], layout: Layout) -> Iterator[tuple[int, int, Arrays]]:
    """The parts as they were: the inverse of ``changed``."""
    for (low, high, saved), (_, _, first) in zip(parts, State.start(layout).parts(), strict=True):
        yield low, high, {name: _array(one, first.get(name)) for name, one in saved.items()}


def _difference(array: NDArray[Any], first: NDArray[Any] | None) -> Any:
    if first is None or first.shape != array.shape or first.dtype != array.dtype:
        return array
    there = np.ascontiguousarray(array).reshape(-1)
    bits = f"u{array.itemsize}"
    places = np.flatnonzero(there.view(bits) != np.ascontiguousarray(first).reshape(-1).view(bits))
    if len(places) * SHARE > there.size:
        return array
    return places.astype(np.int32), there[places]


def _array(saved: Any, first: NDArray[Any] | None) -> NDArray[Any]:
    if isinstance(saved, np.ndarray):
        return saved
    places, values = saved
    array: NDArray[Any] = np.array(first)
    array.reshape(-1)[places] = values
    return array
