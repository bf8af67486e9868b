"""Which label values are the classes, and in what order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from streamomd.config.spec import Model
from streamomd.core.errors import DataError, SchemaError, UsageError
from streamomd.features.arrow_types import SCALARS, family, hint
from streamomd.features.plan import Label

_MOST = 1000


def find_classes(
    model: Model, column: str, kind: pa.DataType, distinct_labels: Callable[[], list[Any]]
) -> tuple[Label, ...]:
    """The classes of a label column of type ``kind``; () in regression.

    Not given, they are False and True for booleans, else made from ``distinct_labels``: within
    {0, 1} they are 0, 1 (also when only 1 was seen), within {-1, 1} they are -1, 1, else the values
    sorted. Null, NaN and ±inf are no classes. Raises SchemaError, UsageError or DataError.
    """
    families = (*SCALARS, "string") if model.classifies else SCALARS
    if family(kind) not in families:
        remedy = (
            "for classes choose --loss logistic, or cast it to numbers"
            if family(kind) == "string"
            else hint(kind)
        )
        raise SchemaError(
            f"first shard: label column {column!r} is {kind}: "
            f"expected {', '.join(families)}; {remedy}"
        )
    if not model.classifies:
        return ()
    if model.classes:
        return _given(model.classes, column, kind)
    if pa.types.is_boolean(kind):
        return (False, True)
    return _seen(distinct_labels(), column)


def _given(classes: tuple[Label, ...], column: str, kind: pa.DataType) -> tuple[Label, ...]:
    if len(set(classes)) < max(2, len(classes)):
        raise UsageError(
            f"model.classes = {list(classes)!r}: expected two or more different values, "
            "[negative, positive] or all classes"
        )
    if len({isinstance(value, bool) for value in classes}) > 1:
        raise UsageError(f"model.classes = {list(classes)!r}: expected all booleans or none")
    text = family(kind) == "string"
    for value in classes:
        if isinstance(value, str) != text:
            raise UsageError(
                f"model.classes holds {value!r}, but label column {column!r} is {kind}; "
                f"write the classes as {'strings' if text else 'numbers'}"
            )
    return classes


def _seen(labels: list[Any], column: str) -> tuple[Label, ...]:
    values = {_plain(label) for label in labels if _is_value(label)}
    if values and values <= {0, 1}:
        return (0, 1)
    if values and values <= {-1, 1}:
        return (-1, 1)
    if not 2 <= len(values) <= _MOST:
        some = f": {sorted(values)[0]!r}" if len(values) == 1 else ""
        raise DataError(
            f"label column {column!r} has {len(values)} distinct values in the first shard{some}; "
            f"expected 2 to {_MOST} classes; list them in model.classes, or choose a loss for "
            "regression such as square"
        )
    return tuple(sorted(values))


def _is_value(label: Any) -> bool:
    return label is not None and not (isinstance(label, float) and not math.isfinite(label))


def _plain(label: Any) -> Any:
    """Whole floats as integers, so that 1 and 1.0 name one class."""
    whole = isinstance(label, float) and label.is_integer()
    return int(label) if whole else label
