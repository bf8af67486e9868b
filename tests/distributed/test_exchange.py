"""The star of owners: what is sent arrives, in its order; a lost peer is named after seconds."""

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
from streamomd.distributed.allreduce_zmq import PeerLostError, ZmqStar, peers_of
from streamomd.distributed.curve_keys import CurveKeys, new_keys

GROUP = b"0123456789abcdef"
HOST = "127.0.0.1"


def stars(owners: int, keys: CurveKeys | None = None, groups: Any = None) -> list[ZmqStar]:
    """The ends of this number of owners, not joined yet."""
    keys, groups = keys or new_keys(), groups or [GROUP] * owners
    return [ZmqStar(HOST, groups[owner], owner, owners, keys) for owner in range(owners)]


def together(made: list[ZmqStar], act: Any) -> list[Any]:
    """What each does in a thread of its own; an error is a result."""

    def caught(star: ZmqStar) -> Any:
        try:
            return act(star)
        except PeerLostError as error:
            return error

    with ThreadPoolExecutor(len(made)) as pool:
        return list(pool.map(caught, made))


@pytest.mark.parametrize("size", [1, 5 << 20])
def test_everything_arrives_in_its_order(size: int) -> None:
    """Three owners, rounds of messages, also far larger than a socket's buffers."""
    made = stars(3)
    leader = made[0].endpoint

    def rounds(star: ZmqStar) -> None:
        star.join(leader)
        for number in range(5):
            for peer in peers_of(star):
                star.send(peer, bytes([number, star.owner]) * size)
            for peer in peers_of(star):
                assert star.receive(peer) == bytes([number, peer]) * size

    assert together(made, rounds) == [None] * 3
    together(made, ZmqStar.close)


def test_an_owner_has_one_connection_and_the_leader_one_of_each() -> None:
    """However many there are: sockets of 6 owners, by the processes' own descriptors."""
    made = stars(6)
    assert [peers_of(star) for star in made] == [[1, 2, 3, 4, 5], *([[0]] * 5)]
    leader = made[0].endpoint
    together(made, lambda star: star.join(leader))
    assert len(made[0]._sources) == 5
    assert [len(star._sources) for star in made[1:]] == [1] * 5
    together(made, ZmqStar.close)


def test_only_the_leaders_address_is_listened_at() -> None:
    """The address that was given, no other."""
    made = stars(2)
    assert made[0].endpoint.startswith(f"tcp://{HOST}:")
    assert made[1].endpoint == ""
    together(made, ZmqStar.close)


def test_another_groups_owner_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner of another group: no number is exchanged with it."""
    monkeypatch.setattr(allreduce_zmq, "JOIN_SECONDS", 3.0)
    made = stars(2, groups=[GROUP, b"an older group.."])
    leader = made[0].endpoint

    def joined(star: ZmqStar) -> None:
        try:
            star.join(leader)
        finally:
            star.close()

    found = together(made, joined)
    assert "owner 1 was lost: another process" in str(found[0])
    assert "owner 0 was lost" in str(found[1])


def test_who_never_comes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the time for joining, by the leader; the others lose the leader."""
    monkeypatch.setattr(allreduce_zmq, "JOIN_SECONDS", 0.5)
    first, second, third = stars(3)

    def joined(star: ZmqStar) -> None:
        try:
            star.join(first.endpoint)
        finally:
            star.close()

    found = together([first, third], joined)
    assert "owner 1 was lost: alive, but sent nothing for 0.5 s" in str(found[0])
    assert "owner 0 was lost: its connection closed" in str(found[1])
    second.close()


@pytest.mark.parametrize("leaves, stays", [(1, 0), (0, 1)])
def test_messages_of_an_owner_that_left_are_received(leaves: int, stays: int) -> None:
    """What was sent before leaving arrives; then the peer is lost."""
    made = stars(2)
    leader = made[0].endpoint
    together(made, lambda star: star.join(leader))
    made[leaves].send(stays, b"last words")
    made[leaves].close()
    assert made[stays].receive(leaves) == b"last words"
    with pytest.raises(PeerLostError, match="closed") as caught:
        made[stays].receive(leaves)
    made[stays].close()
    assert pickle.loads(pickle.dumps(caught.value)).peer == leaves


def test_the_leader_notices_a_lost_owner_while_it_waits_for_another() -> None:
    """Owner 1 is alive and sends nothing; owner 2 has left."""
    made = stars(3)
    leader = made[0].endpoint
    together(made, lambda star: star.join(leader))
    made[2].close()
    with pytest.raises(PeerLostError, match="owner 2 was lost: its connection closed"):
        made[0].receive(1)
    made[0].close()
    with pytest.raises(PeerLostError, match="owner 0 was lost"):
        made[1].receive(0)
    made[1].close()


def echo(keys: CurveKeys, endpoint: str, pipe: Any) -> None:
    """Another process: joins, sends on what it hears, and is busy for long in between."""
    star = ZmqStar(HOST, GROUP, 1, 2, keys)
    star.join(endpoint)
    pipe.send("joined")
    while True:
        data = star.receive(0)
        if data == b"busy":  # longer than silence is borne
            time.sleep(allreduce_zmq.HEARTBEAT_TIMEOUT_SECONDS + 1.0)
        star.send(0, data)


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)]
)
def test_busy_is_alive_and_gone_is_lost(how: signal.Signals) -> None:
    """A peer that computes for long is waited for; killed or stopped, it is lost."""
    keys = new_keys()
    star = ZmqStar(HOST, GROUP, 0, 2, keys)
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=echo, args=(keys, star.endpoint, there), daemon=True
    )
    process.start()
    try:
        star.join(star.endpoint)
        assert here.poll(30)
        star.send(1, b"busy")
        assert star.receive(1) == b"busy"
        os.kill(process.pid or 0, how)
        with pytest.raises(PeerLostError, match=r"closed|no heartbeat"):
            star.send(1, b"anybody?")
            star.receive(1)
    finally:
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join(10)
        star.close()
