"""A run's report: one self-contained page of HTML, made from a model's own numbers.

From the top: the verdict, warnings, charts, tables. It runs no script and loads nothing, so it
opens offline, and text in a column name cannot run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from streamomd.analysis.certify import measure
from streamomd.analysis.certify.claims import KEEP, no_theorem
from streamomd.analysis.certify.replay import FixedWeights
from streamomd.analysis.history import history
from streamomd.analysis.report.charts import Axis, Series, bars, brief, lines
from streamomd.analysis.report.data_warnings import find_data_warnings
from streamomd.analysis.report.feature_table import features_section
from streamomd.analysis.report.feature_weights import scales_from_slots, scales_of_shards, weigh
from streamomd.analysis.report.learning import curve_points, day_column, learning
from streamomd.analysis.report.markup import element, grid, page, paragraph, section, table
from streamomd.analysis.report.outcomes import outcomes
from streamomd.analysis.report.summary import divergence, header, job_section, warnings_section
from streamomd.analysis.report.verdict import summarize
from streamomd.core.errors import NoCommitError, OutputExistsError, UsageError
from streamomd.core.urls import protocol, refuse_output_url, shown, typed
from streamomd.core.wording import named_keywords
from streamomd.rules import find_rule
from streamomd.shards.output_files import open_atomic
from streamomd.sources.tables import TableOptions
from streamomd.training.metrics.by_time import LENGTHS
from streamomd.training.model import Model
from streamomd.training.model_data import ModelData

TITLE = "Regret and certificate"
MOST_ROWS = 200_000
"""Rows above which the regret of a run without a certificate is not measured: the search takes many
passes."""
Learner = Mapping[str, Any]


def regret(
    model: ModelData, shards: str | Sequence[str], *, wanted: bool, **options: Any
) -> Element:
    """Regret over the run's shards with its bounds. options: as in ``certify.measure``."""
    reason = _unproven(model)
    if not shards or not wanted or (reason and model.metrics.total_rows > MOST_ROWS):
        return section(TITLE, paragraph(reason or _unmeasured(shards)))
    learners, comparator = measure(model, shards, **options)
    if comparator is None and reason:
        return section(TITLE, paragraph(reason), paragraph(f"No regret: {learners[0]['reason']}."))
    if reason:
        learners = [{**learner, "claims": None, "reason": ""} for learner in learners]
    return section(
        TITLE,
        *([paragraph(reason)] if reason else []),
        *(part for learner in learners for part in _learner(learner)),
        *_curve(model, comparator),
    )


def _unproven(model: ModelData) -> str:
    """Why there is no certificate, in a sentence; empty if there is one."""
    rule = model.spec.rule
    if unproven := no_theorem(rule, model.spec.model.loss):
        return f"No certificate for rule {rule.name}: {unproven}."
    if find_rule(rule.name).certificate.accounted is not None and not model.spec.model.certificate:
        return f"No certificate: {KEEP}."
    return ""


def _unmeasured(shards: str | Sequence[str]) -> str:
    if shards:
        return "Omitted (--no-certificate)."
    return (
        "Not measured: it needs the rows that were learned. Pass their shards to the report, "
        "or run streamomd certify."
    )


def _curve(model: ModelData, comparator: FixedWeights | None) -> list[Element]:
    """Regret per row over rows: against the weights that are best for all rows together."""
    points = curve_points(model.metrics)
    if comparator is None or len(points) < 2:
        return []
    rows, loss = points[:, 0], points[:, 2]
    fixed = comparator.losses_at([int(row) for row in rows])
    if len(fixed) != len(rows) or not np.isfinite(fixed).all():
        return []
    mean = (loss - fixed) / rows
    x = Axis.of("rows learned", rows, log=True)
    note = (
        "The loss of the run less that of the fixed weights that are best for all rows, divided by "
        "the rows so far. It can be negative where rows change with time."
    )
    y = Axis.of("regret per row", np.append(mean, 0.0))
    return [
        grid(lines("Regret over rows", [Series("regret per row", rows, mean)], x, y, note=note))
    ]


def _learner(one: Learner) -> list[Element]:
    name = "" if one["learner"] is None else f"{one['learner']}: "
    inside = []
    if one["loss"] is not None:
        inside.append(
            paragraph(
                f"{name or 'The run: '}the total loss is {brief(one['loss'])}; that of the best "
                f"fixed weights found is {brief(one['comparator_loss'])}: a regret "
                f"of {brief(one['regret'])}, {brief(one['regret'] / one['rows'])} per row."
            )
        )
    if one["claims"] is None:
        reason = f"{name}no certificate: {one['reason']}."
        return [*inside, *([paragraph(reason)] if one["reason"] else [])]
    inside += [
        paragraph(f"{name}{claim['claim']} ({claim['source']}): {claim['reason']}.")
        for claim in one["refused"]
    ]
    return [*inside, *_claims(name, one["claims"])]


