"""A plan as people read it: its lines, and the columns of a first shard that cannot have their
role.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from streamomd.config.data_table import Data
from streamomd.config.job_file import quoted
from streamomd.config.values import join_list
from streamomd.core.errors import SchemaError
from streamomd.core.message import Message, PerReader, Words, joined
from streamomd.core.urls import printable
from streamomd.core.wording import counted, listed
from streamomd.features.arrow_types import DATES, IGNORE, family, hint, is_container, named
from streamomd.features.plan import Plan, number_name
from streamomd.features.plan_columns import COUNTED, Partition, Text


def describe(plan: Plan) -> list[str]:
    """What a plan makes of each column."""
    weight = f"; weight {plan.weight!r}" if plan.weight else ""
    weight += f"; time {plan.time!r}, in UTC" if plan.time else ""
    lines = [f"label {plan.label!r} ({plan.label_type}): {_task(plan)}{weight}"]
    if plan.partitions:
        lines.append(f"columns of directories: {_list(tuple(map(_partition, plan.partitions)))}")
    if plan.numeric:
        lines.append(f"numeric, one coordinate each ({len(plan.numeric)}): {_list(plan.numeric)}")
    lines += [f"vector {v.column!r}: {v.width:,} coordinates" for v in plan.vectors]
    if plan.curves:
        curved = tuple(number_name(plan, curve.place) for curve in plan.curves)
        lines.append(f"curved, {plan.hats:,} coordinates more ({len(curved)}): {_list(curved)}")
    if plan.trees:
        margins = counted(plan.margins, "margin")
        lines.append(f"boosted trees of {counted(plan.trees.columns, 'column')}: {margins}")
    if plan.hashed:
        into = f"hashed into 2^{plan.bits} coordinates ({len(plan.hashed)})"
        lines.append(f"{into}: {_list(plan.hashed)}")
        if plan.hashed_lists:
            lines.append(f"each element of a list is a category: {_list(plan.hashed_lists)}")
    lines += [f"date {date.column!r}: {', '.join(date.parts)}, hashed" for date in plan.dates]
    lines += [f"cross {' × '.join(map(repr, cross))}, hashed" for cross in plan.crosses]
    if plan.pairs:
        pairs = tuple(map(" × ".join, plan.pairs))
        lines.append(f"pairs of columns, hashed ({len(pairs)}): {_list(pairs)}")
    lines += [_text_line(text) for text in plan.text]
    if plan.hashes and not plan.hashed:
        lines.append(f"hashed into 2^{plan.bits} coordinates")
    if plan.sparse:
        indices, values, size = plan.sparse
        lines.append(f"sparse pair {indices!r}, {values!r}: {size:,} coordinates")
    if plan.indicators:
        more = counted(len(plan.indicators), "more coordinate")
        which = f" in {_list(plan.indicators)}" if plan.nulls_by else ""
        lines.append(f"a null or NaN{which} is 0, and 1 in its column's indicator: {more}")
    if plan.mean_columns:
        lines.append(
            f"a null or NaN is the mean of its column so far ({len(plan.mean_columns)}): "
            f"{_list(plan.mean_columns)}"
        )
    if plan.on_bad_row == "skip":
        lines.append("bad rows are skipped and counted")
    lines.append(f"{plan.size:,} coordinates{' with the bias' if plan.bias else ', no bias'}")
    return lines


def _task(plan: Plan) -> str:
    if not plan.classes:
        return "regression"
    if len(plan.classes) == 2:
        return f"negative {plan.classes[0]!r}, positive {plan.classes[1]!r}"
    return f"{len(plan.classes)} classes: {_list(tuple(map(repr, plan.classes)))}"


def _text_line(text: Text) -> str:
    runs = f" and runs of up to {text.ngrams}" if text.ngrams > 1 else ""
    return f"text {text.column!r}: words{runs}, {COUNTED[text.counts]}, hashed"


def _partition(partition: Partition) -> str:
    return f"{partition.column} ({partition.kind})"


def _list(names: tuple[str, ...], most: int = 12) -> str:
    return printable(listed(names, most))


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
