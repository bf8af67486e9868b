"""The parts of a state without what its start has and in fewest bytes: small pickles.

An array is saved as it is, or as a tuple that begins with how: ``places``: what differs from the
start of the state; ``upper``: the upper triangles of matrices, and what the bits of the lower ones
differ by, compressed: in a symmetric matrix nothing, or the last bits by rounding; ``values``: all
numbers, in a narrower type that holds them to the bit.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.engine.layout import Layout
from streamomd.engine.state import Arrays, State

Part = tuple[int, int, dict[str, Any]]
SHARE = 4
"""An array is saved whole if more than one number in ``SHARE`` changed."""
ROUNDING = 1 << 16
"""Units in the last place: half of a matrix's differences are below it if rounding made them."""
NARROWER = {"float64": ("float32",), "int64": ("uint16", "int32")}


def changed(parts: Iterator[tuple[int, int, Arrays]], layout: Layout) -> list[Part]:
    """Each part in few bytes; ``filled`` returns the same bits."""
    found = []
    for (low, high, arrays), (_, _, first) in zip(parts, State.start(layout).parts(), strict=True):
        saved = {name: _saved(array, first.get(name)) for name, array in arrays.items()}
        found.append((low, high, saved))
    return found


def filled(parts: list[Part], layout: Layout) -> Iterator[tuple[int, int, Arrays]]:
    """The parts as they were: the inverse of ``changed``."""
    for (low, high, saved), (_, _, first) in zip(parts, State.start(layout).parts(), strict=True):
        yield low, high, {name: _array(one, first.get(name)) for name, one in saved.items()}


def _saved(array: NDArray[Any], first: NDArray[Any] | None) -> Any:
    there = np.ascontiguousarray(array)
    flat = there.reshape(-1)
    if first is not None and (first.shape, first.dtype) == (array.shape, array.dtype):
        places = np.flatnonzero(_bits(flat) != _bits(np.ascontiguousarray(first).reshape(-1)))
        if len(places) * SHARE <= flat.size:
            return "places", _narrow(places), _narrow(flat[places])
    if array.ndim >= 2 and array.shape[-1] == array.shape[-2] > 1:
        row, column = np.triu_indices(array.shape[-1])
        bits = _bits(there).astype(np.int64)
        values, below = there[..., row, column], bits[..., column, row] - bits[..., row, column]
        if np.median(np.abs(below)) < ROUNDING:
            return "upper", array.shape, values, zlib.compress(below.tobytes())
    values = _narrow(flat)
    if values.dtype == array.dtype:
        return array
    return "values", array.shape, array.dtype.name, values


def _array(saved: Any, first: NDArray[Any] | None) -> NDArray[Any]:
    if isinstance(saved, np.ndarray):
        return saved
    array: NDArray[Any]
    how, *rest = saved
    if how == "places":
        places, values = rest
        array = np.array(first)
        array.reshape(-1)[places] = values
    elif how == "upper":
        shape, values, packed = rest
        below = np.frombuffer(zlib.decompress(packed), np.int64).reshape(values.shape)
        array = np.empty(shape, values.dtype)
        row, column = np.triu_indices(shape[-1])
        array[..., column, row] = array[..., row, column] = values
        _bits(array)[..., column, row] += below.astype(f"u{array.itemsize}")
    else:
        shape, dtype, values = rest
        array = values.astype(dtype).reshape(shape)
    return array


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    return array.view(f"u{array.itemsize}")


def _narrow(array: NDArray[Any]) -> NDArray[Any]:
    """The numbers in the first narrower type that returns their bits, or as they are."""
    for dtype in NARROWER.get(array.dtype.name, ()):
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            narrow = array.astype(dtype)
        if np.array_equal(_bits(narrow.astype(array.dtype)), _bits(array)):
            return narrow
    return array
