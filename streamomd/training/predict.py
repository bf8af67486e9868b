"""Predictions and evaluation, shard by shard, also by slices: the rows that share a value of a
column. Nothing is learned."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamomd.core.batch import Batch, Floats, taken
from streamomd.core.errors import UnsupportedError, UsageError
from streamomd.core.finite import is_finite
from streamomd.core.run_events import phase
from streamomd.core.urls import is_inside, shown
from streamomd.core.wording import counted
from streamomd.engine import Engine
from streamomd.engine.standard_errors import MarginErrors, margin_errors, refuse_interval
from streamomd.engine.state import State
from streamomd.features import Plan, decode_labels
from streamomd.shards.distinct_values import Value, check_sliced, places_of, weights_of_values
from streamomd.shards.filtered_shards import filtered, unread_of, worded_filter
from streamomd.shards.output_files import (
    INTERVAL,
    NEW_VALUE,
    PredictionWriter,
    check_passthrough,
    empty_rows,
    output_names,
    remove_unfinished,
)
from streamomd.shards.renames import check_columns, distinct_schemas
from streamomd.shards.shard import ShardSet
from streamomd.sources.find import describe_sources
from streamomd.sources.tables import FILES_OR_TABLES, TableOptions
from streamomd.training.metrics import Metrics
from streamomd.training.metrics.ranking import COARSE
from streamomd.training.metrics.residuals import residual_ends
from streamomd.training.model_data import ModelData
from streamomd.training.model_figures import reported_mean
from streamomd.training.progress import note, quiet_notes, watching
from streamomd.training.progress_bars import progress
from streamomd.training.row_stream import cache_of, find_for_model, no_rows, rows_of, text_columns
from streamomd.training.scoring.link import Calibration, chosen, class_probabilities, means

MOST_SLICES = 1000
OTHER = "(other)"
FIGURES = ("auc", "auc_error", "mae", "r2")
RANKED_CLASSES = 2
"""With more classes there are no histograms for each slice: they would take 65 KB a class and
slice."""


def predict(
    model: ModelData,
    shards: str | Sequence[str],
    to: str,
    *,
    keep: Sequence[str] = (),
    where: str = "",
    interval: bool = False,
    level: float | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    tables: TableOptions = FILES_OR_TABLES,
    quiet: bool = True,
    allow_non_finite: bool = False,
) -> list[str]:
    """Write a Parquet file of predictions for each shard into directory ``to``; their paths.

    Columns: ``row`` (int64, in its shard), ``prediction`` (a value of the label column, or the
    mean), ``score`` (margin, or a list of margins), ``probability`` (logistic: of the second class,
    or a list that sums to 1), and the columns of ``keep``. Lists have the order of the plan's
    classes, which each file's schema has as JSON under ``classes``. where: a condition; other rows
    are not predicted, and ``row`` still counts them. interval: also ``lower`` and
    ``upper``, see ``interval_of``. level: also ``new_lower`` and ``new_upper``.

    Every row gets a prediction: a bad row is an error, even where training skipped bad rows.
    Raises DataError and SchemaError (shards), UsageError (keep), OutputExistsError, DivergedError.
    """
    if not allow_non_finite:
        model.refuse_non_finite()
    ends = (
        None
        if level is None
        else residual_ends(model.metrics.residuals, level, classifies=model.metrics.classifies)
    )
    plan, engine, state, calibration = model.plan, model.engine, model.state, model.calibration
    began = time.perf_counter()
    if interval:
        refuse_interval(engine)
    shard_set = find_for_model(
        plan, shards, storage_options=storage_options, where=where, tables=tables
    )
    _refuse_among_shards(to, shards)
    _report_tables(shard_set, plan, quiet=quiet)
    for shard in shard_set:
        check_columns(plan, shard, labelled=False, made=True)
        added = (*(INTERVAL if interval else ()), *(NEW_VALUE if ends is not None else ()))
        check_passthrough(shard, keep, added)
    with phase("compiling"):
        engine.warm(state, no_rows(plan, shard_set, labelled=False), learning=False)
    remove_unfinished(to, storage_options)
    writers = [
        PredictionWriter(
            to, name, storage_options=storage_options, overwrite=overwrite, classes=plan.classes
        )
        for name in output_names(shard_set)
    ]
    none, predicted = np.empty((0, engine.layout.learners)), 0
    for place, (shard, writer) in enumerate(zip(shard_set, writers, strict=True)):
        with writer:
            nothing = {
                "row": np.empty(0, np.int64),
                **columns(plan, engine, state, none, calibration),
            }
            if interval:
                nothing |= interval_of(
                    plan, engine, state, none, MarginErrors(none, none), calibration
                )
            if ends is not None:
                nothing |= new_values(nothing["prediction"], ends)
            writer.write(nothing, empty_rows(shard, keep))
            for piece in rows_of(plan, shard_set, [place], labelled=False, keep=keep):
                margins = engine.predict(state, np.zeros(3), piece.value.batch)
                _refuse_non_finite(model, margins, allowed=allow_non_finite)
                rows = np.arange(piece.row, piece.row + piece.rows, dtype=np.int64)
                rows = np.delete(rows, piece.value.batch.skipped.places)
                predicted += len(rows)
                said = {"row": rows, **columns(plan, engine, state, margins, calibration)}
                if interval:
                    moved = margin_errors(engine, state, piece.value.batch)
                    said |= interval_of(plan, engine, state, margins, moved, calibration)
                if ends is not None:
                    said |= new_values(said["prediction"], ends)
                writer.write(said, piece.value.passthrough)
    seconds = time.perf_counter() - began
    with quiet_notes(quiet):
        done = f"{counted(predicted, 'row')} predicted in {counted(len(writers), 'file')}"
        left_out = filtered(unread_of(shard_set), shard_set.rows - predicted) if where else None
        more = f", {worded_filter(left_out)}" if left_out else ""
        note(f"{done}{more}, {seconds:.2f} s")
    return [writer.path for writer in writers]


def _report_tables(found: ShardSet, plan: Plan, *, quiet: bool) -> None:
    with quiet_notes(quiet):
        for line in describe_sources(found, text_columns(plan)):
            note(line)


def _refuse_non_finite(model: ModelData, margins: Floats, *, allowed: bool) -> None:
    """Raises DivergedError if margins are not finite because the model is not."""
    if not allowed and not is_finite(margins):
        model.refuse_non_finite(weights=True)


def _refuse_among_shards(to: str, shards: str | Sequence[str]) -> None:
    """Predictions in the directory of their shards would be read as shards, or overwrite them."""
    for given in [shards] if isinstance(shards, str) else shards:
        if is_inside(to, given) or is_inside(given, to):
            raise UsageError(
                f"predictions of {shown(given)} cannot be written to {shown(to)}: one directory is "
                "inside the other; choose another directory"
            )


def columns(
    plan: Plan,
    engine: Engine,
    state: State,
    margins: Floats,
    calibration: Calibration | None = None,
) -> dict[str, Any]:
    """What is predicted of rows with these margins, (rows, learners), by name."""
    score = margins[:, 0] if margins.shape[1] == 1 else margins
    if not plan.classes:
        return {"prediction": mean_of(engine, score), "score": score}
    classes = chosen(margins)
    classes[np.isnan(margins).any(axis=1)] = -1  # no class: null
    found = {"prediction": decode_labels(plan, classes), "score": score}
    if engine.loss.probabilistic or calibration is not None:
        found["probability"] = probabilities(engine, state, margins, calibration)
    return found


def interval_of(
    plan: Plan,
    engine: Engine,
    state: State,
    margins: Floats,
    errors: MarginErrors,
    calibration: Calibration | None = None,
) -> dict[str, Floats]:
    """lower and upper: where the mean, or the probability, is with 95 %, by the margins' errors.

    Around the margin without what the prior has moved it by, and the prediction included.

    It is the uncertainty of the weights, not how far a target is from its mean. Of several
    classes each one's log odds have its learner's error, the others fixed.
    """
    far, one = 1.96 * errors.errors, margins.shape[1] == 1
    below = np.minimum(errors.shifts - far, 0.0)
    above = np.maximum(errors.shifts + far, 0.0)
    if not plan.classes:
        return {
            "lower": mean_of(engine, margins[:, 0] + below[:, 0]),
            "upper": mean_of(engine, margins[:, 0] + above[:, 0]),
        }
    if one:
        ends = [probabilities(engine, state, margins + by, calibration) for by in (below, above)]
        return {"lower": np.minimum(*ends), "upper": np.maximum(*ends)}
    if calibration is not None:
        raise UnsupportedError(
            "--interval with model.calibrate is for one margin a row, and softmax has one for each "
            "class: train with loss logistic"
        )
    likely = probabilities(engine, state, margins)
    odds = np.log(likely) - np.log1p(-likely)
    from scipy.special import expit  # late: SciPy is a fifth of a command's start

    return {"lower": expit(odds + below), "upper": expit(odds + above)}


def new_values(predicted: Floats, ends: tuple[float, float]) -> dict[str, Floats]:
    """Where new values are, by the ends of the residuals' interval."""
    return {name: predicted + end for name, end in zip(NEW_VALUE, ends, strict=True)}


