"""An ONNX graph as it is built, and its parts for numbers, their curves, bins and trees, and for
texts of crosses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.installed import needs_extra
from streamomd.core.scalars import Bins, Curve, hats_of
from streamomd.core.trees import Trees

OPSET, IR = 20, 9
"""The first operator set with StringConcat, and its file version."""
MICROSOFT, TREES = "com.microsoft", "ai.onnx.ml"
VERSIONS = {"": OPSET, MICROSOFT: 1, TREES: 5}
"""The operator set of each domain; the first one of trees in float64."""


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
        self._domains = {"", MICROSOFT}

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
        self._add(operator, inputs, [output], domain=domain, **attributes)
        return output

    def split(self, texts: str, between: str) -> tuple[str, str]:
        """The parts of texts, one more axis, padded, and how many each has; "" has none."""
        made = self.unused_name("/parts"), self.unused_name("/count")
        self._add("StringSplit", [texts], made, delimiter=between)
        return made

    def _add(
        self, operator: str, inputs: Sequence[str], outputs: Sequence[str], *, domain: str = "",
        **attributes: Any,
    ) -> None:  # fmt: skip
        make = self._onnx.helper.make_node
        node = make(operator, inputs, outputs, name=outputs[0], domain=domain, **attributes)
        self._nodes.append(node)
        self._domains.add(domain)

    def tensor(self, value: Any) -> Any:
        """Numbers as an attribute, with numpy's dtype."""
        return self._onnx.numpy_helper.from_array(np.asarray(value))

    def repeated(self, times: str, texts: str, step: Callable[[str, str], str]) -> str:
        """Texts after ``step(i, texts)`` for i = 0 … times − 1. step adds nodes and returns the
        next texts."""
        helper, kinds = self._onnx.helper, self._onnx.TensorProto
        outer, self._nodes = self._nodes, []
        at, going, before = map(self.unused_name, ("/at", "/going", "/before"))
        after, same = step(at, before), self.add("Identity", going)
        info = helper.make_tensor_value_info
        given = [
            info(at, kinds.INT64, []),
            info(going, kinds.BOOL, []),
            info(before, kinds.STRING, None),
        ]
        made = [info(same, kinds.BOOL, []), info(after, kinds.STRING, None)]
        body = helper.make_graph(self._nodes, self.unused_name("/body"), given, made)
        self._nodes = outer
        return self.add("Loop", times, "", texts, body=body)

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
        opsets = [helper.make_opsetid(one, VERSIONS[one]) for one in sorted(self._domains)]
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
    """Numeric columns: their values, those that curves, bins and trees read, NaN where one is
    missing, and of columns with indicators whether a value was missing."""

    graph: Graph
    values: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def take(self, name: str, width: int, fill: Any, *, nulls: str) -> None:
        """Add a column. fill: what NaN becomes, a number or a list of them; None: it is passed."""
        graph, given = self.graph, self.graph.input(name, "DOUBLE", width)
        values = given
        if fill is not None:
            gone = graph.add("IsNaN", given)
            values = graph.add("Where", gone, graph.constant(fill), given)
        if nulls == "indicator":
            ones = graph.cast(gone, "DOUBLE")
            ones = graph.add("ReduceMax", ones, graph.constant([1]), keepdims=1)
            self.missing.append(ones)
            # A vector with a missing element is not read at all.
            gone, nan = graph.cast(ones, "BOOL"), graph.constant(np.nan)
            given = graph.add("Where", gone, nan, given)
        self.values.append(values)
        self.read.append(given if nulls in ("indicator", "mean") else values)

    def of(self, place: int) -> str:
        """A numeric or vector coordinate, (rows, 1), NaN where it is missing."""
        return self.graph.add("Gather", self._every, self.graph.constant([place]), axis=1)

    @cached_property
    def _every(self) -> str:
        return self.graph.add("Concat", *self.read, axis=1)

    def curves(self, curves: Sequence[Curve], weights: NDArray[np.float64]) -> str:
        """What hats contribute: the weight of the first one, and from knot to knot a share of the
        weights' difference. A missing number has no hats."""
        graph = self.graph
        parts = []
        for curve, places in hats_of(curves, 0):
            knots, own, x = np.array(curve.knots), weights[places], self.of(curve.place)
            rise = graph.add("Sub", x, graph.constant(knots[:-1]))
            share = graph.add("Div", rise, graph.constant(np.diff(knots)))
            share = graph.add(
                "Min", graph.add("Max", share, graph.constant(0.0)), graph.constant(1.0)
            )
            part = graph.add("MatMul", share, graph.constant(np.diff(own, axis=0)))
            part = graph.add("Add", part, graph.constant(own[:1]))
            parts.append(graph.add("Where", graph.add("IsNaN", x), graph.constant(0.0), part))
        return summed(graph, parts)

    def bins(self, bins: Bins, missing: str) -> str:
        """A number's bin as text, (rows, 1); missing: that of a missing one."""
        graph, x, edges = self.graph, self.of(bins.place), np.array(bins.edges)
        above = graph.cast(graph.add("GreaterOrEqual", x, graph.constant(edges)), "INT64")
        code = graph.add("ReduceSum", above, graph.constant([1]), keepdims=1)
        gone, last = graph.add("IsNaN", x), graph.constant(len(edges) + 1)
        code = graph.add("Where", gone, last, code)
        return graph.add("Gather", graph.constant([*bins.names, missing]), code)

    def trees(self, trees: Trees, places: Sequence[str]) -> str:
        """The margins of trees, (rows, margins). places: of categories, from 0, each (rows, 1)."""
        graph, growth, low = self.graph, trees.growths[-1], 0
        codes = []
        for place, end, unseen in zip(places, growth.ends, growth.unseen, strict=True):
            # The operator needs at least one key; no category has -1.
            keys, values = [-1, *growth.places[low:end]], [unseen, *growth.codes[low:end]]
            low = end
            codes.append(graph.add(
                "LabelEncoder", place, domain=TREES,
                keys_tensor=graph.tensor(np.array(keys, np.int64)),
                values_tensor=graph.tensor(np.array(values, np.float64)),
                default_tensor=graph.tensor(np.array([unseen])),
            ))  # fmt: skip
        leaf, roots = growth.feature < 0, growth.roots[:-1]
        of = (np.searchsorted(growth.roots, np.arange(len(leaf)), "right") - 1) % trees.margins
        # It has no trees of one leaf: their sums are constants.
        alone, single = leaf[roots], np.zeros((1, trees.margins))
        np.add.at(single[0], of[roots[alone]], growth.value[roots[alone]])
        inner, number = np.flatnonzero(~leaf), np.where(leaf, np.cumsum(leaf), np.cumsum(~leaf)) - 1
        constant = graph.constant(single)
        if not len(inner):
            return constant
        left, right = inner + 1, growth.right[inner]
        grown = graph.add(
            "TreeEnsemble", graph.add("Concat", *self.read, *codes, axis=1), domain=TREES,
            n_targets=trees.margins, tree_roots=number[roots[~alone]],
            nodes_featureids=growth.feature[inner],
            nodes_modes=graph.tensor(np.zeros(len(inner), np.uint8)),  # left if at most
            nodes_splits=graph.tensor(growth.value[inner]),
            nodes_missing_value_tracks_true=growth.nan_left[inner],
            nodes_truenodeids=number[left], nodes_trueleafs=leaf[left].astype(int),
            nodes_falsenodeids=number[right], nodes_falseleafs=leaf[right].astype(int),
            leaf_targetids=of[leaf], leaf_weights=graph.tensor(growth.value[leaf]),
        )  # fmt: skip
        return graph.add("Add", grown, constant)

    def times(self, columns: list[str], weights: NDArray[np.float64]) -> str:
        """The columns' contribution to the margins, (rows, learners)."""
        side_by_side = self.graph.add("Concat", *columns, axis=1)
        return self.graph.add("MatMul", side_by_side, self.graph.constant(weights))


def escaped(graph: Graph, texts: str) -> str:
    """Texts in that of a cross, as ``streamomd.training.scoring.categories.escaped``."""
    for special in "\\^":
        texts = _replaced(graph, texts, special, "\\" + special)
    return texts


def _replaced(graph: Graph, texts: str, old: str, new: str) -> str:
    """Texts (rows, 1) with one part for another: split, and joined again."""
    parts, count = graph.split(texts, old)

    def longer(at: str, before: str) -> str:
        first = graph.add("Equal", at, graph.constant(0))
        between = graph.add("Where", first, graph.constant(""), graph.constant(new))
        part = graph.add("StringConcat", between, graph.add("Gather", parts, at, axis=2))
        there = graph.add("Less", at, count)
        return graph.add(
            "StringConcat", before, graph.add("Where", there, part, graph.constant(""))
        )

    most = graph.add("Shape", parts, start=2, end=3)
    return graph.repeated(
        most, graph.add("Expand", graph.constant(""), graph.add("Shape", texts)), longer
    )
