"""A micro-batch is learned in three calls, between which owners of partitions exchange numbers.

Each owner senses the rows with its own coordinates; the sum of what the partitions add to each row
decides the steps; each owner applies them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Batch, DenseBatch, LoopArrays
from streamomd.engine.state import State

if TYPE_CHECKING:
    from streamomd.engine import Engine

Floats = NDArray[np.float64]


class Sensed(NamedTuple):
    """What each partition adds to the rows of a micro-batch.

    numbers: (partitions, rows, n). touched: uint8 (partitions, rows), 1 where a row has an entry in
    the partition; all other numbers are 0.0.
    """

    numbers: Floats
    touched: NDArray[np.uint8]


def sense(engine: Engine, state: State, edges: NDArray[np.int64], batch: Batch) -> Sensed:
    """Observe a micro-batch; what each partition adds to its rows.

    edges: the coordinates between the partitions, from 0 to the state's last and one.
    """
    cells = len(edges) - 1, len(batch)
    numbers = np.zeros((*cells, engine.row_numbers))
    touched = np.zeros(cells, dtype=np.uint8)
    rows = batch.arrays
    loop = engine.loop("sense", isinstance(batch, DenseBatch), _value_name(rows))
    given = (state.cells, state.totals.reshape(-1), engine.hyper, float(state.clock))
    loop(*given, edges, batch.weight, *rows, numbers.reshape(-1), touched.reshape(-1))
    return Sensed(numbers, touched)


def decide(
    engine: Engine, state: State, sums: Floats, batch: Batch, numbers: Floats
) -> tuple[Floats, Floats]:
    """The steps of the micro-batch just sensed, (rows, learners, n), and its margins.

    Moves the totals of ``state`` and adds to ``sums`` as ``Engine.learn``. numbers: of all
    partitions, or their sum, (1 or partitions, rows, n).
    """
    learners = engine.layout.learners
    moves = np.empty((len(batch), learners, engine.step_numbers))
    margins = np.empty((len(batch), learners))
    given = (state.totals.reshape(-1), sums, engine.hyper, float(state.clock))
    loop = engine.loop("decide")
    loop(*given, numbers.reshape(-1), batch.y, batch.weight, moves.reshape(-1), margins)
    return moves, margins


def apply(engine: Engine, state: State, batch: Batch, moves: Floats) -> None:
    """Take the steps of the micro-batch just sensed."""
    rows = batch.arrays
    loop = engine.loop("apply", isinstance(batch, DenseBatch), _value_name(rows))
    given = (state.cells, engine.hyper, float(state.clock), len(batch))
    loop(*given, *rows, moves.reshape(-1))
    state.clock += len(batch)


def _value_name(rows: LoopArrays) -> str:
    """The dtype of a batch's values; ``dtype.name`` takes microseconds, which rounds notice."""
    return "float64" if rows[2].itemsize == 8 else "float32"
