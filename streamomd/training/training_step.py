"""The training step: rows go through the engine, and the metrics count them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamomd.config.model_table import DEFAULT
from streamomd.config.run_tables import Alert
from streamomd.core.batch import Batch, Floats, check
from streamomd.core.finite import Place
from streamomd.core.profiling import Stage
from streamomd.engine import Engine
from streamomd.engine.state import State
from streamomd.features import Plan
from streamomd.shards.order import Cursor
from streamomd.training.class_weights import ClassWeights, learn_weighted
from streamomd.training.drift_alerts import learned_rows, plan_to_read, watch_rows
from streamomd.training.holdout import stretches_of
from streamomd.training.metrics import Counts, Metrics
from streamomd.training.progress import note
from streamomd.training.run_records import LEAST, TriedPass

if TYPE_CHECKING:
    from streamomd.training.model_data import ModelData

Mask = NDArray[np.bool_]
_own = threading.local()
Predict = Callable[[Batch, Mask | None], tuple[Floats, Floats]]
"""predict(batch, held) -> margins (rows, learners), and ``Engine.row_losses``; it adds to the sums
of the metrics."""


def begin_epoch(model: ModelData, unread: int = 0) -> None:
    """Metrics of the cursor's epoch begin or continue; so does a pass over rows seen before.

    unread: rows of the epoch that a filter does not read.
    """
    model.metrics.begin(model.cursor.epoch, unread)
    if model.update.first and model.cursor == Cursor(model.cursor.epoch):
        model.metrics.add_unread(unread)  # of an update, whose epoch has begun before
    if model.begins_pass:
        model.engine.begin_pass(model.state)


def is_tried(model: ModelData) -> bool:
    """Whether the next row is the first of a pass that may be undone: of rule auto in exact mode,
    without ``train.patience``, after a pass over enough rows."""
    train, rows = model.spec.train, model.metrics.rows
    named = model.spec.model.rule == DEFAULT and train.mode == "exact" and not train.patience
    return named and model.begins_pass and bool(rows) and rows[-1] >= LEAST


def try_pass(model: ModelData, commit: int = -1) -> None:
    """Note the model before a pass. commit: of that model."""
    model.tried = TriedPass(commit)
    model.tried.fill(model.state.copy(), model.metrics.copy(), model.cursor)


def accept_pass(model: ModelData) -> bool:
    """Return to the model before the last pass, if that brought little; whether it is accepted."""
    tried, model.tried = model.tried, None
    if tried is None or tried.is_accepted:
        return True
    assert tried.state is not None
    assert tried.metrics is not None
    note(tried.reason(model.cursor.epoch))
    model.state.take(tried.state)
    model.metrics.take(tried.metrics)
    model.cursor = tried.cursor
    return False


def learn_foreign_rows(model: ModelData, batch: Batch) -> Floats:
    """Check a batch that the features did not make, and learn it: see ``Model.learn``."""
    check(batch, model.plan.size, bias=model.plan.bias)
    return learn_more(model, batch)


def learn_more(model: ModelData, batch: Batch) -> Floats:
    """Learn a batch that was encoded by the model's plan, after those learned before. Its rows are
    new, so they count for calibration and alerts."""
    model.metrics.begin(model.cursor.epoch)
    return learn_rows(model, batch, is_new=True)


def learn_rows(
    model: ModelData,
    batch: Batch,
    bad: Counts | None = None,
    held: Mask | None = None,
    rows: tuple[Place, Place] | None = None,
    *,
    predict: Predict | None = None,
    is_new: bool = False,
) -> Floats:
    """Learn a batch that the features made; margins of before learning, (rows, learners).

    bad: bad rows that were skipped, counted by reason. held: (rows,), validation rows, which are
    predicted and not learned. rows: where the batch begins and ends, for the error. predict: see
    ``learn_counted``. is_new: whether no epoch had these rows. Raises DivergedError if a number of
    the model is no longer finite.
    """
    if bad is not None:
        model.metrics.count_skipped(bad, model.spec.data.max_bad_rows)
    if model.spec.model.classifies:
        model.label_runs.add(batch.y)
    if model.plan.curves:
        model.curve_ranges.add(model.plan, batch)
    detail, tried = model.spec.train.detail, None if is_new else model.tried
    if tried is not None and held is None:
        held = tried.draw(len(batch))
    given, weights = (model.engine, model.state, model.metrics), model.class_weights
    first = counts_first(model, is_new=is_new) and predict is None
    more: Any = {"weights": weights, "first": first, "predict": predict, "tried": tried}
    margins = learn_counted(*given, batch, held, detail=detail, **more)
    learned = margins if held is None else margins[~held]
    rows = rows or (("the rows given", 0), ("the rows given", len(batch)))
    if predict is not None:  # the other cursor checks the state after the rows that it learns
        model.guard.predicted(model.metrics.current, learned, rows)
        return margins
    model.guard.after(model.state, model.metrics.current, learned, batch.values.size, rows)
    if watched_alerts(model, is_new=is_new):
        watch_rows(model, learned_rows(batch, held), learned)
    return margins


def counts_first(model: ModelData, *, is_new: bool = False) -> bool:
    """Whether margins are counted as ``Metrics.count_first`` does."""
    return (is_new or is_first_time(model)) and model.spec.model.counts_first


def watched_alerts(model: ModelData, *, is_new: bool = False) -> Alert | None:
    """The job's alerts, if it has any and rows are learned for the first time."""
    alert = model.spec.alert
    return alert if alert.watches and (is_new or is_first_time(model)) else None


