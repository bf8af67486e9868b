"""The loops of an engine, compiled when they are first needed, and how they walk over rows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Batch, DenseBatch, StoredRows
from streamomd.core.errors import TooLargeError
from streamomd.core.message import Key, Message
from streamomd.core.run_events import phase
from streamomd.engine.compile import (
    as_compiled,
    compiled_function,
    compiled_loop,
    is_early,
    is_function_saved,
    is_loop_saved,
    plain_loop,
)
from streamomd.engine.divided import DividedState, group_layout
from streamomd.engine.layout import Layout
from streamomd.engine.loops import block_row, dense, rebase, recent_rows
from streamomd.engine.loops.row import Shape, move_numbers, numbers_of
from streamomd.engine.state import State
from streamomd.losses import Loss
from streamomd.rules.contract import Block, RecentRows, fields

Floats = NDArray[np.float64]
Call = Callable[[], Any]
LEAST_WORK = 1 << 16
"""Values of a batch, counted for each class, from which threads learn it. They take 0.2 ms; to wake
a thread takes about as long on a busy machine."""


@dataclass
class Walks:
    """The base of ``Engine``: all but what is learned and predicted."""

    layout: Layout
    loss: Loss
    classes: int
    bias: bool
    params: dict[str, Any]
    loss_params: dict[str, Any] = field(default_factory=dict)
    compiled: bool = True
    late: bool = False
    compile_seconds: float = field(default=0.0, init=False)
    _loops: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)
    _dense: bool = field(default=False, init=False, repr=False)
    _groups: dict[int, Walks] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        numbers = [
            *self.layout.rule.hyper_numbers(self.params), *self.loss.numbers(self.loss_params)
        ]  # fmt: skip
        self.hyper = np.tile(np.array(numbers, dtype=np.float64), self.layout.learners)
        size = self.layout.size * self.layout.learners
        # Uncompiled, that loop would divide by zero where values are 0.
        self._dense = self.compiled and dense.fits(self.layout.rule, self.params, size)

    @cached_property
    def h(self) -> Any:
        """The rule's parsed hyper-parameters."""
        return self.layout.rule.hyper_of(self.params)

    @cached_property
    def step_numbers(self) -> int:
        """Numbers of a learner's step in a micro-batch: 1 if it moves, else 0, then its move."""
        return move_numbers(self.layout.rule)

    @cached_property
    def row_numbers(self) -> int:
        """Numbers that a partition adds to a row in ``micro_batches.sense``."""
        return numbers_of(self.layout.rule, self.layout.learners)

    def loop(
        self, operation: str, dense: bool = False, value: str = "float64", work: float = math.inf
    ) -> Any:
        """The loop for batches of such rows, compiled or loaded when it is first needed.

        work: of the call that it is needed for, as ``work_of`` says; little work may be done
        by plain Python.
        """
        key = operation, dense, value
        if key not in self._loops:  # hashing a rule is slow
            if self.late and self.compiled is True:
                loop = operation, self.layout.rule, self._loss(), self.shape(dense)
                types = self.layout.dtype, value
                if is_early(work, lambda: is_loop_saved(*loop, *types)):
                    return as_compiled(plain_loop(*loop))
            with self._compiling():
                self._loops[key] = self._make(*key)
        return self._loops[key]

    def is_saved(self, operation: str, dense: bool) -> bool:
        """Whether the disk cache has the loop for batches of float64 values."""
        shape, types = self.shape(dense), (self.layout.dtype, "float64")
        return is_loop_saved(operation, self.layout.rule, self._loss(), shape, *types)

    def function(self, function: Any, signature: Any, work: float = math.inf) -> Any:
        """A function that serves every rule and loss, compiled where loops are."""
        key = function.__name__, False, ""
        if key not in self._loops:
            is_late = self.late and self.compiled is True
            if is_late and is_early(work, lambda: is_function_saved(function)):
                return as_compiled(function)
            with self._compiling():
                made = compiled_function(function, signature) if self.compiled else function
                self._loops[key] = made
        return self._loops[key]

    @contextmanager
    def _compiling(self) -> Iterator[None]:
        started = time.perf_counter()
        with phase("compiling"):
            yield
        self.compile_seconds += time.perf_counter() - started

    @cached_property
    def kind(self) -> rebase.Kind:
        """What functions that serve every rule and loss have to know of them."""
        layout, loss, storage = self.layout, self.loss, self.layout.rule.storage
        assert isinstance(storage, Block)
        prior, prior_bias = (float(self.params.get(name, 0.0)) for name in ("prior", "prior_bias"))
        # Groups do not know of each other: without it each would explain all of a row.
        prior *= layout.groups
        return rebase.Kind(
            layout.width, layout.numeric, storage.second, storage.first, loss.quadratic,
            block_row.centres(loss, self.classes), prior, prior_bias,
        )  # fmt: skip

    def shape(self, dense: bool) -> Shape:
        """What a loop is compiled for in addition to the rule and the loss."""
        layout = self.layout
        return Shape(layout.learners, self.classes, layout.width, int(self.bias), dense)

    def _make(self, operation: str, dense: bool, value: str) -> Any:
        layout, shape, loss = self.layout, self.shape(dense), self._loss()
        if not self.compiled:
            return plain_loop(operation, layout.rule, loss, shape)
        return compiled_loop(operation, layout.rule, loss, shape, layout.dtype, value)

    def _loss(self) -> Loss:
        return self.loss if self._is_implicit() else replace(self.loss, along=None)

    def _is_implicit(self) -> bool:
        """Whether a learner takes implicit steps: else their pass over a row is not compiled."""
        names = fields(self.layout.rule.hyper)
        # Of any learner: one loop serves all of them.
        numbers = self.hyper.reshape(self.layout.learners, -1)
        implicit = self.layout.rule.row.implicit
        return implicit != "" and bool(numbers[:, names.index(implicit)].any())

    def _numbers(self, state: State) -> tuple[NDArray[Any], Floats, Floats, float]:
        return state.cells, state.totals.reshape(-1), self.hyper, float(state.clock)

    def _matrices(self, state: State) -> tuple[Any, ...]:
        """What the loops of a rule's storage take in addition to cells and totals."""
        layout = self.layout
        if layout.block:
            return (*(state.extra[name] for name in layout.block), layout.numeric)
        return tuple(state.extra.values()) if layout.rule.storage.matrices else ()

    def _walk_groups(
        self, operation: str, state: DividedState, sums: Floats, batch: Batch
    ) -> tuple[Floats, Any]:
        rows, is_dense = batch.arrays, isinstance(batch, DenseBatch)
        learns = operation in ("learn", "dense")
        by_columns = learns and is_dense and dense.filled(batch.values)

        def prepare(
            engine: Walks, group: State, first: int, losses: Floats, margins: Floats
        ) -> Call:
            # A group of few classes may fit where all of them together do not.
            learn = "dense" if by_columns and engine._dense else "learn"
            loop = engine.loop(learn if learns else operation, is_dense, rows[2].dtype.name)
            stored = (group.cells, group.totals.reshape(-1), *engine._matrices(group))
            moved = (losses, engine.hyper, float(state.clock))
            return partial(loop, *stored, *moved, *rows, batch.y - first, batch.weight, margins)

        return self._in_groups(state, sums, batch, prepare)

    def _in_groups(
        self, state: DividedState, sums: Floats, batch: Batch, prepare: Callable[..., Call]
    ) -> tuple[Floats, Any]:
        """Margins and clock after a loop for each group of classes, in a thread each.

        prepare(engine, group, first, losses, margins) gives a call of a loop, which is compiled in
        the caller's thread. first: the group's first class. losses: see ``row.is_group``.
        """
        margins = np.empty((len(batch), self.layout.learners))
        firsts, each = state.firsts, np.zeros((2, margins.size))
        calls, low = [], 0
        for first, group in zip(firsts.tolist(), state.groups, strict=False):
            engine = self._group_engine(group.layout.learners)
            shape = len(batch), group.layout.learners
            found, losses = each[:, low : low + math.prod(shape)]
            # Groups of one size share an engine, whose seconds are counted once.
            before, low = engine.compile_seconds, low + math.prod(shape)
            calls.append(prepare(engine, group, first, losses, found.reshape(shape)))
            self.compile_seconds += engine.compile_seconds - before
        worth = batch.values.size * self.layout.learners >= LEAST_WORK
        # All groups count the same rows, so any clock is that of the state.
        clocks = state.threads.run(calls, worth=worth)
        # In one pass after the threads: sums have the bits of one loop over all classes.
        self.loop("add")(sums, firsts, *each, batch.y, batch.weight, margins)
        return margins, clocks[0]

    def _group_engine(self, classes: int) -> Walks:
        """The loops of a group; groups of one size share them."""
        if classes not in self._groups:
            self._groups[classes] = replace(self, layout=group_layout(self.layout, classes))
        return self._groups[classes]

    def _walk_recent(
        self, operation: str, state: State, sums: Floats, batch: Batch
    ) -> tuple[Floats, Any]:
        """Learn with the stored rows in front, and store the last ones."""
        h, storage = self.h, self.layout.rule.storage
        assert isinstance(storage, RecentRows)
        before = StoredRows(**state.extra)
        stored = len(before.y) + len(batch)
        if storage.most and stored > getattr(h, storage.most):
            most = f"{getattr(h, storage.most):,.0f} of them"
            found = f"rule {self.layout.rule.name!r} stores every row, at most {most}"
            raise TooLargeError(
                Message(
                    "too_many", "{found} ({key}): {remedy}",
                    key=Key(f"model.params.{storage.most}"), found=found,
                    remedy="use fewer rows, or dual_ascent, which stores the last k",
                )
            )  # fmt: skip
        rows = recent_rows.extended(before, batch, int(self.bias))
        depth = int(getattr(h, storage.depth)) if storage.depth else len(rows.y)

        def prepare(engine: Walks, some: State, first: int, sums: Floats, margins: Floats) -> Call:
            own = rows.alpha[:, first : first + some.layout.learners]
            # The loop writes to it: a group's columns of an array are not one piece of memory.
            alpha, loop = np.ascontiguousarray(own), engine.loop(operation)
            moved = (alpha, sums, engine.hyper, float(state.clock), len(before.y), depth)
            stored = (*rows[:3], rows.y - first, rows.importance)

            def walk() -> Any:
                clock = loop(some.cells, some.totals.reshape(-1), *moved, *stored, margins)
                own[...] = alpha
                return clock

            return walk

        if isinstance(state, DividedState):
            margins, clock = self._in_groups(state, sums, batch, prepare)
        else:
            margins = np.empty((len(batch), self.layout.learners))
            clock = prepare(self, state, 0, sums, margins)()
        # One less than the loop looks at: the next row will be the last of them.
        state.extra = recent_rows.last(rows, depth - 1 if storage.depth else depth)._asdict()
        return margins, clock
