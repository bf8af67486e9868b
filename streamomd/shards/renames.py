"""Columns of files with other names than the rows': by ``data.rename``, or by a table's ids."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from streamomd.core.errors import DataError, SchemaError, UnsupportedError
from streamomd.core.installed import sources
from streamomd.core.urls import printable, shown
from streamomd.core.wording import listed
from streamomd.features import Plan, check_schema
from streamomd.features.arrow_types import is_container
from streamomd.shards.file_schema import Projection, TableColumns, id_of, inside_of
from streamomd.shards.shard import Shard, ShardSet

MOST = 12


def require_columns(shard: Shard, columns: Iterable[str]) -> None:
    """Raise `SchemaError` unless each column is in the shard exactly once."""
    names = shard.schema.names
    for column in columns:
        count = names.count(column)
        if count > 1:
            raise SchemaError(
                f"shard {shown(shard.url)} has {count} columns named {printable(column)!r}: "
                "rename them"
            )
        if count == 0:
            raise SchemaError(
                f"shard {shown(shard.url)} has no column {printable(column)!r}; "
                f"{near(column, names)}"
            )


def near(column: str, names: Sequence[str]) -> str:
    """The end of a message about a missing column."""
    close = difflib.get_close_matches(column, names, n=3)
    if close:
        return f"did you mean {' or '.join(repr(printable(name)) for name in close)}?"
    return f"it has {listed([*map(printable, names)], MOST)}"


def distinct_schemas(shards: Iterable[Shard]) -> Iterator[Shard]:
    """The first shard of each schema: those of the others need not be checked again.

    Shards with equal schemas mostly have the same object; see ``file_schema``.
    """
    seen: dict[int, pa.Schema] = {}
    for shard in shards:
        if id(shard.schema) not in seen:
            seen[id(shard.schema)] = shard.schema
            yield shard


def check_columns(plan: Plan, shard: Shard, *, labelled: bool = True, made: bool = False) -> None:
    """``check_schema`` of a shard; SchemaError names the text that it was converted from."""
    try:
        check_schema(plan, shard.schema, shard.url, labelled=labelled, made=made)
    except SchemaError as error:
        file = sources().source_of(shard.url).origin(shard.path)
        if not file:
            raise
        problem = str(error).removeprefix(f"shard {printable(shard.url)}: ")
        raise SchemaError(
            f"{shown(file)}: {problem}; of text, --type COLUMN=TYPE, --decimal or --delimiter "
            "may read it as that"
        ) from None


MOST_TEXT = 3 << 10
"""Letters of a projection that a ledger saves; it reads 4,096 of all facts of a shard."""
REWRITE = "rewrite the table's files (Spark: CALL system.rewrite_data_files)"


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
    """Returns a shard with its columns under the model's names."""
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


def with_projection(shard: Shard, projection: Projection | None) -> Shard:
    """The shard with the columns of its table. Bounds of its footer are by stored name: none."""
    if projection is None:
        return shard
    stored = shard.stored_schema
    for column, stored_name in projection.renamed:
        if stored_name not in stored.names:
            raise DataError(
                f"shard {shown(shard.url)} has no column {printable(stored_name)!r}, which is "
                f"column {printable(column)!r} of its rows: write it again"
            )
    schema = projection.schema(stored)
    return replace(shard, projection=projection, schema=schema, stored=stored, statistics=())


def project(shard: Shard, table: TableColumns) -> Shard:
    """The shard with the columns of its table, by their ids.

    Raises UnsupportedError, which names the column, where that cannot be read; DataError for two
    columns of one id.
    """
    return with_projection(shard, _projection(shard, table))


def _projection(shard: Shard, table: TableColumns) -> Projection | None:
    """None if the file has the columns of the table and no others."""
    stored = _by_id(shard, table.names)
    renamed, nulls = [], []
    for column in table.columns:
        field = stored.get(column.id)
        if field is None:
            if column.filled:
                raise _unsupported(
                    shard, column.name, "is not in the file, and its value there is not null"
                )
            nulls.append(pa.field(column.name, column.kind))
            continue
        if inside_of(field.type) != column.inside:
            raise _unsupported(
                shard, column.name, "has other fields inside it than the file was written with"
            )
        if field.name != column.name:
            if column.inside:
                raise _unsupported(shard, column.name, f"has fields, and was {field.name!r}")
            renamed.append((column.name, field.name))
    wanted = {column.id for column in table.columns}
    hidden = [field.name for number, field in stored.items() if number not in wanted]
    if not (renamed or nulls or hidden):
        return None
    projection = Projection(tuple(renamed), tuple(hidden), pa.schema(nulls))
    if len(projection.text) > MOST_TEXT:
        raise _unsupported(shard, table.columns[0].name, "and too many others changed")
    return projection


def _by_id(shard: Shard, names: Mapping[str, int]) -> dict[int, pa.Field]:
    """The stored columns by id. Those without one are known by name, if the table has names."""
    found: dict[int, pa.Field] = {}
    for field in shard.stored_schema:
        number = id_of(field)
        number = names.get(field.name) if number is None else number
        if number is None:
            raise _unsupported(
                shard, field.name, "has no field id, and the table's name mapping does not have it"
            )
        if number in found:
            raise DataError(
                f"shard {shown(shard.url)}: columns {printable(found[number].name)!r} and "
                f"{printable(field.name)!r} have the same field id, {number}: write it again"
            )
        found[number] = field
    return found


def _unsupported(shard: Shard, column: str, problem: str) -> UnsupportedError:
    return UnsupportedError(
        f"shard {shown(shard.url)}: column {printable(column)!r} of its table {problem}; {REWRITE}"
    )
