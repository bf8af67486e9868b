"""The star of owners: what is sent arrives, in its order; a lost peer is named after seconds."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from distributed import LocalCluster, Worker

from streamomd.distributed import star as star_module
from streamomd.distributed.star import PeerLostError, Star, peers_of

GROUP = b"0123456789abcdef"
# Dask's own warnings of connections that end are what is provoked here.
pytestmark = pytest.mark.filterwarnings("ignore")


def cluster_of(size: int) -> LocalCluster:
    """Workers in this process, with connections by TCP."""
    return LocalCluster(
        n_workers=size,
        threads_per_worker=1,
        processes=False,
        protocol="tcp",
        dashboard_address=None,
    )


@pytest.fixture(scope="module")
def six() -> Iterator[list[Worker]]:
    """Six workers."""
    with cluster_of(6) as cluster:
        yield list(cluster.workers.values())


def stars(workers: list[Worker], owners: int, groups: Any = None) -> list[Star]:
    """The ends of this number of owners, not joined yet."""
    groups = groups or [GROUP] * owners
    return [Star(workers[owner], groups[owner], owner, owners) for owner in range(owners)]


def together(made: list[Star], act: Any) -> list[Any]:
    """What each does in a thread of its own; an error is a result."""

    def caught(star: Star) -> Any:
        try:
            return act(star)
        except PeerLostError as error:
            return error

    with ThreadPoolExecutor(len(made)) as pool:
        return list(pool.map(caught, made))


@pytest.mark.parametrize("size", [1, 5 << 20])
def test_everything_arrives_in_its_order(six: list[Worker], size: int) -> None:
    """Three owners, rounds of messages, also far larger than a socket's buffers."""
    made = stars(six, 3)
    leader = made[0].endpoint

    def rounds(star: Star) -> None:
        star.join(leader)
        for number in range(5):
            for peer in peers_of(star):
                star.send(peer, bytes([number, star.owner]) * size)
            for peer in peers_of(star):
                assert star.receive(peer) == bytes([number, peer]) * size

    assert together(made, rounds) == [None] * 3
    together(made, Star.close)


def test_an_owner_has_one_connection_and_the_leader_one_of_each(six: list[Worker]) -> None:
    """However many there are: the connections of 6 owners."""
    made = stars(six, 6)
    assert [peers_of(star) for star in made] == [[1, 2, 3, 4, 5], *([[0]] * 5)]
    leader = made[0].endpoint
    together(made, lambda star: star.join(leader))
    assert [sorted(star._outbox) for star in made] == [[1, 2, 3, 4, 5], *([[0]] * 5)]
    together(made, Star.close)


def test_another_groups_owner_is_refused(
    six: list[Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An owner of another group: no number is exchanged with it."""
    monkeypatch.setattr(star_module, "JOIN_SECONDS", 3.0)
    made = stars(six, 2, groups=[GROUP, b"an older group.."])
    leader = made[0].endpoint

    def joined(star: Star) -> None:
        try:
            star.join(leader)
        finally:
            star.close()

    found = together(made, joined)
    assert "owner 1 was lost: alive, but sent nothing for 3 s" in str(found[0])
    assert "owner 0 was lost" in str(found[1])


def test_who_never_comes_is_named(six: list[Worker], monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the time for joining, by the leader; the others lose the leader."""
    monkeypatch.setattr(star_module, "JOIN_SECONDS", 0.5)
    first, second, third = stars(six, 3)

    def joined(star: Star) -> None:
        try:
            star.join(first.endpoint)
        finally:
            star.close()

    found = together([first, third], joined)
    assert "owner 1 was lost: alive, but sent nothing for 0.5 s" in str(found[0])
    assert "owner 0 was lost: its connection closed" in str(found[1])
    second.close()


@pytest.mark.parametrize("leaves, stays", [(1, 0), (0, 1)])
def test_messages_of_an_owner_that_left_are_received(
    six: list[Worker], leaves: int, stays: int
) -> None:
    """What was sent before leaving arrives; then the peer is lost."""
    made = stars(six, 2)
    leader = made[0].endpoint
    together(made, lambda star: star.join(leader))
    made[leaves].send(stays, b"last words")
    made[leaves].close()
    assert made[stays].receive(leaves) == b"last words"
    with pytest.raises(PeerLostError, match="closed") as caught:
        made[stays].receive(leaves)
    made[stays].close()
    assert pickle.loads(pickle.dumps(caught.value)).peer == leaves


def test_the_leader_notices_a_lost_owner_while_it_waits_for_another(six: list[Worker]) -> None:
    """Owner 1 is alive and sends nothing; owner 2 has left."""
    made = stars(six, 3)
    leader = made[0].endpoint
    together(made, lambda star: star.join(leader))
    made[2].close()
    with pytest.raises(PeerLostError, match="owner 2 was lost: its connection closed"):
        made[0].receive(1)
    made[0].close()
    with pytest.raises(PeerLostError, match="owner 0 was lost"):
        made[1].receive(0)
    made[1].close()


def echo(endpoint: str, pipe: Any) -> None:
    """Another process: joins, sends on what it receives, and is busy for long in between."""
    with cluster_of(1) as cluster:
        star = Star(next(iter(cluster.workers.values())), GROUP, 1, 2)
        star.join(endpoint)
        pipe.send("joined")
        while True:
            data = star.receive(0)
            if data == b"busy":  # longer than silence is borne
                time.sleep(star_module.HEARTBEAT_TIMEOUT_SECONDS + 1.0)
            star.send(0, data)


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)]
)
def test_busy_is_alive_and_gone_is_lost(six: list[Worker], how: signal.Signals) -> None:
    """A peer that computes for long is waited for; killed or stopped, it is lost."""
    star = Star(six[0], GROUP, 0, 2)
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=echo, args=(star.endpoint, there), daemon=True
    )
    process.start()
    try:
        star.join(star.endpoint)
        assert here.poll(30)
        star.send(1, b"busy")
        assert star.receive(1) == b"busy"
        os.kill(process.pid or 0, how)
        with pytest.raises(PeerLostError, match=r"closed|no heartbeat"):
            star.send(1, b"still there?")
            star.receive(1)
    finally:
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join(10)
        star.close()
