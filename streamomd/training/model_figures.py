"""The figures of a model: its result, its summary, and the rule's own figure."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from streamomd.core.batch import Floats
from streamomd.core.run_events import emit
from streamomd.core.scalars import sigmoid
from streamomd.core.urls import printable, typed
from streamomd.engine.block_state import mixture
from streamomd.engine.frozen_rows import saved_loss
from streamomd.rules.contract import fields
from streamomd.shards.filtered_shards import filtered
from streamomd.training.class_weights import ClassWeights, class_weights_of
from streamomd.training.drift_alerts import alerts_of
from streamomd.training.holdout import result
from streamomd.training.metrics.by_time import EARLIER_TEXT, RETAINED, Backtest, period_text
from streamomd.training.metrics.ranking import baseline_of
from streamomd.training.model_data import ModelData
from streamomd.training.progress import Figure

LARGER = 1.05
"""Times the progressive loss, above which the loss of later rows is reported."""


def result_of(model: ModelData) -> dict[str, Any]:
    """Metrics of all rows learned, the speed of this process, and the commit."""
    figures = _figures_of(model)
    return {**figures, "baseline": baseline_of(figures)}


def _figures_of(model: ModelData) -> dict[str, Any]:
    return {
        **model.metrics.result(),
        **model.metrics.detailed(
            model.engine.loss, model.plan.classes, smoothing=model.engine.smoothing(model.state)
        ),
        "calibrated": model.metrics.calibrated(reported_mean(model)),
        "saved_loss": saved_loss(model.engine, model.state),
        "filtered": filtered(model.unread, model.metrics.filtered)
        if model.spec.data.where
        else None,
        "alerts": alerts_of(model),
        "sampled_out": model.metrics.sampled_out if model.spec.data.sample else None,
        **({"by_time": model.metrics.time_figures()} if model.spec.data.time else {}),
        **(
            {"backtest": backtest_result(found, model)} if (found := model.metrics.backtest) else {}
        ),
        **_delay(model),
        **_validation(model),
        "seconds": model.seconds,
        "rows_per_second": model.rows_per_second,
        "compile_seconds": model.engine.compile_seconds,
        "checkpoint": {"url": model.url, "sequence": model.sequence},
        "state_sha256": model.state_sha256,
    }


def summary_of(model: ModelData) -> dict[str, Any]:
    """Rule, loss, sizes and metrics of a model."""
    job = model.spec.model
    return {
        "rule": job.rule,
        "loss": job.loss,
        "params": job.params,
        **({"selected": list(model.plan.features)} if model.spec.data.select else {}),
        "coordinates": model.plan.size,
        "classes": list(model.plan.classes),
        "rows": model.metrics.total_rows,
        **model.metrics.figures(model.metrics.total),
        **_mixture(model),
        **({"means": means} if (means := means_of(model)) else {}),
        "checkpoint": {"url": model.url, "sequence": model.sequence},
        "finished": model.finished,
    }


def mixture_of(model: ModelData) -> str:
    """Which predictor of a saved mixture carries the weight, and since when the next row decides
    so; "" of other rules."""
    found = mixture(model.engine, model.state)
    if found is None:
        return ""
    share, since = found
    name = "Laplace steps" if share >= 0.5 else "AdaGrad, which follows recent rows,"
    text = f"{name} {max(share, 1.0 - share):.1%}, "
    return text + (f"since row {since:,}" if since else "chosen by frozen predictions")


def recency_note(model: ModelData) -> str:
    """The line about a model that follows recent rows, because these predicted the next ones best;
    "" of other models.

    Its progressive loss is that of rows right after those it learned: for rows of much later, or
    in another order, a model of all rows alike is often better.
    """
    found = mixture(model.engine, model.state)
    if found is None or found[0] >= 0.5 or found[1] == 0:
        return ""
    return (
        "the model follows the latest rows, which predicted the next ones best; for rows of much "
        "later, compare --rule auto --set prefer=whole on held-out rows"
    )


def saved_note(model: ModelData) -> str:
    """The line about rows that come after the model was saved, where they have a larger loss than
    the next row; "" of other models."""
    after, epochs = saved_loss(model.engine, model.state), model.metrics.result()["epochs"]
    loss = epochs[0]["loss"] if epochs else None
    if after is None or loss is None or after <= LARGER * loss:
        return ""
    return (
        f"rows drift: a saved model has a loss of {after:.6f} on the rows that follow, {loss:.6f} "
        "on the next row alone; update it as rows arrive"
    )


def last_tenth(model: ModelData) -> tuple[int, float] | None:
    """How many the last rows of the first epoch are, about a tenth, and their loss; None if it is
    unknown."""
    metrics = model.metrics
    if not metrics.rows:
        return None
    rows = metrics.rows[0]
    before = metrics.curve[metrics.curve[:, 0] < rows]
    if not len(before):
        return None
    start = before[np.abs(before[:, 0] - 0.9 * rows).argmin()]
    loss = metrics.figures(metrics.sums[0] - start[1:])["loss"]
    return None if loss is None else (rows - int(start[0]), loss)


def stream_note(model: ModelData) -> str:
    """The line about what the loss estimates, of rows in order of time; "" of others."""
    column = model.spec.data.time or model.ordered_by
    if not column or (last := last_tenth(model)) is None:
        return ""
    known = "" if model.spec.data.time else f"; --time {typed(column)} has the loss by day"
    return (
        f"rows are in order of {printable(column)!r}: the loss is that of rows that continue the "
        f"stream, of the last {last[0]:,} it is {last[1]:.6f}; rows of much later may have "
        f"another{known}"
    )


def _mixture(model: ModelData) -> dict[str, str]:
    text = mixture_of(model)
    return {"mixture": text} if text else {}


def rule_figure(model: ModelData) -> Figure | None:
    """The rule's own figure, summed over the learners, if it has one."""
    rule = model.spec.rule
    live = rule.certificate.live
    if live is None:
        return None

    def now() -> float:
        h, stored = model.engine.h, len(fields(rule.state.totals))
        learners = [rule.state.totals(*row[:stored].tolist()) for row in model.state.totals]
        return float(sum(live(totals, float(model.state.clock), h) for totals in learners))

    return Figure(rule.certificate.live_name, now)


