"""The training step: rows go through the engine, and the metrics count them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Batch, Times, check
from streamomd.core.finite import Place
from streamomd.core.profiling import Stage
from streamomd.engine import Engine
from streamomd.engine.state import State
from streamomd.shards.cursor import Cursor
from streamomd.training.class_weights import ClassWeights, learn_weighted
from streamomd.training.holdout import stretches_of
from streamomd.training.metrics import Counts, Metrics
from streamomd.training.metrics.by_time import HOUR, ByTime

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
    *,
    learns: bool = True,
) -> Floats:
    """Learn a batch that the features made; margins of before learning, (rows, learners).

    Rows with times are all of one hour (``metrics.by_time.ends_of_hours``).

    bad: bad rows that were skipped, counted by reason. held: (rows,), validation rows, which are
    predicted and not learned. rows: where the batch begins and ends, for the error. learns: False
    where another cursor learns the rows later: they are predicted and counted. Raises
    DivergedError if a number of the model is no longer finite.
    """
    if bad is not None:
        model.metrics.count_skipped(bad, model.spec.data.max_bad_rows)
    if model.spec.model.classifies:
        model.label_runs.add(batch.y)
    begin_hour(model.metrics, batch.time)
    detail = model.spec.train.detail
    given, weights = (model.engine, model.state, model.metrics), model.class_weights
    more: Any = {"weights": weights, "calibrates": calibrates_now(model), "learns": learns}
    margins = learn_counted(*given, batch, held, detail=detail, **more)
    learned = margins if held is None else margins[~held]
    rows = rows or (("the rows given", 0), ("the rows given", len(batch)))
    model.guard.after(model.state, model.metrics.current, learned, batch.values.size, rows)
    return margins


def calibrates_now(model: Model) -> bool:
    """Whether margins are counted for calibration: of rows that are learned for the first time."""
    first = model.update.of_new or model.cursor.epoch <= 0
    return first and model.spec.model.calibrate != "none"


def observe_rows(model: Model, batch: Batch, held: Mask | None = None) -> None:
    """Observe rows before the first is learned, except validation rows."""
    for low, high in [(0, len(batch))] if held is None else stretches_of(held):
        if held is None or not held[low]:
            model.engine.look(model.state, batch.rows(low, high))


def learn_counted(
    engine: Engine,
    state: State,
    metrics: Metrics,
    batch: Batch,
    held: Mask | None = None,
    *,
    detail: bool = True,
    part: bool = False,
    weights: ClassWeights | None = None,
    calibrates: bool = False,
    learns: bool = True,
) -> Floats:
    """Learn a batch except hold-out rows, and count its rows; margins of before learning.

    detail: whether to compute more metrics than sums. part: see ``Engine.learn``. weights: of the
    rows by class, which are no part of the sums. calibrates: whether margins are counted. learns:
    False predicts the rows in place of learning them.
    """
    if not learns:
        learn = partial(engine.predict, state, metrics.current)
    elif weights is not None:
        step = partial(engine.learn, state, part=part)
        learn = partial(learn_weighted, engine, state, metrics, weights, step)
    else:
        learn = partial(engine.learn, state, metrics.current, part=part)
    if held is None:
        with Stage("learn"):
            margins = learn(batch)
        _count(engine, metrics, margins, batch.y, batch.weight, detail)
        if calibrates:
            metrics.count_margins(margins, batch.y, batch.weight)
        return margins
    validation = metrics.held
    assert validation is not None
    margins = np.empty((len(batch), engine.layout.learners))
    for low, high in stretches_of(held):
        rows = batch.rows(low, high)
        with Stage("learn"):
            if held[low]:
                margins[low:high] = engine.predict(state, validation.current, rows)
            else:
                margins[low:high] = learn(rows)
    for counted, which in ((metrics, ~held), (validation, held)):
        _count(engine, counted, margins[which], batch.y[which], batch.weight[which], detail)
    if calibrates:
        metrics.count_margins(margins[~held], batch.y[~held], batch.weight[~held])
    return margins


def begin_hour(metrics: Metrics, time: Times | None) -> None:
    """Begin the hour of rows, also for those that are held out. time: of rows of one hour."""
    if time is None:
        metrics.end_hour()
        return
    if not len(time):
        return
    for one in (metrics, metrics.held):
        if one is not None:
            one.by_time = one.by_time or ByTime()
            one.by_time.begin(int(time[0]) // HOUR, one.current)
    assert metrics.by_time is not None
    metrics.by_time.read(time)


def _count(
    engine: Engine, metrics: Metrics, margins: Floats, y: Floats, weight: Floats, detail: bool
) -> None:
    """Count rows whose sums the engine has added already."""
    metrics.count(len(y))
    if metrics.by_time is not None:
        metrics.by_time.count(len(y))
    if detail:
        with Stage("metrics"):
            metrics.examine(engine.loss, engine.classes, margins, y, weight)
