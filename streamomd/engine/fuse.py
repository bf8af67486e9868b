"""Compile one loop for one rule, loss and shape: the one place where numba compiles.

A compiled loop is cached on disk under a name of its own that holds a hash of every source it is
made of, so a second process compiles nothing, an edited rule or helper is compiled anew, and no
two loops share an index file (numba's index is read, changed and written back: two loops in one
would race). Where no cache can be written the loop is compiled for this process alone.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import register_jitable

from streamomd.engine import cells, loops
from streamomd.engine.loops import Shape
from streamomd.losses import Loss
from streamomd.rules.contract import Rule

log = logging.getLogger(__name__)


@functools.cache
def learn_loop(rule: Rule, loss: Loss, shape: Shape, cell: str, value: str) -> Any:
    """The compiled ``loops.make_learn`` for cells and values of these dtypes."""
    return _compile(loops.make_learn, rule, loss, shape, _signature(cell, value))


@functools.cache
def predict_loop(rule: Rule, loss: Loss, shape: Shape, cell: str, value: str) -> Any:
    """The compiled ``loops.make_predict`` for cells and values of these dtypes."""
    return _compile(loops.make_predict, rule, loss, shape, _signature(cell, value))


def _compile(make: Callable[..., Any], rule: Rule, loss: Loss, shape: Shape, signature: Any) -> Any:
    for function in _functions(rule, loss):
        _register(function)
    loop = make(rule, loss, shape)
    words = [make.__name__, rule.name, loss.name, *(str(int(part)) for part in shape)]
    words += [str(signature[0].dtype), str(signature[7].dtype), stamp(rule, loss)]
    loop.__name__ = loop.__qualname__ = "_".join(words)
    try:
        return _dispatcher(loop, signature, cache=True)
    except (RuntimeError, OSError) as error:
        log.warning("compiled loops are not kept on disk here: %s", error)
        return _dispatcher(loop, signature, cache=False)


def _dispatcher(loop: Any, signature: Any, *, cache: bool) -> Any:
    dispatcher: Any = numba.njit(cache=cache, nogil=True, error_model="numpy")(loop)
    dispatcher.compile(signature)
    dispatcher.disable_compile()
    return dispatcher


def stamp(rule: Rule, loss: Loss) -> str:
    """A hash of all sources a loop of this rule and loss is made of."""
    package = Path(__file__).parents[1]
    files = {*package.glob("rules/*.py"), *package.glob("engine/*.py"), package / "losses.py"}
    files |= {Path(inspect.getfile(function)) for function in (rule.update, loss.value)}
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:10]


def _functions(rule: Rule, loss: Loss) -> Iterator[Any]:
    yield from (rule.weight, rule.step, rule.update, loss.value, loss.slope, loss.mean)
    yield from (part for part in (rule.observe, rule.align) if part is not None)
    yield from (*cells.LOAD, *cells.STORE, *cells.ADD)
    yield from (*loops.MISS, loops.entry, loops.keep_shared, loops.keep_own, loops.target)


@functools.cache
def _register(function: FunctionType) -> None:
    """Let compiled code call a plain function, and those it calls by name."""
    register_jitable(function)
    for name in function.__code__.co_names:
        called = function.__globals__.get(name)
        if isinstance(called, FunctionType) and called.__module__.partition(".")[0] != "numba":
            _register(called)


def _array(dtype: str, ndim: int = 1, *, written: bool = False) -> Any:
    return types.Array(numba.from_dtype(np.dtype(dtype)), ndim, "C", readonly=not written)


def _signature(cell: str, value: str) -> Any:
    """Argument types of a loop; one exact set, so that no call compiles anything else."""
    numbers = _array("float64")
    state = [_array(cell, written=True), *2 * [_array("float64", written=True)], numbers]
    rows = [_array("int64"), _array("int32"), _array(value), numbers, numbers]
    return (*state, types.float64, *rows, _array("float64", 2, written=True))
