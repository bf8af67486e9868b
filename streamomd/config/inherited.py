"""What a run takes over from the run whose state it starts with, where its own job is silent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamomd.losses import find_loss
from streamomd.rules import find_rule

COLUMNS = (
    "label", "weight", "numeric", "hashed", "vectors", "text", "dates", "sparse", "crosses",
    "ignore", "nulls", "standardize", "bits", "hash_seed", "partitions", "rename", "csv",
)  # fmt: skip
"""Keys of [data] that make coordinates."""
MODEL = (
    "rule", "loss", "loss_params", "certificate", "task", "classes", "bias", "dtype", "params",
    "scale_target",
)  # fmt: skip
"""Keys of [model] that a state depends on."""


def inherited_tables(job: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, Any]:
    """The tables that a job may take over. job, plan: of the other run's manifest.

    Columns and classes that were found are named: other shards may have others.
    """
    data = {key: job["data"][key] for key in COLUMNS if key in job["data"]}
    model = {key: job["model"][key] for key in MODEL if key in job["model"]}
    if not data.get("numeric") and not data.get("hashed"):
        data |= {key: plan[key] for key in ("numeric", "hashed") if plan.get(key)}
    if plan.get("classes"):
        model["classes"] = plan["classes"]
    return {"data": data, "model": model}


def with_inherited(tables: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """A job with the keys of another that it does not set.

    Parameters are of a rule and a loss: those of others are not taken over.
    """
    own, theirs = dict(tables.get("model") or {}), dict(other["model"])
    same_rule = "rule" not in own or find_rule(str(own["rule"])).name == theirs["rule"]
    same_loss = not own.get("loss") or find_loss(str(own["loss"])).name == theirs["loss"]
    for key, same in (("params", same_rule), ("loss_params", same_loss), ("loss", same_rule)):
        if not same:
            del theirs[key]
    merged = {**theirs, **own}
    for key in {"params", "loss_params"} & theirs.keys():
        if isinstance(own.get(key, {}), Mapping):
            merged[key] = {**theirs[key], **own.get(key, {})}
    data = {**other["data"], **(tables.get("data") or {})}
    return {**tables, "data": data, "model": merged}
