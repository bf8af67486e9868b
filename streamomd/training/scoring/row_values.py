"""A row's values as Python has them, read as their columns' types: numbers, categories, dates.

None, NaN and the missing values of pandas are one missing value here, as in a pandas frame. A bad
value raises BadValueError.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, NamedTuple

import numpy as np

from streamomd.core.errors import BadRowError, SchemaError, StreamomdError, UsageError
from streamomd.core.message import Message, joined, shown_value
from streamomd.training.scoring.description import Description

WRONG_TYPE = "wrong_type"
"""The code of a value of another type than the column's."""


class BadValueError(ValueError):
    """A value that a column cannot take. reason: as in ``core.batch.REASONS``; "" for its type."""

    def __init__(self, reason: str, found: str, expected: str, remedy: str = "") -> None:
        super().__init__(found)
        self.reason, self.found, self.expected, self.remedy = reason, found, expected, remedy


class Problem(NamedTuple):
    """A bad value of a column."""

    column: str
    error: BadValueError


def wrong_type(value: Any, expected: str) -> BadValueError:
    """A value of another type than the column's."""
    return BadValueError("", f"{shown_value(value)} ({type(value).__name__})", expected)


def row_error(
    row: Mapping[str, Any], columns: Sequence[str], problems: Sequence[Problem], where: str
) -> StreamomdError:
    """The error of a row: all its missing columns, or all its bad values."""
    missing = [name for name in dict.fromkeys(columns) if name not in row]
    if missing:
        from streamomd.core.wording import missing_columns  # late: slow to import, for errors only

        text = missing_columns(missing, list(row), where)
        form = "{found}: add what is missing (None stands for a missing value)"
        return SchemaError(Message("missing_column", form, column=missing[0], found=text))
    parts = [_message(column, error) for column, error in problems]
    remedies = [*dict.fromkeys(error.remedy for _, error in problems if error.remedy)]
    reasons = [error.reason for _, error in problems if error.reason]
    is_typed = len(reasons) < len(problems)
    if is_typed:
        remedies.append("convert the values, or score with a model of such columns")
    form = "{shard}: {found}; {remedy}" if remedies else "{shard}: {found}"
    message = Message(
        WRONG_TYPE if is_typed else reasons[0], form, shard=where, column=problems[0].column,
        found=joined(parts, "; "), remedy="; ".join(remedies),
    )  # fmt: skip
    return SchemaError(message) if is_typed else BadRowError(message)


def _message(column: str, error: BadValueError) -> Message:
    form, code = "column {column!r}: found {found}, expected {expected}", error.reason or WRONG_TYPE
    return Message(code, form, column=column, found=error.found, expected=error.expected)


def no_mapping(row: Any, where: str) -> UsageError:
    """The error of a row that is not a mapping."""
    return UsageError(f"{where} is a {type(row).__name__}, expected a dict: column name -> value")


_MISSING = ("NAType", "NaTType")
_KINDS = {
    "integer": "a whole number",
    "boolean": "True or False",
    "text": "text",
    "bytes": "bytes",
    "date": "a date, or its text such as '2026-01-31'",
    "timestamp": "a datetime without a time zone, or its text such as '2026-01-31T12:00'",
    "timestamp with a zone": "a datetime with a time zone, or its text, '2026-01-31T12:00Z'",
}
_EXACT = 2**53
_CONTEXT = Context(prec=500)
_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_MEASURED: dict[str, Any] = {"boolean": (), "duration": datetime.timedelta, "time": datetime.time}
"""Types of values in addition to numbers, by the kind of a column."""


def plain(value: Any) -> Any:
    """A value without numpy's and pandas' types; None if it is missing.

    >>> plain(np.float32(0.5)), plain(math.nan), plain("a")
    (0.5, None, 'a')
    """
    if type(value).__name__ in _MISSING:
        return None
    if isinstance(value, np.datetime64):
        days = np.datetime_data(value.dtype)[0] in ("Y", "M", "W", "D")
        unit = "datetime64[D]" if days else "datetime64[us]"
        return None if np.isnat(value) else value.astype(unit).item()
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and math.isnan(value) else value


