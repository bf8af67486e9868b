"""Predictions from margins in ONNX, as ``training.predict.columns`` computes them in numpy."""

from __future__ import annotations

import numpy as np

from streamomd.core.errors import UnsupportedError
from streamomd.core.sigmoid import sigmoid
from streamomd.integrations.export.onnx_graph import Graph
from streamomd.losses import Loss
from streamomd.losses.contract import identity
from streamomd.losses.poisson import rate
from streamomd.training.model import Model

MEANS = {identity: "", sigmoid: "Sigmoid", rate: "Exp"}
"""The operator of each loss's ``mean``."""
KINDS = {"b": "BOOL", "i": "INT64", "f": "DOUBLE", "U": "STRING"}


def add_outputs(graph: Graph, model: Model, margins: str) -> None:
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


def _add_classes(graph: Graph, model: Model, margins: str, score: str) -> None:
    learners, loss = model.engine.layout.learners, model.engine.loss
    classes = np.array(model.plan.classes)
    places = (
        graph.add("ArgMax", score, axis=1, keepdims=0)
        if learners > 1
        else graph.cast(graph.add("Greater", score, graph.constant(0.0)), "INT64")
    )
    chosen = graph.add("Gather", graph.constant(classes), places)
    graph.output("label", chosen, KINDS[classes.dtype.kind])
    if not loss.probabilistic:
        return
    e = model.engine.smoothing(model.state)
    if learners > 1:
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
    operator = MEANS[loss.mean]
    return graph.add(operator, score) if operator else score


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
