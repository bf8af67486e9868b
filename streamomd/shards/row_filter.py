"""A filter bound to the columns of a shard: which rows satisfy it, and which row groups may.

Values are compared in one domain a family: integers and times as whole numbers (times in ns), so
that no comparison rounds; floats as doubles; texts by their UTF-8 bytes. Logic is that of SQL: a
comparison with null is null, and a row is read only if the filter is true.
"""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.config.filter_text import Comparison, Condition, Junction, Negation, Value
from streamomd.features.arrow_types import family, plain
from streamomd.shards.formats.parquet_footer import Bounds

Outcome = bool | None
"""What a filter is in a row; None: null."""
Outcomes = frozenset[Outcome]
_NULL: Outcomes = frozenset((None,))
_EPOCH = datetime.datetime(1970, 1, 1)
_UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY = 86_400 * 10**9
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "in": lambda a, b: a == b,
}
_FUNCTIONS = {
    "=": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater",
    ">=": "greater_equal",
}  # fmt: skip


class Match(NamedTuple):
    """A comparison bound to a column. kind: number, float, text or boolean; unit: of times in ns, 1
    of integers. values: in the column's domain."""

    column: str
    operator: str
    values: tuple[Any, ...]
    kind: str
    unit: int = 1


class Opposite(NamedTuple):
    """The opposite of a filter."""

    part: RowFilter


class Joined(NamedTuple):
    """Filters joined by a word, and or or."""

    word: str
    parts: tuple[RowFilter, ...]


RowFilter = Match | Opposite | Joined


def columns_of(row_filter: RowFilter) -> list[str]:
    """The columns that a filter reads, each once."""
    if isinstance(row_filter, Match):
        return [row_filter.column]
    parts = row_filter.parts if isinstance(row_filter, Joined) else (row_filter.part,)
    return list(dict.fromkeys(name for part in parts for name in columns_of(part)))


def bind(condition: Condition, schema: pa.Schema, refuse: Callable[[int, str], None]) -> RowFilter:
    """The condition for the columns of a schema. ``refuse(at, problem)`` raises."""
    if isinstance(condition, Negation):
        return Opposite(bind(condition.part, schema, refuse))
    if isinstance(condition, Junction):
        return Joined(condition.word, tuple(bind(part, schema, refuse) for part in condition.parts))
    kind, unit = _domain(schema.field(condition.column).type)
    if not kind and condition.operator != "null":
        found = schema.field(condition.column).type
        refuse(condition.at, f"column {condition.column!r} is {found}: a filter compares numbers, "
               "booleans, texts, dates and times")  # fmt: skip
    return Match(
        condition.column, condition.operator, _values(condition, schema, refuse), kind, unit
    )


def _domain(kind: pa.DataType) -> tuple[str, int]:
    """The kind of a type's domain, "" if it has none, and the unit of its numbers."""
    kind = plain(kind)
    known = {"float": "float", "boolean": "boolean", "string": "text", "integer": "number"}
    if pa.types.is_timestamp(kind):
        return "number", _UNITS[kind.unit]
    if pa.types.is_date(kind):
        return "number", _DAY if kind == pa.date32() else _UNITS["ms"]
    return known.get(family(kind), ""), 1


def _values(
    comparison: Comparison, schema: pa.Schema, refuse: Callable[[int, str], None]
) -> tuple[Any, ...]:
    kind = plain(schema.field(comparison.column).type)
    values = []
    for value in comparison.values:
        found, expected = _checked(value, kind, comparison.operator)
        if found is None:
            refuse(comparison.at, f"column {comparison.column!r} is {kind}: expected {expected}, "
                   f"found {_written(value)}")  # fmt: skip
        values.append(found)
    return tuple(values)


def in_domain(value: Value, kind: pa.DataType) -> Any:
    """A value in the domain of a type; None if it is of another."""
    return _checked(value, kind, "=")[0]


