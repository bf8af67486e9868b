"""The training step: rows go through the engine, and the metrics count them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Batch, check
from streamomd.core.finite import Place
from streamomd.core.profiling import Stage
from streamomd.shards.cursor import Cursor
from streamomd.training.holdout import stretches_of
from streamomd.training.metrics import Counts, Metrics

if TYPE_CHECKING:
    from streamomd.training.model import Model

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def begin_epoch(model: Model, unread: int = 0) -> None:
    """Metrics of the cursor's epoch begin or continue; so does a pass over rows seen before.

    unread: rows of the epoch that a filter does not read.
    """
    model.metrics.begin(model.cursor.epoch, unread)
    if model.update.first and model.cursor == Cursor(model.cursor.epoch):
        model.metrics.add_unread(unread)  # of an update, whose epoch has begun before
    if model.begins_pass:
        model.engine.begin_pass(model.state)


def learn_foreign_rows(model: Model, batch: Batch) -> Floats:
    """Check a batch that the features did not make, and learn it: see ``Model.learn``."""
    check(batch, model.plan.size, bias=model.plan.bias)
    return learn_more(model, batch)


def learn_more(model: Model, batch: Batch) -> Floats:
    """Learn a batch that was encoded by the model's plan, after those learned before."""
    model.metrics.begin(model.cursor.epoch)
    return learn_rows(model, batch)


def learn_rows(
    model: Model,
    batch: Batch,
    bad: Counts | None = None,
    held: Mask | None = None,
    rows: tuple[Place, Place] | None = None,
) -> Floats:
    """Learn a batch that the features made; margins of before learning, (rows, learners).

    bad: bad rows that were skipped, counted by reason. held: (rows,), validation rows, which are
    predicted and not learned. rows: where the batch begins and ends, for the error. Raises
    DivergedError if a number of the model is no longer finite.
    """
    if bad is not None:
        model.metrics.count_skipped(bad, model.spec.data.max_bad_rows)
    if model.spec.model.classifies:
        model.label_runs.add(batch.y)
    margins = _learn_all(model, batch) if held is None else _learn_some(model, batch, held)
    learned = margins if held is None else margins[~held]
    rows = rows or (("the rows given", 0), ("the rows given", len(batch)))
    model.guard.after(model.state, model.metrics.current, learned, batch.values.size, rows)
    return margins


def observe_rows(model: Model, batch: Batch, held: Mask | None = None) -> None:
    """Observe rows before the first is learned, except validation rows."""
    for low, high in [(0, len(batch))] if held is None else stretches_of(held):
        if held is None or not held[low]:
            model.engine.look(model.state, batch.rows(low, high))


def _learn_all(model: Model, batch: Batch) -> Floats:
    with Stage("learn"):
        margins = model.engine.learn(model.state, model.metrics.current, batch)
    _count(model, model.metrics, margins, batch.y, batch.weight)
    return margins


def _learn_some(model: Model, batch: Batch, held: Mask) -> Floats:
    """Learn the rows except hold-out rows; each row is predicted first."""
    metrics, validation = model.metrics, model.metrics.held
    assert validation is not None
    margins = np.empty((len(batch), model.engine.layout.learners))
    for low, high in stretches_of(held):
        rows, out = batch.rows(low, high), held[low]
        walk = model.engine.predict if out else model.engine.learn
        sums = validation.current if out else metrics.current
        with Stage("learn"):
            margins[low:high] = walk(model.state, sums, rows)
    for counted, which in ((metrics, ~held), (validation, held)):
        _count(model, counted, margins[which], batch.y[which], batch.weight[which])
    return margins


def _count(model: Model, metrics: Metrics, margins: Floats, y: Floats, weight: Floats) -> None:
    """Count rows whose sums the engine has added already."""
    metrics.count(len(y))
    if model.spec.train.detail:
        with Stage("metrics"):
            metrics.examine(model.engine.loss, model.engine.classes, margins, y, weight)
