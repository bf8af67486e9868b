"""What a commit saves of a model: its description as JSON, and its numbers in parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streamomd.checkpoint import Part, StoredParts
from streamomd.checkpoint.manifest import BACKTEST, HOLDOUT_BY, TRIED
from streamomd.core.finite import finite_parts
from streamomd.engine.state import State
from streamomd.training.metrics import Metrics
from streamomd.training.model_data import ModelData
from streamomd.training.remote_state import RemoteState


def document_of(model: ModelData, **more: Any) -> dict[str, Any]:
    """The description of a model in a commit. more: what the commit refers to."""
    return {
        "job": model.recorded.add_to(model.spec.to_json()),
        "plan": model.plan.to_json(),
        "state_version": model.spec.rule.state.version,
        "cursor": model.cursor.to_json(),
        **({"teaching": model.teaching.to_json()} if model.teaches_later else {}),
        **({BACKTEST: True} if model.metrics.backtest else {}),
        **({TRIED: model.tried.to_json()} if model.tried else {}),
        **({"update": model.update.to_json()} if model.update.number else {}),
        **({"table_versions": model.table_versions} if model.table_versions else {}),
        **({"ordered_by": model.ordered_by} if model.ordered_by else {}),
        "rows": model.metrics.total_rows,
        "finished": model.finished,
        "finite": True,  # else its parts are not packed
        **({HOLDOUT_BY: "name"} if is_named(model) else {}),
        **({"filter": vars(model.unread)} if model.spec.data.where else {}),
        **more,
    }


def is_named(model: ModelData) -> bool:
    """Whether hold-out or sampled rows depend on shards' names, which the ledger then records."""
    data = model.spec.data
    return bool(data.holds_out or data.sample) and model.holdout_by == "name"


def parts_of(state: State, metrics: Metrics, nbytes: int = 0) -> Iterator[Part]:
    """The parts of a state, of at most ``nbytes`` (0: 4 MiB).

    The first has the counters of its metrics. Raises DivergedError at a part with a number that is
    not finite.
    """
    for low, high, arrays in finite_parts(state.parts(nbytes)):
        yield low, high, arrays | (metrics.arrays() if low == 0 else {})


def parts_to_commit(model: ModelData, nbytes: int) -> Iterator[Part] | StoredParts:
    """The parts of a model, or the names of those that are in the checkpoint already."""
    stored = model.state.stored if isinstance(model.state, RemoteState) else None
    return stored or parts_of(model.state, model.metrics, nbytes)
