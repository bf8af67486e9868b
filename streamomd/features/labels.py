"""Labels to numbers and back; importance weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.batch import Floats
from streamomd.errors import UsageError
from streamomd.features.bad import Bad, first, shown
from streamomd.features.kinds import family
from streamomd.features.numeric import numbers
from streamomd.features.plan import Plan


def labels(array: pa.Array, plan: Plan) -> Floats:
    """y (n,): −1 or 1 for two classes, the place 0 … K − 1 for more, the value in regression.

    Raises Bad at a null, NaN or ±inf label and at one that is not among the classes.
    """
    if not plan.classes:
        return _large_enough(numbers(array, plan.label, "error").astype(np.float64), plan)
    coded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    values = _values(coded.dictionary)
    table = np.array([*_codes(values, plan), np.nan])
    codes = coded.indices.cast(pa.int64()).fill_null(len(values)).to_numpy(zero_copy_only=False)
    y: Floats = table[codes]
    if np.isnan(y).any():
        row = first(np.isnan(y))
        code = int(codes[row])
        raise _bad(row, values[code] if code < len(values) else None, plan)
    return y


def _large_enough(y: Floats, plan: Plan) -> Floats:
    if plan.least_label is not None and len(y) and y.min() < plan.least_label:
        row = first(y < plan.least_label)
        raise Bad(
            row,
            "label",
            plan.label,
            found=f"label {shown(float(y[row]))}",
            expected=f"{plan.least_label:g} or more, as the loss asks",
            remedy="mend or drop the row, or choose another loss",
        )
    return y


def weights(array: pa.Array, column: str) -> Floats:
    """Importance weights (n,). Raises Bad at one that is null, negative, NaN or ±inf."""
    found: Floats = numbers(array, column, "error").astype(np.float64)
    if len(found) and found.min() < 0:
        row = first(found < 0)
        raise Bad(
            row,
            "negative_weight",
            column,
            found=shown(float(found[row])),
            expected="a weight of 0 or more",
            remedy="mend or drop the row",
        )
    return found


def decode_labels(plan: Plan, class_index: NDArray[Any]) -> pa.Array:
    """The label values of classes 0 … K − 1 (two classes: 0 negative, 1 positive), (n,); −1: null.

    Their type is the label column's where it can hold the classes.
    Raises UsageError in regression, which has no classes.
    """
    if not plan.classes:
        raise UsageError("a regression has no classes: its predictions are numbers as they are")
    values = _as_label_type(list(plan.classes), plan.label_type)
    index = np.asarray(class_index, np.int64)
    return values.take(pa.array(index, mask=index < 0))


def _as_label_type(classes: list[Any], label_type: str) -> pa.Array:
    try:
        return pa.array(classes).cast(pa.type_for_alias(label_type))
    except (ValueError, TypeError, pa.ArrowException):
        return pa.array(classes)


def _values(dictionary: pa.Array) -> list[Any]:
    if family(dictionary.type) != "string":
        found: list[Any] = dictionary.to_pylist()
        return found
    texts = dictionary.cast(pa.large_binary()).to_pylist()
    return [None if t is None else t.decode(errors="backslashreplace") for t in texts]


def _codes(values: list[Any], plan: Plan) -> list[float]:
    """Each value's y; NaN for one that is no class."""
    codes = [-1.0, 1.0] if len(plan.classes) == 2 else [float(k) for k in range(len(plan.classes))]
    known = dict(zip(plan.classes, codes, strict=True))
    return [known.get(value, np.nan) for value in values]


def _bad(row: int, value: Any, plan: Plan) -> Bad:
    reason = "null" if value is None else "label"
    if isinstance(value, float) and not np.isfinite(value):
        reason = "nan" if np.isnan(value) else "inf"
    return Bad(
        row,
        reason,
        plan.label,
        found=f"label {'null' if value is None else shown(value)}",
        expected=f"one of the classes {shown(list(plan.classes))}",
        remedy="list all classes in model.classes, drop the row, or choose a loss for regression",
    )
