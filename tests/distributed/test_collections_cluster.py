"""Dask collections on a cluster: the bits of one process, whatever happens to workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from cluster_faults import struck
from clustered import long, sized, under_way, waits
from dask.base import tokenize
from distributed import Client, LocalCluster
from framed import PARTS, ROWS, collection, job, learn

import streamomd
from streamomd.core.errors import ResumeRefusedError, UsageError
from streamomd.distributed.collections import partition_source
from streamomd.distributed.collections.collection import Collection

# Of what Dask itself calls in pandas, and of workers that die.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def alone() -> Any:
    """The run of this process."""
    return learn(collection())


@pytest.mark.parametrize("count", [2, *long(1, 3)])
def test_bits_are_those_of_one_process(
    alone: Any, workers: LocalCluster, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the number of workers: state and names; also of partitions that come in pieces."""
    sized(workers, count)
    asked, send = [], partition_source.ClusterPartitions._submit
    monkeypatch.setattr(partition_source, "TASK_BYTES", 10_000)
    monkeypatch.setattr(
        partition_source.ClusterPartitions,
        "_submit",
        lambda *given: asked.append(given) or send(*given),
    )
    with Client(workers, set_as_default=False) as client:
        found = learn(collection(), client)
    assert found.state_sha256 == alone.state_sha256
    assert found.names.to_json() == alone.names.to_json()
    assert len(asked) > 3 * 2 * PARTS


def test_never_more_under_way_than_the_window_holds(
    alone: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of partitions; the first alone, because their size is unknown."""
    most = under_way(monkeypatch, partition_source.ClusterPartitions, "_start", "_wait_for")
    found = learn(collection(), client, cluster={"window": 2})
    assert found.state_sha256 == alone.state_sha256
    assert most[0] == 2


def test_a_persisted_collection(alone: Any, client: Client) -> None:
    """It is computed where it is held, and has one name however often it is persisted."""
    with client.as_current():
        held = [collection().persist() for _ in range(2)]
    assert len({Collection(one).token for one in held}) == 1
    assert learn(held[0]).state_sha256 == alone.state_sha256
    with pytest.raises(UsageError, match="is persisted on a cluster"):
        learn(held[0], cluster={"decode": "local"})


def broken_off(tmp_path: Path, client: Client | None) -> Any:
    """A run that ends within partition 1, in the second epoch."""
    obstacle = tmp_path / "obstacle"
    kept = {"url": str(tmp_path / "kept"), "every_rows": 130, "every_seconds": 0}
    streamomd.train(job(collection(str(obstacle)), epochs=1, checkpoint=kept), quiet=True)
    obstacle.touch()
    with pytest.raises(OSError, match="is in the way") as caught:
        streamomd.resume(
            kept["url"],
            shards=collection(str(obstacle)),
            client=client,
            sets={"train.epochs": 2},
            quiet=True,
        )
    assert caught.value.__notes__[-1].startswith("while dask partition ")
    obstacle.unlink()
    return streamomd.load(kept["url"])


@pytest.mark.parametrize("there", [False, True])
def test_resume(tmp_path: Path, alone: Any, client: Client, there: bool) -> None:
    """From a row within a partition, on a cluster or without, to the bit."""
    model = broken_off(tmp_path, client if there else None)
    assert model.cursor.epoch == 1
    assert 0 < model.cursor.row < ROWS
    again = collection(str(tmp_path / "obstacle"))
    done = streamomd.resume(model.url, shards=again, client=None if there else client, quiet=True)
    assert done.state_sha256 == alone.state_sha256
    assert streamomd.resume(model.url, quiet=True).state_sha256 == alone.state_sha256
    more = {"sets": {"train.epochs": 3}, "quiet": True}
    with pytest.raises(UsageError, match=r"streamomd\.resume\(URL, shards=ddf\)"):
        streamomd.resume(model.url, **more)
    with pytest.raises(ResumeRefusedError, match=r"key .*(?s:.)*pure=True") as caught:
        streamomd.resume(model.url, shards=collection("other"), **more)
    assert caught.value.exit_code == 3
    assert len([line for line in str(caught.value).splitlines() if ": key " in line]) == PARTS


@pytest.mark.slow  # numba on every worker
def test_predictions_on_a_cluster(client: Client) -> None:
    """Those of this process; asked for twice, they have the same names."""
    model = learn(collection(), epochs=1)
    lazy, again = (streamomd.predict_collection(model, collection()) for _ in range(2))
    assert tokenize(lazy) == tokenize(again)
    here = lazy.compute(scheduler="threads")
    with client.as_current():
        there = lazy.compute()
    pd.testing.assert_frame_equal(here, there)


@pytest.mark.slow
@pytest.mark.parametrize("nth", [0, 5, 13])
@pytest.mark.parametrize("how", ["kill", "stop", "retire"])
def test_a_worker_that_goes_costs_no_bit(
    alone: Any,
    client: Client,
    workers: LocalCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    nth: int,
) -> None:
    """kill -9, a stop and retirement while it encodes a partition, or a piece of one."""
    learn(collection(), client)  # what workers import at first leaves them no time for heartbeats
    if how == "stop":
        waits(monkeypatch, silent=5.0, look=0.3)
    monkeypatch.setattr(partition_source, "TASK_BYTES", 30_000)
    name = "streamomd.distributed.collections.partition_source.encode"
    with struck(workers, client, name, nth, how, tmp_path / "marks"):
        found = learn(collection(), client)
    assert found.state_sha256 == alone.state_sha256
