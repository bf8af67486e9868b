"""Owners' sockets: what is sent arrives, in its order; who is not there is named, and soon."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from streamomd.distributed import allreduce_zmq
from streamomd.distributed.allreduce_zmq import PeerLostError, ZmqMesh, peers_of
from streamomd.distributed.curve_keys import CurveKeys, new_keys

GROUP = b"0123456789abcdef"
HOST = "127.0.0.1"


def meshes(owners: int, keys: CurveKeys | None = None, groups: Any = None) -> list[ZmqMesh]:
    """This number of meshes, not joined yet."""
    keys, groups = keys or new_keys(), groups or [GROUP] * owners
    return [ZmqMesh(HOST, groups[owner], owner, owners, keys) for owner in range(owners)]


def together(made: list[ZmqMesh], act: Any) -> list[Any]:
    """What each does in a thread of its own; an error is a result."""

    def caught(mesh: ZmqMesh) -> Any:
        try:
            return act(mesh)
        except PeerLostError as error:
            return error

    with ThreadPoolExecutor(len(made)) as pool:
        return list(pool.map(caught, made))


@pytest.mark.parametrize("size", [1, 5 << 20])
def test_everything_arrives_in_its_order(size: int) -> None:
    """Three owners, rounds of messages, also far larger than a socket's buffers."""
    made = meshes(3)
    endpoints = [mesh.endpoint for mesh in made]

    def rounds(mesh: ZmqMesh) -> None:
        mesh.join(endpoints)
        for number in range(5):
            for peer in peers_of(mesh):
                mesh.send(peer, bytes([number, mesh.owner]) * size)
            for peer in peers_of(mesh):
                assert mesh.receive(peer) == bytes([number, peer]) * size

    assert together(made, rounds) == [None] * 3
    together(made, ZmqMesh.close)


def test_only_this_address_is_listened_at() -> None:
    """The address that was given, no other."""
    made = meshes(2)
    assert list(made[0].endpoint) == [1]
    assert made[0].endpoint[1].startswith(f"tcp://{HOST}:")
    assert made[1].endpoint == {}
    together(made, ZmqMesh.close)


def test_another_groups_owner_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner of another group: no number is exchanged with it."""
    monkeypatch.setattr(allreduce_zmq, "JOIN_SECONDS", 3.0)
    made = meshes(2, groups=[GROUP, b"an older group.."])
    endpoints = [mesh.endpoint for mesh in made]
    found = together(made, lambda mesh: mesh.join(endpoints))
    assert all("another process" in str(error) for error in found)
    together(made, ZmqMesh.close)


def test_who_never_comes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the time for joining."""
    monkeypatch.setattr(allreduce_zmq, "JOIN_SECONDS", 0.5)
    first, second = meshes(2)
    with pytest.raises(PeerLostError, match="owner 1 was lost"):
        first.join([first.endpoint, second.endpoint])
    first.close()
    second.close()


def test_messages_of_an_owner_that_left_are_received() -> None:
    """What was sent before leaving arrives; then the peer is lost."""
    made = meshes(2)
    endpoints = [mesh.endpoint for mesh in made]
    together(made, lambda mesh: mesh.join(endpoints))
    made[1].send(0, b"last words")
    made[1].close()
    assert made[0].receive(1) == b"last words"
    with pytest.raises(PeerLostError, match="closed") as caught:
        made[0].receive(1)
    made[0].close()
    assert pickle.loads(pickle.dumps(caught.value)).peer == 1


def echo(keys: CurveKeys, endpoints: Any, pipe: Any) -> None:
    """Another process: joins, sends on what it hears, and is busy for long in between."""
    mesh = ZmqMesh(HOST, GROUP, 1, 2, keys)
    mesh.join(endpoints)
    pipe.send("joined")
    while True:
        data = mesh.receive(0)
        if data == b"busy":  # longer than silence is borne
            time.sleep(allreduce_zmq.HEARTBEAT_TIMEOUT_SECONDS + 1.0)
        mesh.send(0, data)


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)]
)
def test_busy_is_alive_and_gone_is_lost(how: signal.Signals) -> None:
    """A peer that computes for long is waited for; killed or stopped, it is lost."""
    keys = new_keys()
    mesh = ZmqMesh(HOST, GROUP, 0, 2, keys)
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=echo, args=(keys, [mesh.endpoint, {}], there), daemon=True
    )
    process.start()
    try:
        mesh.join([mesh.endpoint, {}])
        assert here.poll(30)
        mesh.send(1, b"busy")
        assert mesh.receive(1) == b"busy"
        os.kill(process.pid or 0, how)
        with pytest.raises(PeerLostError, match="closed, or no heartbeat"):
            mesh.send(1, b"anybody?")
            mesh.receive(1)
    finally:
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join(10)
        mesh.close()