def number_of(value: Any, kind: str, d: Description) -> float | None:
    """A number as float64, of a float32 column rounded to it; None if it is missing."""
    value = plain(value)
    if value is None:
        return None
    unit = kind.partition(":")
    if isinstance(value, _MEASURED.get(unit[0], Decimal)):
        return _measured(value, unit[0], unit[2], d)
    if isinstance(value, bool) != (kind == "boolean") or not isinstance(value, bool | int | float):
        raise wrong_type(value, _KINDS["boolean"] if kind == "boolean" else "a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if number != value:
        raise BadValueError(
            "overflow", shown_value(value), "an integer float64 can hold", "pass it as a float"
        )
    number = rounded(number, kind)
    check_number(number, value, d)
    return number


def _measured(value: Any, kind: str, unit: str, d: Description) -> float | None:
    """A decimal as Arrow makes a float64 of it, a duration or a time of day in seconds."""
    if isinstance(value, Decimal):
        if value.is_nan():
            return None
        found = decimal_of(value, int(unit) if kind == "decimal" else 0)
    else:
        if isinstance(value, datetime.time):
            ticks = ((value.hour * 60 + value.minute) * 60 + value.second) * 10**6
            ticks += value.microsecond
        else:
            ticks = value // datetime.timedelta(microseconds=1)
        per_second = _TICKS[unit]
        found = float(ticks * per_second // 10**6) / per_second
    check_number(found, value, d)
    return found


def decimal_of(value: Decimal, scale: int) -> float:
    """A decimal as float64 with the operations of Arrow, which does not round correctly.

    >>> decimal_of(Decimal("0.07"), 2), decimal_of(Decimal("1E+999"), 0)
    (0.07, inf)
    """
    if not value.is_finite() or value.adjusted() > 308:
        return math.copysign(math.inf, value)
    exponent = value.as_tuple().exponent
    scale = max(scale, -int(exponent))
    if scale > 76:  # no type of Arrow's has more
        return float(value)
    size = abs(int(value.scaleb(scale, _CONTEXT)))
    if size <= _EXACT:
        found = _scaled(size, scale)
    else:
        whole, rest = divmod(size, 10**scale)
        found = _scaled(whole, 0) + _scaled(rest, scale)
    return -found if value < 0 else found


def _scaled(size: int, scale: int) -> float:
    high, low = divmod(size, 2**64)
    return (float(high) * 2.0**64 + float(low)) * float(f"1e-{scale}")


def check_number(found: float, value: Any, d: Description) -> None:
    """Raises BadValueError unless a number is finite and in the model's range."""
    size = abs(found)
    if not size < math.inf:
        raise BadValueError("inf", shown_value(value), "a finite number")
    if size > d.largest:
        raise BadValueError("overflow", shown_value(value), "a number float32 can hold")
    if size > d.most or (found != 0.0 and size < d.least):
        span = f"a magnitude from {d.least:g} to {d.most:g}"
        raise BadValueError("out_of_range", shown_value(value), f"0 or {span}, the rule's range")


def rounded(value: float, kind: str) -> float:
    """A number as a column of its kind stores it."""
    if kind == "float32":
        with np.errstate(over="ignore"):
            return float(np.float32(value))
    if kind == "float16":
        with np.errstate(over="ignore"):
            return float(np.float16(value))
    return value


def category_of(value: Any, kind: str) -> bytes | None:
    """The bytes of a category that are hashed; None if it is missing.

    >>> category_of("nurse", "text"), category_of(3.0, "integer"), category_of(True, "boolean")
    (b'nurse', b'3', b'true')
    """
    value = plain(value)
    if value is None:
        return None
    if kind in ("text", "bytes"):
        return text_bytes(value, kind)
    if isinstance(value, bool) != (kind == "boolean") or not isinstance(value, bool | int | float):
        raise wrong_type(value, _KINDS.get(kind, "a number"))
    if kind == "boolean":
        return b"true" if value else b"false"
    if kind == "integer":
        if not math.isfinite(value) or value != int(value):
            raise BadValueError("fraction", shown_value(value), "a whole number")
        if not -(2**63) <= value < 2**64:
            raise BadValueError("overflow", shown_value(value), "a number of 64 bits")
        return b"%d" % int(value)
    number = float(value) if abs(value) < 2**64 else math.inf
    if isinstance(value, int) and number != value:
        raise BadValueError("fraction", shown_value(value), "a whole number below 2**53")
    return repr(rounded(float(value), kind) + 0.0).encode()


def text_bytes(value: Any, kind: str = "text") -> bytes:
    """The bytes of a text, as they are stored."""
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise BadValueError("utf8", shown_value(value), "text in UTF-8") from None
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise wrong_type(value, _KINDS[kind])


def text_of(value: Any) -> str:
    """A text; "" if it is missing."""
    value = plain(value)
    if value is None:
        return ""
    found = text_bytes(value)
    try:
        return found.decode()
    except UnicodeDecodeError:
        raise BadValueError("utf8", shown_value(value), "text in UTF-8") from None


def date_of(value: Any, kind: str) -> Any:
    """A date or datetime, the latter in UTC if the column has a time zone; None if missing."""
    found = plain(value)
    if isinstance(found, str):
        try:
            read = datetime.date if kind == "date" else datetime.datetime
            found = read.fromisoformat(found)
        except ValueError:
            raise wrong_type(value, _KINDS[kind]) from None
    if found is None:
        return None
    timed = isinstance(found, datetime.datetime)
    if kind == "date":
        if timed or not isinstance(found, datetime.date):
            raise wrong_type(value, _KINDS[kind])
        return found
    if not timed or (found.tzinfo is not None) != (kind != "timestamp"):
        raise wrong_type(value, _KINDS[kind])
    return found if kind == "timestamp" else found.astimezone(datetime.UTC)


def part_of(moment: Any, part: str) -> int:
    """A part of a date or time as a whole number; weekdays go from Monday, 1, to 7."""
    return int(moment.isoweekday() if part == "weekday" else getattr(moment, part))


def list_of(value: Any, expected: str = "a list of numbers") -> list[Any] | None:
    """The elements of a list, tuple or array; None if it is missing."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return list(value.tolist())
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, np.ndarray) or plain(value) is not None:
        raise wrong_type(value, expected)
    return None


def paths_of(columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that may be fields of a nested mapping."""
    return tuple(name for name in columns if "." in name)


def flat_row(row: Mapping[str, Any], paths: Sequence[str]) -> Mapping[str, Any]:
    """The row with the columns of these paths, where it has them; a field of None is None.

    >>> flat_row({"a": {"b": {"c": 1}}, "d": None}, ["a.b.c", "a.x", "d.e"])["a.b.c"]
    1
    """
    found = {}
    for path in paths:
        if path not in row:
            try:
                found[path] = _value_at(row, path)
            except KeyError:
                continue  # reported with all missing columns
    return {**row, **found} if found else row


def _value_at(row: Mapping[str, Any], path: str) -> Any:
    """Raises KeyError without such a field. A name may have dots of its own."""
    if path in row:
        return row[path]
    missing = False
    at = path.rfind(".")
    while at >= 0:
        inner = row.get(path[:at], ())
        if isinstance(inner, Mapping):
            try:
                return _value_at(inner, path[at + 1 :])
            except KeyError:
                pass
        missing = missing or plain(inner) is None
        at = path.rfind(".", 0, at)
    if missing:
        return None
    raise KeyError(path)