def _checked(value: Value, kind: pa.DataType, operator: str) -> tuple[Any, str]:
    """A value in the domain of a type, None if it is of another; and what was expected."""
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    match family(kind):
        case "boolean":
            fits = isinstance(value, bool) and operator in ("=", "!=", "in")
            return value if fits else None, "= or != with true or false"
        case "string":
            return value.encode() if isinstance(value, str) else None, "a text in single quotes"
        case "integer":
            return None if number is None else Fraction(number), "a number"
        case "float":
            return number, "a number"
    return _in_ns(value, kind)


def _in_ns(value: Value, kind: pa.DataType) -> tuple[Any, str]:
    """A date or a time in ns since 1970. A day is its midnight; without an offset, times in a
    column with a zone are UTC."""
    expected = "a date or time such as 2026-01-31 or 2026-01-31T12:00:00"
    if isinstance(value, str):
        try:
            value = datetime.datetime.fromisoformat(value)
        except ValueError:
            return None, expected
    if not isinstance(value, datetime.date):
        return None, expected
    if not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day)
    if value.tzinfo is not None:
        if not pa.types.is_timestamp(kind) or kind.tz is None:
            return None, "a time without an offset, because the column has no time zone"
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    passed = value - _EPOCH
    microseconds = (passed.days * 86_400 + passed.seconds) * 10**6 + passed.microseconds
    return Fraction(microseconds * 1000), expected


def _written(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, str | int | float) else str(value)


def satisfied(row_filter: RowFilter, rows: pa.RecordBatch) -> NDArray[np.bool_]:
    """Which rows satisfy the filter, (n,)."""
    found: NDArray[np.bool_] = (
        _evaluated(row_filter, rows).fill_null(False).to_numpy(zero_copy_only=False)
    )
    return found


def _evaluated(row_filter: RowFilter, rows: pa.RecordBatch) -> pa.Array:
    import pyarrow.compute as pc  # runs without a filter do not load it

    if isinstance(row_filter, Match):
        return _tested(row_filter, rows.column(row_filter.column))
    if isinstance(row_filter, Opposite):
        return pc.invert(_evaluated(row_filter.part, rows))
    join = pc.and_kleene if row_filter.word == "and" else pc.or_kleene
    first, *others = (_evaluated(part, rows) for part in row_filter.parts)
    for other in others:
        first = join(first, other)
    return first


def _tested(test: Match, array: pa.Array) -> pa.Array:
    """Returns whether each value passes a test: booleans, null for null."""
    import pyarrow.compute as pc

    if pa.types.is_dictionary(array.type):
        if test.operator == "null":
            array = array.dictionary_decode()
        else:
            return _tested(test, array.dictionary).take(array.indices)
    if test.operator == "null":
        return array.is_null()
    if test.kind == "number":
        return _tested_numbers(test, _as_integers(array))
    if test.kind == "float":
        array = array.cast(pa.float64())
        operator, values = _among_floats(test)
    else:
        operator, values = test.operator, list(test.values)
        if test.kind == "text":
            array = array.cast(pa.large_string())
            values = [value.decode() for value in values]
    if operator == "in":
        return _is_among(array, pa.array(values, array.type))
    if not values:
        return _constant(array, operator == "!=")
    return pc.call_function(_FUNCTIONS[operator], [array, pa.scalar(values[0], array.type)])


def _as_integers(array: pa.Array) -> pa.Array:
    """Days, and the units of times, as whole numbers."""
    if pa.types.is_date32(array.type):
        return array.view(pa.int32())
    return array if pa.types.is_integer(array.type) else array.view(pa.int64())


