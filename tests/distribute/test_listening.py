"""What listens: this machine's own address, unless an owner of a cluster says otherwise."""

from __future__ import annotations

import os

import psutil
import zmq

from streamomd.distribute.cluster import connected
from streamomd.distribute.exchange import ZmqMesh


def listening() -> set[tuple[str, int]]:
    """Where this process and its children can be reached."""
    found = set()
    for process in [psutil.Process(os.getpid()), *psutil.Process().children(recursive=True)]:
        for one in process.net_connections("inet"):
            if one.status == psutil.CONN_LISTEN:
                found.add((one.laddr.ip, one.laddr.port))
    return found


def test_our_own_cluster_is_of_this_machine_alone() -> None:
    """Scheduler, workers and every page of theirs: on the loopback address and no other."""
    before = listening()
    with connected(None, ""):
        found = listening() - before
    assert found
    assert {address for address, _ in found} <= {"127.0.0.1", "::1"}


def test_owners_listen_where_their_worker_does() -> None:
    """A port a peer, at the address that was given."""
    mesh = ZmqMesh("127.0.0.1", b"0" * 16, 0, 3)
    try:
        assert len(mesh.place) == 2
        assert all(place.startswith("tcp://127.0.0.1:") for place in mesh.place.values())
        for socket in mesh._sockets.values():
            told = socket.getsockopt(zmq.LAST_ENDPOINT).replace(b"[::ffff:127.0.0.1]", b"127.0.0.1")
            assert told.startswith(b"tcp://127.0.0.1:")
    finally:
        mesh.close()
