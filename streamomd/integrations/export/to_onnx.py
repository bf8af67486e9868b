"""ONNX: a graph from the job's raw columns to the output of ``streamomd predict``.

Inputs, one for each feature column: numbers (rows, 1) and vectors (rows, width) in float64, hashed
columns (rows, 1) as strings, int64 or booleans. Outputs: see ``add_outputs``; their
values are those of ``streamomd.training.predict.columns``.

A category is hashed inside the graph, by MurmurHash3 of onnxruntime's domain com.microsoft on the
text column=value: an unseen value gets the same weight as in streamomd. All arithmetic is float64,
of trees by TreeEnsemble (ai.onnx.ml 5): their older operators have float32. ONNX has no nulls: NaN
is a missing number if the job accepts nulls, and a hashed column has none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.errors import UnsupportedError
from streamomd.core.scalars import sigmoid
from streamomd.core.urls import printable
from streamomd.features import Plan
from streamomd.features.hashed import NULL, coordinates_of, cross_name
from streamomd.features.plan import number_name
from streamomd.integrations.export.contract import Format, refuse_more_than_weights, weights_of
from streamomd.integrations.export.onnx_graph import MICROSOFT, Graph, Numbers, escaped, summed
from streamomd.losses import Loss
from streamomd.losses.contract import identity
from streamomd.losses.poisson import rate
from streamomd.training.model_data import ModelData
from streamomd.training.model_figures import fill_values_of
from streamomd.training.progress import note
from streamomd.training.scoring.link import Calibration

MOST_BYTES = 2_000_000_000
"""Limit of the weights: a protobuf file has at most 2 GiB."""
HASHED = {"string": "STRING", "integer": "INT64", "boolean": "BOOL"}
"""The element type of a hashed column by its family; ONNX cannot format the others as text."""


def write(model: ModelData, file: Any) -> dict[str, Any]:
    """Writes an ONNX graph of a model to a file; returns its figures, see ``Format.write``."""
    graph = graph_of(model)
    job = model.spec.model
    made = graph.model(
        "streamomd",
        {
            "rule": job.rule,
            "loss": job.loss,
            "rows": str(model.metrics.total_rows),
            "commit": str(model.sequence),
        },
    )
    file.write(made.SerializeToString())
    return {
        "inputs": [tensor.name for tensor in graph.inputs],
        "outputs": [tensor.name for tensor in graph.outputs],
    }


def graph_of(model: ModelData) -> Graph:
    """The graph of a model. Raises UnsupportedError for unsupported features, TooLargeError."""
    refuse_more_than_weights(model)
    _refuse_columns(model)
    weights = weights_of(model).T
    if weights.nbytes > MOST_BYTES:
        raise UnsupportedError(
            f"the weights take {weights.nbytes / 2**30:.1f} GiB, and an ONNX file at most 2: train "
            "with fewer data.bits, or export --as parquet"
        )
    plan = model.plan
    graph = Graph(plan.features)
    dense, fill = Numbers(graph), fill_values_of(model)
    for name in plan.numeric:
        dense.take(name, 1, fill.get(name), nulls=plan.nulls_of(name))
    for name, width in plan.vectors:
        dense.take(name, width, fill.get(name), nulls=plan.nulls_of(name))
    margins = [graph.constant(weights[:1])] if plan.bias else []
    if dense.values:
        margins.append(dense.times(dense.values, weights[int(plan.bias) : plan.hat_offset]))
    if plan.curves:
        margins.append(dense.curves(plan.curves, weights[plan.hat_offset : plan.tree_offset]))
    if plan.indicators:
        margins.append(dense.times(dense.missing, weights[plan.indicator_offset :]))
    places = _places(graph, plan, dense)
    if plan.trees:
        grown = dense.trees(plan.trees, places[: len(plan.single)])
        margins.append(dense.times([grown], weights[plan.tree_offset : plan.hashed_offset]))
    if places:
        _note_nulls(plan, weights)
        table = graph.constant(weights[plan.hashed_offset : plan.sparse_offset])
        gathered = graph.add("Gather", table, graph.add("Concat", *places, axis=1), axis=0)
        margins.append(graph.add("ReduceSum", gathered, graph.constant([1]), keepdims=0))
    add_outputs(graph, model, summed(graph, margins))
    return graph


def _places(graph: Graph, plan: Plan, numbers: Numbers) -> list[str]:
    """The index in 2^bits of each hashed column, then of each cross, (rows, 1)."""
    texts = {name: _text(graph, name, plan.families[name]) for name in plan.categorical}
    found = [_place(graph, plan, name, texts[name]) for name in plan.hashed]
    in_crosses = {name for cross in plan.crossed for name in cross}
    for name in plan.categorical:
        if name in in_crosses and plan.families[name] == "string":
            texts[name] = escaped(graph, texts[name])
    texts |= {number_name(plan, one.place): numbers.bins(one, NULL) for one in plan.bins}
    for cross in plan.crossed:
        whole, *others = (texts[name] for name in cross)
        for other in others:
            whole = graph.add("StringConcat", whole, graph.constant("^"))
            whole = graph.add("StringConcat", whole, other)
        found.append(_place(graph, plan, cross_name(cross), whole))
    return found


def _place(graph: Graph, plan: Plan, name: str, text: str) -> str:
    """The index of ``streamomd.features.hashed.category``, of a value's text."""
    text = graph.add("StringConcat", graph.constant(f"{name}="), text)
    attributes = {"seed": plan.hash_seed, "positive": 1}
    hashed = graph.add("MurmurHash3", text, domain=MICROSOFT, **attributes)
    return graph.add("Mod", graph.cast(hashed, "INT64"), graph.constant(1 << plan.bits))


