"""What the server knows of a commit: a scorer, and a description without places and secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamomd.training.model import Model

PUBLISHED: Mapping[str, tuple[str, ...]] = {
    "data": (
        "label", "weight", "numeric", "hashed", "vectors", "text", "dates", "sparse", "crosses",
        "nulls", "standardize", "bits", "hash_seed",
    ),
    "model": ("rule", "loss", "loss_params", "task", "classes", "bias", "dtype", "params"),
    "train": ("mode", "epochs"),
}  # fmt: skip
"""Keys of a job that /model shows; no other one is, nor what is nested in it."""
_FREE = ("loss_params", "params")
"""Keys whose own keys are a rule's or a loss's."""
_PLACE = re.compile(r"[/\\@:]")


@dataclass(frozen=True)
class Schema:
    """What a client relies on: two commits with equal ones answer the same requests.

    columns: kind by name. required: names that each row has to have. probabilities: whether there
    are any.
    """

    label: str
    columns: Mapping[str, str]
    required: tuple[str, ...]
    classes: tuple[Any, ...]
    probabilities: bool

    def to_json(self) -> dict[str, Any]:
        """For /model."""
        return {
            "label": self.label,
            "columns": dict(self.columns),
            "required": list(self.required),
            "task": "classify" if self.classes else "regress",
            "classes": list(self.classes),
            "probabilities": self.probabilities,
        }

    def changes(self, other: Schema) -> str:
        """How another schema differs, in words; empty if it does not."""
        mine, its = self.to_json(), other.to_json()
        gone = [f"-{name}" for name in mine["columns"] if its["columns"].get(name) is None]
        more = [f"+{name}" for name in its["columns"] if mine["columns"].get(name) is None]
        rest = [key for key in mine if key not in ("columns", "required") and mine[key] != its[key]]
        kinds = [
            name for name, kind in mine["columns"].items() if its["columns"].get(name, kind) != kind
        ]
        parts = [f"columns {', '.join([*gone, *more][:10])}"] if gone or more else []
        parts += [f"the kind of {', '.join(kinds[:10])}"] if kinds else []
        parts += [", ".join(rest)] if rest else []
        if not parts and self != other:
            parts = ["the required columns"]
        return "; ".join(parts)


@dataclass(frozen=True)
class Snapshot:
    """One commit, immutable. A request uses one snapshot from its first row to its last."""

    scorer: Any
    commit: int
    rows: int
    schema: Schema
    job: Mapping[str, Any]
    trained: bool = True

    def to_json(self) -> dict[str, Any]:
        """What /model answers."""
        return {
            "job": self.job,
            "commit": self.commit,
            "rows": self.rows,
            "schema": self.schema.to_json(),
        }


def snapshot_of(model: Model) -> Snapshot:
    """A model of a commit. The state of the model is not needed any more."""
    scorer = model.scorer()
    schema = Schema(
        label=model.plan.label,
        columns=dict(scorer.columns),
        required=tuple(scorer.required),
        classes=tuple(scorer.classes),
        probabilities=model.has_probabilities,
    )
    job = published_job(model.spec.to_json())
    rows, trained = model.metrics.total_rows, not model.is_untrained
    return Snapshot(scorer, model.sequence, rows, schema, job, trained)


def published_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a job that say what is learned; none that say where it comes from.

    >>> published_job({"data": {"shards": ["s3://b/k"], "label": "y"}, "checkpoint": {"url": "r"}})
    {'data': {'label': 'y'}}
    """
    tables = {
        table: {
            key: _without_places(value) if key in _FREE else value
            for key, value in job[table].items()
            if key in keys
        }
        for table, keys in PUBLISHED.items()
        if table in job
    }
    return {table: values for table, values in tables.items() if values}


def _without_places(value: Any) -> Any:
    """A parameter without texts that may be a path or a URL, at any depth."""
    if isinstance(value, Mapping):
        values = {key: _without_places(one) for key, one in value.items()}
        return {key: one for key, one in values.items() if one is not None}
    if isinstance(value, list | tuple):
        return [_without_places(one) for one in value]
    return None if isinstance(value, str) and _PLACE.search(value) else value
