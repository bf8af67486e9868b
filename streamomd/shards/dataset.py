"""The data of a run: the shards of a store, or the partitions of a Dask collection."""

from __future__ import annotations

from typing import Any, Protocol

COLLECTION = "dask-collection://"
"""Prefix of a collection's name in a job: its graph is not saved."""


class Dataset(Protocol):
    """Ordered rows, in shards or partitions that a cursor can reference."""

    @property
    def rows(self) -> int:
        """Total rows; 0 if unknown before they are read."""

    def __len__(self) -> int:
        """Number of shards or partitions."""

    def fingerprint(self) -> list[dict[str, Any]]:
        """One dict per shard or partition, in order, for JSON; compared on resume."""
