"""Each shard's schema, held against the plan before a row of it is read."""

from __future__ import annotations

import pyarrow as pa

from streamomd.errors import SchemaError
from streamomd.features.choose import nearest, twice
from streamomd.features.kinds import family
from streamomd.features.plan import Column, Plan
from streamomd.urls import printable


def check_schema(plan: Plan, schema: pa.Schema, shard_url: str, *, labelled: bool = True) -> None:
    """Accept other order, more columns and safe widening; refuse everything else.

    labelled False: label and weight are not looked at (prediction).
    Raises SchemaError naming the shard, the column, what is there and what the first shard had.
    """
    where = f"shard {printable(shard_url)}"
    wanted = plan.columns if labelled else plan.features
    for name in twice(schema.names):
        if name in wanted:
            raise SchemaError(
                f"{where}: more than one column is named {name!r}; rename or drop all but one"
            )
    for column in plan.types:
        if column.name in wanted:
            _check_column(column, schema, where)


def _check_column(column: Column, schema: pa.Schema, where: str) -> None:
    if column.name not in schema.names:
        raise SchemaError(
            f"{where}: column {column.name!r} ({column.type}) is missing; "
            f"{nearest(column.name, schema.names)}"
        )
    kind = schema.field(column.name).type
    if family(kind) != column.family:
        raise SchemaError(
            f"{where}: column {column.name!r} is {kind}, the first shard had {column.type}; "
            "write all shards with the same type"
        )
