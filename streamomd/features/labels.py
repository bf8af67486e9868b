"""Labels: which values are the classes, in what order, and as numbers; importance weights."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.config.filter_text import WORDS
from streamomd.config.model_table import Model
from streamomd.core.batch import Floats
from streamomd.core.errors import DataError, SchemaError, UsageError
from streamomd.core.message import Message, PerReader, Words, shown_value
from streamomd.core.startup import arrow_cast, arrow_function
from streamomd.core.urls import printable, scrub
from streamomd.core.wording import at_least, counted, listed
from streamomd.features.arrow_types import SCALARS, TEXTS, family, named
from streamomd.features.bad_rows import BadRows, CheckedValues
from streamomd.features.numeric import numbers
from streamomd.features.plan import Plan
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
            column = values.combine_chunks()
        elif isinstance(values, pa.Array):
            column = values
        else:
            flat = values if isinstance(values, list | tuple) else np.asarray(values)
            column = pa.array(flat, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError) as error:
        text = scrub(str(error))
        raise DataError(
            f"{name} is not a column of values ({text}): pass one value a row"
        ) from None
    if pa.types.is_null(column.type):
        column = pa.nulls(len(column), pa.float64())
    if family(column.type) not in (*SCALARS, *TEXTS):
        raise DataError(f"{name} has values of type {column.type}, expected labels or numbers")
    return column


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
