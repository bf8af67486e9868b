"""Threads next to the one that learns: asynchronous commits, and groups of classes.

One commit is in progress at a time, and the copy's memory is reused: twice the state in all.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from streamomd.config.run_tables import Train
from streamomd.core.platform_calls import memory_within, usable_cores
from streamomd.engine.divided import DividedState, Threads
from streamomd.engine.state import State
from streamomd.training.model_data import ModelData

T = TypeVar("T")

LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class CommitAbandonedError(Exception):
    """A commit was abandoned between two of its parts; the one before it remains valid."""


class AsyncCommitter:
    """The copy of a state, and the thread that writes it.

    state: the state to copy, whose layout stays. The thread allocates the copy and touches its
    memory: the first copy into cold pages would cost the learner a hundred times the next.
    """

    def __init__(self, state: State) -> None:
        self._state, self._copy = state, state
        self._thread = threading.Thread()
        self._error: Exception | None = None
        self._hurry = threading.Event()
        # This copy is made while rows are learned, so its contents are never used.
        self.start(self._prepare)

    def _prepare(self) -> None:
        self._copy = self._state.copy()

    @property
    def busy(self) -> bool:
        """Whether the thread is working."""
        return self._thread.is_alive()

    def copy_state(self, state: State) -> State:
        """The state as it is now, in memory that the thread may read. It must not be working."""
        if state is not self._state:  # it was divided among threads since, or joined
            self._state, self._copy = state, state.copy()
        self._copy.take(state)
        return self._copy

    def start(self, work: Callable[[], object]) -> None:
        """Call ``work`` in the thread. The result of earlier work must have been collected."""
        context = contextvars.copy_context()  # where notes are sent, and whether they are shown
        self._thread = threading.Thread(
            target=context.run, args=(self._run, work), name="streamomd-commit", daemon=True
        )
        self._thread.start()

    def _run(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # for the learner to raise, between two rows
            self._error = error

    def each(self, parts: Iterator[T]) -> Iterator[T]:
        """Parts for the thread to write. Raises CommitAbandonedError between two, in a hurry."""
        for part in parts:
            if self._hurry.is_set():
                raise CommitAbandonedError
            yield part

    def outcome(self, *, hurry: bool = False) -> Exception | None:
        """Wait for the thread, and return its error. hurry: wait for the parts in flight."""
        if hurry:
            self._hurry.set()
        if self.busy:
            self._thread.join()
        self._hurry.clear()
        found, self._error = self._error, None
        return found


def async_committer(state: State, spare: float) -> AsyncCommitter | None:
    """None where memory does not suffice for the state, which may not be touched yet, and a copy.

    spare: bytes that are available, as far as the caller knows.
    """
    return AsyncCommitter(state) if 2 * state.nbytes <= min(spare, available_memory()) else None


def available_memory() -> float:
    """Bytes of memory available to this process; infinite where the system does not report it.

    >>> available_memory() > 0
    True
    """
    return memory_within(LIMITS)


LEAST_ROWS = 1 << 14
"""Rows of a run, counted for each class, from which threads are worth loops of their own."""
CELLS = 2
"""Cells of the state for each such row, at most: dividing and joining copies all of them, which
takes as long as learning about 10 values of the row."""


def thread_count(train: Train) -> int:
    """Threads that learn, by the job or by the cores that this process may use."""
    return train.threads or usable_cores()


def class_threads(model: ModelData, rows: float, threads: int) -> int:
    """Returns how many of these threads learn groups of the model's classes; 1: the caller's learns
    all.

    rows: about how many will be learned.
    """
    engine, train = model.engine, model.spec.train
    if train.mode != "exact" or not engine.divisible:
        return 1
    classes, cells = engine.layout.learners, engine.layout.size * engine.layout.width
    few = not train.threads and rows * classes < max(LEAST_ROWS, cells / CELLS)
    # Groups are made before the state that they replace is freed.
    if few or 2 * model.state.nbytes > available_memory():
        return 1
    return min(threads, classes)


@contextmanager
def classes_divided(model: ModelData, rows: float) -> Iterator[None]:
    """While inside, each thread learns a group of the model's classes, where that is faster.

    rows: about how many will be learned. The bits of state and metrics do not depend on threads.
    """
    count = class_threads(model, rows, thread_count(model.spec.train))
    if count < 2:
        yield
        return
    with Threads(count, "learn") as threads:
        model.state = DividedState.of(model.state, threads)
        try:
            yield
        finally:
            model.state = model.state.joined()
