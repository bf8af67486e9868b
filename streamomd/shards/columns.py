"""Check that a shard has the required columns."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from streamomd.core.errors import SchemaError
from streamomd.core.registry import sources
from streamomd.core.urls import printable, shown
from streamomd.features import Plan, check_schema
from streamomd.shards.shard import Shard

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
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return f"it has {', '.join(map(printable, names[:MOST]))}{more}"


def distinct_schemas(shards: Iterable[Shard]) -> Iterator[Shard]:
    """The first shard of each schema: those of the others need not be checked again.

    Shards with equal schemas mostly have the same object; see ``schema_facts``.
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
