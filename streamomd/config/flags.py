"""The flags of a job, generated from the fields of ``Spec``, and how a key is set by its name."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from streamomd.config.job_table import KEYS, PARAMETERS, is_number, names_of
from streamomd.config.spec import Spec
from streamomd.core.errors import UsageError
from streamomd.core.wording import suggestion

LIST = "A,B,…"
ARGUMENTS = ("callbacks", "client", "log", "quiet", "restart", "sets")
"""Arguments of ``streamomd.train`` that are no keys of a job, for suggestions."""


class Flag(NamedTuple):
    """A short name of a key.

    name: as in Python; the command line has - for _. key: dotted. default: in the help, after the
    key. number: whether its value is one. others: other names. option: whether the command line has
    the flag. switch: whether it has no value and sets the key to true.
    """

    name: str
    key: str
    help: str
    metavar: str
    default: str
    number: bool
    others: tuple[str, ...] = ()
    option: bool = True
    switch: bool = False

    @property
    def table(self) -> str:
        """The table of the key."""
        return self.key.partition(".")[0]


@functools.cache
def all_flags() -> dict[str, Flag]:
    """Every flag by name, in the order of the spec."""
    return {flag.name: flag for flag in _flags()}


def find_flag(name: str) -> Flag:
    """The flag of that name or other name. Raises UsageError with the nearest one."""
    names = _by_any_name()
    if name not in names:
        raise UsageError(f"unknown flag {name!r}; {suggestion(name, [*names, *ARGUMENTS])}")
    return names[name]


def assign_flags(tables: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Set the keys of flags; None and empty lists set nothing. Raises UsageError.

    >>> tables = {}
    >>> assign_flags(tables, {"categorical": "job,city", "eta": 0.5}); tables
    {'data': {'hashed': 'job,city'}, 'model': {'params': {'eta': 0.5}}}
    """
    names: dict[str, str] = {}
    for name, value in given.items():
        flag = find_flag(name)
        if value is None or (isinstance(value, list | tuple) and not value):
            continue
        if flag.name in names:
            raise UsageError(
                f"{flag.name} is given twice, as {names[flag.name]!r} and {name!r}: remove one"
            )
        names[flag.name] = name
        assign(tables, flag.key, value)


def dotted(key: str) -> str:
    """The full name of a key. A name without a dot is a flag's, else a parameter's of the rule.

    >>> dotted("data.categorical"), dotted("epochs"), dotted("delta")
    ('data.hashed', 'train.epochs', 'model.params.delta')
    """
    table, dot, name = key.partition(".")
    if dot:
        return f"{table}.{KEYS.get(table, {}).get(name, name)}"
    flag = _by_any_name().get(key)
    return flag.key if flag else f"model.params.{key}"


def assign(tables: dict[str, Any], key: str, value: Any) -> None:
    """Set a key, dotted or the name of a flag or parameter, in the place of its other names.

    >>> tables = {"data": {"categorical": ["job"]}}
    >>> assign(tables, "data.hashed", ["city"]); assign(tables, "eta", 1.5); tables
    {'data': {'hashed': ['city']}, 'model': {'params': {'eta': 1.5}}}
    """
    path = dotted(key).split(".")
    for step in path[:-1]:
        below = tables.setdefault(step, {})
        if not isinstance(below, dict):
            raise UsageError(f"--set {key}: {step!r} is a value, not a table")
        tables = below
    for other in names_of(path[0], path[-1]) if len(path) == 2 else ():
        tables.pop(other, None)
    tables[path[-1]] = value


@functools.cache
def _by_any_name() -> dict[str, Flag]:
    return {name: flag for flag in all_flags().values() for name in (flag.name, *flag.others)}


def check_key(key: str) -> None:
    """Raise UsageError with the nearest name for a dotted key that no job has."""
    table, _, name = key.partition(".")
    if table not in Spec.model_fields:
        raise UsageError(f"unknown key {key!r}; {suggestion(table, Spec.model_fields)}")
    field, known = name.partition(".")[0], fields_of(table)
    if name and field not in known:
        raise UsageError(f"unknown key {key!r}; {suggestion(field, known)}")


def fields_of(table: str) -> dict[str, FieldInfo]:
    """The keys of a table; none if there is no such table."""
    field = Spec.model_fields.get(table)
    model: Any = field.annotation if field else None
    return model.model_fields if model else {}


def _flags() -> Iterator[Flag]:
    for table in Spec.model_fields:
        for name, field in fields_of(table).items():
            yield from _flags_of(f"{table}.{name}", field, names_of(table, name))


def _flags_of(key: str, field: FieldInfo, others: tuple[str, ...]) -> Iterator[Flag]:
    """The flag of a key, if it has one, and those of its entries."""
    below = field.annotation
    if isinstance(below, type) and issubclass(below, BaseModel):
        for name, entry in below.model_fields.items():
            yield from _flags_of(f"{key}.{name}", entry, ())
    extra: Any = field.json_schema_extra
    text = str(field.description)
    if extra["flag"]:
        metavar, default = extra["metavar"] or _metavar(field), _default(extra, field)
        number = is_number(field.annotation)
        switch = field.annotation is bool
        default = "" if switch else default
        yield Flag(
            extra["flag"], key, text, metavar, default, number, others, extra["option"], switch
        )
    for name, meaning in extra["parameters"].items():
        aliases = tuple(other for other, own in PARAMETERS.items() if own == name)
        yield Flag(name, f"{key}.{name}", meaning, "X", "; the rule's default", True, aliases)


def _metavar(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return "|".join(get_args(field.annotation))
    return "N" if is_number(field.annotation) else LIST


def _default(extra: Mapping[str, Any], field: FieldInfo) -> str:
    if extra["shown_default"]:
        return f"; {extra['shown_default']}"
    return "" if field.default in ("", (), None) else f" = {field.default}"