def _text(graph: Graph, name: str, family: str) -> str:
    """The text of a column's values."""
    values = graph.input(name, HASHED[family], 1)
    if family == "boolean":
        return graph.add("Where", values, graph.constant("true"), graph.constant("false"))
    return graph.cast(values, "STRING") if family == "integer" else values


def _note_nulls(plan: Plan, weights: NDArray[np.float64]) -> None:
    """Log that the category of nulls has a weight that no ONNX string can reach."""
    places = coordinates_of(plan, [f"{name} is null" for name in plan.hashed])
    found = [n for n, at in zip(plan.hashed, places, strict=True) if weights[at].any()]
    if found:
        note(f"a null in {', '.join(found)} has a weight; the graph accepts no nulls there")


def _refuse_columns(model: ModelData) -> None:
    plan = model.plan
    instead = "--as scorer does; --as parquet exports the weights by name"
    dates = [date.column for date in plan.dates]
    kinds = {
        "texts": [text.column for text in plan.text],
        "dates": dates,
        "sparse pairs": list(plan.sparse[:2]) if plan.sparse else [],
        "hashed columns that are neither strings, integers nor booleans": [
            name
            for name in plan.categorical
            if plan.families[name] not in HASHED and name not in dates
        ],
    }
    found = [f"{kind}: {printable(', '.join(names))}" for kind, names in kinds.items() if names]
    if found:
        raise UnsupportedError(f"the ONNX export does not support {'; '.join(found)}; {instead}")


FORMAT = Format(
    name="onnx",
    what="a graph from raw columns to predictions, for onnxruntime",
    extra="onnx",
    to_read="session = onnxruntime.InferenceSession({file!r})",
    write=write,
)


MEANS = identity, sigmoid, rate
"""What losses' ``mean`` may be."""
KINDS = {"b": "BOOL", "i": "INT64", "f": "DOUBLE", "U": "STRING"}


def add_outputs(graph: Graph, model: ModelData, margins: str) -> None:
    """Add the outputs of margins, (rows, learners), in the order and with the names of skl2onnx.

    Of classes ``label``, (rows,), and ``probabilities``, (rows, classes), of probabilistic losses;
    in regression ``variable``, (rows, 1). Then ``score``, which skl2onnx does not have.
    """
    learners, loss = model.engine.layout.learners, model.engine.loss
    width = learners if learners > 1 else None
    score = margins if width else graph.add("Squeeze", margins, graph.constant([1]))
    if model.plan.classes:
        _add_classes(graph, model, margins, score)
    else:
        graph.output("variable", _mean(graph, loss, margins), "DOUBLE", learners)
    graph.output("score", score, "DOUBLE", width)


