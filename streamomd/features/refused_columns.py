"""Columns of the first shard that cannot have their role: one message about all of them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from streamomd.config.data_table import Data
from streamomd.config.values import join_list, quoted
from streamomd.core.errors import SchemaError
from streamomd.core.message import Message, PerReader, Words, joined
from streamomd.core.urls import printable
from streamomd.features.arrow_types import DATES, IGNORE, family, hint, named
from streamomd.features.nested import is_container

DUPLICATE = "{shard}: more than one column is named {column!r}; rename or drop all but one"
FIRST = PerReader("first shard", "X")
UNNAMED = "without a role it must be a number, a boolean, a string or a list of strings"


class RefusedColumn(NamedTuple):
    """A column, its type, what its role takes, and what to do; unnamed: it has no role."""

    name: str
    kind: pa.DataType
    expected: str
    remedy: Words
    unnamed: bool = False


def refused(schema: pa.Schema, name: str, expected: str, remedy: Words = "") -> RefusedColumn:
    """A column that does not fit, of the schema's type."""
    kind = schema.field(name).type
    if is_container(kind):
        remedy = (f"name its fields instead, such as {name}.{kind[0].name}, or ", IGNORE)
    return RefusedColumn(name, kind, expected, remedy or hint(kind))


def unnamed(schema: pa.Schema, name: str) -> RefusedColumn:
    """A column without a role whose type says none."""
    return refused(schema, name, UNNAMED)._replace(unnamed=True)


def refuse(found: Sequence[RefusedColumn], data: Data) -> None:
    """Raises SchemaError that names all of these columns, if there are any; for those without a
    role it ends with the flags, and the keys of a job file, that give them one."""
    if not found:
        return
    lines = [_line(one) for one in found]
    many = "" if len(lines) == 1 else f"{len(lines)} columns:\n  "
    roles = _roles([one for one in found if one.unnamed], data)
    raise SchemaError(
        Message(
            "refused_column",
            "{shard}: {found}{remedy}",
            shard=FIRST,
            column=found[0].name,
            found=(many, joined(lines, "\n  ")),
            remedy=_flags_and_keys(roles) if roles else "",
        )
    )


def _line(one: RefusedColumn) -> Words:
    column = f"column {printable(one.name)!r} is "
    return (column, named(one.kind), f": {one.expected}; ", one.remedy)


def _roles(found: Sequence[RefusedColumn], data: Data) -> dict[str, list[str]]:
    """The columns of each key that gives them a role, next to those that it names already."""
    dates = [one.name for one in found if family(one.kind) in DATES]
    others = [one.name for one in found if one.name not in dates]
    keys = {"dates": (data.dates, dates), "ignore": (data.ignore, others)}
    return {key: [*before, *more] for key, (before, more) in keys.items() if more}


def _flags_and_keys(roles: Mapping[str, Sequence[str]]) -> Words:
    """These roles as flags of a command, and as the table [data] of a job file; as parameters."""
    flags = [f"--{key} {shlex.quote(join_list(names))}" for key, names in roles.items()]
    keys = [f"{key} = [{', '.join(map(quoted, names))}]" for key, names in roles.items()]
    table = "\n  ".join(keys)
    return PerReader(
        f"\nas flags: {' '.join(flags)}\nin a job file:\n  [data]\n  {table}",
        f"\nas parameters:\n  {table}",
    )
