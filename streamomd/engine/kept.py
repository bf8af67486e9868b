"""Compiled loops on the disk: kept by numba's own cache, taken up without its compiler.

Before numba looks into its cache it loads all that a compiler knows, SciPy's linear algebra
included: 0.4 s of processor time where the machine code is taken up in 0.02. A loop that is found
needs memory to allocate from and nothing else; what is not found is compiled, which loads the rest.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numba
from numba.core import runtime
from numba.core.caching import FunctionCache

log = logging.getLogger(__name__)
memory: Any = runtime


class Kept(FunctionCache):
    """numba's cache of one function, but for what is loaded before it is asked."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The loop for these argument types, or None."""
        memory.rtsys.initialize(target_context)
        kept: Any = super()
        with kept._guard_against_spurious_io_errors():
            return kept._load_overload(sig, target_context)


def compiled(function: Any, signature: Any) -> Any:
    """A function for these argument types and no others, from the disk or compiled and kept there.

    Where nothing can be written it is compiled for this process alone.
    """
    try:
        return _compiled(function, signature, kept=True)
    except (RuntimeError, OSError) as error:
        log.warning("compiled loops are not kept on disk here: %s", error)
        return _compiled(function, signature, kept=False)


def _compiled(function: Any, signature: Any, *, kept: bool) -> Any:
    options: Any = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    dispatcher: Any = numba.njit(**options)(function)
    if kept:
        made: Any = Kept
        dispatcher._cache = made(dispatcher.py_func)
    with _uncollected():
        dispatcher.compile(signature)
    dispatcher.disable_compile()
    return dispatcher


@contextmanager
def _uncollected() -> Iterator[None]:
    """No search for garbage while millions of small objects are made: a tenth of a compilation."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
