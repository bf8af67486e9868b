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
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import register_jitable

from streamomd.core import jit
from streamomd.engine.loops import (  # fmt: skip
    cache_prefetch,
    dense,
    full_pass,
    matrix,
    merge_pass,
    microbatch,
    recent_rows,
    root_matrix,
    sparse,
)
from streamomd.engine.loops.row import Shape
from streamomd.losses import Loss
from streamomd.rules.contract import Rule

FOREIGN = ("numpy", "numba", "math")
LOOPS: dict[str, Any] = {
    "coordinates": sparse,
    "matrix": matrix,
    "root": root_matrix,
    "recent": recent_rows,
}
"""The loops for each kind of ``Rule.storage``."""


@functools.cache
def learn_loop(rule: Rule, loss: Loss, shape: Shape, cell: str, value: str) -> Any:
    """The compiled ``make_learn`` for cells and values of these dtypes."""
    signature = _kept_rows(cell) if rule.storage.kind == "recent" else _rows(rule, cell, value)
    return _compile(LOOPS[rule.storage.kind].make_learn, rule, loss, shape, signature)


@functools.cache
def dense_loop(rule: Rule, loss: Loss, shape: Shape, cell: str, value: str) -> Any:
    """The compiled ``dense.make_dense``; uncompiled it is ``learn_loop``'s."""
    return _compile(dense.make_dense, rule, loss, shape, _rows(rule, cell, value))


@functools.cache
def look_loop(rule: Rule, loss: Loss, shape: Shape, cell: str, value: str) -> Any:
    """The compiled ``make_look`` for cells and values of these dtypes."""
    return _compile(LOOPS[rule.storage.kind].make_look, rule, loss, shape, _rows(rule, cell, value))


@functools.cache
def predict_loop(rule: Rule, loss: Loss, shape: Shape, cell: str, value: str) -> Any:
    """The compiled ``make_predict`` for cells and values of these dtypes."""
    return _compile(
        LOOPS[rule.storage.kind].make_predict, rule, loss, shape, _rows(rule, cell, value)
    )


@functools.cache
def renew_loop(rule: Rule, loss: Loss, shape: Shape, cell: str, value: str) -> Any:
    """The compiled ``whole.make_renew``, which no loss and no value takes part in."""

    def make_renew(rule: Rule, loss: Loss, shape: Shape) -> Any:
        return full_pass.make_renew(rule, shape)

    return _compile(make_renew, rule, loss, shape, (*_state(cell), types.int64))


@functools.cache
def align_loop(rule: Rule, loss: Loss, shape: Shape, cell: str, value: str) -> Any:
    """The compiled ``joining.make_align``, which no loss and no value takes part in."""
    return _compile(merge_pass.make_align, rule, loss, shape, (*_state(cell), _array(cell)))


@functools.cache
def rejoin_loop(rule: Rule, loss: Loss, shape: Shape, cell: str, value: str) -> Any:
    """The compiled ``joining.make_rejoin``, which no loss and no value takes part in."""
    numbers = _array("float64")
    return _compile(merge_pass.make_rejoin, rule, loss, shape, (*_state(cell), numbers, numbers))


@functools.cache
def sense_loop(rule: Rule, loss: Loss, shape: Shape, cell: str, value: str) -> Any:
    """The compiled ``micro.make_sense`` for cells and values of these dtypes."""
    numbers = _array("float64")
    state = [_array(cell, written=True), numbers, numbers, types.float64]
    rows = [numbers, _array("int64"), _array("uint32"), _array(value)]
    signature = (*state, _array("int64"), *rows, _array("float64", written=True))
    return _compile(microbatch.make_sense, rule, loss, shape, signature)


@functools.cache
def decide_loop(rule: Rule, loss: Loss, shape: Shape, cell: str, value: str) -> Any:
    """The compiled ``micro.make_decide``, which no cell and no value takes part in."""
    numbers, written = _array("float64"), _array("float64", written=True)
    state = [written, written, numbers, types.float64]
    rows = [numbers, numbers, numbers, written, _array("float64", 2, written=True)]
    return _compile(microbatch.make_decide, rule, loss, shape, (*state, *rows))


@functools.cache
def apply_loop(rule: Rule, loss: Loss, shape: Shape, cell: str, value: str) -> Any:
    """The compiled ``micro.make_apply`` for cells and values of these dtypes."""
    numbers = _array("float64")
    state = [_array(cell, written=True), numbers, types.float64, types.int64]
    rows = [_array("int64"), _array("uint32"), _array(value), numbers]
    return _compile(microbatch.make_apply, rule, loss, shape, (*state, *rows))


MICRO = {
    sense_loop: microbatch.make_sense,
    decide_loop: microbatch.make_decide,
    apply_loop: microbatch.make_apply,
}


