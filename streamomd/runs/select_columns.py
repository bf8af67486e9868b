"""Feature selection, ``data.select``: a pass over the rows with rule auto, whatever the job's rule,
ranks the feature columns; the run then learns the best ones alone.

They are the columns of the run's job, so that its checkpoint, ``resume`` and ``update`` know no
others. A column counts with all its values: categories, words, parts of dates, hats of its curve.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from streamomd.config.spec import Spec
from streamomd.core.errors import UnsupportedError
from streamomd.core.urls import printable
from streamomd.core.wording import counted
from streamomd.features import Plan
from streamomd.features.hashed import cross_name
from streamomd.runs.modes import learn_remaining_rows
from streamomd.runs.reporting import Reporting
from streamomd.runs.session import Session
from streamomd.shards.shard import ShardSet
from streamomd.training.column_importance import column_importances, scales_of_block
from streamomd.training.progress import note

LEARNED = ("loss", "loss_params", "task", "classes", "class_weight", "bias", "shapes")
"""Keys of [model] that the screening pass takes over; the others belong to the job's rule."""
NAMED = 12
"""Columns that the line on the selected ones names."""
LATER = ("select", "standardize", "delay")
"""Keys of [data] that it does not: rule auto standardizes, and all labels are there."""


def with_selected(session: Session) -> Session:
    """The session with the job of the best columns; the same if the job asks for no selection or
    has no more columns. Raises UnsupportedError for a Dask collection, StoppedError."""
    most = session.spec.data.select
    if not most:
        return session
    if not isinstance(session.rows, ShardSet):
        raise UnsupportedError(
            "data.select reads the rows twice, and a collection is read once: write it with "
            "ddf.to_parquet(URL), then train on URL"
        )
    first = replace(session, spec=screening(session.spec), weights=None)
    model = first.new_model()
    features = _features(model.plan)
    if len(features) <= most:
        note(f"data.select = {most}: the job has {counted(len(features), 'feature column')}")
        return session
    note(f"selecting {most} of {len(features)} feature columns: a pass with rule auto")
    learn_remaining_rows(
        model, first.rows, None, session.stop, None, reporting=Reporting(quiet=True)
    )
    moves = column_importances(model, scales_of_block(model))
    score = {one: math.hypot(*(moves.get(name, 0.0) for name in names))
             for one, names in features.items()}  # fmt: skip
    best = sorted(features, key=lambda one: -score[one])[:most]  # stable: of equals the first
    some = ", ".join(best[:NAMED]) + (f" and {most - NAMED} more" if most > NAMED else "")
    note(f"selected, the best first: {printable(some)}")
    return replace(session, spec=_restricted(session, model.plan, {*best}))


def screening(spec: Spec) -> Spec:
    """The job of the first pass."""
    tables: dict[str, Any] = spec.to_json(secrets=True)
    data = {key: value for key, value in tables["data"].items() if key not in LATER}
    learned = {key: tables["model"][key] for key in LEARNED}
    if learned["shapes"] in ("pairs", "all"):  # of several columns: the run's are of its own
        learned["shapes"] = "columns"
    return Spec.parse(
        {"data": data, "model": {**learned, "rule": "auto"}, "checkpoint": {"url": "none"}}
    )


def _features(plan: Plan) -> dict[str, list[str]]:
    """The features that are chosen as a whole, each with its names in importances."""
    pair = [plan.sparse.indices] if plan.sparse else []
    alone = [*plan.numeric, *(v.column for v in plan.vectors), *plan.hashed, *pair]
    dates = {date.column: list(date.names) for date in plan.dates}
    parts = {name for names in dates.values() for name in names}
    names = [name for name in alone if name not in parts]
    names += [*map(cross_name, plan.crosses), *(one.column for one in plan.text)]
    return {**{name: [name] for name in names}, **dates}


def _restricted(session: Session, plan: Plan, best: set[str]) -> Spec:
    """The job whose features are these alone."""
    data = session.spec.data
    crosses = tuple(cross for cross in plan.crosses if cross_name(cross) in best)
    parts = {name: date.column for date in plan.dates for name in date.names}
    crossed = {parts.get(name, name) for cross in crosses for name in cross}
    dates = tuple(one.column for one in plan.dates if one.column in best | crossed)
    chosen: dict[str, Any] = {
        "numeric": tuple(name for name in plan.numeric if name in best),
        "vectors": tuple(one.column for one in plan.vectors if one.column in best),
        "hashed": tuple(name for name in plan.hashed if name in best and name not in parts),
        "sparse": data.sparse if data.sparse and data.sparse.indices in best else None,
        "text": tuple(one for one in data.text if one.column in best),
        "dates": dates,
        "crosses": crosses,
    }
    named = {*chosen["numeric"], *chosen["vectors"], *chosen["hashed"]}
    others = plan.features
    if not named and chosen["sparse"] is None:  # then columns without a role would be features
        others = (*plan.features, *next(iter(session.shards)).schema.names)
    pair = chosen["sparse"]
    used = named | {*dates, *(one.column for one in chosen["text"])}
    used |= {data.label, data.weight, data.time, *((pair.indices, pair.values) if pair else ())}
    left = (name for name in others if name not in used)  # a cross may be of ignored columns
    ignore = tuple(dict.fromkeys((*data.ignore, *left)))
    nulls = data.nulls
    if not isinstance(nulls, str):
        nulls = {name: word for name, word in nulls.items() if name not in {*ignore}}
    more = {**chosen, "ignore": ignore, "nulls": nulls}
    return session.spec.model_copy(update={"data": data.model_copy(update=more)})
