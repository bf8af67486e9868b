"""A model that diverges on a cluster: exit 6 in every mode, and no commit that is not finite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from diverging import commits, shards

import streamomd
from streamomd.core.errors import DivergedError

pytestmark = pytest.mark.filterwarnings("ignore")
MODES: dict[str, dict[str, Any]] = {
    "averaged": {"parts": 4, "rounds_per_epoch": 2},
    "sharded": {"parts": 4, "batch_rows": 64},
    "exact": {},
}


def job(data: Path, url: Path, mode: str, **cluster: str) -> dict[str, Any]:
    return {
        "data": {"shards": [str(data)], "label": "y"},
        "model": {"rule": "adagrad", "loss": "square"},
        "train": {"mode": mode, **MODES[mode]},
        "checkpoint": {"url": str(url), "every_rows": 300, "every_seconds": 0},
        "cluster": cluster,
    }


@pytest.mark.parametrize("mode", ["averaged", "sharded"])
@pytest.mark.sample(2)
def test_workers_that_learn(mode: str, client: Client, tmp_path: Path) -> None:
    """The row's batch is named from the worker; resume exits 6 as well, with the same rows."""
    data, url = shards(tmp_path / "data"), tmp_path / "run"
    with pytest.raises(DivergedError, match=r"after rows [0-9]+ to [0-9]+ of .*b\.parquet") as said:
        streamomd.train(job(data, url, mode), client=client, quiet=True)
    assert "The last finite commit is" in str(said.value)
    found = commits(url)
    assert all(one["ok"] for one in found)
    assert found[-1]["rows"] >= 1000
    with pytest.raises(DivergedError, match="again"):
        streamomd.resume(str(url), client=client, quiet=True)
    assert commits(url) == found


@pytest.mark.parametrize(
    "mode", ["exact", *(pytest.param(m, marks=pytest.mark.slow) for m in ("averaged", "sharded"))]
)
def test_a_learner_on_a_worker(mode: str, client: Client, tmp_path: Path) -> None:
    """cluster.learner = "worker": the error comes back, and the checkpoint records it."""
    data, url = shards(tmp_path / "data"), tmp_path / "run"
    with pytest.raises(DivergedError, match=r"b\.parquet"):
        streamomd.train(job(data, url, mode, learner="worker"), client=client, quiet=True)
    assert all(one["ok"] for one in commits(url))
    with pytest.raises(DivergedError, match="again"):
        streamomd.resume(str(url), client=client, quiet=True)


@pytest.mark.slow
def test_a_slot_of_one_owner(client: Client, tmp_path: Path) -> None:
    """In sharded mode a slot that only its owner can see ends the run for all of them."""
    data, url = shards(tmp_path / "data", at=None), tmp_path / "run"
    streamomd.train(job(data, url, "sharded"), client=client, quiet=True)
    from streamomd.distributed import partition_owner

    def spoil() -> None:
        learn = partition_owner.PartitionOwner._exchange

        def swapped(self: Any, *given: Any) -> Any:
            if self._setup.owner == 1 and self._metrics.total_rows > 900:
                self._share.state.cells[:] = np.inf
            return learn(self, *given)

        partition_owner.PartitionOwner._exchange = swapped  # type: ignore[method-assign]

    client.run(spoil)
    try:
        with pytest.raises(DivergedError, match="slot"):
            streamomd.train(job(data, tmp_path / "other", "sharded"), client=client, quiet=True)
    finally:
        client.restart()
    assert all(one["ok"] for one in commits(tmp_path / "other"))


@pytest.mark.parametrize("kind", ["frame"])
def test_a_dask_collection(kind: str, tmp_path: Path) -> None:
    """The partition is named."""
    import dask.dataframe as dd

    data = shards(tmp_path / "data")
    with pytest.raises(DivergedError, match="of partition 1 of the Dask collection"):
        streamomd.train(
            dd.read_parquet(str(data)), label="y", rule="adagrad", loss="square",
            checkpoint=str(tmp_path / "run"), quiet=True,
        )  # fmt: skip
