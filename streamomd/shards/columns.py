"""Checking that a shard has the columns asked for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from streamomd.errors import SchemaError
from streamomd.shards.shard import Shard
from streamomd.urls import printable, shown


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
            near = difflib.get_close_matches(column, names, n=3) or names[:10]
            raise SchemaError(
                f"shard {shown(shard.url)} has no column {printable(column)!r}; "
                f"it has {', '.join(printable(name) for name in near)}"
            )
