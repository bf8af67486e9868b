"""Workers without streamomd: they get no task but the probe, and nothing of theirs is lost."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from clustered import REMOTE, job, long, waits
from distributed import Client
from elsewhere import elsewhere
from mixed import Mixed, addresses, mixed
from mode_runs import MODES, table
from noted import listening
from running import run
from test_jobs import toml, until

import streamomd
from streamomd.distributed import jobs

# Dask's own warnings: a port is taken, versions differ.
pytestmark = pytest.mark.filterwarnings("ignore")
NAMES = ("fit-1", "fit-2", "lacking-1", "older-1")
Held = list[Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Mixed, Client, Held]]:
    """Two fit workers and two others; each holds a result of another client. The scheduler lacks
    streamomd, too."""
    folder = tmp_path_factory.mktemp("mixed")
    with mixed(folder, *NAMES, scheduler="lacking") as (cluster, other):
        at = addresses(other)
        held = [other.submit(pow, 2, n, workers=[at[name]]) for n, name in enumerate(NAMES)]
        other.gather(held)
        yield cluster, other, held


@pytest.fixture
def cluster(made: tuple[Mixed, Client, Held]) -> Iterator[tuple[Mixed, Client]]:
    """After each test every worker lives, and what another client computed is still there."""
    mix, other, held = made
    pids = other.run(os.getpid)
    yield mix, other
    assert all(mix.alive().values())
    assert other.run(os.getpid) == pids
    assert [future.status for future in held] == ["finished"] * len(NAMES)
    assert other.gather(held) == [1, 2, 4, 8]
    assert set(addresses(other)) == set(NAMES)


def tasks_by_worker(other: Client) -> dict[str, set[str]]:
    """Of whom each worker has ever had tasks, by the names of its tasks."""

    def seen(dask_worker: Any) -> list[str]:
        return [str(event[0]) for event in dask_worker.state.log if isinstance(event[0], str)]

    return {
        at: {key for key in keys if key.startswith("omd-")} for at, keys in other.run(seen).items()
    }


@pytest.mark.parametrize("mode", ["decoders", *long(*(one for one in MODES if one != "decoders"))])
@pytest.mark.slow
def test_a_mixed_cluster_trains_to_the_same_bits_on_the_usable_workers(
    data: Path,
    bits: Callable[[str], str],
    cluster: tuple[Mixed, Client],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
) -> None:
    """In every mode, by address; the others are listed by address and reason, and have had no task
    but the probe."""
    waits(monkeypatch, probe=60)
    mix, other = cluster
    at = addresses(other)
    described = table(mode, data, tmp_path / "run")
    described["cluster"] = {**described.get("cluster", {}), "scheduler": mix.address}
    found = streamomd.train(described)
    assert found.state_sha256 == bits(mode)
    said = capfd.readouterr().err
    assert "4 workers (2 usable)" in said, said
    reason = "cannot import streamomd: ImportError: blocked: no streamomd here"
    assert f"worker {at['lacking-1']} is not used: it {reason}" in said
    assert f"worker {at['older-1']} is not used: it has streamomd 0.0.1" in said
    had = tasks_by_worker(other)
    for name in ("lacking-1", "older-1"):
        assert {key.rsplit("-", 1)[0] for key in had[at[name]]} <= {"omd-probe"}


@pytest.mark.slow
def test_doctor_lists_them(
    cluster: tuple[Mixed, Client], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a job and without: exit 1, each of them NOT fit with its reason, the fit ones fit."""
    waits(monkeypatch, probe=60)
    mix, other = cluster
    at = addresses(other)
    kept = {"url": str(tmp_path / "run")}
    file = toml(job(data, checkpoint=kept), tmp_path / "job.toml")
    for words in ([], [file]):
        told = run("doctor", *words, "--scheduler", mix.address)
        assert told.code == 1
        lines = told.err.splitlines()
        for name in NAMES:
            [place] = [
                n for n, line in enumerate(lines) if line.startswith(f"{at[name]} ({name}): ")
            ]
            assert ("NOT fit" in lines[place]) == (not name.startswith("fit"))
            if name == "lacking-1":
                assert "cannot import streamomd" in lines[place + 1]
            if name == "older-1":
                assert "has streamomd 0.0.1" in lines[place + 1]


