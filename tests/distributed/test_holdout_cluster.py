"""Hold-out rows with a cluster: the same as in one process, by the names of the shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from clustered import QUIET, REMOTE, job, long
from distributed import Client

import streamomd

# Dask's own warnings of workers that die are what is provoked here.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("cluster", [REMOTE, *long({"learner": "worker"})])
def test_the_same_rows_are_held_out(
    cluster: dict[str, Any], data: Path, client: Client, tmp_path: Path
) -> None:
    """Whether workers decode or one of them learns, and whatever the order of the shards."""
    sets = {"data.holdout": 5}
    alone = streamomd.train(job(data), sets=sets, **QUIET)
    table = job(data, cluster=cluster, checkpoint={"url": str(tmp_path / "run")})
    model = streamomd.train(table, sets=sets, client=client, quiet=True)
    assert model.state_sha256 == alone.state_sha256
    assert model.result()["holdout"] == alone.result()["holdout"]
    names = [str(path) for path in sorted(data.iterdir(), reverse=True)]
    backwards = job(data, cluster=cluster, checkpoint={"url": str(tmp_path / "other")})
    backwards["data"] |= {"shards": names, "order": "given"}
    model = streamomd.train(backwards, sets=sets, client=client, quiet=True)
    rows = [one.result()["holdout"]["rows"] for one in (model, alone)]
    assert rows[0] == rows[1]
