"""A state whose classes are divided into groups, each of which a thread learns.

In one-against-all nothing of one class enters the numbers of another: the slots that classes share
are functions of the rows alone. So each group has cells of its own, with a copy of the shared
slots, and groups do not write to the same cache lines. Totals, matrices, references and means are
those of the whole state.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import replace
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamomd.core.profiling import Stage
from streamomd.engine.layout import Layout
from streamomd.engine.state import State, start_cells
from streamomd.losses import Loss

T = TypeVar("T")


class Threads:
    """Runs calls in ``count`` threads, one of which is the caller's.

    stage: where a profile counts the time of the other threads; "": nowhere.

    >>> with Threads(2) as threads:
    ...     threads.run([lambda: 1, lambda: 2, lambda: 3])
    [1, 2, 3]
    """

    def __init__(self, count: int, stage: str = "") -> None:
        self.count, self._stage = count, stage
        self._pool = ThreadPoolExecutor(count - 1, "streamomd-threads") if count > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def run(self, calls: Sequence[Callable[[], T]], *, worth: bool = True) -> list[T]:
        """The results of the calls, in their order.

        Of several errors the first in that order is raised, after all calls have ended. worth:
        False runs them one after another, where waking a thread takes longer than the calls.
        """
        # One by one: no thread has to be woken.
        if self._pool is None or len(calls) < 2 or not worth:
            return [call() for call in calls]
        ahead, found = deque(enumerate(calls)), dict[int, Any]()
        errors: dict[int, BaseException] = {}

        def work() -> None:
            while True:
                try:
                    # In order: of groups of classes the first are the largest.
                    at, call = ahead.popleft()
                except IndexError:
                    return
                try:
                    found[at] = call()
                except BaseException as error:
                    errors[at] = error

        def help_out() -> None:
            with Stage(self._stage) if self._stage else nullcontext():
                work()

        helpers = range(min(self.count, len(calls)) - 1)
        # With the caller's context, in which a profile and messages have their receivers.
        waiting = [self._pool.submit(copy_context().run, help_out) for _ in helpers]
        work()
        wait(waiting)
        if errors:
            # Not the first in time, which depends on the threads.
            raise errors[min(errors)]
        return [found[at] for at in range(len(calls))]


BLOCK = 1 << 14  # coordinates copied at a time, so that they stay in the cache


def join_states(states: Sequence[State], layout: Layout) -> State:
    """The numbers of several states side by side; shared slots are those of all."""
    totals = np.concatenate([state.totals for state in states])
    first = states[0]
    cells = join_cells([(state.layout, state.cells) for state in states], layout)
    return State(layout, cells, totals, first.clock, means=first.means.copy())


def extract_learner(state: State, k: int) -> State:
    """Learner k's numbers, of several side by side, in a state of its own."""
    layout = replace(state.layout, learners=1)
    cells = extract_cells(state, k, layout)
    return State(
        layout, cells, state.totals[k : k + 1].copy(), state.clock, means=state.means.copy()
    )


def join_cells(parts: Sequence[tuple[Layout, NDArray[Any]]], layout: Layout) -> NDArray[Any]:
    """Cells of all learners, side by side, from those of consecutive ones."""
    made = start_cells(layout)
    whole, first = made.reshape(layout.size, layout.width), 0
    for of, cells in parts:
        some = cells.reshape(of.size, of.width)
        pairs = list(_columns(of, layout, first))
        for low in range(0, layout.size, BLOCK):
            for there, here in pairs:
                whole[low : low + BLOCK, here] = some[low : low + BLOCK, there]
        first += of.learners
    return made


def extract_cells(state: State, first: int, layout: Layout) -> NDArray[Any]:
    """Cells of the learners from ``first`` on, as many as the layout has."""
    made = start_cells(layout)
    some, pairs = (
        made.reshape(layout.size, layout.width),
        list(_columns(layout, state.layout, first)),
    )
    zeros = not layout.starts.any()
    for low in range(0, layout.size, BLOCK):
        block = state.table[low : low + BLOCK]
        # Pages that no row has touched stay unallocated. -0.0 counts as a value here.
        if zeros and not block.reshape(-1).view(np.uint8).any():
            continue
        for here, there in pairs:
            some[low : low + BLOCK, here] = block[:, there]
    return made


def _columns(some: Layout, whole: Layout, first: int) -> Iterator[tuple[slice, slice]]:
    """Each slot's cells in a layout of some learners, and the same cells in that of all."""
    shared = len(whole.rule.shared_slots)
    for at, ((_, here), (_, there)) in enumerate(zip(some.columns(), whole.columns(), strict=True)):
        # Slots are one after the other, each with all learners side by side.
        own = slice(there.start + first, there.start + first + some.learners)
        yield here, there if at < shared else own


STORAGES = ("coordinates", "matrix", "root", "recent")
"""Kinds of ``Rule.storage`` whose classes share nothing that depends on their gradients. A block
has one schedule and one mixture, which depend on the loss of all classes."""


def is_divisible(layout: Layout, loss: Loss, classes: int) -> bool:
    """Whether classes may be divided: one-against-all, by a rule whose classes are independent."""
    return classes > 2 and not loss.coupled and layout.rule.storage.kind in STORAGES


