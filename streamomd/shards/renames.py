"""Columns of files that have other names than the model's: ``data.rename``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from streamomd.core.errors import SchemaError
from streamomd.core.urls import printable, shown
from streamomd.features.nested import is_container
from streamomd.shards.columns import near
from streamomd.shards.projection import Projection, with_projection
from streamomd.shards.shard import Shard, ShardSet


def with_renames(shards: ShardSet, renames: Mapping[str, str]) -> ShardSet:
    """The shards, whose rows have columns under other names. renames: column's name by that of a
    file; files without it are unchanged.

    Raises SchemaError for a file that then has two columns of one name, and for a struct.
    """
    if not renames:
        return shards
    return replace(shards, shards=tuple(_renamed(shard, renames) for shard in shards))


def refuse_unknown_renames(shards: ShardSet, names: Iterable[str]) -> None:
    """Raise SchemaError for a file's name of a column that none of these shards has."""
    there = {name: None for shard in shards for name in shard.column_names}
    for name in names:
        if name not in there:
            raise SchemaError(
                f"data.rename: no shard has a column {printable(name)!r}; {near(name, [*there])}"
            )


def _renamed(shard: Shard, renames: Mapping[str, str]) -> Shard:
    names = shard.column_names
    changes = {name: renames[name] for name in names if name in renames}
    if not changes:
        return shard
    after = [changes.get(name, name) for name in names]
    for name, column in changes.items():
        if after.count(column) > 1:
            others = [one for one in names if changes.get(one, one) == column and one != name]
            raise SchemaError(
                f"shard {shown(shard.url)} has columns {printable(name)!r} and "
                f"{printable(others[0])!r}, which data.rename makes one, {printable(column)!r}: "
                "drop one of them from the file, or leave the entry out of data.rename"
            )
        if is_container(shard.schema.field(name).type):
            raise SchemaError(
                f"shard {shown(shard.url)}: column {printable(name)!r} is a struct, which "
                "data.rename cannot rename: write its fields as columns"
            )
    old = shard.projection or Projection((), (), pa.schema([]))
    stored = {changes.get(column, column): file for column, file in old.renamed}
    absent = {*old.nulls.names}
    stored |= {
        column: name for name, column in changes.items()
        if column not in stored and name not in absent
    }  # fmt: skip
    nulls = [one.with_name(changes.get(one.name, one.name)) for one in old.nulls]
    pairs = tuple((column, file) for column, file in stored.items() if column != file)
    return with_projection(shard, Projection(pairs, old.hidden, pa.schema(nulls)))
