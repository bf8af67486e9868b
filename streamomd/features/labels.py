"""Labels to numbers and back; importance weights."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.config.filter_text import WORDS
from streamomd.core.batch import Floats
from streamomd.core.errors import DataError, UsageError
from streamomd.core.message import PerReader, Words, shown_value
from streamomd.core.startup import arrow_cast, arrow_function
from streamomd.core.urls import scrub
from streamomd.core.wording import at_least
from streamomd.features.arrow_types import SCALARS, TEXTS, family
from streamomd.features.bad_rows import BadRows, CheckedValues
from streamomd.features.numeric import numbers
from streamomd.features.plan import Plan

SKIP = PerReader("fix or drop the row, or pass --on-bad-row skip", "fix or drop the row")
_WORD = re.compile(r"[^\W\d][\w.]*")
OTHER_CLASS = PerReader(
    "list all classes in model.classes (streamomd plan --scan-labels prints them), "
    f"{SKIP.job}, or choose a loss for regression",
    f"{SKIP.estimator}, or use OMDRegressor",
)


def labels(array: pa.Array, plan: Plan, flaws: BadRows) -> Floats:
    """y (n,): −1 or 1 for two classes, the place 0 … K − 1 for more, the value in regression.

    Notes null, NaN and ±inf labels, and those that are not among the classes.
    """
    cells = CheckedValues(flaws, plan.label)
    if not plan.classes:
        remedy = _null_remedy(plan.label)
        y: Floats = numbers(array, cells, "error", null_remedy=remedy).astype(np.float64)
        _note_small(y, cells, plan.least_label)
        return y
    if (signs := _two_numbers(array, plan.classes)) is not None:
        return signs
    coded = array
    if not pa.types.is_dictionary(array.type):
        coded = arrow_function()("dictionary_encode", [array])
    values = _values(coded.dictionary)
    table = np.array([*_codes(values, plan), np.nan])
    indices = arrow_cast(coded.indices, pa.int64())
    codes = indices.fill_null(len(values)) if indices.null_count else indices
    codes = codes.to_numpy(zero_copy_only=False)
    y = table[codes]
    if np.isnan(y).any():
        _note_strange(y, codes, [*values, None], cells, plan)
    return y


def _two_numbers(array: pa.Array, classes: Sequence[Any]) -> Floats | None:
    """y of whole numbers that are all one of two classes; None otherwise: a slower path."""
    whole = pa.types.is_integer(array.type) and all(isinstance(known, int) for known in classes)
    if len(classes) != 2 or array.null_count or not whole:
        return None
    negative, positive = classes
    values = array.to_numpy()
    y: Floats = np.where(values == positive, 1.0, -1.0)
    return y if np.array_equal(y < 0.0, values == negative) else None


def weights(array: pa.Array, column: str, flaws: BadRows) -> Floats:
    """Importance weights (n,). Notes those that are null, negative, NaN or ±inf."""
    cells = CheckedValues(flaws, column)
    remedy = _null_remedy(column)
    found: Floats = numbers(array, cells, "error", null_remedy=remedy).astype(np.float64)
    if len(found) and not found.min() >= 0:
        cells.note(
            "negative_weight",
            np.flatnonzero(found < 0),
            lambda row: shown_value(float(found[row])),
            "a weight of 0 or more",
            "fix or drop the row",
        )
    return found


def labels_in_memory(plan: Plan, y: Any, weight: Any, where: str) -> tuple[Floats, Floats | None]:
    """Labels and weights of rows in memory as a batch has them, (n,) each; None without weights.

    y, weight: lists, arrays or series. Raises BadRowError for the first bad one with its row,
    DataError for what is not a column of values.
    """
    found = _column_of(y, "y")
    flaws = BadRows(len(found))
    targets = labels(found, plan, flaws)
    if flaws:
        raise flaws.in_memory(where)
    if weight is None:
        return targets, None
    given = _column_of(weight, "sample_weight")
    flaws = BadRows(len(given))
    numbers_of_rows = weights(given, "sample_weight", flaws)
    if flaws:
        raise flaws.in_memory(where)
    return targets, numbers_of_rows


def _column_of(values: Any, name: str) -> pa.Array:
    """Values as one array. Raises DataError for values that are no flat column of one type."""
    try:
        if hasattr(values, "combine_chunks"):
            found = values.combine_chunks()
        elif isinstance(values, pa.Array):
            found = values
        else:
            flat = values if isinstance(values, list | tuple) else np.asarray(values)
            found = pa.array(flat, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError) as error:
        text = scrub(str(error))
        raise DataError(
            f"{name} is not a column of values ({text}): pass one value a row"
        ) from None
    if pa.types.is_null(found.type):
        found = pa.nulls(len(found), pa.float64())
    if family(found.type) not in (*SCALARS, *TEXTS):
        raise DataError(f"{name} has values of type {found.type}, expected labels or numbers")
    return found


def decode_labels(plan: Plan, class_index: NDArray[Any]) -> pa.Array:
    """The label values of classes 0 … K − 1 (two classes: 0 negative, 1 positive), (n,); −1: null.

    Their type is the label column's where it can hold the classes.
    Raises UsageError in regression, which has no classes.
    """
    if not plan.classes:
        raise UsageError("regression has no classes: its predictions are numbers")
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
    texts = arrow_cast(dictionary, pa.large_binary()).to_pylist()
    return [None if t is None else t.decode(errors="backslashreplace") for t in texts]


def _codes(values: list[Any], plan: Plan) -> list[float]:
    """Each value's y; NaN for one that is no class."""
    codes = [-1.0, 1.0] if len(plan.classes) == 2 else [float(k) for k in range(len(plan.classes))]
    known = dict(zip(plan.classes, codes, strict=True))
    return [known.get(value, np.nan) for value in values]


def _note_small(y: Floats, cells: CheckedValues, least: float | None) -> None:
    if least is not None and len(y) and not y.min() >= least:
        cells.note(
            "label",
            np.flatnonzero(y < least),
            lambda row: f"label {shown_value(float(y[row]))}",
            f"{at_least(least)}, as the loss requires",
            "fix or drop the row, or choose another loss",
        )


def _note_strange(
    y: Floats, codes: NDArray[np.int64], values: list[Any], cells: CheckedValues, plan: Plan
) -> None:
    """Note labels that are no class; the message shows values[codes]."""
    rows = np.flatnonzero(np.isnan(y))
    why = np.array([_reason(value) for value in values])[codes[rows]]
    remedies = {"label": OTHER_CLASS, "null": _null_remedy(plan.label)}
    for reason in np.unique(why):
        cells.note(
            str(reason),
            rows[why == reason],
            lambda row: f"label {_label_text(values[codes[row]])}",
            f"one of the classes {shown_value(list(plan.classes))}",
            remedies.get(str(reason), SKIP),
        )


def _null_remedy(column: str) -> Words:
    """What to do about rows without a label or a weight."""
    plain = _WORD.fullmatch(column) and column.lower() not in WORDS
    name = column if plain else '"' + column.replace('"', '""') + '"'
    where = shlex.quote(f"{name} is not null")
    return PerReader(
        f"leave such rows out (--where {where}), fix them, or pass --on-bad-row skip",
        "leave such rows out, or fix them",
    )


def _reason(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, float) and not np.isfinite(value):
        return "nan" if np.isnan(value) else "inf"
    return "label"


def _label_text(value: Any) -> str:
    return "null" if value is None else shown_value(value)
