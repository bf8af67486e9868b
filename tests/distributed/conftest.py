"""A cluster, rows on disk, and the run of one process, for every test file of this folder."""

from __future__ import annotations

import functools
import gc
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from clustered import QUIET, ROWS, job, sized, spread
from distributed import Client, LocalCluster
from running import rows, write
from sharded_jobs import sharded_job

import streamomd
from streamomd.core.run_events import Event, receiving
from streamomd.distributed import decode

GROUP = 900
# On a busy machine a worker that was killed is back after more than the 15 seconds of the default.
dask.config.set({"distributed.deploy.lost-worker-timeout": "10 minutes"})
_cluster: list[LocalCluster] = []


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """The cluster ends after the last test of this folder; after each file, what Dask leaves to the
    garbage collector (connections given up, coroutines never awaited) is collected, which would
    otherwise warn in a test that runs later in this process."""
    if nextitem is None or nextitem.path.parent != item.path.parent:
        while _cluster:
            _cluster.pop().close()
    if nextitem is None or nextitem.path != item.path:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four shards, groups that are not cut evenly."""
    folder = tmp_path_factory.mktemp("rows") / "data"
    for i in range(4):
        write(folder / f"{i}.parquet", rows(ROWS, first=i * ROWS), row_group_size=GROUP)
    return folder


@pytest.fixture(scope="session")
def alone(data: Path) -> Any:
    """The run of one process."""
    return streamomd.train(job(data), **QUIET)


@pytest.fixture(scope="module")
def workers() -> Iterator[LocalCluster]:
    """Worker processes with a thread each; a test says how many it wants.

    Files share them: their start and their imports take four seconds of processor time.
    """
    if not _cluster:
        _cluster.append(LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None))
    yield _cluster[0]
    if not is_idle(_cluster[0]):
        _cluster.pop().close()


def is_idle(cluster: LocalCluster) -> bool:
    """Forget submitted jobs, which outlive their clients; whether nothing is left to do."""
    with Client(cluster, set_as_default=False) as client:
        for name in client.list_datasets():
            client.unpublish_dataset(name)
    until = time.monotonic() + 10
    while cluster.scheduler.tasks and time.monotonic() < until:
        time.sleep(0.05)
    return not cluster.scheduler.tasks


@pytest.fixture(scope="module")
def expected(data: Path, tmp_path_factory: pytest.TempPathFactory, workers: LocalCluster) -> str:
    """The hash of an averaged run that nothing disturbs."""
    url = tmp_path_factory.mktemp("expected") / "run"
    with Client(workers, set_as_default=False) as client:
        found = streamomd.train(spread(data, url), client=client, quiet=True)
    return found.state_sha256


@pytest.fixture(scope="module")
def bits(request: pytest.FixtureRequest, data: Path) -> Callable[[str], str]:
    """The hash of a run that nothing disturbs, by mode."""

    @functools.cache
    def of(mode: str) -> str:
        if mode == "averaged":
            return str(request.getfixturevalue("expected"))
        if mode == "sharded":
            return str(streamomd.train(sharded_job(data, "none"), quiet=True).state_sha256)
        return str(request.getfixturevalue("alone").state_sha256)

    return of


@pytest.fixture
def client(workers: LocalCluster) -> Iterator[Client]:
    """A client of two workers."""
    sized(workers, 2)
    with Client(workers, set_as_default=False) as made:
        yield made


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some dozen tasks in a run, so that there is something in between."""
    monkeypatch.setattr(decode, "TASK_BYTES", 60_000)


@pytest.fixture
def events() -> Iterator[list[Event]]:
    """The events of a test."""
    found: list[Event] = []
    with receiving(found.append):
        yield found
