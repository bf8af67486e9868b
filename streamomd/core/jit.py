"""Compile one plain function for one signature, kept on disk: what features run beside the loops.

As in ``fuse``: a name of its own with a hash of its file, so that no two functions share an index
file; such a function calls nothing outside its file. One thread compiles, others wait.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba import types

from streamomd.core import jit_cache

_found: dict[Any, Any] = {}
_lock = threading.Lock()


def compiled(function: Callable[..., Any], *signature: Any) -> Any:
    """The function for these argument types, as ``read``, ``written`` and ``int64`` give them."""
    key = function, signature
    if key not in _found:
        with _lock:
            if key not in _found:
                _found[key] = _compile(function, signature)
    return _found[key]


class Soon:
    """A function that is compiled when there was something to do: a run on few rows is over before
    numba would have begun. Until then Python runs it as it is, to the same bits.

    items: how many it is asked for, in all calls together, until then.
    """

    def __init__(self, function: Callable[..., Any], signature: Sequence[Any], items: int) -> None:
        self._function, self._signature, self._left = function, signature, items

    def __call__(self, items: int, *given: Any) -> Any:
        """Run it on what is given, which are so many items."""
        self._left -= items
        soon = self._left >= 0
        return (self._function if soon else compiled(self._function, *self._signature))(*given)


def read(dtype: Any) -> Any:
    """An array (n,) that is only read."""
    return types.Array(numba.from_dtype(np.dtype(dtype)), 1, "C", readonly=True)


def written(dtype: Any) -> Any:
    """An array (n,) that is written."""
    return types.Array(numba.from_dtype(np.dtype(dtype)), 1, "C")


int64 = types.int64
float64 = types.float64


def _compile(function: Any, signature: Any) -> Any:
    source = Path(function.__code__.co_filename).read_bytes()
    words = [str(part.dtype) for part in signature if isinstance(part, types.Array)]
    stamp = hashlib.sha256(source).hexdigest()[:10]
    name = "_".join([function.__name__, *dict.fromkeys(words), stamp])
    # A copy: the function itself keeps its name, and may be compiled for other types.
    copy = type(function)(function.__code__, function.__globals__, name, function.__defaults__)
    copy.__qualname__, copy.__module__ = name, function.__module__
    return jit_cache.compiled(copy, signature)
