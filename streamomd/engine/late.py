"""When a loop is worth compiling.

To compile one takes 1 to 7 s; a hundred rows in plain Python take less than a second, with the same
bits. So what is not in the disk cache is compiled once this process has done some work without:
a small table needs no compiled loop, and the first rows of a large one do not wait.
"""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


def as_compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    """A plain loop that, as a compiled one, warns of no overflow, and that Ctrl-C does not end in
    the middle of a row: KeyboardInterrupt is raised after it."""

    @functools.wraps(loop)
    def run(*given: Any) -> Any:
        with np.errstate(all="ignore"), _interrupt_after():
            return loop(*given)

    return run


@contextmanager
def _interrupt_after() -> Iterator[None]:
    """Where Ctrl-C would raise, have it raise at the end."""
    handler = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or handler is not signal.default_int_handler:
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if came:
        raise KeyboardInterrupt
