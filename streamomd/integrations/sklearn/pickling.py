"""The model of an estimator: pickled and copied as the content of a commit, without compiled loops.

Pickles have the parts of a state without what its start has, in fewest bytes. This module does not
import the engine before there is a model.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamomd.config.spec import Spec
from streamomd.features import Names, Plan
from streamomd.integrations.sklearn.inputs import PreparedScores
from streamomd.shards.order import Cursor

if TYPE_CHECKING:
    from streamomd.engine.layout import Layout
    from streamomd.engine.state import Arrays
    from streamomd.training.model import Model


Part = tuple[int, int, dict[str, Any]]
SHARE = 4
"""An array is saved whole if more than one number in ``SHARE`` changed."""
ROUNDING = 1 << 16
"""Units in the last place: half of a matrix's differences are below it if rounding made them."""
NARROWER = {"float64": ("float32",), "int64": ("uint16", "int32")}


def changed(parts: Iterator[tuple[int, int, Arrays]], layout: Layout) -> list[Part]:
    """Each part in few bytes; ``filled`` returns the same bits."""
    found = []
    for (low, high, arrays), (_, _, first) in zip(parts, _start(layout), strict=True):
        saved = {name: _saved(array, first.get(name)) for name, array in arrays.items()}
        found.append((low, high, saved))
    return found


def _start(layout: Layout) -> Iterator[tuple[int, int, Arrays]]:
    from streamomd.engine.state import State

    return State.start(layout).parts()


def filled(parts: list[Part], layout: Layout) -> Iterator[tuple[int, int, Arrays]]:
    """The parts as they were: the inverse of ``changed``."""
    for (low, high, saved), (_, _, first) in zip(parts, _start(layout), strict=True):
        yield low, high, {name: _array(one, first.get(name)) for name, one in saved.items()}


def _saved(array: NDArray[Any], first: NDArray[Any] | None) -> Any:
    there = np.ascontiguousarray(array)
    flat = there.reshape(-1)
    same = first is not None and (first.shape, first.dtype) == (array.shape, array.dtype)
    initial = np.ascontiguousarray(first).reshape(-1) if same else np.zeros_like(flat)
    places = np.flatnonzero(_bits(flat) != _bits(initial))
    if len(places) * SHARE <= flat.size:
        kind = ("places",) if same else ("non-zero", array.shape, array.dtype.name)
        return *kind, _narrow(places), _narrow(flat[places])
    if array.ndim >= 2 and array.shape[-1] == array.shape[-2] > 1:
        row, column = np.triu_indices(array.shape[-1])
        bits = _bits(there).astype(np.int64)
        values, below = there[..., row, column], bits[..., column, row] - bits[..., row, column]
        if np.median(np.abs(below)) < ROUNDING:
            return "upper", array.shape, values, zlib.compress(below.tobytes())
    values = _narrow(flat)
    if values.dtype == array.dtype:
        return array
    return "values", array.shape, array.dtype.name, values


def _array(saved: Any, first: NDArray[Any] | None) -> NDArray[Any]:
    if isinstance(saved, np.ndarray):
        return saved
    array: NDArray[Any]
    how, *rest = saved
    if how in ("places", "non-zero"):
        *form, places, values = rest
        array = np.zeros(*form) if form else np.array(first)
        array.reshape(-1)[places] = values
    elif how == "upper":
        shape, values, packed = rest
        below = np.frombuffer(zlib.decompress(packed), np.int64).reshape(values.shape)
        array = np.empty(shape, values.dtype)
        row, column = np.triu_indices(shape[-1])
        array[..., column, row] = array[..., row, column] = values
        _bits(array)[..., column, row] += below.astype(f"u{array.itemsize}")
    else:
        shape, dtype, values = rest
        array = values.astype(dtype).reshape(shape)
    return array


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    return array.view(f"u{array.itemsize}")


def _narrow(array: NDArray[Any]) -> NDArray[Any]:
    """The numbers in the first narrower type that returns their bits, or as they are."""
    for dtype in NARROWER.get(array.dtype.name, ()):
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            narrow = array.astype(dtype)
        if np.array_equal(_bits(narrow.astype(array.dtype)), _bits(array)):
            return narrow
    return array


class PickledModel:
    """A model that ``pickle`` and ``copy`` save as JSON and arrays."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.parameters = ""
        """The estimator's parameters when they last matched the model."""
        self.scores = PreparedScores()

    def copy(self) -> PickledModel:
        """A deep copy."""
        restore, saved = self.__reduce__()
        return restore(*saved)

    def __reduce__(self) -> tuple[Callable[..., PickledModel], tuple[str, list[Any]]]:
        from streamomd.training.model_document import document_of, parts_of

        model = self.model
        document = document_of(model, names=model.names.to_json())
        parts = changed(parts_of(model.state, model.metrics), model.state.layout)
        return restored, (json.dumps(document), parts)


def restored(text: str, parts: list[Any]) -> PickledModel:
    """Rebuild a pickled model, with its own memory and engine."""
    from streamomd.rules import refuse_other_state
    from streamomd.training.metrics import Metrics
    from streamomd.training.model import Model

    document = json.loads(text)
    spec = Spec.parse(document["job"])
    # Rows passed to fit may have had weights: an estimator's job does not record that.
    saved = spec.saved(document.get("state_version", 1))._replace(weighted=True)
    refuse_other_state(spec.rule, saved)
    model = Model.new(spec, Plan.from_json(document["plan"]))
    for low, high, arrays in filled(parts, model.state.layout):
        model.state.fill(low, high, arrays)
        if low == 0:  # with the metrics
            classifies = model.metrics.classifies
            model.metrics = Metrics.from_arrays(arrays, classifies=classifies)
    model.cursor = Cursor.from_json(document["cursor"])
    model.names = Names.from_json(document["names"])
    model.finished = document["finished"]
    return PickledModel(model)
