"""Workers that decode: the bits of one process, whatever happens to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cluster_faults import struck
from clustered import QUIET, REMOTE, at_task, job, long, sized, under_way, waits
from distributed import Client, LocalCluster
from places import cases, drawn
from running import rows, write

import streamomd
from streamomd.core.errors import BadRowError, ChangedDataError, ClusterError
from streamomd.distributed import cluster, decode

# Dask's own warnings of workers that die are what is provoked here.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("count", [3, *long(1, 2)])
def test_bits_are_those_of_one_process(
    data: Path, alone: Any, workers: LocalCluster, small_tasks: None, count: int
) -> None:
    """Whatever the number of workers: state, loss, names."""
    sized(workers, count)
    with Client(workers, set_as_default=False) as client:
        there = streamomd.train(job(data, cluster=REMOTE), client=client, **QUIET)
    assert there.state_sha256 == alone.state_sha256
    assert there.result()["loss"] == alone.result()["loss"]
    assert there.names.to_json() == alone.names.to_json()


@pytest.mark.parametrize("window", [3, *long(1, 2, 4, 5, 6, 7, 8)])
def test_bits_do_not_depend_on_the_window(
    data: Path, alone: Any, client: Client, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    """With a prefetch window of tasks; there are never more submitted tasks."""
    monkeypatch.setattr(decode, "TASK_BYTES", 20_000)
    monkeypatch.setattr(decode.Decoders, "_has_room", lambda _, pending: len(pending) < window)
    most = under_way(monkeypatch, decode.Decoders, "_send", "_wait_for")
    there = streamomd.train(job(data, cluster=REMOTE), client=client, **QUIET)
    assert there.state_sha256 == alone.state_sha256
    assert most[0] == window


@pytest.mark.parametrize("how, where, seed", cases("decoders", 2, quick=(("kill", "round", 0),)))
@pytest.mark.slow
def test_a_worker_that_goes_costs_no_bit(
    data: Path,
    alone: Any,
    client: Client,
    workers: LocalCluster,
    small_tasks: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    where: str,
    seed: int,
) -> None:
    """kill -9, a stop and retirement while it decodes, and while the learner commits."""
    waits(monkeypatch, silent=2.0, look=0.3)
    kept = {"url": str(tmp_path / "kept"), "every_rows": 4_000}
    with struck(workers, client, *drawn("decoders", where, how, seed), how, tmp_path / "marks"):
        there = streamomd.train(
            job(data, cluster=REMOTE, checkpoint=kept), client=client, quiet=True
        )
    assert there.state_sha256 == alone.state_sha256


def test_errors_are_those_of_one_process(tmp_path: Path, client: Client) -> None:
    """A bad row on a worker: class, reason and message, and the rows before it are learned."""
    table = rows(3_000).to_pydict()
    table["n"][1_777] = float("nan")
    folder = write(tmp_path / "data" / "a.parquet", table, row_group_size=500).parent
    errors = []
    for settings, given in (({}, None), (REMOTE, client)):
        with pytest.raises(BadRowError) as caught:
            streamomd.train(job(folder, cluster=settings), client=given, **QUIET)
        errors.append((str(caught.value), caught.value.reason, type(caught.value)))
    assert errors[0] == errors[1]
    assert "row 1777" in errors[0][0]


def test_a_shard_that_is_replaced_is_noticed(
    tmp_path: Path, client: Client, small_tasks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by another process than the one that found it."""
    path = write(tmp_path / "data" / "a.parquet", rows(3_000), row_group_size=500)
    write(tmp_path / "data" / "b.parquet", rows(3_000), row_group_size=500)
    monkeypatch.setattr(decode.Decoders, "_has_room", lambda _, pending: not pending)
    at_task(monkeypatch, 3, lambda: write(path, rows(2_999), row_group_size=500) and None)
    with pytest.raises(ChangedDataError, match="was replaced while it was in use"):
        streamomd.train(job(path.parent, cluster=REMOTE), client=client, **QUIET)


def test_a_result_that_does_not_come_is_asked_for_again(
    data: Path, alone: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decoded again, and from then on through the scheduler."""
    taken, ways = decode.wait_for_result, []

    def lame(*given: Any, direct: bool | None) -> Any:
        ways.append(direct)
        if len(ways) == 3:
            raise cluster.ResultTimeoutError
        return taken(*given, direct=direct)

    monkeypatch.setattr(decode, "wait_for_result", lame)
    there = streamomd.train(job(data, cluster=REMOTE), client=client, **QUIET)
    assert there.state_sha256 == alone.state_sha256
    assert ways[:4] == [True, True, True, None]


def test_another_version_on_a_worker_is_refused(
    data: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It might hash otherwise, in silence."""
    monkeypatch.setattr(cluster, "VERSION", "0.0.0")
    with pytest.raises(ClusterError, match=r"a worker has streamomd .*, the driver 0\.0\.0"):
        streamomd.train(job(data, cluster=REMOTE), client=client, **QUIET)
