"""Compiled loops on the disk: kept by numba's own cache, taken up without its compiler.

Before numba looks into its cache it loads all that a compiler knows, SciPy's linear algebra
included: 0.4 s of processor time where the machine code is taken up in 0.02. A loop that is found
needs memory to allocate from and nothing else; what is not found is compiled, which loads the rest.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import numba
from numba.core import runtime
from numba.core.caching import FunctionCache

from streamomd.core.garbage_collection import unsearched
from streamomd.core.lazy_imports import left_out

log = logging.getLogger(__name__)
memory: Any = runtime


class Kept(FunctionCache):
    """numba's cache of one function, but for what is loaded before it is asked."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The loop for these argument types, or None."""
        memory.rtsys.initialize(target_context)
        kept: Any = super()
        found: Any = None
        with kept._guard_against_spurious_io_errors():
            found = kept._load_overload(sig, target_context)
        if found is None:
            _load_arrays()
        return found


@functools.cache
def _load_arrays() -> None:
    """Load what numba knows of arrays without SciPy's linear algebra, half of the time.

    numba tries only whether it is there; ``np.dot`` and its like, where they are compiled, load it.
    """
    with left_out("scipy.linalg"):
        from numba.np import arraymath
    found: Any = arraymath
    found._HAVE_BLAS = True


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
    else:
        _load_arrays()
    with unsearched():
        dispatcher.compile(signature)
    dispatcher.disable_compile()
    return dispatcher