def mean_of(engine: Engine, margins: Floats) -> Floats:
    """What is predicted at margins, of any shape."""
    return means(engine.loss.mean, margins)


def probabilities(
    engine: Engine, state: State, margins: Floats, calibration: Calibration | None = None
) -> Floats:
    """Returns probabilities of the second class, (rows,); with a learner a class, (rows, classes).

    They are calibrated ones, or smoothed as in the rule's log loss, see ``Engine.smoothing``.
    """
    if calibration is not None:
        return calibration.of(margins)
    loss = engine.loss
    return class_probabilities(loss.mean, loss.coupled, engine.smoothing(state), margins)


def evaluate(
    model: ModelData,
    shards: str | Sequence[str],
    *,
    by: Sequence[str] = (),
    where: str = "",
    storage_options: Mapping[str, Any] | None = None,
    tables: TableOptions = FILES_OR_TABLES,
    quiet: bool = False,
    allow_non_finite: bool = False,
) -> dict[str, Any]:
    """Loss and error on labelled shards, as ``train`` reports its own, with seconds and speed.

    by: columns; ``slices`` then has a list for each of them, of the rows that share a value: the
    1,000 heaviest ones, and all others as "(other)". Each column is read once more, and the rows
    are predicted once more.

    where: a condition; other rows are dropped, and counted under ``filtered``.
    Bad rows are treated as in training: an error, or skipped and counted. The cache of decoded
    rows is not used when ``by`` names columns.
    """
    if not allow_non_finite:
        model.refuse_non_finite()
    plan, engine, state = model.plan.timeless, model.engine, model.state
    cache = cache_of(model.spec.data, there=True)
    shard_set = find_for_model(
        plan, shards, storage_options=storage_options, where=where, tables=tables
    )
    _report_tables(shard_set, plan, quiet=quiet)
    for shard in distinct_schemas(shard_set):
        check_columns(plan, shard, made=True)
    shard_set.require_rows()
    with phase("compiling"):
        engine.warm(state, no_rows(plan, shard_set), learning=False)
    metrics = Metrics(bool(plan.classes))
    metrics.begin(0, shard_set.unread_rows)
    began = time.perf_counter()
    columns = list(dict.fromkeys(by))
    with quiet_notes(quiet):
        slices = slices_of(shard_set, columns, plan.weight, classifies=bool(plan.classes))
    with watching([] if quiet else [progress(metrics, shard_set.rows)], metrics) as watchers:
        for piece in rows_of(plan, shard_set, range(len(shard_set)), keep=columns, cache=cache):
            batch = piece.value.batch
            margins = engine.predict(state, metrics.current, batch)
            _refuse_non_finite(model, margins, allowed=allow_non_finite)
            metrics.examine(engine.loss, engine.classes, margins, batch.y, batch.weight)
            metrics.count_skipped(batch.skipped.counts(0, len(batch.skipped)), None)
            metrics.count(len(batch))
            for one in slices:
                one.add(engine, state, batch, piece.value.passthrough)
            for watcher in watchers:
                watcher.update(metrics)
    seconds = time.perf_counter() - began
    speed = {"seconds": seconds, "rows_per_second": metrics.total_rows / seconds}
    return {
        **metrics.result(),
        "filtered": filtered(unread_of(shard_set), metrics.filtered) if where else None,
        **metrics.detailed(engine.loss, plan.classes, smoothing=engine.smoothing(state)),
        "calibrated": metrics.calibrated(reported_mean(model)),
        "slices": {one.column: one.result(engine, plan.classes) for one in slices},
        **speed,
        "compile_seconds": engine.compile_seconds,
    }


