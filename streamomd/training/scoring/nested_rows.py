"""Rows of nested mappings: a column ``address.city`` is read from the row's ``address``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamomd.training.scoring.row_values import plain


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
