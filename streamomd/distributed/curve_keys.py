"""CURVE keys of one group of owners, and the check that only its members connect.

ZeroMQ encrypts and authenticates with Curve25519 (https://rfc.zeromq.org/spec/26/). The driver
makes the keys of each group and sends them in the owners' setup, through the scheduler's
connection.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import zmq
from zmq.utils import z85

from streamomd.core.errors import ClusterError

DOMAIN = b"streamomd"
AUTHENTICATION = (
    "inproc://zeromq.zap.01"  # where libzmq sends its requests, https://rfc.zeromq.org/spec/27/
)
LOOK_MILLISECONDS = 50


@dataclass(frozen=True)
class CurveKeys:
    """Both key pairs of a group, as Z85 text: a member listens with one and connects with the
    other.

    Secret: any process that has them can join the group. They are not in the repr, because Dask
    logs the arguments of a failed task.
    """

    listen_public: bytes = field(repr=False)
    listen_secret: bytes = field(repr=False)
    connect_public: bytes = field(repr=False)
    connect_secret: bytes = field(repr=False)


def new_keys() -> CurveKeys:
    """New random keys. Raises ClusterError if libzmq has no CURVE."""
    require_curve()
    return CurveKeys(*zmq.curve_keypair(), *zmq.curve_keypair())


def has_curve() -> bool:
    """Whether this machine's libzmq can encrypt."""
    return bool(zmq.has("curve"))


def require_curve() -> None:
    """Raise ClusterError if libzmq has no CURVE."""
    if not has_curve():
        raise ClusterError(
            f"libzmq {zmq.zmq_version()} was built without CURVE, so ZeroMQ cannot check who "
            "connects: install pyzmq's wheel (pip install --force-reinstall pyzmq), or set "
            "streamomd.transport = 'dask'"
        )


def listen_with(socket: Any, keys: CurveKeys) -> None:
    """Configure a socket before it is bound: only members connect, while ``authenticating``.

    Without an authenticator, libzmq would accept every client that knows the public key; with an
    enforced domain it refuses all of them.
    """
    socket.setsockopt(zmq.ZAP_DOMAIN, DOMAIN)
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.CURVE_SECRETKEY, keys.listen_secret)


def connect_with(socket: Any, keys: CurveKeys) -> None:
    """Configure a socket before it connects: only a member answers."""
    socket.setsockopt(zmq.CURVE_SERVERKEY, keys.listen_public)
    socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.connect_public)
    socket.setsockopt(zmq.CURVE_SECRETKEY, keys.connect_secret)


@contextmanager
def authenticating(context: zmq.Context[Any], keys: CurveKeys) -> Iterator[None]:
    """Inside this context members can connect to the sockets; other processes never can."""
    done = threading.Event()
    socket = context.socket(zmq.REP)
    socket.setsockopt(zmq.RCVTIMEO, LOOK_MILLISECONDS)
    socket.bind(AUTHENTICATION)
    thread = threading.Thread(target=_authenticate, args=(socket, keys, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        socket.close(linger=0)


def _authenticate(socket: Any, keys: CurveKeys, done: threading.Event) -> None:
    member = [b"CURVE", z85.decode(keys.connect_public)]
    while not done.is_set():
        try:
            version, request, _, _, _, *credentials = socket.recv_multipart()
        except zmq.Again:
            continue
        status = [b"200", b"OK"] if credentials == member else [b"400", b"not of this group"]
        socket.send_multipart([version, request, *status, b"", b""])
