"""A run's report: one page of HTML that needs nothing else, made of a model's own numbers.

Read from the top: the verdict, things to look at, charts, tables. It runs no script and loads
nothing, so it opens offline, and nothing that stands in a name of a column can run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from streamomd.analysis.history import history
from streamomd.analysis.report.data_warnings import suspects
from streamomd.analysis.report.feature_scales import found_in, kept_by_rule
from streamomd.analysis.report.feature_table import features_told
from streamomd.analysis.report.job_summary import job_told
from streamomd.analysis.report.largest_weights import weigh
from streamomd.analysis.report.learning import learning
from streamomd.analysis.report.markup import element, page
from streamomd.analysis.report.outcomes import outcomes
from streamomd.analysis.report.regret import regret
from streamomd.analysis.report.summary import to_look_at, verdict
from streamomd.core.errors import OutputExistsError, StorageError, UsageError
from streamomd.core.urls import protocol, shown
from streamomd.shards.atomic_write import put
from streamomd.training.model import Model

__all__ = ["write_report"]


def write_report(
    model: Model,
    to: str = "report.html",
    shards: str | Sequence[str] = (),
    *,
    certificate: bool = True,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    checkpoint_storage_options: Mapping[str, Any] | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Write a page about a model to the local file ``to``; what it found, as a dict.

    shards: labelled rows to try the model on and to find the sizes of features in; those of the
    run itself also for its certificate, if ``certificate`` is true (it looks for the best fixed
    weights, which takes many readings). storage_options: of the shards.

    The dict: report (the file), bytes, look (name, title and text of each thing to look at).
    Raises OutputExistsError where there is something already, UsageError for what is no local
    file, and what ``Model.evaluate`` raises.
    """
    _refuse(to, overwrite=overwrite)
    told = history(model, checkpoint_storage_options)
    tried = None
    if shards:
        tried = model.evaluate(shards, storage_options=storage_options, quiet=quiet)
    sizes = found_in(model.plan, shards, storage_options) if shards else kept_by_rule(model)
    weights = weigh(model, sizes)
    found = suspects(model, sizes, weights)
    proven = regret(
        model,
        shards,
        wanted=certificate,
        storage_options=storage_options,
        checkpoint_storage_options=checkpoint_storage_options,
    )
    learned = model.result()
    text = page(
        f"{model.plan.label}: {model.metrics.total_rows:,} rows by {model.spec.model.rule}",
        verdict(model, told, learned, len(found)),
        to_look_at(found),
        learning(model, told, learned),
        outcomes(model, learned, tried),
        features_told(model, sizes, weights, found),
        proven,
        job_told(model, told),
        element("footer", "Made by streamomd report. This page loads nothing and runs nothing."),
    )
    with put(os.path.abspath(to), overwrite=overwrite) as file:
        file.write(text.encode())
    look = [one._asdict() for one in found]
    return {"report": to, "bytes": len(text.encode()), "look": look}


def _refuse(to: str, *, overwrite: bool) -> None:
    """Before anything is read."""
    if protocol(to):
        raise UsageError(f"a report goes to a local file, not to {shown(to)}")
    if os.path.isdir(to):
        raise UsageError(f"{shown(to)} is a directory: name a file, e.g. report.html")
    if not os.path.isdir(os.path.dirname(os.path.abspath(to))):
        raise StorageError(f"{shown(to)} cannot be written: No such file or directory")
    if not overwrite and os.path.lexists(to):
        raise OutputExistsError(f"{shown(to)} is there already: give --overwrite, or another name")
