"""Columns of directories and filters on a cluster: the bits of one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from clustered import QUIET
from distributed import Client
from mode_runs import MODES, table
from running import rows, write

import streamomd

WHERE = "hour >= 2 and k >= 0 and w > 0"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three shards in directories."""
    folder = tmp_path_factory.mktemp("filtered") / "data"
    for hour in (1, 2, 10):
        shard = folder / f"hour={hour}" / "part.parquet"
        write(shard, rows(2_000, first=hour), row_group_size=300)
    return folder


def job_of(mode: str, data: Path, url: Path, where: str) -> dict[str, Any]:
    """The job of a mode with a column of directories and a filter."""
    job = table(mode, data, url)
    job["data"] |= {"where": where, "partitions": {"hour": "integer"}}
    job["data"]["numeric"] = ["n", "k", "hour"]
    return job


@pytest.mark.parametrize("mode", MODES)
def test_a_cluster_learns_the_same(tree: Path, client: Client, tmp_path: Path, mode: str) -> None:
    """Exact and sharded modes as in one process; averaged mode as on the shards that are left."""
    there = streamomd.train(job_of(mode, tree, tmp_path / "a", WHERE), client=client, quiet=True)
    assert there.result()["filtered"]["shards"] == 1
    if mode != "averaged":
        here = job_of(mode, tree, tmp_path / "b", WHERE)
        here.pop("cluster", None)
        here["checkpoint"] = {"url": "none"}
        alone = streamomd.train(here, **QUIET)
        assert there.state_sha256 == alone.state_sha256
        assert there.result()["filtered"] == alone.result()["filtered"]
        return
    # What is cut into parts are the rows of the groups that are read.
    whole = streamomd.train(
        job_of(mode, tree, tmp_path / "b", "hour > 1"), client=client, quiet=True
    )
    left = job_of(mode, tree, tmp_path / "c", "")
    left["data"]["shards"] = [str(tree / "hour=[23]*"), str(tree / "hour=10*")]
    some = streamomd.train(left, client=client, quiet=True)
    assert whole.state_sha256 == some.state_sha256
    assert whole.result()["filtered"]["rows"] == 2 * 2_000
    rows_passed = there.metrics.total_rows + there.metrics.filtered
    assert rows_passed == 2 * 3 * 2_000
