"""The data of a run: the shards of a store, or the partitions of a Dask collection."""

from __future__ import annotations

from typing import Any, Protocol

COLLECTION = "dask-collection://"
"""Prefix of a collection's name in a job: its graph is not saved."""


def unread_rows(dataset: Dataset) -> int:
    """Rows that a pass does not read because of a filter, which collections have none of."""
    return int(getattr(dataset, "unread_rows", 0))


class Dataset(Protocol):
    """Ordered rows, in shards or partitions that a cursor can reference."""

    @property
    def rows(self) -> int:
        """Total rows; 0 if unknown before they are read."""

    def __len__(self) -> int:
        """Number of shards or partitions."""

    def fingerprint(self) -> list[dict[str, Any]]:
        """One dict per shard or partition, in order, for JSON; compared on resume."""
