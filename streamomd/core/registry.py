"""Plug-ins by entry point, lazy converters, and a lookup that suggests the nearest name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import Any, TypeVar

from streamomd.core.errors import UsageError
from streamomd.core.nearest import suggestion

T = TypeVar("T")
CONVERTERS = {
    "estimator": "streamomd.integrations.sklearn:to_estimator",
    "sklearn": "streamomd.integrations.export:to_sklearn",
}
"""Functions of higher packages that convert a model, each imported at its first call."""


def load(group: str) -> list[Any]:
    """The plug-ins of installed packages in an entry-point group."""
    return [entry.load() for entry in _offered().select(group=group)]


def offers(group: str) -> bool:
    """Whether installed packages have plug-ins in an entry-point group."""
    return bool(_offered().select(group=group))


def find(kind: str, name: str, known: Mapping[str, T]) -> T:
    """known[name], or UsageError with the nearest name."""
    if name in known:
        return known[name]
    raise UsageError(f"unknown {kind} {name!r}; {suggestion(name, known)}")


def converter(name: str) -> Callable[[Any], Any]:
    """The function that converts a model for another library."""
    found: Callable[[Any], Any] = resolve_name(CONVERTERS[name])
    return found


@functools.cache  # reads a file of every installed package
def _offered() -> Any:
    return entry_points()
