"""Whether curves of numbers would lower the loss: both models learn the first rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from streamomd.config.spec import Spec
from streamomd.core.batch import Batch
from streamomd.engine.state import State
from streamomd.features import Plan
from streamomd.features.curves import MOST_NUMBERS, ROWS, curves_of
from streamomd.features.encode import first_numbers
from streamomd.shards.encoded_rows import encode_rows
from streamomd.shards.reader import ShardBatch
from streamomd.training.model_data import engine_of

FEWEST, MOST = 2_000, 20_000
"""Rows that say something, and rows that are learned."""
GAIN = 0.02
"""The share of the loss from which on a line says it."""


def curve_advice(spec: Spec, plan: Plan, unit: Sequence[ShardBatch]) -> list[str]:
    """A line if ``model.shapes`` would lower the loss of the second half of the first rows, each
    predicted before it is learned. unit: these rows."""
    rows = min(sum(piece.batch.num_rows for piece in unit), MOST)
    given = spec.model.shapes != "none" or spec.train.mode == "sharded"
    if given or rows < FEWEST or spec.rule.looks(spec.model.params):
        return []
    if not 0 < plan.given_numbers <= MOST_NUMBERS:
        return []
    first = [first_numbers(plan, piece.batch) for piece in unit]
    values, weights = (np.concatenate(some)[:ROWS] for some in zip(*first, strict=True))
    curved = replace(plan, curves=curves_of(values, weights))
    if not curved.curves:
        return []
    plain, with_curves = (_loss(spec, one, unit, rows) for one in (plan, curved))
    gain = 1.0 - with_curves / plain if plain > 0.0 else 0.0
    if not gain >= GAIN:
        return []
    which = f"rows {rows // 2 + 1:,} to {rows:,}"
    return [f"curved columns: --shapes columns lowers the loss of {which} by {gain:.0%}"]


def _loss(spec: Spec, plan: Plan, unit: Sequence[ShardBatch], rows: int) -> float:
    """The summed loss of the second half of the rows."""
    engine = engine_of(spec, plan)
    state = State.start(engine.layout)
    engine.begin(state)
    sums = np.zeros((2, 3))
    for half, batch in _halves(plan, unit, rows):
        engine.learn(state, sums[half], batch)
    return float(sums[1, 1])


def _halves(plan: Plan, unit: Sequence[ShardBatch], rows: int) -> Iterator[tuple[int, Batch]]:
    """The first rows, encoded, cut in their middle and at their end."""
    low = 0
    for piece in unit:
        batch = encode_rows(plan, piece).value.batch
        for half, end in enumerate((rows // 2, rows)):
            some = batch.rows(0, min(len(batch), max(end - low, 0)))
            batch = batch.rows(len(some), len(batch))
            low += len(some)
            if len(some):
                yield half, some
