"""What may change when a run is resumed, and whether a run that diverged would diverge again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from streamomd.checkpoint import Loaded
from streamomd.config.build_job import change_job
from streamomd.config.kafka_brokers import with_brokers_named_elsewhere
from streamomd.core.counted import counted
from streamomd.core.errors import DivergedError, ResumeRefusedError
from streamomd.core.finite import NOT_FINITE
from streamomd.core.urls import shown
from streamomd.training.checkpoint_manager import diverged_remedy
from streamomd.training.model import Model


def divergence(loaded: Loaded) -> str:
    """What was not finite after the commit that was loaded, if the run diverged; else ""."""
    rejected = [reason for _, reason in loaded.rejected if reason.startswith(NOT_FINITE)]
    found = f"the model diverged: {rejected[0].removeprefix(NOT_FINITE)}" if rejected else ""
    return str(loaded.commit.document.get("diverged") or found)


def refuse_diverged_again(model: Model, loaded: Loaded) -> None:
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
    model: Model,
    sets: Mapping[str, Any],
    storage_options: Mapping[str, Any] | None,
    checkpoint_storage_options: Mapping[str, Any] | None,
    *,
    may_skip: bool = False,
    given: Collection[str] = (),
) -> bool:
    """Apply the settings of this command to a loaded model; whether it has more epochs than before.

    may_skip: whether data.on_bad_row may change to "skip". given: keys of which this command has
    values of its own, in addition to ``sets``.
    """
    data = model.spec.data
    secrets = {
        "data.storage_options": with_brokers_named_elsewhere(data.shards, storage_options or {}),
        "checkpoint.storage_options": dict(checkpoint_storage_options or {}),
        "checkpoint.url": model.url,
    }
    if "checkpoint.url" in sets:
        raise ResumeRefusedError(
            f"checkpoint.url is {shown(model.url)} and may not change: to continue elsewhere, copy "
            "the whole checkpoint there and resume the copy"
        )
    epochs, on_bad_row = model.spec.train.epochs, model.spec.data.on_bad_row
    more_keys = ("data.on_bad_row",) if may_skip else ()
    model.spec = change_job(model.spec.to_json(), {**sets, **secrets}, more_keys, given)
    if on_bad_row == "skip" != model.spec.data.on_bad_row:
        raise ResumeRefusedError(
            "data.on_bad_row cannot change from skip: bad rows may have been skipped already"
        )
    model.plan = replace(model.plan, on_bad_row=model.spec.data.on_bad_row)
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