def group_sizes(classes: int, groups: int) -> list[int]:
    """Classes of each group, as equal as possible.

    >>> group_sizes(7, 3), group_sizes(2, 5)
    ([3, 2, 2], [1, 1])
    """
    groups = min(classes, groups)
    return [classes // groups + (at < classes % groups) for at in range(groups)]


class DividedState(State):
    """A state whose ``groups`` have its classes in groups, one after another.

    firsts: each group's first class, and the number of classes.

    ``cells`` is a copy that cannot be written.
    """

    def __init__(
        self, whole: State, threads: Threads, cells: Sequence[tuple[Layout, NDArray[Any]]]
    ) -> None:
        """whole: all but its cells are used."""
        self.layout, self.totals, self.clock = whole.layout, whole.totals, whole.clock
        self.extra, self.means, self.threads = whole.extra, whole.means, threads
        self.groups: list[State] = []
        sizes = [layout.learners for layout, _ in cells]
        self.firsts = np.cumsum([0, *sizes])
        for first, (layout, some) in zip(self.firsts.tolist(), cells, strict=False):
            own = slice(first, first + layout.learners)
            # A view: matrices are divided by learners as they are, and stay those of the whole.
            extra = {name: self.extra[name][own] for name in ("matrix",) if name in self.extra}
            self.groups.append(State(layout, some, self.totals[own], extra=extra))

    @classmethod
    def of(cls, state: State, threads: Threads) -> DividedState:
        """The state in a group for each thread, of at least two; it shares all but the cells with
        this one."""
        assert threads.count > 1
        divided: list[tuple[Layout, NDArray[Any]]] = []
        first = 0
        for learners in group_sizes(state.layout.learners, threads.count):
            layout = group_layout(state.layout, learners)
            divided.append((layout, extract_cells(state, first, layout)))
            first += learners
        return cls(state, threads, divided)

    @property
    def cells(self) -> NDArray[Any]:  # type: ignore[override]
        """All cells, in memory of their own."""
        cells = join_cells(self._cells, self.layout)
        # What is written to this copy would be lost.
        cells.flags.writeable = False
        return cells

    def joined(self) -> State:
        """A state that shares all but the cells with this one."""
        cells = join_cells(self._cells, self.layout)
        return State(self.layout, cells, self.totals, self.clock, self.extra, self.means)

    @contextlib.contextmanager
    def front(self, count: int) -> Iterator[State]:
        """The first coordinates as a state, which may be changed inside."""
        some = [(replace(of, size=count), cells[: count * of.width]) for of, cells in self._cells]
        layout = replace(self.layout, size=count)
        joined = join_cells(some, layout)
        front = State(layout, joined, self.totals, self.clock, self.extra, self.means)
        yield front
        first = 0
        for of, cells in some:
            # Back into each group, its shared slots too: all groups have the same ones.
            cells[...] = extract_cells(front, first, of)
            first += of.learners

    def copy(self) -> DividedState:
        """The same numbers in memory of their own, divided in the same way."""
        whole = State(
            self.layout, np.empty(0), self.totals.copy(), self.clock,
            {name: array.copy() for name, array in self.extra.items()}, self.means.copy(),
        )  # fmt: skip
        cells = [(group.layout, group.copy().cells) for group in self.groups]
        return DividedState(whole, self.threads, cells)

    def take(self, other: State) -> None:
        """Copy a state that is divided in the same way into this one's memory."""
        assert isinstance(other, DividedState)
        self.totals[...], self.means[...], self.clock = other.totals, other.means, other.clock
        self._take_extra(other)
        for ours, theirs in zip(self.groups, other.groups, strict=True):
            ours.cells[...] = theirs.cells

    @property
    def nbytes(self) -> int:
        """Bytes of the joined state: what depends on it does not depend on threads."""
        cells = self.layout.size * self.layout.width * self.groups[0].cells.itemsize
        return cells + sum(
            array.nbytes for array in (self.totals, self.means, *self.extra.values())
        )

    @property
    def _cells(self) -> list[tuple[Layout, NDArray[Any]]]:
        return [(group.layout, group.cells) for group in self.groups]

    @property
    def _all(self) -> tuple[NDArray[Any], ...]:
        return (*(group.cells for group in self.groups), self.totals, self.means)

    def _copy(self, low: int, high: int, columns: slice) -> NDArray[Any]:
        """One slot, given by its cells in the whole layout."""
        names = [at for _, at in self.layout.columns()]
        at = names.index(columns)
        found = [list(group.layout.columns())[at][1] for group in self.groups]
        blocks = [group.table[low:high, own] for group, own in zip(self.groups, found, strict=True)]
        shared = at < len(self.layout.rule.shared_slots)
        return np.ascontiguousarray(blocks[0] if shared else np.concatenate(blocks, axis=1))


def group_layout(layout: Layout, learners: int) -> Layout:
    """The layout of a group of classes. What all classes share is the whole state's."""
    return replace(layout, learners=learners, standardize=False, scale_target=False, means=())