def _add_classes(graph: Graph, model: ModelData, margins: str, score: str) -> None:
    learners, loss = model.engine.layout.learners, model.engine.loss
    classes = np.array(model.plan.classes)
    places = (
        graph.add("ArgMax", score, axis=1, keepdims=0)
        if learners > 1
        else graph.cast(graph.add("Greater", score, graph.constant(0.0)), "INT64")
    )
    chosen = graph.add("Gather", graph.constant(classes), places)
    graph.output("label", chosen, KINDS[classes.dtype.kind])
    if not model.has_probabilities:
        return
    e = model.engine.smoothing(model.state)
    if model.calibration is not None:
        likely = _calibrated(graph, model.calibration, margins, learners)
    elif learners > 1:
        likely = _shares(graph, loss, score, learners, e)
    else:
        second = _smoothed(graph, _mean(graph, loss, margins), e, 2)
        first = graph.add("Sub", graph.constant(1.0), second)
        likely = graph.add("Concat", first, second, axis=1)
    graph.output("probabilities", likely, "DOUBLE", len(classes))


def _mean(graph: Graph, loss: Loss, score: str) -> str:
    if loss.mean not in MEANS:
        raise UnsupportedError(
            f"the ONNX export does not support the prediction of loss {loss.name!r}: "
            "use streamomd predict; --as parquet exports the weights only"
        )
    if loss.mean is sigmoid:
        return _sigmoid(graph, score)
    return graph.add("Exp", score) if loss.mean is rate else score


def _sigmoid(graph: Graph, score: str) -> str:
    """``sigmoid``: onnxruntime's own one is 0 of margins whose shares of classes are not."""
    e = graph.add("Exp", graph.add("Neg", graph.add("Abs", score)))
    positive, one = graph.add("GreaterOrEqual", score, graph.constant(0.0)), graph.constant(1.0)
    return graph.add("Div", graph.add("Where", positive, one, e), graph.add("Add", one, e))


def _calibrated(graph: Graph, calibration: Calibration, margins: str, learners: int) -> str:
    """Both probabilities, (rows, 2), as ``Calibration.of``."""
    score = margins
    if learners > 1:
        first, second = (
            graph.add("Gather", margins, graph.constant([place]), axis=1) for place in (0, 1)
        )
        score = graph.add("Sub", second, first)
    if calibration.kind == "sigmoid":
        a, b = (graph.constant(one) for one in calibration.x)
        likely = _sigmoid(graph, graph.add("Add", graph.add("Mul", score, a), b))
    else:
        likely = _interpolated(graph, calibration, score)
    rest = graph.add("Sub", graph.constant(1.0), likely)
    return graph.add("Concat", rest, likely, axis=1)


def _interpolated(graph: Graph, calibration: Calibration, score: str) -> str:
    """Linear between the points of an isotonic calibration, constant beyond them, (rows, 1)."""
    x, p = np.array(calibration.x), np.array(calibration.p)
    if len(x) == 1:
        return graph.add("Add", graph.add("Mul", score, graph.constant(0.0)), graph.constant(p[0]))
    inside = graph.add("Max", graph.constant(x[0]), score)
    inside = graph.add("Min", graph.constant(x[-1]), inside)
    beyond = graph.cast(graph.add("GreaterOrEqual", inside, graph.constant(x[1:-1])), "INT64")
    low = graph.add("ReduceSum", beyond, graph.constant([1]), keepdims=1)
    high = graph.add("Add", low, graph.constant(1))
    ends = [
        graph.add("Gather", graph.constant(values), place)
        for values in (x, p)
        for place in (low, high)
    ]
    share = graph.add("Div", graph.add("Sub", inside, ends[0]), graph.add("Sub", ends[1], ends[0]))
    rise = graph.add("Mul", share, graph.add("Sub", ends[3], ends[2]))
    return graph.add("Add", ends[2], rise)


def _smoothed(graph: Graph, likely: str, e: float, classes: int) -> str:
    if e == 0.0:
        return likely
    less = graph.add("Mul", likely, graph.constant(1.0 - e))
    return graph.add("Add", less, graph.constant(e / classes))


def _shares(graph: Graph, loss: Loss, score: str, learners: int, e: float) -> str:
    """Each class's probability: softmax, or its share of the summed probabilities."""
    if loss.coupled:
        return _smoothed(graph, graph.add("Softmax", score, axis=1), e, learners)
    likely = _smoothed(graph, _mean(graph, loss, score), e, 2)
    total = graph.add("ReduceSum", likely, graph.constant([1]), keepdims=1)
    none = graph.add("Equal", total, graph.constant(0.0))
    share = graph.add("Div", likely, graph.add("Where", none, graph.constant(1.0), total))
    return graph.add("Where", none, graph.constant(1.0 / learners), share)