def reader_plan(model: ModelData) -> Plan:
    """The plan by which rows of this pass are encoded."""
    return plan_to_read(watched_alerts(model), model.plan)


def is_first_time(model: ModelData) -> bool:
    """Whether no row of this pass was learned before."""
    return model.update.of_new or model.cursor.epoch <= 0


def observe_rows(model: ModelData, batch: Batch, held: Mask | None = None) -> None:
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
    first: bool = False,
    predict: Predict | None = None,
    tried: TriedPass | None = None,
) -> Floats:
    """Learn a batch except hold-out rows, and count its rows; margins of before learning.

    detail: whether to compute more metrics than sums. part: see ``Engine.learn``. weights: of the
    rows by class, which are no part of the sums. first: see ``Metrics.count_first``. predict:
    in place of learning, where another cursor learns the rows later. tried: counts hold-out rows,
    and has some where the job has none.
    """
    before = engine.rows_learned(state) if batch.time is not None else 0.0
    learn = partial(engine.learn, state, metrics.current, part=part)
    if weights is not None:
        step = partial(engine.learn, state, part=part)
        learn = partial(learn_weighted, engine, state, metrics, weights, step)
    losses = None
    if predict is not None:
        margins, losses = predict(batch, held)
    elif held is None:
        with Stage("learn"):
            margins = learn(batch)
    else:
        sums = np.zeros(3) if metrics.held is None else metrics.held.current
        margins = np.empty((len(batch), engine.layout.learners))
        for low, high in stretches_of(held):
            rows = batch.rows(low, high)
            with Stage("learn"):
                if held[low]:
                    margins[low:high] = _predict_held(engine, state, sums, rows, tried)
                else:
                    margins[low:high] = learn(rows)
    if losses is None and batch.time is not None:
        learned = batch.weight if held is None else np.where(held, 0.0, batch.weight)
        losses = engine.row_losses(before, margins, batch.y, learned, _buffer(len(batch)))
    for counted, which in _parts(metrics, held):
        some = margins[which], batch.y[which], batch.weight[which]
        _count(engine, counted, *some, detail)
        if losses is not None and batch.time is not None:
            counted.count_times(batch.time[which], batch.weight[which], losses[which])
        if first and counted is metrics:
            metrics.count_first(engine.loss, *some)
    if batch.time is not None:
        metrics.read_times(batch.time)
    return margins


def _predict_held(
    engine: Engine, state: State, sums: Floats, rows: Batch, tried: TriedPass | None
) -> Floats:
    """Margins of rows that are not learned."""
    if tried is not None:
        tried.count(engine, state, rows)
    return engine.predict(state, sums, rows)


def _buffer(rows: int) -> Floats:
    """Where this thread computes losses, (rows, 2): in new memory they would take a quarter longer,
    which glibc returns to the system each time (``shards.prefetch``)."""
    found = getattr(_own, "losses", None)
    if found is None or len(found) < rows:
        _own.losses = found = np.empty((rows, 2))
    return found[:rows]


def _parts(metrics: Metrics, held: Mask | None) -> list[tuple[Metrics, Any]]:
    """Metrics, and an index of the rows that they count."""
    if held is None:
        return [(metrics, slice(None))]
    counted = [(metrics, ~held), (metrics.held, held)]
    return [(some, which) for some, which in counted if some is not None]


def _count(
    engine: Engine, metrics: Metrics, margins: Floats, y: Floats, weight: Floats, detail: bool
) -> None:
    """Count rows whose sums the engine has added already."""
    metrics.count(len(y))
    if detail:
        with Stage("metrics"):
            metrics.examine(engine.loss, engine.classes, margins, y, weight)