def _tested_numbers(test: Match, array: pa.Array) -> pa.Array:
    """Whole numbers compared with fractions of their unit, exactly and within their type."""
    import pyarrow.compute as pc

    info = np.iinfo(array.type.to_pandas_dtype())
    least, most = int(info.min), int(info.max)
    values = [value / test.unit for value in test.values]
    if test.operator == "in":
        whole = {int(value) for value in values if value.denominator == 1}
        possible = [value for value in sorted(whole) if least <= value <= most]
        return _is_among(array, pa.array(possible, array.type))
    value, operator = values[0], test.operator
    if value.denominator > 1:
        if operator in ("=", "!="):
            return _constant(array, operator == "!=")
        # x < 2.5, as x <= 2.5, is x <= 2; x > 2.5 is x >= 3.
        up = operator in (">", ">=")
        value, operator = Fraction(math.ceil(value) if up else math.floor(value)), operator[0] + "="
    if not least <= value <= most:
        below = value > most  # whether all numbers are below it
        holds = {"=": False, "!=": True, "<": below, "<=": below}
        return _constant(array, holds.get(operator, not below))
    return pc.call_function(_FUNCTIONS[operator], [array, pa.scalar(int(value), array.type)])


def _among_floats(test: Match) -> tuple[str, list[Any]]:
    """The operator and values of a comparison of doubles with numbers, exactly.

    No double is between a number that is none itself and the nearest one.
    """
    floats = [float(value) for value in test.values]
    exact = [near for near, value in zip(floats, test.values, strict=True) if near == value]
    if test.operator in ("in", "=", "!="):
        # Sets of values know 0 and -0 apart.
        return test.operator, exact + [-near for near in exact if near == 0.0]
    near, value = floats[0], test.values[0]
    if near == value:
        return test.operator, floats
    upper = near > value
    return {"<": ("<=", "<"), ">": (">", ">=")}[test.operator[0]][upper], floats


def _is_among(array: pa.Array, values: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    found = pc.is_in(array, value_set=values)
    return pc.if_else(array.is_valid(), found, pa.scalar(None, pa.bool_()))


def _constant(array: pa.Array, value: bool) -> pa.Array:
    import pyarrow.compute as pc

    return pc.if_else(array.is_valid(), pa.scalar(value), pa.scalar(None, pa.bool_()))


def outcomes(row_filter: RowFilter, known: Mapping[str, Bounds], rows: int) -> Outcomes:
    """All outcomes that the filter may have in ``rows`` rows, of whose columns this is known.

    It may name outcomes that no row has, and never omits one that a row has.
    """
    if isinstance(row_filter, Match):
        return _test_outcomes(row_filter, known.get(row_filter.column, Bounds()), rows)
    if isinstance(row_filter, Opposite):
        of = outcomes(row_filter.part, known, rows)
        return frozenset(None if one is None else not one for one in of)
    first, *others = (outcomes(part, known, rows) for part in row_filter.parts)
    join = _and if row_filter.word == "and" else _or
    for other in others:
        first = frozenset(join(a, b) for a, b in itertools.product(first, other))
    return first


def _and(a: Outcome, b: Outcome) -> Outcome:
    return False if a is False or b is False else None if a is None or b is None else True


def _or(a: Outcome, b: Outcome) -> Outcome:
    return True if a is True or b is True else None if a is None or b is None else False


def _test_outcomes(test: Match, known: Bounds, rows: int) -> Outcomes:
    low, high, nulls, nan = known
    if test.operator == "null":
        return frozenset(([True] if nulls != 0 else []) + ([False] if nulls != rows else []))
    if nulls == rows:
        return _NULL
    found: set[Outcome] = set() if nulls == 0 else {None}
    if nan:
        found.add(test.operator == "!=")
    if low is None or high is None:
        return frozenset(found | {True, False})
    ones = [_range_outcomes(test.operator, value, low, high) for value in test.values]
    if any(True in one for one in ones):
        found.add(True)
    if all(False in one for one in ones):
        found.add(False)
    return frozenset(found)


def _range_outcomes(operator: str, value: Any, low: Any, high: Any) -> set[Outcome]:
    """The outcomes of a comparison with the values from ``low`` to ``high``."""
    compare = _COMPARE[operator]
    found: set[Outcome] = {compare(low, value), compare(high, value)}
    if operator in ("=", "in", "!=") and low < value < high:
        found.add(operator != "!=")
    return found
