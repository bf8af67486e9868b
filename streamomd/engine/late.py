"""When a loop is worth compiling.

To compile one takes 1 to 7 s; a hundred rows in plain Python take less than a second, with the same
bits. So what is not in the disk cache is compiled once this process has done some work without:
a small table needs no compiled loop, and the first rows of a large one do not wait.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from streamomd.core import jit

ENOUGH = 1 << 21
"""Numbers that plain Python looks at in all, in about a second."""
OF_VALUE, OF_SOLVE = 8, 4
"""What a value of a row counts, for a weight has slots, each with a formula; and what a number of a
matrix does that is inverted."""


class _Budget:
    left = float(ENOUGH)


def work_of(rows: int, values: int, learners: int, matrices: tuple[Any, ...]) -> float:
    """Numbers that a loop over rows looks at. values: of all rows. matrices: arrays that each row
    may look at."""
    each = sum(one.size for one in matrices if isinstance(one, np.ndarray))
    return float(rows * each + OF_VALUE * learners * values)


def is_early(work: float, is_saved: Callable[[], bool]) -> bool:
    """Whether plain Python does for this call. is_saved: whether the disk cache has the loop."""
    if _Budget.left < work or jit.is_recording() or is_saved():
        return False
    _Budget.left -= work
    return True


def quiet(loop: Callable[..., Any]) -> Callable[..., Any]:
    """Without warnings of overflow: compiled loops give none."""

    @functools.wraps(loop)
    def run(*given: Any) -> Any:
        with np.errstate(all="ignore"):
            return loop(*given)

    return run
