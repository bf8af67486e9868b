"""What the tests of sharded mode share: its job, and who owns something now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clustered import job
from distributed import LocalCluster


def told(data: Path, url: Any, rows: int = 256, **kept: Any) -> dict[str, Any]:
    """The job, by owners of 16 partitions; where each row is a round, of one shard."""
    shards = data / "0.parquet" if rows == 1 else data
    table = job(shards, checkpoint={"url": str(url), "every_seconds": 0, **kept})
    table["train"] = {"epochs": 2, "mode": "sharded", "parts": 16, "batch_rows": rows}
    return table


def owned(workers: LocalCluster) -> set[str]:
    """Addresses of workers that own partitions."""
    found = set()
    for worker in list(workers.scheduler.workers.values()):
        held = [*worker.processing, *worker.long_running]
        if any("omd-owner" in str(task.key) for task in held):
            found.add(str(worker.address))
    return found
