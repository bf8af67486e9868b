"""What is wrong with a row that is a mapping: all problems of a row in one message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from streamomd.core.errors import BadRowError, SchemaError, StreamomdError, UsageError
from streamomd.core.message import Message, joined

_LONGEST = 80
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


def wrong_type(value: Any, expected: str, remedy: str = "") -> BadValueError:
    """A value of another type than the column's."""
    return BadValueError("", f"{shown(value)} ({type(value).__name__})", expected, remedy)


def shown(value: Any) -> str:
    """A value for a message: on one line, at most 80 characters of it."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"


def row_error(
    row: Mapping[str, Any], columns: Sequence[str], problems: Sequence[Problem], where: str
) -> StreamomdError:
    """The error of a row: all its missing columns, or all its bad values."""
    missing = [name for name in dict.fromkeys(columns) if name not in row]
    if missing:
        from streamomd.core.wording import missing_columns  # late: slow to import, for errors only

        found = missing_columns(missing, list(row), where)
        form = "{found}: add what is missing (None stands for a missing value)"
        return SchemaError(Message("missing_column", form, column=missing[0], found=found))
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
