"""Threads for the classes of one-against-all, while a run learns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from streamomd.config.run_tables import Train
from streamomd.core.threads import Threads, usable_cores
from streamomd.engine.divided import DividedState
from streamomd.training.async_commit import available_memory
from streamomd.training.model_data import ModelData

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
