"""Check that a shard has the required columns."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from streamomd.core.errors import SchemaError
from streamomd.core.urls import printable, shown
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
