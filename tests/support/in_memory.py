"""Models of tables in memory, learned by uncompiled loops, and what ``streamomd predict`` gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from streamomd.config.spec import Spec
from streamomd.engine.state import State
from streamomd.features import encode, make_plan
from streamomd.features.arrow_types import selected, with_fields
from streamomd.features.curves import equal_curves
from streamomd.features.encode import first_numbers
from streamomd.training.metrics import Metrics
from streamomd.training.model import Model
from streamomd.training.model_data import engine_of
from streamomd.training.predict import columns
from streamomd.training.training_step import begin_epoch, learn_rows, observe_rows


def new_model(
    table: pa.Table, *, compiled: bool = False, params: Any = None, curves: bool = False,
    **tables: Any,
) -> Model:  # fmt: skip
    """A model that has learned nothing. curves: of the table's numbers. tables: data and model of
    its job, label y."""
    model = {"rule": "nag", **tables.get("model", {}), "params": params or {}}
    data = {"label": "y", "shards": "none", **tables.get("data", {})}
    spec = Spec.parse({"data": data, "model": model})
    labels = table.column("y").unique().to_pylist()
    schema = with_fields(table.schema)
    plan = make_plan(
        spec.data,
        spec.model,
        schema,
        lambda: labels,
        longest_list=lambda name: longest(table, name),
    )
    if curves and plan.measured:
        (rows,) = table.combine_chunks().to_batches()
        plan = replace(
            plan, curves=equal_curves(*first_numbers(plan, selected(rows, plan.measured)))
        )
    spec = spec.of_classes(len(plan.classes))
    engine = replace(engine_of(spec, plan), compiled=compiled)
    state = State.start(engine.layout)
    engine.begin(state)
    return Model(spec, plan, engine, state, Metrics(spec.model.classifies))


def longest(table: pa.Table, name: str) -> int:
    """The length of a column's longest list, at least 1."""
    rows = [selected(batch, [name]).column(0).to_pylist() for batch in table.to_batches()]
    return max(1, *(len(one or []) for lists in rows for one in lists))


def batch_of(model: Model, table: pa.Table, *, labelled: bool = True) -> Any:
    """The rows as a shard's are encoded."""
    wanted = model.plan.columns if labelled else model.plan.features
    rows = selected(table.combine_chunks().to_batches()[0], list(dict.fromkeys(wanted)))
    return encode(model.plan, rows, shard="rows", row=0, labelled=labelled, names=model.names)


def learned(table: pa.Table, **job: Any) -> Model:
    """A model of the table's rows, learned once."""
    model = new_model(table, **job)
    learn(model, table)
    return model


def learn(model: Model, table: pa.Table) -> None:
    """Learn the rows as a shard's are learned."""
    batch = batch_of(model, table)
    if model.spec.rule.looks(model.spec.model.params):
        observe_rows(model, batch)
    begin_epoch(model)
    learn_rows(model, batch)


def predicted(model: Model, table: pa.Table) -> dict[str, Any]:
    """What ``streamomd predict`` writes of the rows: prediction, score, probability."""
    batch = batch_of(model, table, labelled=False)
    margins = model.engine.predict(model.state, np.zeros(3), batch)
    found = columns(model.plan, model.engine, model.state, margins)
    prediction = found["prediction"]
    found["prediction"] = prediction.tolist() if hasattr(prediction, "tolist") else prediction
    if isinstance(found["prediction"], pa.Array):
        found["prediction"] = found["prediction"].to_pylist()
    return found


def assert_same_scores(model: Model, table: pa.Table) -> None:
    """A scorer, and the model's own methods, give the bits that ``streamomd predict`` writes."""
    expected = predicted(model, table)
    scorer, rows = model.scorer(), table.drop_columns(["y"]).to_pylist()
    score = np.asarray(expected["score"], np.float64)
    one = np.array([scorer.score(row) for row in rows], np.float64)
    assert one.tobytes() == score.tobytes(), (one[:3], score[:3])
    assert [scorer(row) for row in rows] == expected["prediction"]
    predictions, scores, likely = scorer.many(rows)
    assert np.asarray(scores).tobytes() == score.tobytes()
    assert predictions == expected["prediction"]
    assert model.decision_function(table).tobytes() == score.tobytes()
    assert model.decision_function(rows).tobytes() == score.tobytes()
    assert list(model.predict(rows)) == expected["prediction"]
    if "probability" in expected:
        probability = np.asarray(expected["probability"])
        each = np.array([scorer.proba(row) for row in rows])
        assert each.tobytes() == probability.tobytes()
        assert likely.tobytes() == probability.tobytes()
        found = model.predict_proba(rows)
        assert found.shape == (len(rows), len(model.classes))
        assert (
            found[:, 1:].tobytes()
            == probability.reshape(len(rows), -1)[:, -found.shape[1] + 1 :].tobytes()
        )
    for row, margin in zip(rows[:5], score, strict=False):
        explained = scorer.explain(row)
        parts = explained.contributions if score.ndim > 1 else [explained.contributions]
        for contributions, whole in zip(parts, np.atleast_1d(margin), strict=True):
            total = sum(contribution for _, _, contribution in contributions)
            largest = max((abs(c) for _, _, c in contributions), default=0.0)
            assert abs(total - whole) <= 1e-9 * max(abs(whole), largest)
