"""Tuples of numbers in compiled code: parts of them, and NamedTuples of the fields of two."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, get_type_hints

from streamomd.rules.contract import Numbers


def joined(base: Numbers, extra: Numbers) -> Any:
    """A NamedTuple of the fields of both."""
    hints = {**get_type_hints(base, include_extras=True)}
    hints |= get_type_hints(extra, include_extras=True)
    made: Any = NamedTuple(base.__name__, [*hints.items()])  # type: ignore[misc]
    starts = {**base._field_defaults, **extra._field_defaults}  # type: ignore[attr-defined]
    made.__new__.__defaults__ = tuple(starts.values())
    made._field_defaults = starts
    return made


@functools.cache
def numbers(start: int, count: int) -> Callable[..., Any]:
    """numbers(s, n)(given) -> the n numbers from number s on, as a plain tuple.

    Compiled code cannot loop over a tuple: each count is a function around the one below it.
    """
    if count == 0:
        return _none
    before, at = numbers(start, count - 1), start + count - 1

    def picked(given: Any) -> Any:
        return before(given) + (given[at],)  # noqa: RUF005

    found: Callable[..., Any] = named(picked, f"numbers_{start}_{count}")
    return found


def _none(given: Any) -> Any:
    return ()


def named(function: Any, name: str) -> Any:
    """With a name of its own: see ``engine.compile._name_apart``."""
    function.__name__ = function.__qualname__ = name
    return function
