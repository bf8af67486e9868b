"""A cluster of Dask Gateway by ``--cluster``; where dask-gateway and its server are installed."""

from __future__ import annotations

import socket
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from clustered import QUIET, REMOTE, job, spread

import streamomd
from streamomd.config.cluster_choice import ClusterFactory

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
dask_gateway = pytest.importorskip("dask_gateway")
pytest.importorskip("dask_gateway_server")
ADDRESS: list[str] = []


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def running(address: str) -> list[Any]:
    """Clusters of a gateway."""
    with dask_gateway.Gateway(address) as there:
        found: list[Any] = there.list_clusters()
    return found


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway whose clusters are processes of this machine."""
    folder = tmp_path_factory.mktemp("gateway")
    server, public = free_port(), free_port()
    python = sys.executable
    (folder / "config.py").write_text(
        textwrap.dedent(f"""
        c.DaskGateway.backend_class = "dask_gateway_server.backends.local.UnsafeLocalBackend"
        c.DaskGateway.address = "127.0.0.1:{server}"
        c.Proxy.address = "127.0.0.1:{public}"
        c.UnsafeLocalBackend.clusters_directory = "{folder}"
        c.UnsafeLocalBackend.inherited_environment = ["PATH", "PYTHONPATH", "HOME"]
        c.ClusterConfig.scheduler_cmd = ["{python}", "-m", "distributed.cli.dask_scheduler"]
        c.ClusterConfig.worker_cmd = ["{python}", "-m", "distributed.cli.dask_worker"]
        c.ClusterConfig.worker_cores = 1
    """)
    )
    begin = "from dask_gateway_server.app import main; main()"
    words = [python, "-c", begin, "--config", str(folder / "config.py")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        address, deadline = f"http://127.0.0.1:{public}", time.monotonic() + 60
        while True:
            with suppress(OSError), urllib.request.urlopen(f"{address}/api/health", timeout=1):
                break
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.2)
        ADDRESS[:] = [address]
        yield address
    finally:
        process.terminate()
        process.wait()


def make() -> Any:
    """A factory, as in docs/clusters.md."""
    cluster = dask_gateway.GatewayCluster(ADDRESS[0])
    cluster.scale(2)
    return cluster


def test_bits_on_a_gateway(gateway: str, data: Path, alone: Any, tmp_path: Path) -> None:
    """Exact and averaged mode; the cluster is shut down at the end."""
    factory = ClusterFactory("test_gateway:make")
    exact = streamomd.train(job(data, cluster=REMOTE), client=factory, **QUIET)
    assert exact.state_sha256 == alone.state_sha256
    assert not running(gateway)
    there = streamomd.train(spread(data, tmp_path / "a"), client=factory, quiet=True)
    here = streamomd.train(spread(data, tmp_path / "b"), quiet=True)
    assert there.state_sha256 == here.state_sha256