@dataclass(eq=False)
class Slices:
    """The slices of one column: its heaviest values, at most 1,000, and all others together."""

    column: str
    places: Mapping[Value, int]
    metrics: list[Metrics]

    @classmethod
    def of(cls, column: str, weights: Mapping[Value, float], *, classifies: bool) -> Slices:
        """No rows yet. weights: of every value there is."""
        heaviest = sorted(weights, key=lambda value: (-weights[value], str(value)))[:MOST_SLICES]
        metrics = [Metrics(classifies) for _ in (*heaviest, OTHER)]
        for one in metrics:
            one.begin(0)
        return cls(column, {value: at for at, value in enumerate(heaviest)}, metrics)

    def add(self, engine: Engine, state: State, batch: Batch, columns: Any) -> None:
        """Predict a batch, slice by slice. ``columns``: columns of its rows.

        A slice's rows stay in their order, so that how batches are cut changes no bit.
        """
        column = columns.column(columns.schema.get_field_index(self.column))
        places = places_of(column, self.places, len(self.places))
        order = np.argsort(places, kind="stable")
        rows, edges = (
            taken(batch, order),
            np.searchsorted(places[order], range(len(self.metrics) + 1)),
        )
        for at in np.unique(places).tolist():
            metrics, some = self.metrics[at], rows.rows(int(edges[at]), int(edges[at + 1]))
            margins = engine.predict(state, metrics.current, some)
            metrics.count(len(some))
            if engine.classes <= RANKED_CLASSES:
                metrics.examine(
                    engine.loss, engine.classes, margins, some.y, some.weight, digits=COARSE
                )

    def result(self, engine: Engine, classes: Sequence[Any]) -> list[dict[str, Any]]:
        """Each slice with rows: its value, rows, weight, loss and further metrics."""
        slices = []
        for value, metrics in zip((*self.places, OTHER), self.metrics, strict=True):
            if metrics.total_rows:
                more = metrics.detailed(engine.loss, classes)
                slices.append(
                    {
                        "value": value,
                        "rows": metrics.total_rows,
                        "weight": float(metrics.total[0]),
                        **metrics.figures(metrics.total),
                        **{key: more[key] for key in FIGURES},
                    }
                )
        return slices


def slices_of(
    shards: ShardSet, columns: Sequence[str], weight: str, *, classifies: bool
) -> list[Slices]:
    """The slices of each column, from a reading of these columns alone.

    Raises SchemaError for a column that is not there or holds lists, DataError for one of more
    than a million values.
    """
    for shard in shards:
        check_sliced(shard, columns)
    if not columns:
        return []
    note(f"counting the values of {', '.join(columns)}")
    found = weights_of_values(shards, columns, weight)
    return [
        Slices.of(column, weights, classifies=classifies)
        for column, weights in zip(columns, found, strict=True)
    ]
