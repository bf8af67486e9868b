"""A process of another user, who has no key: connects to ports of owners, and does its worst.

Arguments: HOW, a file for what it was sent, then ports, or ``scan`` and process ids whose new ports
it looks for. Runs until it is killed; its first line says that it has connected.
"""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import zmq

from streamomd.distributed.allreduce_zmq import HELLO
from streamomd.engine.round_messages import HEAD

HOST = "127.0.0.1"


def peer(port: int, how: str, context: Any) -> Any:
    """A connection like an owner's, or one that says nothing or nonsense."""
    if how in ("silent", "garbage"):
        made = socket.create_connection((HOST, port))
        made.settimeout(0.0)
        if how == "garbage":
            made.send(b"\xff" + b"\x7f" * 1000)
        return made
    made = context.socket(zmq.DEALER)
    made.setsockopt(zmq.ROUTING_ID, b"owner 1")
    made.setsockopt(zmq.LINGER, 0)
    made.setsockopt(zmq.RCVTIMEO, 0)
    if how == "curve":  # without the gang's keys, any will do
        made.setsockopt(zmq.CURVE_SERVERKEY, zmq.curve_keypair()[0])
        public, secret = zmq.curve_keypair()
        made.setsockopt(zmq.CURVE_PUBLICKEY, public)
        made.setsockopt(zmq.CURVE_SECRETKEY, secret)
    made.connect(f"tcp://{HOST}:{port}")
    made.send(HELLO.pack(b"omd1", bytes(16), 1))
    return made


def learned(made: Any) -> bytes:
    """What has come since. The leader's greeting is answered with its own words, as an owner would,
    and its numbers with others."""
    try:
        data = bytes(made.recv(1 << 20))
        if len(data) == HELLO.size:
            mark, group, owner = HELLO.unpack(data)
            made.send(HELLO.pack(mark, group, owner + 1))
        elif data and isinstance(made, zmq.Socket):
            made.send(data[: 8 * HEAD] + b"\x7f" * (len(data) - 8 * HEAD))
    except (OSError, zmq.Again):
        return b""
    return data


def ports_of(pids: list[int]) -> set[int]:
    """Where processes listen."""
    found: set[int] = set()
    for pid in pids:
        try:
            connections = psutil.Process(pid).net_connections("tcp")
        except psutil.Error:
            continue
        found |= {one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN}
    return found


def main(how: str, out: Path, *given: str) -> None:
    """Attack until killed."""
    context = zmq.Context()
    pids = [int(pid) for pid in given[1:]] if given[0] == "scan" else []
    known = ports_of(pids)
    ports = set() if pids else {int(port) for port in given}
    made: list[Any] = [peer(port, how, context) for port in ports]
    time.sleep(0.5)
    print("scanning" if pids else "connected", flush=True)
    while True:
        for port in ports_of(pids) - known:
            known.add(port)
            ports.add(port)
            print(f"port {port}", flush=True)
        for port in ports:  # again and again, also while numbers are exchanged
            try:
                made.append(peer(port, how, context))
            except OSError:
                continue
        with out.open("ab") as file:
            for one in made:
                file.write(learned(one))
        for one in made[:-20]:
            one.close()
        made = made[-20:]
        time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