def _delay(model: ModelData) -> dict[str, Any]:
    """Rows whose label is known by now, and those that wait for it; nothing without a delay."""
    if not (delay := model.spec.data.delay):
        return {}
    learned = model.teaching.rows
    waiting = model.metrics.total_rows - learned
    return {"delay": {"seconds": delay, "learned": learned, "waiting": waiting}}


def _validation(model: ModelData) -> dict[str, Any]:
    held, done = model.metrics.held, max(model.cursor.epoch, 0)
    given = (model.engine, model.state, model.plan.classes, done, reported_mean(model))
    return {
        "holdout": result(held, *given) if held is not None else None,
        "stopped_early": model.finished and done < model.spec.train.epochs,
    }


def fill_values_of(model: ModelData) -> dict[str, float | list[float]]:
    """What missing numbers become, by column: 0 or the mean; of a vector a list of them."""
    plan = model.plan
    values = np.zeros(plan.numbers)
    values[list(plan.means)] = model.engine.fill_values(model.state)
    found: dict[str, float | list[float]] = {}
    for at, name in enumerate(plan.numeric):
        found[name] = float(values[at])
    at = len(plan.numeric)
    for name, width in plan.vectors:
        found[name] = values[at : at + width].tolist()
        at += width
    return {name: value for name, value in found.items() if plan.nulls_of(name) != "error"}


def means_of(model: ModelData) -> dict[str, float | list[float]]:
    """The means that missing numbers become, by column."""
    values = fill_values_of(model) if model.plan.means else {}
    return {name: values[name] for name in model.plan.mean_columns}


def reported_mean(model: ModelData) -> Callable[[float], float] | None:
    """The probability of the second of two classes at a margin, for the figures under
    ``calibrated``: of ``model.calibrate``, else without the effect of class weights on the
    odds; None of a job with neither."""
    job = model.spec.model
    natural = job.calibrate == "none" and job.class_weight
    return natural_mean(model) if natural else model.calibration


