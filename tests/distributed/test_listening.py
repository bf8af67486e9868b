"""What listens: this machine's own address, unless an owner of a cluster says otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from streamomd.distributed.cluster import connect_client


def listening() -> set[tuple[str, int]]:
    """Where this process and its children can be reached."""
    found = set()
    for process in [psutil.Process(os.getpid()), *psutil.Process().children(recursive=True)]:
        for one in process.net_connections("inet"):
            if one.status == psutil.CONN_LISTEN:
                found.add((one.laddr.ip, one.laddr.port))
    return found


@pytest.mark.slow
def test_our_own_cluster_is_of_this_machine_alone() -> None:
    """Scheduler, workers and every page of theirs: on the loopback address and no other."""
    before = listening()
    with connect_client(None, ""):
        found = listening() - before
    assert found
    assert {address for address, _ in found} <= {"127.0.0.1", "::1"}


STRANGER = """
import asyncio, sys
from distributed import Client
from distributed.core import rpc

async def reached(address):
    try:
        return await asyncio.wait_for(rpc(address).identity(), 5)
    except Exception:
        return None

for address in sys.argv[1:]:
    for protocol in ("tcp", "tls"):
        if asyncio.run(reached(address.replace("tls:", protocol + ":"))) is not None:
            print("an answer from", address)
try:
    Client(sys.argv[1].replace("tls:", "tcp:"), timeout=5).run(print)
    print("code on a worker")
except Exception:
    print("refused")
"""


def test_our_own_cluster_refuses_other_processes() -> None:
    """Another process of this machine reaches neither the scheduler nor a worker without keys."""
    with connect_client(None, "") as client:
        there = client.scheduler_info(n_workers=-1)
        addresses = [there["address"], *there["workers"]]
        addresses += [worker["nanny"] for worker in there["workers"].values()]
        assert all(address.startswith("tls://127.0.0.1:") for address in addresses)
        assert client.submit(sum, [1, 2]).result() == 3
        command = [sys.executable, "-W", "ignore", "-c", STRANGER, *addresses]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.stdout == "refused\n", done.stderr
        assert client.submit(sum, [3, 4]).result() == 7
