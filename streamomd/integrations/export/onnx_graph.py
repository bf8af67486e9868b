"""An ONNX graph as it is built, and its part that numbers and their curves take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.installed import needs_extra
from streamomd.core.scalars import Curve, hats_of

OPSET, IR = 20, 9
"""The first operator set with StringConcat, and its file version."""
MICROSOFT = "com.microsoft"


class Graph:
    """Nodes, constants, inputs and outputs so far. Tensors are referenced by name.

    columns: names reserved for inputs.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        with needs_extra("onnx is not installed", "onnx"):
            import onnx
        self._onnx = onnx
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._used = set(columns)

    def unused_name(self, name: str) -> str:
        """An unused tensor name: this one if it is free."""
        while name in self._used:
            name += "_"
        self._used.add(name)
        return name

    def input(self, name: str, kind: str, width: int) -> str:
        """Add an input column: (rows, width), of an ONNX element type."""
        self.inputs.append(self._value_info(name, kind, ["rows", width]))
        return name

    def constant(self, value: Any) -> str:
        """A constant tensor of numbers, booleans or strings, with numpy's dtype."""
        array: NDArray[Any] = np.asarray(value)
        if array.dtype.kind == "U":
            array = array.astype(object)
        name = self.unused_name("/constant")
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def add(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node with one output; return the output's name."""
        output = self.unused_name(f"/{operator}")
        node = self._onnx.helper.make_node(
            operator, inputs, [output], name=output, domain=domain, **attributes
        )
        self._nodes.append(node)
        return output

    def cast(self, name: str, kind: str) -> str:
        """A tensor converted to another element type."""
        return self.add("Cast", name, to=getattr(self._onnx.TensorProto, kind))

    def output(self, name: str, tensor: str, kind: str, width: int | None = None) -> None:
        """Add an output, (rows,) or (rows, width)."""
        name = self.unused_name(name)
        self._nodes.append(self._onnx.helper.make_node("Identity", [tensor], [name], name=name))
        shape = ["rows"] if width is None else ["rows", width]
        self.outputs.append(self._value_info(name, kind, shape))

    def model(self, title: str, metadata: Mapping[str, str]) -> Any:
        """The graph as a ModelProto, checked by onnx, with this metadata."""
        helper = self._onnx.helper
        graph = helper.make_graph(
            self._nodes, title, self.inputs, self.outputs, initializer=self._constants
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        made = helper.make_model(
            graph, opset_imports=opsets, ir_version=IR, producer_name="streamomd"
        )
        helper.set_model_props(made, dict(metadata))
        self._onnx.checker.check_model(made)
        return made

    def _value_info(self, name: str, kind: str, shape: list[Any]) -> Any:
        number = getattr(self._onnx.TensorProto, kind)
        return self._onnx.helper.make_tensor_value_info(name, number, shape)


def summed(graph: Graph, parts: list[str]) -> str:
    """The sum of tensors of one shape."""
    whole = parts[0]
    for part in parts[1:]:
        whole = graph.add("Add", whole, part)
    return whole


@dataclass
class Numbers:
    """Numeric columns: their values, and of those with indicators whether one was missing. known:
    by coordinate, a tensor that is 0 where a value has no hats; None: all have some."""

    graph: Graph
    values: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    known: list[tuple[str, int] | None] = field(default_factory=list)

    def take(self, name: str, width: int, fill: Any, *, nulls: str) -> None:
        """Add a column. fill: what NaN becomes, a number or a list of them; None: it is passed."""
        graph, values = self.graph, self.graph.input(name, "DOUBLE", width)
        known: list[tuple[str, int] | None] = [None] * width
        if fill is not None:
            gone = graph.add("IsNaN", values)
            values = graph.add("Where", gone, graph.constant(fill), values)
            ones = graph.cast(gone, "DOUBLE")
        if nulls == "indicator":
            ones = graph.add("ReduceMax", ones, graph.constant([1]), keepdims=1)
            self.missing.append(ones)
        if nulls in ("indicator", "mean"):
            there = graph.add("Sub", graph.constant(1.0), ones)
            known = [(there, 0 if nulls == "indicator" else at) for at in range(width)]
        self.values.append(values)
        self.known += known

    def curves(self, curves: Sequence[Curve], weights: NDArray[np.float64]) -> str:
        """What hats contribute: the weight of the first one, and from knot to knot a share of the
        weights' difference."""
        graph = self.graph
        every = graph.add("Concat", *self.values, axis=1)
        parts = []
        for curve, places in hats_of(curves, 0):
            knots, own = np.array(curve.knots), weights[places]
            x = graph.add("Gather", every, graph.constant([curve.place]), axis=1)
            rise = graph.add("Sub", x, graph.constant(knots[:-1]))
            share = graph.add("Div", rise, graph.constant(np.diff(knots)))
            share = graph.add(
                "Min", graph.add("Max", share, graph.constant(0.0)), graph.constant(1.0)
            )
            part = graph.add("MatMul", share, graph.constant(np.diff(own, axis=0)))
            part = graph.add("Add", part, graph.constant(own[:1]))
            if known := self.known[curve.place]:
                tensor, at = known
                there = graph.add("Gather", tensor, graph.constant([at]), axis=1)
                part = graph.add("Mul", part, there)
            parts.append(part)
        return summed(graph, parts)

    def times(self, columns: list[str], weights: NDArray[np.float64]) -> str:
        """The columns' contribution to the margins, (rows, learners)."""
        side_by_side = self.graph.add("Concat", *columns, axis=1)
        return self.graph.add("MatMul", side_by_side, self.graph.constant(weights))
