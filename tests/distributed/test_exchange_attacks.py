"""A process without the keys of a group learns nothing, joins nothing and changes nothing."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from clustered import long
from distributed import Client
from sharded_jobs import sharded_job
from test_exchange import GROUP, HOST, stars, together

import streamomd
from streamomd.distributed import allreduce_zmq
from streamomd.distributed.allreduce_zmq import PeerLostError, ZmqStar, peers_of
from streamomd.distributed.curve_keys import CurveKeys, new_keys

# Dask's own warnings of workers that are stopped.
pytestmark = pytest.mark.filterwarnings("ignore")

SECRETS = ("listen_public", "listen_secret", "connect_public", "connect_secret")
KINDS = ("plain", "curve", "garbage", "silent")


@contextlib.contextmanager
def attacker(how: str, out: Path, *given: object) -> Iterator[list[str]]:
    """A process that attacks ports, or new ports of processes; yields those that it has found."""
    script = Path(__file__).parents[1] / "support" / "attacker.py"
    words = [sys.executable, str(script), how, str(out), *map(str, given)]
    found: list[str] = []
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() in ("connected", "scanning")
            yield found
        finally:
            process.kill()
            found += process.communicate()[0].splitlines()


def port_of(star: ZmqStar) -> int:
    return int(star.endpoint.rpartition(":")[2])


def exchanged(star: ZmqStar, leader: str, rounds: int) -> list[bytes]:
    """What an owner receives in several rounds, in which each sends its index to its peers."""
    star.join(leader)
    found = []
    for number in range(rounds):
        for peer in peers_of(star):
            star.send(peer, b"%d of %d" % (number, star.owner))
        found += [star.receive(peer) for peer in peers_of(star)]
    return found


def honest(owner: int, owners: int, rounds: int) -> list[bytes]:
    return [
        b"%d of %d" % (number, peer)
        for number in range(rounds)
        for peer in ([0] if owner else range(1, owners))
    ]


def assert_nothing(learned: bytes, keys: CurveKeys) -> None:
    """It contains no key, no group id and no number."""
    for name in SECRETS:
        assert getattr(keys, name) not in learned
    assert GROUP not in learned
    assert b" of " not in learned


@pytest.mark.parametrize("rounds", [1_000, *long(10_000)])
@pytest.mark.parametrize("how", KINDS)
@pytest.mark.sample(2)
def test_who_connects_before_the_real_peer_joins_nothing(
    how: str, rounds: int, tmp_path: Path
) -> None:
    """Nor while numbers are exchanged: each owner receives what the others sent, and no more."""
    keys, out = new_keys(), tmp_path / "learned"
    made = stars(3, keys)
    leader = made[0].endpoint
    with attacker(how, out, port_of(made[0])):
        found = together(made, lambda star: exchanged(star, leader, rounds))
        assert found == [honest(owner, 3, rounds) for owner in range(3)]
        made[2].close()
        # A peer's end is seen among the ends of strangers.
        with pytest.raises(PeerLostError, match="owner 2 was lost: its connection closed"):
            made[0].receive(2)
    together(made[:2], ZmqStar.close)
    assert_nothing(out.read_bytes(), keys)


def test_who_knows_where_and_the_listeners_key_needs_one_of_its_own() -> None:
    """The right key to connect with is required: another client's key is refused."""
    keys, strange = new_keys(), new_keys()
    made = stars(2, keys)
    half = CurveKeys(
        keys.listen_public, strange.listen_secret, strange.connect_public, strange.connect_secret
    )
    other = ZmqStar(HOST, GROUP, 1, 2, half)
    leader = made[0].endpoint
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(allreduce_zmq, "JOIN_SECONDS", 2.0)
        with pytest.raises(PeerLostError):
            other.join(leader)
    found = together(made, lambda star: exchanged(star, leader, 3))
    assert found == [honest(owner, 2, 3) for owner in range(2)]
    for star in (*made, other):
        star.close()