def plain_loop(find: Any, rule: Rule, loss: Loss, shape: Shape) -> Any:
    """What ``find`` would compile, as plain Python."""
    if find is renew_loop:
        return full_pass.make_renew(rule, shape)
    if find in MICRO:
        return MICRO[find](rule, loss, shape)
    loops_of = LOOPS[rule.storage.kind]
    makers = {
        learn_loop: loops_of.make_learn,
        dense_loop: loops_of.make_learn,
        look_loop: loops_of.make_look,
        predict_loop: loops_of.make_predict,
        align_loop: merge_pass.make_align,
        rejoin_loop: merge_pass.make_rejoin,
    }
    return makers[find](rule, loss, shape)


def _compile(make: Callable[..., Any], rule: Rule, loss: Loss, shape: Shape, signature: Any) -> Any:
    loop = make(rule, loss, shape)
    words = [make.__name__, rule.name, loss.name, *(str(int(part)) for part in shape)]
    words += ["implicit"] * (bool(rule.row.implicit) and loss.along is not None)
    words += [str(part.dtype) for part in signature if isinstance(part, types.Array)]
    loop.__name__ = loop.__qualname__ = "_".join([*words, stamp(rule, loss, loop)])
    for function in _reached(loop):
        _name_apart(function, loop.__name__)
        _register(function)
    return jit.compile_cached(loop, signature)


def stamp(rule: Rule, loss: Loss, loop: FunctionType) -> str:
    """A hash of all sources a loop of this rule and loss is made of."""
    files = {Path(function.__code__.co_filename) for function in _reached(loop)}
    files |= {*Path(__file__).parent.rglob("*.py"), Path(inspect.getfile(type(rule)))}
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.read_bytes())
    # A rule with accounts for its certificate has the name and the file of the one without.
    names = [function.__qualname__ for function in _reached(loop)]
    digest.update(repr((rule.own_slots, rule.shared_slots, rule.total_slots, names)).encode())
    return digest.hexdigest()[:10]


def _name_apart(function: FunctionType, loop: str) -> None:
    """Name a function made inside another after the loop it is made for.

    A compiled function's symbol is its name and a number that each process counts for itself. Of
    two equal symbols, one loaded from the disk and one compiled here, the linker takes the first:
    what a factory makes with other constants must not have the same name.
    """
    if "<locals>" in function.__qualname__:
        function.__name__ = function.__qualname__ = f"{function.__name__}_{loop}"


@functools.cache
def _register(function: FunctionType) -> None:
    """Let compiled code call a plain function.

    No C code calls it: without a wrapper for that a loop compiles in four fifths of the time.
    """
    register_jitable(no_cfunc_wrapper=True)(function)


def _reached(loop: FunctionType) -> dict[FunctionType, None]:
    """Every plain function of ours that a loop calls, directly or through another."""
    found: dict[FunctionType, None] = {}
    ahead = [loop]
    while ahead:
        for called in _called(ahead.pop()):
            if called not in found:
                found[called] = None
                ahead.append(called)
    return found


def _called(function: FunctionType) -> Iterator[FunctionType]:
    """The plain functions that a function names, or closes over."""
    names = function.__code__.co_names
    named = [function.__globals__.get(name) for name in names]
    modules = [module for module in named if isinstance(module, ModuleType)]
    named += [vars(module).get(name) for module in modules for name in names]
    closed = [cell.cell_contents for cell in function.__closure__ or ()]
    for called in (*named, *closed):
        # The prefetch has a compiled form of its own.
        ours = isinstance(called, FunctionType) and not called.__module__.startswith(FOREIGN)
        if ours and called.__module__ != cache_prefetch.__name__:
            yield called


def _array(dtype: str, ndim: int = 1, *, written: bool = False) -> Any:
    return types.Array(numba.from_dtype(np.dtype(dtype)), ndim, "C", readonly=not written)


def _state(cell: str) -> Any:
    """Argument types that passes over all coordinates begin with: cells, totals, hyper, clock."""
    totals = _array("float64", written=True)
    return _array(cell, written=True), totals, _array("float64"), types.float64


def _rows(rule: Rule, cell: str, value: str) -> Any:
    """Argument types of a loop; one exact set, so that no call compiles anything else."""
    numbers = _array("float64")
    extra = [_array("float64", 3, written=True)] if rule.storage.matrices else []
    state = [_array(cell, written=True), _array("float64", written=True), *extra]
    # hyper is only read; as one that is written it is loaded by the functions that load cells.
    moved = [_array("float64", written=True), _array("float64", written=True), types.float64]
    rows = [_array("int64"), _array("uint32"), _array(value), numbers, numbers]
    return (*state, *moved, *rows, _array("float64", 2, written=True))


def _kept_rows(cell: str) -> Any:
    """Argument types of ``recent.make_learn``."""
    numbers, written = _array("float64"), _array("float64", written=True)
    state = [_array(cell, written=True), written, _array("float64", 2, written=True), written]
    moved = [numbers, types.float64, types.int64, types.int64]
    rows = [_array("int64"), _array("int64"), numbers, numbers, numbers]
    return (*state, *moved, *rows, _array("float64", 2, written=True))
