"""Which label values are the classes, and in what order."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import pyarrow as pa

from streamomd.config.model_table import Model
from streamomd.core.errors import DataError, SchemaError, UsageError
from streamomd.core.message import Message, PerReader, Words
from streamomd.core.urls import printable
from streamomd.core.wording import counted, listed
from streamomd.features.arrow_types import SCALARS, family, named
from streamomd.features.plan_columns import Label
from streamomd.features.plan_lines import FIRST

_MOST = 1000
_COMMA_NUMBER = re.compile(r"\s*[-+]?\d+(,\d+)?\s*", re.ASCII)
_REMEDIES: Mapping[str, Words] = {
    "string": PerReader(
        "for classes choose --loss logistic, or cast it to numbers",
        "for classes choose loss logistic, or cast it to numbers",
    ),
    "decimal": PerReader(
        "cast it to double or int64 when the shard is written", "cast it to double or int64 before"
    ),
    "null": "it has no values; write it with the type of its labels",
}
"""For labels of these families; roles of features are no remedy for a label."""
_OTHER = "name another column in label"
FEWEST_ROWS = 5
"""A class of fewer rows is mentioned."""
ENOUGH_ROWS, NAMED = 100, 8
"""Rows of a first shard whose rare classes are mentioned, and how many of them."""
MOST_WHOLE = 50
"""Distinct whole numbers that may be classes where the job does not say so."""


def find_classes(
    model: Model, column: str, kind: pa.DataType, distinct_labels: Callable[[], list[Any]]
) -> tuple[Label, ...]:
    """The classes of a label column of type ``kind``; () in regression.

    A job that leaves the task to the labels is a regression if they are ``targets``.
    Not given, they are False and True for booleans, else made from ``distinct_labels``: within
    {0, 1} they are 0, 1 (also when only 1 was seen), within {-1, 1} they are -1, 1, else the values
    sorted. Null, NaN and ±inf are no classes. Raises SchemaError, UsageError or DataError.
    """
    families = (*SCALARS, "string") if model.classifies else SCALARS
    if family(kind) not in families:
        remedy = _REMEDIES.get(family(kind), _OTHER)
        form = "{shard}: label column {column!r} is {found}: expected {expected}; {remedy}"
        at: Any = {"shard": FIRST, "column": column, "found": named(kind)}
        expected = ", ".join(families)
        raise SchemaError(Message("wrong_label", form, **at, expected=expected, remedy=remedy))
    if not model.classifies:
        return ()
    if model.classes:
        return _given(model.classes, column, kind)
    if pa.types.is_boolean(kind):
        return (False, True)
    labels = distinct_labels()
    if model.finds_task and (number := decimal_comma(labels)):
        raise DataError(
            f"label column {printable(column)!r} has texts such as {number!r}, which look like "
            'numbers with a decimal comma: pass --decimal , (data.csv.decimal = ","); if they are '
            "classes pass --task classify"
        )
    return () if model.finds_task and targets(labels) else _seen(labels, column)


def targets(labels: Iterable[Any]) -> str:
    """Why distinct labels are targets of a regression and not classes; "" if they may be classes.

    >>> targets([0, 1, 2]), targets(["a", "b"]), targets([1.0, 1.5])
    ('', '', 'it has fractions such as 1.5')
    >>> targets(range(60))
    'it has more than 50 distinct whole numbers'
    """
    values = [one for one in labels if isinstance(one, int | float) and _is_value(one)]
    fraction = next((one for one in values if one != int(one)), None)
    if fraction is not None:
        return f"it has fractions such as {fraction:g}"
    many = len(values) > MOST_WHOLE
    return f"it has more than {MOST_WHOLE} distinct whole numbers" if many else ""


def decimal_comma(labels: Collection[Any]) -> str:
    """One of the labels if all are texts of numbers, some with a decimal comma; else "".

    >>> decimal_comma(["3", "3,14"]), decimal_comma(["3", "a,b"]), decimal_comma(["3", "4"])
    ('3,14', '', '')
    """
    texts = [one for one in labels if isinstance(one, str) and _COMMA_NUMBER.fullmatch(one)]
    return next((one for one in texts if "," in one), "") if len(texts) == len(labels) else ""


def rare_note(column: str, counts: Mapping[Any, int]) -> str:
    """The classes of few rows, of a first shard with these rows of each; "" if there are none.

    In a shard of few rows every class may be rare.

    >>> rare_note("y", {"a": 400, "b": 1})
    "label 'y': classes of fewer than 5 rows in the first shard: 'b' (1)"
    """
    rare = sorted(value for value, rows in counts.items() if rows < FEWEST_ROWS)
    if not rare or sum(counts.values()) < ENOUGH_ROWS:
        return ""
    some = listed([f"{value!r} ({counts[value]})" for value in rare], NAMED)
    return printable(
        f"label {column!r}: classes of fewer than {FEWEST_ROWS} rows in the first shard: {some}"
    )


def task_note(model: Model, column: str, labels: Collection[Any]) -> str:
    """The task that the labels chose, and why; "" if the job says it or they are plain classes."""
    values = {_plain(one) for one in labels if _is_value(one)}
    numbers = all(isinstance(one, int | float) for one in values)
    if not model.finds_task or not numbers or values <= {0, 1} or values <= {-1, 1}:
        return ""
    label = f"label {printable(column)!r}"
    if reason := targets(values):
        return f"task: regression, as {label}: {reason} (classes: --task classify)"
    return (
        f"task: classification, as {label} has {counted(len(values), 'distinct whole number')} "
        "(numbers: --task regress)"
    )


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
            f"expected 2 to {_MOST} classes; list them in model.classes, or pass --task regress"
        )
    return tuple(sorted(values))


def _is_value(label: Any) -> bool:
    return label is not None and not (isinstance(label, float) and not math.isfinite(label))


def _plain(label: Any) -> Any:
    """Whole floats as integers, so that 1 and 1.0 name one class."""
    whole = isinstance(label, float) and label.is_integer()
    return int(label) if whole else label
