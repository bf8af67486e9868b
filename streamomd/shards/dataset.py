"""What a run walks over: the shards of a store, or the partitions of a Dask collection."""

from __future__ import annotations

from typing import Any, Protocol

COLLECTION = "dask-collection://"
"""How a job calls a collection: by this and a name, for its graph is not kept."""


class Dataset(Protocol):
    """Rows in an order, in parts that a cursor can name."""

    @property
    def rows(self) -> int:
        """Of all parts; 0 where nobody knows before they are read."""

    def __len__(self) -> int:
        """How many parts there are."""

    def fingerprint(self) -> list[dict[str, Any]]:
        """One dict a part, in order, for JSON: what is compared on resume."""
