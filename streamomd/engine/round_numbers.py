"""What partition owners send in a round of sharded mode, without what is 0 for certain.

A row has entries in few partitions, and only owners of these need its steps. Packed are the numbers
of the touched cells (partition, row), and the steps of the touched rows, of learners that move. All
arrays are flat; the functions are compiled, and see ``loops.microbatch`` for what they are given.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.jit import compiled, int64, read, written

Floats = NDArray[np.float64]
Flags = NDArray[np.uint8]


def pack_shares(touched: Flags, numbers: Floats, out: Floats) -> int:
    """Write the numbers of touched cells to the start of ``out``; how many these are.

    touched: (partitions, rows). numbers: (partitions, rows, n).
    """
    n = numbers.shape[2]
    count: int = _kernel(_pack_shares)(touched.reshape(-1), numbers.reshape(-1), n, out)
    return count


def add_shares(touched: Flags, packed: Floats, total: Floats) -> None:
    """Add packed numbers to ``total``, (rows, n), partition by partition.

    To add 0.0 to the others would change nothing: no number is -0.0.
    """
    _kernel(_add_shares)(touched.reshape(-1), packed, *total.shape, total.reshape(-1))


def pack_steps(touched: Flags, steps: Floats, moves: Flags, out: Floats) -> tuple[int, int]:
    """Write the steps of the rows that are touched in any partition; how many learners' steps and
    how many numbers these are.

    steps: (rows, learners, n), as ``Engine.decide`` gives them. moves: written, for each learner of
    each touched row, whether it moves. out: written, the numbers of those that do.
    """
    given = touched.reshape(-1), len(touched), steps.reshape(-1), *steps.shape
    found: tuple[int, int] = _kernel(_pack_steps)(*given, moves, out)
    return found


def unpack_steps(touched: Flags, moves: Flags, packed: Floats, steps: Floats) -> None:
    """Write packed steps to ``steps``; of other rows and learners, that they do not move."""
    given = touched.reshape(-1), len(touched), moves, packed, *steps.shape
    _kernel(_unpack_steps)(*given, steps.reshape(-1))


def touched_rows(touched: Flags) -> int:
    """How many rows are touched in any partition."""
    return int(np.count_nonzero(touched.any(axis=0)))


def _pack_shares(touched: Any, numbers: Any, n: int, out: Any) -> int:
    at = 0
    for cell in range(len(touched)):
        if touched[cell] != 0:
            for m in range(n):
                out[at + m] = numbers[cell * n + m]
            at += n
    return at


def _add_shares(touched: Any, packed: Any, rows: int, n: int, total: Any) -> None:
    at = 0
    for first in range(0, len(touched), max(1, rows)):
        for i in range(rows):
            if touched[first + i] != 0:
                for m in range(n):
                    total[i * n + m] += packed[at + m]
                at += n


def _pack_steps(
    touched: Any,
    partitions: int,
    steps: Any,
    rows: int,
    learners: int,
    n: int,
    moves: Any,
    out: Any,
) -> Any:
    at = to = 0
    for i in range(rows):
        here = False
        for p in range(partitions):
            here = here or touched[p * rows + i] != 0
        if not here:
            continue
        for k in range(learners):
            first = (i * learners + k) * n
            active = steps[first] != 0.0
            moves[to] = 1 if active else 0
            to += 1
            if active:
                for m in range(1, n):
                    out[at + m - 1] = steps[first + m]
                at += n - 1
    return to, at


def _unpack_steps(
    touched: Any,
    partitions: int,
    moves: Any,
    packed: Any,
    rows: int,
    learners: int,
    n: int,
    steps: Any,
) -> None:
    at = to = 0
    for i in range(rows):
        here = False
        for p in range(partitions):
            here = here or touched[p * rows + i] != 0
        for k in range(learners):
            first = (i * learners + k) * n
            steps[first] = 0.0
            if here:
                if moves[to] != 0:
                    steps[first] = 1.0
                    for m in range(1, n):
                        steps[first + m] = packed[at + m - 1]
                    at += n - 1
                to += 1


@functools.cache
def _kernel(function: Callable[..., Any]) -> Any:
    return compiled(function, *_SIGNATURES[function.__name__])


_FLAGS, _NUMBERS = read("uint8"), read("float64")
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "_pack_shares": (_FLAGS, _NUMBERS, int64, written("float64")),
    "_add_shares": (_FLAGS, _NUMBERS, int64, int64, written("float64")),
    "_pack_steps": (
        _FLAGS, int64, _NUMBERS, int64, int64, int64, written("uint8"), written("float64"),
    ),
    "_unpack_steps": (
        _FLAGS, int64, _FLAGS, _NUMBERS, int64, int64, int64, written("float64"),
    ),
}  # fmt: skip
