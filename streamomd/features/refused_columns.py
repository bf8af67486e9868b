"""Columns of the first shard that cannot have their role: one message about all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from streamomd.config.spec import Data
from streamomd.config.toml_text import quoted
from streamomd.core.errors import SchemaError
from streamomd.core.urls import printable
from streamomd.features.arrow_types import DATES, family, hint

UNNAMED = "without a role it must be a number, a boolean or a string"


class RefusedColumn(NamedTuple):
    """A column, its type, what its role takes, and what to do; unnamed: it has no role."""

    name: str
    kind: pa.DataType
    expected: str
    remedy: str
    unnamed: bool = False


def refused(schema: pa.Schema, name: str, expected: str, remedy: str = "") -> RefusedColumn:
    """A column that does not fit, of the schema's type."""
    kind = schema.field(name).type
    return RefusedColumn(name, kind, expected, remedy or hint(kind))


def unnamed(schema: pa.Schema, name: str) -> RefusedColumn:
    """A column without a role whose type says none."""
    return refused(schema, name, UNNAMED)._replace(unnamed=True)


def refuse(found: Sequence[RefusedColumn], data: Data) -> None:
    """Raises SchemaError that names all of these columns, if there are any; for those without a
    role it ends with the keys of a job file that give them one."""
    if not found:
        return
    lines = [_line(one) for one in found]
    first = "first shard: " if len(lines) == 1 else f"first shard: {len(lines)} columns:\n  "
    block = _job_keys([one for one in found if one.unnamed], data)
    raise SchemaError(first + "\n  ".join(lines) + block)


def _line(one: RefusedColumn) -> str:
    return f"column {printable(one.name)!r} is {one.kind}: {one.expected}; {one.remedy}"


def _job_keys(found: Sequence[RefusedColumn], data: Data) -> str:
    """The table [data] with these columns, next to those that it names already."""
    if not found:
        return ""
    dates = [one.name for one in found if family(one.kind) in DATES]
    others = [one.name for one in found if one.name not in dates]
    keys = {"dates": (data.dates, dates), "ignore": (data.ignore, others)}
    lines = [
        f"{key} = [{', '.join(map(quoted, (*before, *more)))}]"
        for key, (before, more) in keys.items()
        if more
    ]
    return "\nin the job file (or as flags, --ignore a,b):\n  [data]\n  " + "\n  ".join(lines)
