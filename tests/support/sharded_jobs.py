"""What the tests of sharded mode share: its job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clustered import job


def sharded_job(data: Path, url: Any, rows: int = 256, **kept: Any) -> dict[str, Any]:
    """The job, by owners of 16 partitions; where each row is a round, of one shard."""
    shards = data / "0.parquet" if rows == 1 else data
    table = job(shards, checkpoint={"url": str(url), "every_seconds": 0, **kept})
    table["train"] = {"epochs": 2, "mode": "sharded", "parts": 16, "batch_rows": rows}
    return table
