"""Plug-ins by entry point, lazy converters, and a lookup that suggests the nearest name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, distributions
from pkgutil import resolve_name
from typing import Any, TypeVar

from streamomd.core.errors import UsageError
from streamomd.core.nearest import suggestion

T = TypeVar("T")
OURS = "[streamomd."
"""What the headings of our groups begin with, in the file of a package's entry points."""
CONVERTERS = {
    "estimator": "streamomd.integrations.sklearn:to_estimator",
}
"""Functions of higher packages that convert a model, each imported at its first call."""


def load(group: str) -> list[Any]:
    """The plug-ins of installed packages in an entry-point group."""
    return [entry.load() for entry in _offered() if entry.group == group]


def offers(group: str) -> bool:
    """Whether installed packages have plug-ins in an entry-point group."""
    return any(entry.group == group for entry in _offered())


def load_named(group: str, name: str) -> Any:
    """The plug-in of a name in an entry-point group, made if it is a class; None if there is none.

    The others of the group are not imported.
    """
    found = [entry for entry in _offered() if (entry.group, entry.name) == (group, name)]
    return _made(found[0]) if found else None


def sources() -> Any:
    """The module that knows the sources of URLs. It is of a higher package: lower ones ask it by
    way of this function alone, when they meet a URL."""
    return import_module("streamomd.sources.known_sources")


@functools.cache
def _made(entry: EntryPoint) -> Any:
    found = entry.load()
    return found() if isinstance(found, type) else found


def find(kind: str, name: str, known: Mapping[str, T]) -> T:
    """known[name], or UsageError with the nearest name."""
    if name in known:
        return known[name]
    raise UsageError(f"unknown {kind} {name!r}; {suggestion(name, known)}")


def converter(name: str) -> Callable[[Any], Any]:
    """The function that converts a model for another library."""
    found: Callable[[Any], Any] = resolve_name(CONVERTERS[name])
    return found


@functools.cache
def _offered() -> list[EntryPoint]:
    """The entry points of packages that offer something to us.

    A file of every installed package is read; few are parsed, which takes most of the time.
    """
    found = [one for one in distributions() if OURS in (one.read_text("entry_points.txt") or "")]
    named = {one.name: one for one in found if one.name}
    # Of packages of the same name the first on the path is installed.
    first = [next(iter(distributions(name=name)), one) for name, one in named.items()]
    return [entry for package in first for entry in package.entry_points]
