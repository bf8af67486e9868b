"""Servers that take connections and are no Dask scheduler."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"


def silent(talk: socket.socket) -> None:
    """It says nothing, for as long as the other side stays."""
    while talk.recv(4096):
        pass


def http(talk: socket.socket) -> None:
    """A web server's answer to whatever it is sent: the dashboard's port."""
    talk.recv(4096)
    talk.sendall(HTTP)
    talk.recv(4096)


def closing(talk: socket.socket) -> None:
    """It hangs up."""


def trickling(talk: socket.socket) -> None:
    """The start of a message of Dask's, a byte every now and then: each read makes progress."""
    for byte in struct.pack("<QQ", 1, 1 << 20) + b"x" * (1 << 20):
        talk.sendall(bytes([byte]))
        time.sleep(0.05)


KINDS = {"silent": silent, "http": http, "closing": closing, "trickling": trickling}


@contextmanager
def serving(kind: str) -> Iterator[tuple[str, threading.Event]]:
    """The address of a server of that kind, and an event: somebody has connected."""
    came = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    talk, _ = server.accept()
                except OSError:  # closed
                    return
                came.set()
                threading.Thread(target=spoken, args=(talk,), daemon=True).start()

        def spoken(talk: socket.socket) -> None:
            with talk, suppress(OSError):
                KINDS[kind](talk)

        threading.Thread(target=accept, daemon=True).start()
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}", came
        server.shutdown(socket.SHUT_RDWR)
