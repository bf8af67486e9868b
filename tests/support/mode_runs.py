"""The ways to learn over a cluster, each as a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clustered import REMOTE, job, spread
from sharded_jobs import sharded_job

MODES = ("decoders", "learner", "averaged", "sharded")


def table(mode: str, data: Path, url: Path, every_rows: int = 2_000) -> dict[str, Any]:
    """The job; its commits all stay."""
    kept = {"every_rows": every_rows, "every_seconds": 0, "keep": 999}
    if mode == "averaged":
        return spread(data, url)
    if mode == "sharded":
        return sharded_job(data, url, **kept)
    cluster = REMOTE if mode == "decoders" else {"decode": "local", "learner": "worker"}
    return job(data, cluster=cluster, checkpoint={"url": str(url), **kept})
