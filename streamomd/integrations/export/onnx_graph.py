"""An ONNX graph, built node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.errors import MissingExtraError

OPSET, IR = 20, 9
"""The first operator set with StringConcat, and its file version."""
MICROSOFT = "com.microsoft"


class Graph:
    """Nodes, constants, inputs and outputs so far. Tensors are referenced by name.

    columns: names reserved for inputs.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        try:
            import onnx
        except ImportError:
            raise MissingExtraError(
                "onnx is not installed: pip install 'streamomd[onnx]'"
            ) from None
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
