"""Random tables and filters, and what a filter means, read literally in Python."""

from __future__ import annotations

import datetime
import random
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from streamomd.config.filter_text import Comparison, Condition, Junction, Negation

DAY, NOON = datetime.date(2026, 1, 31), datetime.datetime(2026, 1, 31, 12)
ZONED = NOON.replace(tzinfo=datetime.UTC)
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i8": (pa.int8(), [-128, -1, 0, 1, 2, 127]),
    "i64": (pa.int64(), [-(2**63), -1, 0, 2**53, 2**53 + 1, 2**63 - 1]),
    "u32": (pa.uint32(), [0, 1, 2**31, 2**32 - 1]),
    "u64": (pa.uint64(), [0, 1, 2**63, 2**64 - 1]),
    "f": (pa.float64(), [-0.0, 0.0, 0.5, 1.5, 2.0**53, float("nan"), float("inf"), float("-inf")]),
    "f32": (pa.float32(), [-1.5, 0.0, 0.25, 2.0**24, float("nan")]),
    "flag": (pa.bool_(), [True, False]),
    "text": (pa.string(), ["", "a", "ab", "Ä", "\U0001f600", "x" * 100, "x" * 99 + "y", "it's"]),
    "large": (pa.large_string(), ["", "a", "ab", "\uffff", "\U0001f600"]),
    "word": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", "Ä"]),
    "day": (pa.date32(), [DAY + datetime.timedelta(days) for days in (-1, 0, 1, 20_000)]),
    "s": (pa.timestamp("s"), [NOON + datetime.timedelta(seconds=n) for n in (-1, 0, 1)]),
    "us": (pa.timestamp("us"), [NOON + datetime.timedelta(microseconds=n) for n in (-1, 0, 1)]),
    "utc": (pa.timestamp("ms", "Europe/Vienna"), [ZONED, ZONED + datetime.timedelta(days=1)]),
}
"""Columns: their types and values that differ in little, or are the ends of their type."""
NUMBERS = [-1e300, -(2**63) - 1, -1, 0, 0.5, 1, 1.0, 2**53, 2**53 + 1, 2**64, 1e300]
TIMES: list[Any] = [DAY, NOON, NOON + datetime.timedelta(microseconds=1), "2026-01-31"]
OPERATORS = ("=", "!=", "<", "<=", ">", ">=")


def random_table(draw: random.Random, rows: int) -> pa.Table:
    """Rows of all columns, with nulls; each column from a part of its values, often in order."""
    columns = {}
    for name, (kind, values) in VALUES.items():
        some = draw.sample(values, draw.randint(1, len(values)))
        cells = [draw.choice([*some, *([None] * draw.randint(0, 2))]) for _ in range(rows)]
        if draw.random() < 0.5 and not name.startswith("f"):
            cells.sort(key=lambda cell: (cell is None, cell))
        columns[name] = pa.array(cells, kind)
    return pa.table(columns)


def random_filter(draw: random.Random, depth: int = 3, names: Any = tuple(VALUES)) -> Condition:
    """A condition of these columns."""
    if depth and draw.random() < 0.6:
        if draw.random() < 0.3:
            return Negation(random_filter(draw, depth - 1, names))
        parts = [random_filter(draw, depth - 1, names) for _ in range(draw.randint(2, 3))]
        return Junction(draw.choice(["and", "or"]), tuple(parts))
    name = draw.choice(names)
    if draw.random() < 0.1:
        return Comparison(name, "null", ())
    operator = draw.choice((*OPERATORS, "in") if name != "flag" else ("=", "!=", "in"))
    count = draw.randint(1, 4) if operator == "in" else 1
    return Comparison(name, operator, tuple(_literal(draw, name) for _ in range(count)))


def _literal(draw: random.Random, name: str) -> Any:
    _, values = VALUES[name]
    if name in ("s", "us", "day"):
        return draw.choice(TIMES)
    if name == "utc":
        return draw.choice([*TIMES, ZONED + datetime.timedelta(hours=12)])
    if isinstance(values[0], bool | str):
        return draw.choice(values)
    known = [v for v in values if v == v and abs(v) != float("inf")]
    return draw.choice([*NUMBERS, *known])


def written(condition: Condition) -> str:
    """The text of a condition."""
    if isinstance(condition, Negation):
        return f"not ({written(condition.part)})"
    if isinstance(condition, Junction):
        return f" {condition.word} ".join(f"({written(part)})" for part in condition.parts)
    column, operator, values = condition.column, condition.operator, condition.values
    if operator == "null":
        return f"`{column}` is null"
    texts = [_written(value) for value in values]
    return f"{column} {operator} " + (f"({', '.join(texts)})" if operator == "in" else texts[0])


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return value.isoformat() if isinstance(value, datetime.date) else repr(value)


def literally(condition: Condition, row: Mapping[str, Any]) -> bool | None:
    """What a condition says of a row, in the logic of SQL; None: null."""
    if isinstance(condition, Negation):
        found = literally(condition.part, row)
        return None if found is None else not found
    if isinstance(condition, Junction):
        parts = [literally(part, row) for part in condition.parts]
        decisive = condition.word == "or"
        if decisive in parts:
            return decisive
        return None if None in parts else not decisive
    cell = row[condition.column]
    if condition.operator == "null":
        return cell is None
    if cell is None:
        return None
    found = [_compared(condition.operator, cell, value) for value in condition.values]
    return any(found)


def _compared(operator: str, cell: Any, value: Any) -> bool:
    if isinstance(cell, datetime.date):
        cell, value = _moment(cell), _moment(value)
    match operator:
        case "=" | "in":
            return bool(cell == value)
        case "!=":
            return bool(cell != value)
        case "<":
            return bool(cell < value)
        case "<=":
            return bool(cell <= value)
        case ">":
            return bool(cell > value)
    return bool(cell >= value)


def _moment(value: Any) -> datetime.datetime:
    """A day as its midnight; an instant in UTC."""
    if isinstance(value, str):
        value = datetime.datetime.fromisoformat(value)
    if not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day)
    return value.astimezone(datetime.UTC).replace(tzinfo=None) if value.tzinfo else value
