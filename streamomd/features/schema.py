"""Check each shard's schema against the plan before a row of it is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from streamomd.core.errors import SchemaError
from streamomd.core.message import Message, PerReader, Words
from streamomd.core.urls import printable
from streamomd.features.arrow_types import family, named
from streamomd.features.infer_plan import nearest, twice
from streamomd.features.number_table import may_differ
from streamomd.features.plan import Plan
from streamomd.features.plan_columns import Column
from streamomd.features.plan_lines import DUPLICATE


def check_schema(
    plan: Plan, schema: pa.Schema, shard_url: str, *, labelled: bool = True, made: bool = False
) -> None:
    """Accept other order, more columns and safe widening; refuse everything else.

    labelled False: label and weight are not checked (prediction). made: for a trained
    model, not for one that learns these shards.
    Raises SchemaError naming the shard, the column, what is there and what the first shard had.
    """
    where = PerReader(f"shard {printable(shard_url)}", f"X {printable(shard_url)}")
    wanted = frozenset(plan.columns if labelled else plan.features)
    for name in twice(schema.names):
        if name in wanted:
            raise SchemaError(Message("duplicate_column", DUPLICATE, shard=where, column=name))
    kinds = dict(zip(schema.names, schema.types, strict=True))
    for column in plan.types:
        if column.name in wanted:
            _check_column(plan, column, kinds, where, made=made)


def _check_column(
    plan: Plan, column: Column, kinds: Mapping[str, pa.DataType], where: Words, *, made: bool
) -> None:
    """Raises SchemaError if a column of the plan is missing, or of a type that it may not have."""
    if column.name not in kinds:
        rest: Words = PerReader("add it to the shard", "add it to X")
        if made:
            rest = "rename or add it: the model has its weights"
        remedy: Words = (nearest(column.name, kinds), "; ", rest)
        if column.name in dict(plan.partitions):
            remedy = (
                f"no directory of its path is named {column.name}=…, as those that the model was "
                f"trained on: write the shard to {column.name}=VALUE/, or add the column to it"
            )
        if made and column.name == plan.label:
            remedy = "it is the label: evaluate compares with it; predict does without"
        form = "{shard}: column {column!r} ({expected}) is missing; {remedy}"
        at: Any = {"shard": where, "column": column.name, "expected": column.type}
        raise SchemaError(Message("missing_column", form, **at, remedy=remedy))
    kind = kinds[column.name]
    if family(kind) != column.family and not may_differ(
        plan, column.name, column.family, family(kind)
    ):
        had: Words = PerReader("the first shard had", "X of the first call had")
        same = PerReader("write all shards with the same type", "pass the same type in every call")
        if made:
            had = "the model was trained on"
            same = PerReader("write the shard with that type", "pass that type")
        sentence = ("{shard}: column {column!r} is {found}, ", had, " {expected}; {remedy}")
        at = {"shard": where, "column": column.name, "found": named(kind), "remedy": same}
        raise SchemaError(Message("wrong_type", sentence, **at, expected=named(column.type)))
