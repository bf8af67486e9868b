"""Check each shard's schema against the plan before a row of it is read."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from streamomd.core.errors import SchemaError
from streamomd.core.urls import printable
from streamomd.features.arrow_types import family
from streamomd.features.infer_plan import nearest, twice
from streamomd.features.number_types import may_differ
from streamomd.features.plan import Column, Plan


def check_schema(
    plan: Plan, schema: pa.Schema, shard_url: str, *, labelled: bool = True, made: bool = False
) -> None:
    """Accept other order, more columns and safe widening; refuse everything else.

    labelled False: label and weight are not checked (prediction). made: for a trained
    model, not for one that learns these shards.
    Raises SchemaError naming the shard, the column, what is there and what the first shard had.
    """
    where = f"shard {printable(shard_url)}"
    wanted = frozenset(plan.columns if labelled else plan.features)
    for name in twice(schema.names):
        if name in wanted:
            raise SchemaError(
                f"{where}: more than one column is named {name!r}; rename or drop all but one"
            )
    kinds = dict(zip(schema.names, schema.types, strict=True))
    for column in plan.types:
        if column.name in wanted:
            _check_column(plan, column, kinds, where, made=made)


def _check_column(
    plan: Plan, column: Column, kinds: Mapping[str, pa.DataType], where: str, *, made: bool
) -> None:
    if column.name not in kinds:
        rest = "rename or add it: the model has its weights" if made else "add it to the shard"
        remedy = f"{nearest(column.name, kinds)}; {rest}"
        if column.name in dict(plan.partitions):
            remedy = (
                f"no directory of its path is named {column.name}=…, as those that the model was "
                f"trained on: write the shard to {column.name}=VALUE/, or add the column to it"
            )
        if made and column.name == plan.label:
            remedy = "it is the label: evaluate compares with it; predict does without"
        raise SchemaError(f"{where}: column {column.name!r} ({column.type}) is missing; {remedy}")
    kind = kinds[column.name]
    if family(kind) != column.family and not may_differ(
        plan, column.name, column.family, family(kind)
    ):
        had, remedy = "the first shard had", "write all shards with the same type"
        if made:
            had, remedy = "the model was trained on", "write the shard with that type"
        raise SchemaError(
            f"{where}: column {column.name!r} is {kind}, {had} {column.type}; {remedy}"
        )
