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
from streamomd.training.scoring.calibration import Calibration

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
    operator = MEANS[loss.mean]
    return graph.add(operator, score) if operator else score


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
        likely = graph.add("Sigmoid", graph.add("Add", graph.add("Mul", score, a), b))
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
