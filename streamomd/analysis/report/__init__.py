"""A run's report: one self-contained page of HTML, made from a model's own numbers.

From the top: the verdict, warnings, charts, tables. It runs no script and loads nothing, so it
opens offline, and text in a column name cannot run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from streamomd.analysis.history import history
from streamomd.analysis.report.data_warnings import find_data_warnings
from streamomd.analysis.report.feature_table import features_section
from streamomd.analysis.report.feature_weights import scales_from_slots, scales_of_shards, weigh
from streamomd.analysis.report.learning import day_column, learning
from streamomd.analysis.report.markup import element, page
from streamomd.analysis.report.outcomes import outcomes
from streamomd.analysis.report.regret import regret
from streamomd.analysis.report.summary import divergence, header, job_section, warnings_section
from streamomd.analysis.report.verdict import summarize
from streamomd.core.errors import NoCommitError, OutputExistsError, UsageError
from streamomd.core.urls import protocol, refuse_output_url, shown, typed
from streamomd.core.wording import named_keywords
from streamomd.shards.output_files import open_atomic
from streamomd.sources.tables import TableOptions
from streamomd.training.metrics.by_time import LENGTHS
from streamomd.training.model import Model

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
