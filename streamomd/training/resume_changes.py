"""What may change when a run is resumed, and whether a run that diverged would diverge again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from streamomd.checkpoint import Loaded
from streamomd.config.build_job import change_job
from streamomd.config.field_types import as_renames
from streamomd.config.flags import dotted
from streamomd.core.errors import DivergedError, ResumeRefusedError, UsageError
from streamomd.core.finite import NOT_FINITE
from streamomd.core.urls import shown
from streamomd.core.wording import counted
from streamomd.features.infer_plan import nearest
from streamomd.shards.filtered_shards import filter_columns
from streamomd.sources.known_sources import options_for
from streamomd.training.checkpoint_manager import diverged_remedy
from streamomd.training.model_data import ModelData


def divergence(loaded: Loaded) -> str:
    """What was not finite after the commit that was loaded, if the run diverged; else ""."""
    rejected = [reason for _, reason in loaded.rejected if reason.startswith(NOT_FINITE)]
    found = f"the model diverged: {rejected[0].removeprefix(NOT_FINITE)}" if rejected else ""
    return str(loaded.commit.document.get("diverged") or found)


def refuse_diverged_again(model: ModelData, loaded: Loaded) -> None:
    """Raises DivergedError if the run diverged after the commit loaded, and would do so again.

    model: with the job as it is now. Of what may change on resume, only how bad rows are treated
    changes what is learned.
    """
    problem = divergence(loaded)
    before = loaded.commit.document["job"]["data"].get("on_bad_row", "error")
    if problem and before == model.spec.data.on_bad_row:
        raise DivergedError(
            f"{problem}. The last finite commit is {loaded.commit.sequence}, after "
            f"{counted(model.metrics.total_rows, 'row')}; training from it on the same rows "
            f"diverges again.\n{diverged_remedy(model)}"
        )


def change_model_job(
    model: ModelData,
    sets: Mapping[str, Any],
    storage_options: Mapping[str, Any] | None,
    checkpoint_storage_options: Mapping[str, Any] | None,
    *,
    may_skip: bool = False,
    given: Collection[str] = (),
) -> bool:
    """Apply the settings of this command to a loaded model; whether it has more epochs than before.

    may_skip: whether data.on_bad_row may change to "skip", and entries of data.rename may be added
    or replaced. given: keys of which this command has
    values of its own, in addition to ``sets``.
    """
    data = model.spec.data
    secrets = {
        "data.storage_options": options_for(data.shards, storage_options or {}, recorded=True),
        "checkpoint.storage_options": dict(checkpoint_storage_options or {}),
        "checkpoint.url": model.url,
    }
    if "checkpoint.url" in sets:
        raise ResumeRefusedError(
            f"checkpoint.url is {shown(model.url)} and may not change: to continue elsewhere, copy "
            "the whole checkpoint there and resume the copy"
        )
    epochs, on_bad_row = model.spec.train.epochs, model.spec.data.on_bad_row
    more_keys = ("data.on_bad_row", "data.rename") if may_skip else ()
    sets = _with_renames(data.rename, sets)
    model.spec = change_job(model.spec.to_json(), {**sets, **secrets}, more_keys, given)
    _refuse_renames(model, data.rename)
    if on_bad_row == "skip" != model.spec.data.on_bad_row:
        raise ResumeRefusedError(
            "data.on_bad_row cannot change from skip: bad rows may have been skipped already"
        )
    renames = tuple(model.spec.data.rename.items())
    model.plan = replace(model.plan, on_bad_row=model.spec.data.on_bad_row, rename=renames)
    if model.spec.train.epochs < epochs:
        raise ResumeRefusedError(
            f"train.epochs was {epochs} and may only grow; got {model.spec.train.epochs}"
        )
    more = model.spec.train.epochs > epochs
    if more and model.update.first:
        if not model.finished:
            raise ResumeRefusedError(
                f"update {model.update.number} is not finished: resume it without --epochs first; "
                "then more epochs read all shards again"
            )
        model.update = model.update._replace(first=0)
    model.finished = model.finished and not more
    return more


def _with_renames(saved: Mapping[str, str], sets: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a command; texts such as ``a=b`` add to the saved renames, tables replace
    them."""
    return {
        key: {**saved, **as_renames(value)}
        if dotted(key) == "data.rename" and isinstance(value, str) and "{" not in value
        else value
        for key, value in sets.items()
    }


def _refuse_renames(model: ModelData, saved: Mapping[str, str]) -> None:
    """Raise UsageError for a new rename to a column that the model does not have."""
    data = model.spec.data
    known = {*model.plan.columns, *filter_columns(data.where)}
    for name, column in data.rename.items():
        if column not in known and saved.get(name) != column:
            raise UsageError(
                f"data.rename: {name!r} is {column!r}, which is not a column of the model; "
                f"{nearest(column, model.plan.columns)}"
            )