@pytest.mark.slow
def test_a_job_that_is_submitted_runs_on_a_usable_worker(
    cluster: tuple[Mixed, Client],
    data: Path,
    alone: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Through a scheduler that cannot import streamomd either."""
    waits(monkeypatch, probe=60)
    mix, other = cluster
    described = job(data, checkpoint={"url": str(tmp_path / "run"), "every_rows": 4_000})
    file = toml(described, tmp_path / "job.toml")
    name = run("submit", file, "--scheduler", mix.address, "--json").result["id"]
    until(jobs.find(other, name), lambda one: one["state"] == "finished")
    assert streamomd.load(str(tmp_path / "run")).state_sha256 == alone.state_sha256


@pytest.mark.slow
def test_a_collection_on_workers_without_streamomd_trains(
    cluster: tuple[Mixed, Client], data: Path, alone: Any
) -> None:
    """Partitions persisted on all four workers are decoded on the two usable ones."""
    dd = pytest.importorskip("dask.dataframe")
    mix, other = cluster
    at = addresses(other)
    frame = dd.read_parquet(str(data))
    with Client(mix.address, set_as_default=False) as client:
        held = client.persist(frame, workers=[at["lacking-1"], at["older-1"], at["fit-1"]])
        columns = {**job(data)["data"]}
        del columns["shards"]
        found = streamomd.train(
            held,
            client=client,
            sets={
                **{f"data.{key}": value for key, value in columns.items()},
                "model.rule": "nag",
                "train.epochs": 2,
            },
            checkpoint="none",
            quiet=True,
        )
    assert found.state_sha256 == alone.state_sha256


@pytest.mark.slow
def test_a_worker_that_joins_later_is_probed_before_it_gets_tasks(
    data: Path, alone: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that waits for workers: the first one lacks streamomd, lives, and is not used."""
    waits(monkeypatch, look=0.2, probe=60)
    with mixed(tmp_path / "mixed") as (mix, other):
        mine = Client(mix.address, set_as_default=False)
        notes: list[str] = []

        def noted(text: str) -> None:
            notes.append(text)
            if "is not used" in text:
                mix.add("fit-1")

        mine.loop.call_later(1.0, lambda: mix.add("lacking-1"))
        with mine, listening(noted):
            found = streamomd.train(
                job(data, cluster=REMOTE), client=mine, checkpoint="none", quiet=True
            )
        assert found.state_sha256 == alone.state_sha256
        other.wait_for_workers(2, timeout=120)
        assert all(mix.alive().values())
        had = tasks_by_worker(other)
        assert {key.rsplit("-", 1)[0] for key in had[addresses(other)["lacking-1"]]} <= {
            "omd-probe"
        }
        first = {key.rsplit("-", 1)[0] for key in had[addresses(other)["fit-1"]]}
        assert "omd-probe" in first


@pytest.mark.slow  # test_doctor_lists_them has the reasons in the quick run
def test_a_cluster_without_a_usable_worker_is_an_error(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is saved, listing every worker; none of them is harmed."""
    waits(monkeypatch, probe=60)
    with mixed(tmp_path / "mixed", "lacking-1", "older-1") as (mix, other):
        held = [
            other.submit(pow, 2, 5, workers=[at], pure=False) for at in addresses(other).values()
        ]
        other.gather(held)
        file = toml(job(data, checkpoint={"url": str(tmp_path / "run")}), tmp_path / "job.toml")
        for command in ("train", "submit"):
            told = run(command, file, "--scheduler", mix.address)
            assert told.code == 1
            assert "no worker of the cluster" in told.err
            for at in addresses(other).values():
                assert f"\n{at}: it " in told.err
        assert not (tmp_path / "run").exists()
        assert all(mix.alive().values())
        assert [future.status for future in held] == ["finished"] * 2


@pytest.mark.slow
def test_a_worker_that_hangs_is_listed_and_the_run_begins_without_it(
    data: Path, alone: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its threads are busy for longer than the probe waits."""
    waits(monkeypatch, probe=1.0)
    notes: list[str] = []
    with elsewhere(tmp_path, 2) as (address, _), Client(address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=120)
        [busy, _] = client.scheduler_info(n_workers=-1)["workers"]
        sleeping = client.submit(time.sleep, 600, workers=[busy], pure=False)
        with listening(notes.append):
            found = streamomd.train(
                job(data, cluster=REMOTE), client=client, checkpoint="none", quiet=True
            )
        assert found.state_sha256 == alone.state_sha256
        assert any(f"worker {busy} did not answer in 1 s" in note for note in notes)
        assert sleeping.status == "pending"
