"""Loops that are compiled once a test process has given them enough to do, or loaded soon.

To compile a loop takes 1 to 7 s, a small run in plain Python less than a tenth, with the same bits:
``tests/engine/test_compiled.py`` compares the two. What names ``compiled=True``, records what is
compiled, or runs in a process of its own is compiled as for users; so is all of ``-m slow``.
"""

from __future__ import annotations

import fcntl
import functools
import math
import os
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from streamomd.core import jit
from streamomd.engine import Engine
from streamomd.engine import compile as compiling
from streamomd.engine import compile as fuse
from streamomd.engine.loops.row import Shape
from streamomd.losses import Loss
from streamomd.rules.contract import Rule

LAZY: Any = 2
"""True for all that asks, and what an engine has of which nothing else is said."""
MOST = {"root": 20_000, "recent": 20_000}
"""Numbers for each learner that a loop of a storage is given uncompiled, else 200,000: about as
long in plain Python as it takes to compile the loop."""

SOON = 500
"""Numbers after which a loop is loaded that an earlier run has compiled: that takes as long as some
hundred rows in plain Python."""

SLOW = {"block": 1.0}
"""Seconds of a call, else 0.2, after which a loop is compiled whatever numbers it was given: it may
have passed over all coordinates for a few rows."""


def compile_in_turn(name: str, make: Callable[[], Any]) -> Any:
    """What ``make`` compiles, or loads: the first of the test processes compiles and saves it
    while the others wait."""
    lock = f"streamomd-tests-{os.getuid()}-{zlib.crc32(name.encode()) % 64}.lock"
    with open(os.path.join(tempfile.gettempdir(), lock), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        return make()


class LazyFunction:
    """A function that is compiled when it was given ``most`` numbers, or took ``slow`` seconds; or
    is loaded when it was given ``SOON`` numbers, if it is saved."""

    def __init__(
        self,
        plain: Any,
        signature: Any,
        most: float,
        slow: float,
        is_saved: Callable[[], bool],
        make: Callable[[], Any],
    ) -> None:
        self._plain, self._signature, self._make = plain, signature, make
        self._left, self._slow, self._compiled = most, slow, None
        self._look, self._is_saved = most - SOON, is_saved
        self._kinds = [
            (np.dtype(str(kind.dtype)), kind.ndim, kind.mutable) if hasattr(kind, "ndim") else None
            for kind in signature
        ]

    def __call__(self, *given: Any) -> Any:
        """Run it; arguments of other types than those it is compiled for are refused."""
        # A loop over rows does not look at all cells, which are its first argument.
        arrays = [one for one in given[1:] if isinstance(one, np.ndarray)]
        self._left -= sum(one.size for one in arrays)
        if self._compiled is None and self._left < self._look:
            self._look = -math.inf
            if self._is_saved():
                self._left = -1.0
        if self._compiled is None and (self._left < 0 or jit.is_recording()):
            self._compiled = self._make()
        if self._compiled is not None:
            return self._compiled(*given)
        for one, kind in zip(given, self._kinds, strict=True):
            if kind is None:
                assert not isinstance(one, np.ndarray)
            else:
                assert (one.dtype, one.ndim) == kind[:2], (one, self._signature)
                assert one.flags.c_contiguous
                assert one.flags.writeable or not kind[2]
        started = time.thread_time()
        with np.errstate(all="ignore"):  # compiled loops do not warn
            found = self._plain(*given)
        if time.thread_time() - started > self._slow:
            self._left = -1.0
        return found


@functools.cache
def lazy_loop(operation: str, rule: Rule, loss: Loss, shape: Shape, *types: str) -> LazyFunction:
    """The loop of an operation, as ``engine.compile.compiled_loop`` gives it."""
    return LazyFunction(
        fuse.plain_loop(operation, rule, loss, shape),
        fuse.OPERATIONS[operation].signature(rule, *types),
        MOST.get(rule.storage.kind, 200_000) / shape.learners,
        SLOW.get(rule.storage.kind, 0.2),
        partial(fuse.is_loop_saved, operation, rule, loss, shape, *types),
        partial(
            compile_in_turn,
            f"{operation} {rule.name} {loss.name} {shape} {types}",
            partial(fuse.compiled_loop, operation, rule, loss, shape, *types),
        ),
    )


@functools.cache
def lazy_function(function: Any, signature: Any) -> LazyFunction:
    """A function that serves every rule and loss."""
    make = partial(fuse.compiled_function, function, signature)
    turn = partial(compile_in_turn, function.__qualname__, make)
    is_saved = partial(fuse.is_function_saved, function)
    return LazyFunction(function, signature, 200_000, SLOW["block"], is_saved, turn)


def install() -> None:
    """Engines compile lazily in this process, unless they name ``compiled``."""
    of_rule, of_all = Engine._make, Engine.function

    def is_lazy(engine: Engine) -> bool:
        return engine.compiled is LAZY and not jit.is_recording()

    def make(engine: Engine, operation: str, dense: bool, value: str) -> Any:
        if not is_lazy(engine):
            return of_rule(engine, operation, dense, value)
        layout, shape = engine.layout, engine.shape(dense)
        loss = engine.loss if engine._is_implicit() else replace(engine.loss, along=None)
        return lazy_loop(operation, layout.rule, loss, shape, layout.dtype, value)

    def function(engine: Engine, function: Any, signature: Any, work: float = math.inf) -> Any:
        if is_lazy(engine):
            return lazy_function(function, signature)
        return of_all(engine, function, signature, work)

    Engine._make, Engine.function = make, function
    Engine.__init__.__defaults__ = tuple(
        LAZY if value is True else value for value in Engine.__init__.__defaults__
    )


def compile_all(patch: Any) -> None:
    """Engines compile as for users, from the first row on, until the patch, a
    ``pytest.MonkeyPatch``, ends."""
    patch.setattr(compiling._Budget, "left", 0.0)
    values = (True if value is LAZY else value for value in Engine.__init__.__defaults__)
    patch.setattr(Engine.__init__, "__defaults__", tuple(values))


def dask_setup(worker: Any) -> None:
    """Called in a Dask worker that preloads this file."""
    install()
