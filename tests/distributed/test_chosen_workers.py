"""Workers that a job may use: those that are fit for it, and those of a name or resource."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clustered import REMOTE, job, waits
from distributed import Client, Event, LocalCluster, get_client
from mixed import addresses, mixed
from moto_bucket import moto_bucket
from noted import listening
from test_jobs import kept, until

import streamomd
from streamomd.core.errors import ClusterError, DataError, UsageError
from streamomd.distributed import diagnose, jobs
from streamomd.runs.train import diagnose as diagnose_job

# Dask's own warnings: a port is taken.
pytestmark = pytest.mark.filterwarnings("ignore")


def tasks_of(client: Client, prefix: str) -> dict[str, set[str]]:
    """The last tasks of a prefix that each worker has had, by address; Dask forgets older ones."""

    def keys(dask_worker: Any) -> set[str]:
        found = {str(event[0]) for event in dask_worker.state.log if isinstance(event[0], str)}
        return {key for key in found if key.startswith(prefix)}

    return dict(client.run(keys))


def refuse_footers() -> None:
    """In a worker: no shard can be read."""

    def refuse(shard: Any, options: Any) -> None:
        raise DataError(f"no credentials for {shard.url}")

    diagnose.check_footer = refuse  # type: ignore[attr-defined]


def read_footers() -> None:
    """In a worker: as before."""
    from streamomd.shards.reader import check_footer

    diagnose.check_footer = check_footer  # type: ignore[attr-defined]


@pytest.fixture
def unfit(client: Client) -> Iterator[str]:
    """A worker that cannot read the shards; its address."""
    address = sorted(client.scheduler_info(n_workers=-1)["workers"])[0]
    client.run(refuse_footers, workers=[address])
    yield address
    client.run(read_footers, workers=[address])


def test_an_unfit_worker_is_not_used_and_listed(
    unfit: str, data: Path, alone: Any, client: Client, tmp_path: Path
) -> None:
    """``submit`` has the job run on the fit worker; ``doctor`` names both."""
    notes: list[str] = []
    with listening(notes.append):
        name = streamomd.submit(kept(data, tmp_path / "run"), client=client)
    found = until(jobs.find(client, name), lambda one: one["state"] == "finished")
    assert found["commit"]["rows"] == found["expected"]
    assert streamomd.load(str(tmp_path / "run")).state_sha256 == alone.state_sha256
    [line] = [one for one in notes if "is not used" in one]
    assert line.startswith(f"worker {unfit} is not used: no credentials for ")
    assert not tasks_of(client, name)[unfit]
    table = job(data, checkpoint={"url": str(tmp_path / "other")})
    fit = {one["worker"]: one["ok"] for one in diagnose_job(table, client=client)}
    assert sorted(fit.items()) == [(at, at != unfit) for at in sorted(fit)]


def test_a_job_uses_the_workers_that_it_names(
    data: Path, alone: Any, client: Client, tmp_path: Path
) -> None:
    """Worker 1 decodes every row; no other is known to the run."""
    [one] = [
        address
        for address, worker in client.scheduler_info(n_workers=-1)["workers"].items()
        if str(worker["name"]) == "1"
    ]
    before = tasks_of(client, "omd-")
    cluster = {**REMOTE, "workers": ["1"]}
    notes: list[str] = []
    with listening(notes.append):
        found = streamomd.train(job(data, cluster=cluster), client=client, checkpoint="none")
    assert found.state_sha256 == alone.state_sha256
    assert any("1 workers, 1 threads" in line for line in notes), notes
    had = tasks_of(client, "omd-")
    assert [address for address in had if had[address] - before[address]] == [one]


@pytest.mark.parametrize(
    "cluster, text",
    [
        ({"workers": ["gpu-0"]}, "is named gpu-0 (cluster.workers"),
        ({"resources": {"GPU": 1}}, "has resources GPU = 1 (cluster.workers"),
    ],
)
def test_workers_that_are_not_there_are_an_error_that_names_the_others(
    cluster: dict[str, Any], text: str, data: Path, client: Client, tmp_path: Path
) -> None:
    """By name or by resource; nothing is saved."""
    table = {**kept(data, tmp_path / "run"), "cluster": cluster}
    with pytest.raises(ClusterError, match=re.escape(text)) as caught:
        streamomd.submit(table, client=client)
    assert str(caught.value).count(", resources none") == 2
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("value", ["GPU", "GPU=0", "GPU=1,GPU=2", "{ GPU = -1 }"])
def test_resources_are_numbers_above_0(value: str) -> None:
    with pytest.raises(UsageError, match=r"cluster\.resources"):
        streamomd.train("rows", label="y", sets={"cluster.resources": value})


def hold(name: str) -> None:
    """In a worker: its only thread is busy until the event is set."""
    Event(name, client=get_client()).wait(60)


@pytest.mark.slow
def test_doctor_waits_for_a_worker_that_is_busy_and_reports_it(
    workers: LocalCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the time for the others: it is fit once it answers."""
    waits(monkeypatch, probe=0.5, doctor=60)
    event = Event("held", client=client)
    busy = [client.submit(hold, "held", pure=False) for _ in range(2)]
    notes: list[str] = []

    def noted(text: str) -> None:
        notes.append(text)
        if text.startswith("busy: "):
            event.set()

    with listening(noted):
        found = diagnose.diagnose(client)
    client.gather(busy)
    assert [one["ok"] for one in found] == [True, True]
    [line] = [one for one in notes if one.startswith("busy: ")]
    assert line.endswith("waiting 60 s at most for an answer (streamomd.doctor-seconds)")
    assert line.count("tcp://") == 2


@pytest.mark.slow
def test_a_worker_without_the_package_of_a_store_is_not_used(
    data: Path, alone: Any, tmp_path: Path
) -> None:
    """A worker without s3fs next to one that has it: the job runs on that, and ``doctor`` says
    what is missing."""
    with moto_bucket() as options, mixed(tmp_path, "bare-1", "fit-1") as (_, other):
        at, table, url = addresses(other), kept(data, tmp_path / "unused"), "s3://bucket/run"
        table["checkpoint"] = {"url": url, "storage_options": options}
        notes: list[str] = []
        with listening(notes.append):
            name = streamomd.submit(table, client=other)
        until(jobs.find(other, name), lambda one: one["state"] == "finished")
        found = streamomd.load(url, storage_options=options)
        assert found.state_sha256 == alone.state_sha256
        reason = "it does not have s3fs, which s3:// needs"
        assert f"worker {at['bare-1']} is not used: {reason}" in notes
        fit = {one["name"]: one["unfit"] for one in diagnose_job(table, client=other)}
        assert fit == {"bare-1": [reason], "fit-1": []}


@pytest.mark.slow
def test_a_job_runs_where_its_resource_is(data: Path, alone: Any, tmp_path: Path) -> None:
    """Of two workers one has it, and gets all tasks; Dask reserves it while the job runs."""
    with mixed(tmp_path / "mixed", "fit-1") as (mix, other):
        mix.add("fit-2", "--resources", "GPU=1")
        other.wait_for_workers(2, timeout=120)
        at, table = addresses(other), kept(data, tmp_path / "run")
        table["cluster"] = {"resources": {"GPU": 1}}
        name = streamomd.submit(table, client=other)
        until(jobs.find(other, name), lambda one: one["state"] == "finished")
        assert streamomd.load(str(tmp_path / "run")).state_sha256 == alone.state_sha256
        had = tasks_of(other, "omd-")
        assert had[at["fit-1"]] == 0
        assert had[at["fit-2"]] > 0
