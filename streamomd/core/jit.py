"""Compilation by numba, cached on disk: of the engine's loops and of the features' kernels.

A kernel gets a name with a hash of its file and of those of the functions it calls, as the loops do
in ``engine.compile``, so that no two functions share an index file. One thread compiles, others
wait.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types

from streamomd.core.startup import load_numba_arrays, no_garbage_collection, numba_cache, skip_masks

log = logging.getLogger(__name__)
_found: dict[Any, Any] = {}
_lock = threading.Lock()
_records: list[list[Compilation]] = []


class Compilation(NamedTuple):
    """A function that this process compiled, or loaded from the disk cache.

    saved: in ``folder``, of the disk cache, where later processes find it.
    """

    name: str
    loaded: bool
    saved: bool
    folder: str


@contextmanager
def recording() -> Iterator[list[Compilation]]:
    """Inside, ``LazyCompiled`` functions are compiled at their first call; a list of what was
    compiled or loaded."""
    found: list[Compilation] = []
    _records.append(found)
    try:
        yield found
    finally:
        _records.remove(found)


def is_recording() -> bool:
    """Whether ``recording`` is active."""
    return bool(_records)


def compiled(function: Callable[..., Any], *signature: Any) -> Any:
    """The function for these argument types, as ``read``, ``written`` and ``int64`` give them."""
    key = function, signature
    if key not in _found:
        with _lock:
            if key not in _found:
                _found[key] = _compile(function, signature)
    return _found[key]


def is_at_hand(function: Callable[..., Any], *signature: Any) -> bool:
    """Whether ``compiled`` gives the function without compiling it: this process or the disk cache
    has it."""
    if (function, signature) in _found:
        return True
    return is_saved(_stamped(function, signature))


def is_saved(function: Callable[..., Any]) -> bool:
    """Whether the disk cache has a function of this name, which says all that it is made of."""
    try:
        folder = Path(numba_cache()(function).cache_path)
    except RuntimeError:  # no folder can be written
        return False
    return any(folder.glob(f"*.{function.__name__}-*.nbi"))


def callable_part(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let compiled functions call this one; uncompiled, it stays as it is."""
    from numba.extending import register_jitable

    made: Callable[..., Any] = register_jitable(no_cfunc_wrapper=True)(function)
    return made


class ItemCount:
    """Items that this process handles before it compiles what is faster for more of them."""

    def __init__(self, items: int) -> None:
        self._left = items

    def is_exceeded(self, items: int) -> bool:
        """Whether it handled enough with these, or compiles for later processes."""
        self._left -= items
        return self._left < 0 or is_recording()


class LazyCompiled(ItemCount):
    """A function that numba compiles after ``items`` items. A run on few rows ends before that.

    Until then Python runs it uncompiled; the results are bit-identical.

    items: items in all calls together before it is compiled.
    """

    def __init__(self, function: Callable[..., Any], signature: Sequence[Any], items: int) -> None:
        super().__init__(items)
        self._function, self._signature = function, signature
        self._compiled: Any = None

    def __call__(self, items: int, *given: Any) -> Any:
        """Run it on these arguments, which hold ``items`` items."""
        return (self.compiled_after(items) or self._function)(*given)

    def compiled_after(self, items: int) -> Any:
        """The compiled function; None before there were enough items, with these."""
        if not self.is_exceeded(items):
            return None
        if self._compiled is None:  # to look it up takes 20 µs: numba's types are hashed
            self._compiled = compiled(self._function, *self._signature)
        return self._compiled

    @property
    def ready(self) -> Any:
        """The compiled function; None where there is none yet, whatever the number of items."""
        return self._compiled


def read(dtype: Any) -> Any:
    """An array (n,) that is only read."""
    return types.Array(numba.from_dtype(np.dtype(dtype)), 1, "C", readonly=True)


def written(dtype: Any) -> Any:
    """An array (n,) that is written."""
    return types.Array(numba.from_dtype(np.dtype(dtype)), 1, "C")


int64 = types.int64
float64 = types.float64


def _compile(function: Any, signature: Any) -> Any:
    return compile_cached(_stamped(function, signature), signature)


def _stamped(function: Any, signature: Any) -> Any:
    """A copy whose name has a hash of all that the function is made of. The function itself has its
    name still, and may be compiled for other types."""
    source = b"".join(Path(name).read_bytes() for name in sorted(_files(function)))
    words = [str(part.dtype) for part in signature if isinstance(part, types.Array)]
    stamp = hashlib.sha256(source).hexdigest()[:10]
    name = "_".join([function.__name__, *dict.fromkeys(words), stamp])
    copy = type(function)(function.__code__, function.__globals__, name, function.__defaults__)
    copy.__qualname__, copy.__module__ = name, function.__module__
    return copy


def _files(function: FunctionType) -> set[str]:
    """The files of a kernel and of all functions of ours that it calls."""
    package = __name__.partition(".")[0]
    found, ahead = {function}, [function]
    while ahead:
        called = ahead.pop()
        named = (called.__globals__.get(name) for name in called.__code__.co_names)
        plain = {one for one in named if isinstance(one, FunctionType)}
        ours = {one for one in plain if one.__module__.startswith(package)} - found
        ahead += ours
        found |= ours
    return {one.__code__.co_filename for one in found}


def compile_cached(function: Any, signature: Any) -> Any:
    """A function compiled for these argument types only: loaded from disk, or compiled and cached.

    Where nothing can be written it is compiled for this process only.
    """
    try:
        return compile_one(function, signature, cached=True)
    except (RuntimeError, OSError) as error:
        log.warning(
            "compiled loops cannot be cached on disk; each process compiles them: %s", error
        )
        return compile_one(function, signature, cached=False)


def compile_one(function: Any, signature: Any, *, cached: bool) -> Any:
    """A function compiled for these argument types. cached: saved on disk.

    One marked as ``uncounted`` counts no references to arrays, and so can make none.
    """
    options: Any = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    options["_nrt"] = "uncounted" not in function.__dict__
    dispatcher: Any = numba.njit(**options)(function)
    if cached:
        dispatcher._cache = numba_cache()(dispatcher.py_func)
    else:
        load_numba_arrays()
    with no_garbage_collection():
        dispatcher.compile(signature)
    dispatcher.disable_compile()
    skip_masks(dispatcher)
    loaded = sum(dispatcher.stats.cache_hits.values()) > 0
    for found in _records:
        folder = str(dispatcher.stats.cache_path)
        found.append(Compilation(function.__name__, loaded, cached, folder))
    return dispatcher