def natural_mean(model: ModelData) -> Callable[[float], float] | None:
    """The probability of the second of two classes at a margin, without the effect of class weights
    on the odds; None of a loss that gives none."""
    classes = len(model.plan.classes)
    if classes != 2 or model.spec.model.loss not in ("logistic", "softmax"):
        return None
    shift = _log_ratio(class_weights_of(model.spec, model.plan), model.metrics.classes)
    smoothing = model.engine.smoothing(model.state)

    def mean(margin: float) -> float:
        return (1.0 - smoothing) * sigmoid(margin - shift) + smoothing / 2.0

    return mean


def _log_ratio(factors: ClassWeights | None, counts: Floats | None) -> float:
    """By how much class weights raise the log odds of the second class. counts: see
    ``Metrics.classes``."""
    if factors is None:
        return 0.0
    given = factors.given
    if given is None:  # balanced: by 1 / n_k
        if counts is None or not (counts[:2] > 0.0).all():
            return 0.0
        given = 1.0 / counts[:2]
    return math.log(given[1]) - math.log(given[0])


def end_period(backtest: Backtest, model: ModelData) -> None:
    """Note the figures of the period under way, if its model had learned a row. model: which
    has learned no row since its beginning."""
    number, metrics, learned = backtest.number, model.metrics.period, model.teaching.rows
    if number is None or metrics is None:
        return
    backtest.number, model.metrics.period = None, None
    backtest.finished = (backtest.finished + metrics.current).tolist()
    if not learned:
        backtest.before += metrics.total_rows
        return
    rank = metrics.detail.rank() if metrics.detail is not None else {}
    mean = reported_mean(model)
    calibrated = {"calibrated": metrics.calibrated(mean)} if mean else {}
    figures = {
        "period": period_text(number, backtest.length, backtest.origin),
        "learned": learned,
        "rows": metrics.total_rows,
        **metrics.figures(metrics.current),
        "auc": rank.get("auc"),
        "auc_error": rank.get("auc_error"),
        **calibrated,
    }
    emit("period", "", "info", **figures)
    backtest.periods.append({**figures, "sums": metrics.current.tolist()})
    if len(backtest.periods) > RETAINED:
        _join_earliest(backtest, model)


def _join_earliest(backtest: Backtest, model: ModelData) -> None:
    """Join the earliest period with those before it: figures of at most ``RETAINED``, and of
    all earlier ones together."""
    first = backtest.periods.pop(0)
    before = backtest.earlier or {"rows": 0, "sums": [0.0, 0.0, 0.0]}
    sums = np.add(before["sums"], first["sums"])
    backtest.earlier = {
        "period": EARLIER_TEXT,
        "learned": first["learned"],
        "rows": before["rows"] + first["rows"],
        **model.metrics.figures(sums),
        "auc": None,
        "auc_error": None,
        **_calibrated_together([before, first]),
        "sums": sums.tolist(),
    }


def backtest_result(backtest: Backtest, model: ModelData) -> dict[str, Any]:
    """What ``streamomd.backtest`` gives."""
    metrics, timed = model.metrics, model.metrics.by_time
    periods = [*([backtest.earlier] if backtest.earlier else []), *backtest.periods]
    sums = np.zeros(3)
    for one in periods:
        sums += one["sums"]
    return {
        "by": backtest.by,
        "gap": backtest.gap,
        "rows": sum(one["rows"] for one in periods),
        **metrics.figures(sums),
        **_calibrated_together(periods),
        "periods": [{key: one[key] for key in one if key != "sums"} for one in periods],
        "rows_before": backtest.before,
        "late": timed.late if timed else 0,
        "ties": timed.ties if timed else 0,
        "skipped": metrics.skipped,
        "seconds": model.seconds,
        "rows_per_second": model.rows_per_second,
        "compile_seconds": model.engine.compile_seconds,
        **({"checkpoint": {"url": model.url, "sequence": model.sequence}} if model.url else {}),
    }


def _calibrated_together(periods: list[dict[str, Any]]) -> dict[str, Any]:
    """``calibrated`` of the rows of all periods: the mean log loss, None if one has none; nothing
    without calibration."""
    known = [(one["calibrated"], one["sums"][0]) for one in periods if "calibrated" in one]
    if not known:
        return {}
    weight = sum(weight for _, weight in known)
    if not weight or any(one is None or one["log_loss"] is None for one, _ in known):
        return {"calibrated": {"log_loss": None}}
    total = sum(one["log_loss"] * weight for one, weight in known)
    return {"calibrated": {"log_loss": float(total / weight)}}
