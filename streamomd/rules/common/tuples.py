"""NamedTuples of the fields of two, and names of functions made for a rule."""

from __future__ import annotations

from typing import Any, NamedTuple, get_type_hints

from streamomd.rules.contract import Numbers, fields


def joined(base: Numbers, extra: Numbers) -> Any:
    """A NamedTuple of the fields of both."""
    if not fields(base):
        return extra
    hints = {**get_type_hints(base, include_extras=True)}
    hints |= get_type_hints(extra, include_extras=True)
    made: Any = NamedTuple(base.__name__, [*hints.items()])  # type: ignore[misc]
    starts = {**base._field_defaults, **extra._field_defaults}  # type: ignore[attr-defined]
    made.__new__.__defaults__ = tuple(starts.values())
    made._field_defaults = starts
    return made


def named(function: Any, name: str) -> Any:
    """With a name of its own: see ``engine.compile._name_apart``."""
    function.__name__ = function.__qualname__ = name
    return function