class Recorder:
    """Between two owners: passes all on, and writes down what the one that connects has sent."""

    def __init__(self, port: int) -> None:
        self.sent = bytearray()
        self._to = port
        self._listener = socket.create_server((HOST, 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with (
            self._listener,
            self._listener.accept()[0] as here,
            socket.create_connection((HOST, self._to)) as there,
        ):
            answers = threading.Thread(target=self._pump, args=(there, here, bytearray()))
            answers.start()
            self._pump(here, there, self.sent)
            answers.join()

    def close(self) -> None:
        """Once an owner has left."""
        self._thread.join()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket, record: bytearray) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                record += data
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def test_recorded_bytes_say_nothing_and_open_nothing_again() -> None:
    """A replay of all that an owner sent: to the same port, and to a group with the same keys."""
    keys = new_keys()
    made = stars(2, keys)
    recorder = Recorder(port_of(made[0]))
    through = f"tcp://{HOST}:{recorder.port}"
    found = together(made, lambda star: exchanged(star, through, 100))
    assert found == [honest(owner, 2, 100) for owner in range(2)]
    recorded = bytes(recorder.sent)
    assert len(recorded) > 100 * len(b"99 of 1")
    assert_nothing(recorded, keys)
    again = stars(2, keys)
    leader = again[0].endpoint
    for star in (made[0], again[0]):
        with socket.create_connection((HOST, port_of(star))) as replaying:
            replaying.sendall(recorded[:10_000])
            replaying.settimeout(5.0)
            with contextlib.suppress(OSError):
                while replaying.recv(1 << 16):
                    pass
    found = together(again, lambda star: exchanged(star, leader, 100))
    assert found == [honest(owner, 2, 100) for owner in range(2)]
    made[1].send(0, b"still here")
    assert made[0].receive(1) == b"still here"
    for star in (*made, *again):
        star.close()
    recorder.close()


@pytest.mark.parametrize("answers", ["nothing", "plain"])
def test_who_has_the_port_of_an_owner_that_is_gone_learns_nothing(
    answers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real owner waits for its peer, in vain; what it sent holds neither key nor number."""
    import zmq

    monkeypatch.setattr(allreduce_zmq, "JOIN_SECONDS", 1.0)
    keys = new_keys()
    real = ZmqStar(HOST, GROUP, 1, 2, keys)
    learned = bytearray()
    context = zmq.Context()
    server = socket.create_server((HOST, 0))
    port = server.getsockname()[1]
    if answers == "plain":
        server.close()
        plain = context.socket(zmq.ROUTER)
        plain.setsockopt(zmq.LINGER, 0)
        plain.bind(f"tcp://{HOST}:{port}")
    else:
        thread = threading.Thread(target=listen, args=(server, learned))
        thread.start()
    with pytest.raises(PeerLostError, match="owner 0 was lost"):
        real.join(f"tcp://{HOST}:{port}")
    if answers == "plain":
        assert plain.poll(100) == 0
    else:
        thread.join()
        assert len(learned) > 0
    assert_nothing(bytes(learned), keys)
    real.close()
    context.destroy(0)


def listen(server: socket.socket, learned: bytearray) -> None:
    """Takes what comes first, and answers as a listener with CURVE would begin."""
    greeting = (
        b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + b"\x01" + bytes(31)
    )
    with server, server.accept()[0] as connection, contextlib.suppress(OSError):
        connection.sendall(greeting)
        connection.settimeout(0.5)
        while data := connection.recv(1 << 16):
            learned += data


def slow_to_join() -> None:
    """On a worker: others have a second to connect first."""
    import time

    from streamomd.distributed.allreduce_zmq import ZmqStar

    join = ZmqStar.join
    ZmqStar.join = lambda star, leader: (time.sleep(1.0), join(star, leader))[1]  # type: ignore


def pid_of() -> int:
    import os

    return os.getpid()


@pytest.mark.slow
@pytest.mark.parametrize("how", KINDS)
def test_training_under_attack_ends_with_the_same_bits(
    how: str, data: Path, client: Client, tmp_path: Path
) -> None:
    """A process that connects to each port of the owners before the owners do, and ever after."""
    table = sharded_job(data, "none")
    expected = streamomd.train(table, quiet=True).state_sha256
    client.run(slow_to_join)
    pids = list(client.run(pid_of).values())
    with attacker(how, tmp_path / "learned", "scan", *pids) as found_ports:
        attacked = sharded_job(data, tmp_path / "run")
        found = streamomd.train(attacked, client=client, quiet=True).state_sha256
    assert found_ports, "it found no port to attack"
    assert found == expected
    client.restart()
