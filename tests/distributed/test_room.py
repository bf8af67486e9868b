"""Memory that a job needs on a worker: estimated for every mode and learner, with its numbers."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clustered import job
from distributed import Client, LocalCluster
from running import run
from test_jobs import toml

import streamomd
from streamomd.core.errors import ClusterError
from streamomd.distributed import diagnose as diagnosing
from streamomd.distributed.diagnose import USABLE
from streamomd.runs.train import diagnose

pytestmark = pytest.mark.filterwarnings("ignore")

LIMIT = 900 << 20  # 720 MiB before Dask pauses a worker
MODES, LEARNERS = ("exact", "averaged", "sharded"), ("client", "worker")
# MiB that a worker of two needs, by bits of OGD's weights: 400 and the states of 8 bytes a
# coordinate: none; the learner's; six, or four where they are merged in pieces; those and the
# driver's two; half, and 32 MiB of decoded rows.
NEEDED = {
    (20, "exact", "client"): 400,
    (20, "exact", "worker"): 400 + 8,
    (20, "averaged", "client"): 400 + 6 * 8,
    (20, "averaged", "worker"): 400 + 8 * 8,
    (20, "sharded", "client"): 400 + 4 + 32,
    (20, "sharded", "worker"): 400 + 4 + 32,
    (26, "exact", "client"): 400,
    (26, "exact", "worker"): 400 + 512,
    (26, "averaged", "client"): 400 + 4 * 512,
    (26, "averaged", "worker"): 400 + 6 * 512,
    (26, "sharded", "client"): 400 + 256 + 32,
    (26, "sharded", "worker"): 400 + 256 + 32,
    (27, "exact", "client"): 400,
    (27, "exact", "worker"): 400 + 1024,
    (27, "averaged", "client"): 400 + 4 * 1024,
    (27, "averaged", "worker"): 400 + 6 * 1024,
    (27, "sharded", "client"): 400 + 512 + 32,
    (27, "sharded", "worker"): 400 + 512 + 32,
}


@pytest.fixture(scope="module")
def narrow() -> Iterator[Client]:
    """Two worker processes of a thread and 900 MiB each."""
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit=LIMIT, dashboard_address=None
        ) as made,
        Client(made, set_as_default=False) as client,
    ):
        yield client


def wide(data: Path, url: Path, bits: int, mode: str, learner: str) -> dict[str, Any]:
    """The job with this number of coordinates."""
    table = job(data, checkpoint={"url": str(url)}, cluster={"learner": learner})
    table["data"] |= {"bits": bits}
    table["model"] = {"rule": "ogd"}
    table["train"] = {"mode": mode, "parts": 4, "epochs": 1}
    return table


def test_every_mode_and_learner_is_in_the_table() -> None:
    """No mode without an estimate."""
    assert set(NEEDED) == set(itertools.product((20, 26, 27), MODES, LEARNERS))


@pytest.mark.parametrize("bits", [20, 26, 27])
@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.sample(3)
def test_doctor_knows_what_each_mode_needs(
    data: Path, narrow: Client, tmp_path: Path, mode: str, learner: str, bits: int
) -> None:
    """Fit where it is at most 80 % of the limit; else unfit, with both numbers."""
    need = NEEDED[bits, mode, learner]
    found = diagnose(wide(data, tmp_path / "run", bits, mode, learner), client=narrow)
    assert len(found) == 2
    for one in found:
        assert one["memory"] == LIMIT
        assert one["ok"] == (need <= USABLE * 900)
        if not one["ok"]:
            (why,) = one["unfit"]
            mib = [int(text.replace(",", "")) for text in re.findall(r"([\d,]+) MiB", why)]
            assert mib[:2] == [900, 720]
            assert abs(mib[2] - need) <= 1
            assert f"{mode} mode" in why


@pytest.mark.parametrize(("mode", "learner"), [("exact", "worker"), ("sharded", "client")])
def test_commands_exit_1_with_the_numbers(
    data: Path, narrow: Client, tmp_path: Path, mode: str, learner: str
) -> None:
    """doctor says NOT fit of each worker; submit refuses, before anything is written."""
    url = tmp_path / "run"
    file = toml(wide(data, url, 27, mode, learner), tmp_path / "job.toml")
    address = narrow.scheduler.address
    told = run("doctor", file, "--scheduler", address)
    assert told.code == 1
    assert told.err.count(": NOT fit; 1 threads, 0.9 GiB") == 2
    assert told.err.count("it may use 900 MiB (memory_limit), of which 720 MiB (80%)") == 2
    submitted = run("submit", file, "--scheduler", address)
    assert submitted.code == 1
    assert "workers unfit for this job" in submitted.err
    assert "720 MiB (80%)" in submitted.err
    assert not [path for path in url.rglob("*") if path.is_file()]
    with pytest.raises(ClusterError, match="720 MiB"):
        streamomd.submit(json.loads(json.dumps(wide(data, url, 27, mode, learner))), client=narrow)


def test_the_largest_share_counts(data: Path, narrow: Client, tmp_path: Path) -> None:
    """Owners of unlike numbers of partitions: 3 of 5 need more than half a state."""
    table = wide(data, tmp_path / "run", 27, "sharded", "client")
    table["train"]["parts"] = 3
    (why, *_) = diagnose(table, client=narrow)[0]["unfit"]
    assert "each of 2 owners holds up to 683 of the state's 1,024 MiB" in why


def test_train_refuses_what_doctor_calls_unfit(
    data: Path, narrow: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Averaged and sharded mode, before a row is read."""
    monkeypatch.setattr(diagnosing, "BASE_BYTES", 1 << 40)
    for mode in ("averaged", "sharded"):
        table = wide(data, tmp_path / mode, 10, mode, "client")
        with pytest.raises(ClusterError, match="of which 720 MiB"):
            streamomd.train(table, client=narrow, quiet=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "learner", "bits", "limit"),
    [
        ("exact", "worker", 26, 1150),
        ("averaged", "client", 24, 1500),
        ("sharded", "client", 26, 870),
    ],
)
def test_what_is_called_fit_is_not_killed(
    data: Path, tmp_path: Path, mode: str, learner: str, bits: int, limit: int
) -> None:
    """Workers with hardly more than is asked for finish the job; no nanny kills one."""
    need = {"exact": 400 + 512, "averaged": 400 + 6 * 128, "sharded": 400 + 256 + 32}[mode]
    assert need <= USABLE * limit <= need + 40
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit=limit << 20, dashboard_address=None
        ) as made,
        Client(made, set_as_default=False) as client,
    ):
        before = set(client.scheduler_info(n_workers=-1)["workers"])
        table = wide(data, tmp_path / "run", bits, mode, learner)
        done = streamomd.train(table, client=client, quiet=True)
        assert done.finished
        assert set(client.scheduler_info(n_workers=-1)["workers"]) == before
