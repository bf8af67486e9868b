"""Start from the state of another model, whose description agrees."""

from __future__ import annotations

from typing import Any

from streamomd.core.errors import UsageError
from streamomd.core.urls import shown
from streamomd.training.model import Model


def start_from(model: Model, other: Model) -> None:
    """Give a model another's state and names; metrics restart. The learning rate may differ.

    Raises UsageError with every part of the two descriptions that does not agree.
    """
    ours, theirs = _description(model), _description(other)
    differ = [key for key in ours if ours[key] != theirs[key]]
    if differ:
        lines = [f"{key}: {theirs[key]!r} there, {ours[key]!r} here" for key in differ]
        raise UsageError(f"cannot start from {shown(other.url)}: " + "; ".join(lines))
    model.state, model.names = other.state, other.names


def _description(model: Model) -> dict[str, Any]:
    job = model.spec.model
    known = ("rule", "loss", "loss_params", "certificate", "dtype", "bias")
    # A run that diverged may continue with a smaller learning rate.
    params = {key: value for key, value in job.params.items() if key != "eta"}
    plan = model.plan.to_json()
    # Types may differ as they may between shards.
    plan["types"] = [(column.name, column.family) for column in model.plan.types]
    del plan["label_type"], plan["on_bad_row"]
    plan.pop("limits", None)  # as the rule and dtype say, and older versions did not save
    return {**{key: getattr(job, key) for key in known}, "params": params, **plan}
