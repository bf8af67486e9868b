"""Compiled loops on the disk: kept by numba's own cache, taken up without its compiler.

Before numba looks into its cache it loads all that a compiler knows, SciPy's linear algebra
included: 0.4 s of processor time where the machine code is taken up in 0.02. A loop that is found
needs memory to allocate from and nothing else; what is not found is compiled, which loads the rest.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import runtime
from numba.core.caching import FunctionCache

memory: Any = runtime


class Kept(FunctionCache):
    """numba's cache of one function, but for what is loaded before it is asked."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The loop for these argument types, or None."""
        memory.rtsys.initialize(target_context)
        kept: Any = super()
        with kept._guard_against_spurious_io_errors():
            return kept._load_overload(sig, target_context)


def keep(dispatcher: Any) -> None:
    """Have a function's machine code kept. Raises RuntimeError where nothing can be written."""
    made: Any = Kept
    dispatcher._cache = made(dispatcher.py_func)


@contextmanager
def uncollected() -> Iterator[None]:
    """No search for garbage while millions of small objects are made: a tenth of a compilation."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