def _claims(name: str, claims: Sequence[Mapping[str, Any]]) -> list[Element]:
    rows = []
    for claim in claims:
        numbers = [brief(claim[side]) for side in ("measured", "bound")]
        ratio = "" if claim["ratio"] is None else f"{claim['ratio']:.3g}"
        note = f" ({claim['note']})" if claim["note"] else ""
        rows.append((claim["claim"], *numbers, ratio, claim["source"] + note))
    heads = [f"{name}claim", "measured", "bound", "bound / measured", "proven in"]
    pairs = {f"{claim['claim']}, measured": claim["measured"] for claim in claims}
    pairs |= {f"bound on it, {claim['source']}": claim["bound"] for claim in claims}
    chart = bars(f"{name}measured value and bound", "sum over all rows", [*pairs.items()])
    return [table(heads, rows, numbers=(1, 2, 3), label=f"{name}claims"), grid(chart)]


__all__ = ["write_report"]


@named_keywords
def write_report(
    model: Model,
    to: str = "report.html",
    shards: str | Sequence[str] = (),
    *,
    by: str = "",
    certificate: bool = True,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    version: int | None = None,
    as_of: str = "",
    as_files: bool = False,
    csv: Mapping[str, Any] | None = None,
    checkpoint_storage_options: Mapping[str, Any] | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Write a page about a model to the local file ``to``; return its findings as a dict.

    shards: labelled rows to evaluate the model and to measure feature scales; with the run's own
    shards also its certificate, if ``certificate`` is true (this searches the best fixed weights,
    which takes many passes). by: "day" or "hour", for charts by the rows' own time, of a run with
    ``data.time``; "": day. storage_options: of the shards. version, as_of, as_files,
    csv: as ``Model.evaluate``.

    The dict: report (the file), bytes, verdict (level: better, unclear, worse or unknown, and its
    text), look (name, title and text of each warning).
    Raises OutputExistsError if the file exists, UsageError if ``to`` is not a local file,
    NoCommitError if the model has learned no row, and what ``Model.evaluate`` raises.
    """
    _refuse(to, overwrite=overwrite)
    _refuse_by(model, by)
    run_history = history(model, checkpoint_storage_options)
    if not run_history.diverged:  # of a run that diverged the page shows what is known
        _refuse_without_rows(model)
    tried = None
    choice: dict[str, Any] = {
        "version": version, "as_of": as_of, "as_files": as_files, "csv": csv or {},
    }  # fmt: skip
    tables = TableOptions.for_model(model.spec.data, model.table_versions, **choice)
    if shards:
        column = day_column(model.plan)
        columns = [column] if column else []
        tried = model.evaluate(
            shards, by=columns, storage_options=storage_options, quiet=quiet, **choice
        )
    sizes = (
        scales_of_shards(model.plan, shards, storage_options, tables)
        if shards
        else scales_from_slots(model)
    )
    weights = weigh(model, sizes)
    data_warnings = find_data_warnings(model, sizes, weights)
    proven = regret(
        model,
        shards,
        wanted=certificate,
        storage_options=storage_options,
        tables=tables,
        checkpoint_storage_options=checkpoint_storage_options,
    )
    learned = model.result()
    text = page(
        f"{model.plan.label}: {model.metrics.total_rows:,} rows by {model.spec.model.rule}",
        header(model, run_history, learned, len(data_warnings)),
        warnings_section(data_warnings),
        learning(model, run_history, learned, by or "day"),
        outcomes(model, learned, tried),
        features_section(model, sizes, weights, data_warnings),
        proven,
        job_section(model, run_history),
        element("footer", "Made by streamomd report. This page loads nothing and runs nothing."),
    )
    with open_atomic(os.path.abspath(to), overwrite=overwrite) as file:
        file.write(text.encode())
    warnings = [warning._asdict() for warning in data_warnings]
    judged = summarize(model, learned, diverged=divergence(model, run_history))
    return {"report": to, "bytes": len(text.encode()), "verdict": judged, "look": warnings}


def _refuse_by(model: Model, by: str) -> None:
    if by not in ("", *LENGTHS):
        raise UsageError(f"by = {by!r}: expected day or hour")
    if by and model.metrics.by_time is None:
        raise UsageError(
            f"--by {by} needs the times of the rows that were learned, and this run has none: "
            "train with data.time (--time COLUMN)"
        )


def _refuse_without_rows(model: Model) -> None:
    if model.metrics.total_rows:
        return
    if not model.url:
        raise NoCommitError("the model has learned no row, and a report needs some: train it first")
    raise NoCommitError(
        f"no commit with rows in {shown(model.url)}: commit {model.sequence} was written before "
        "any row was learned; fix what stopped the run, then continue with: streamomd resume "
        f"{typed(model.url)}"
    )


def _refuse(to: str, *, overwrite: bool) -> None:
    """Check the output path, before anything is read."""
    refuse_output_url(to)
    if protocol(to):
        raise UsageError(f"a report goes to a local file, not to {shown(to)}")
    if os.path.isdir(to):
        raise UsageError(f"{shown(to)} is a directory: name a file, e.g. report.html")
    if not os.path.isdir(os.path.dirname(os.path.abspath(to))):
        raise UsageError(f"{shown(to)}: its directory does not exist; create it, or name another")
    if not overwrite and os.path.lexists(to):
        raise OutputExistsError(f"{shown(to)} already exists: pass --overwrite, or another name")
