"""The figures of a model: its result, its summary, and the rule's own figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streamomd.core.urls import printable, typed
from streamomd.engine.block_weights import mixture
from streamomd.rules.contract import fields
from streamomd.shards.filtered_shards import filtered
from streamomd.training.drift_alerts import alerts_of
from streamomd.training.holdout import result
from streamomd.training.metrics.baseline import baseline_of
from streamomd.training.progress import Figure

if TYPE_CHECKING:
    from streamomd.training.model import Model


def result_of(model: Model) -> dict[str, Any]:
    """Metrics of all rows learned, the speed of this process, and the commit."""
    figures = _figures_of(model)
    return {**figures, "baseline": baseline_of(figures)}


def _figures_of(model: Model) -> dict[str, Any]:
    return {
        **model.metrics.result(),
        **model.metrics.detailed(
            model.engine.loss, model.plan.classes, smoothing=model.engine.smoothing(model.state)
        ),
        "calibrated": model.metrics.calibrated(model.reported_mean),
        "filtered": filtered(model.unread, model.metrics.filtered)
        if model.spec.data.where
        else None,
        "alerts": alerts_of(model),
        "sampled_out": model.metrics.sampled_out if model.spec.data.sample else None,
        **({"by_time": model.metrics.time_figures()} if model.spec.data.time else {}),
        **({"backtest": found.result(model)} if (found := model.metrics.backtest) else {}),
        **_delay(model),
        **_validation(model),
        "seconds": model.seconds,
        "rows_per_second": model.rows_per_second,
        "compile_seconds": model.engine.compile_seconds,
        "checkpoint": {"url": model.url, "sequence": model.sequence},
        "state_sha256": model.state_sha256,
    }


def summary_of(model: Model) -> dict[str, Any]:
    """Rule, loss, sizes and metrics of a model."""
    job = model.spec.model
    return {
        "rule": job.rule,
        "loss": job.loss,
        "params": job.params,
        "coordinates": model.plan.size,
        "classes": list(model.plan.classes),
        "rows": model.metrics.total_rows,
        **model.metrics.figures(model.metrics.total),
        **_mixture(model),
        **({"means": means} if (means := means_of(model)) else {}),
        "checkpoint": {"url": model.url, "sequence": model.sequence},
        "finished": model.finished,
    }


def mixture_of(model: Model) -> str:
    """Which predictor of a mixture carries the weight, and since when; "" of other rules."""
    found = mixture(model.engine, model.state)
    if found is None:
        return ""
    share, since = found
    name = "Laplace steps" if share >= 0.5 else "AdaGrad, which follows recent rows,"
    return f"{name} {max(share, 1.0 - share):.1%}, since row {max(since, 1):,}"


def recency_note(model: Model) -> str:
    """The line about a model that follows recent rows; "" of other models.

    Its progressive loss is that of rows right after those it learned: for rows of much later, or
    in another order, a model of all rows alike is often better.
    """
    found = mixture(model.engine, model.state)
    if found is None or found[0] >= 0.5:
        return ""
    return (
        "the model follows the latest rows, which predicted the next ones best; for rows of much "
        "later, compare --rule auto --set prefer=whole on held-out rows"
    )


def last_tenth(model: Model) -> tuple[int, float] | None:
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


def stream_note(model: Model) -> str:
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


def _mixture(model: Model) -> dict[str, str]:
    text = mixture_of(model)
    return {"mixture": text} if text else {}


def rule_figure(model: Model) -> Figure | None:
    """The rule's own figure, summed over the learners, if it has one."""
    rule = model.spec.rule
    live = rule.certificate.live
    if live is None:
        return None

    def now() -> float:
        h, stored = rule.hyper_of(model.engine.params), len(fields(rule.state.totals))
        learners = [rule.state.totals(*row[:stored].tolist()) for row in model.state.totals]
        return float(sum(live(totals, float(model.state.clock), h) for totals in learners))

    return Figure(rule.certificate.live_name, now)


def _delay(model: Model) -> dict[str, Any]:
    """Rows whose label is known by now, and those that wait for it; nothing without a delay."""
    if not (delay := model.spec.data.delay):
        return {}
    learned = model.teaching.rows
    waiting = model.metrics.total_rows - learned
    return {"delay": {"seconds": delay, "learned": learned, "waiting": waiting}}


def _validation(model: Model) -> dict[str, Any]:
    held, done = model.metrics.held, max(model.cursor.epoch, 0)
    given = (model.engine, model.state, model.plan.classes, done, model.reported_mean)
    return {
        "holdout": result(held, *given) if held is not None else None,
        "stopped_early": model.finished and done < model.spec.train.epochs,
    }


def fill_values_of(model: Model) -> dict[str, float | list[float]]:
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


def means_of(model: Model) -> dict[str, float | list[float]]:
    """The means that missing numbers become, by column."""
    values = fill_values_of(model) if model.plan.means else {}
    return {name: values[name] for name in model.plan.mean_columns}
