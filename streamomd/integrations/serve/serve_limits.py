"""What a client may ask for, and how long it may take."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """body, rows: bytes and rows of a request. explained_body, explained: of one to /explain, whose
    response has an entry for each word of a text.
    buffered: bytes of all bodies that are being received or waiting. head_seconds: to send a
    request's headers, body_seconds: its body. request_seconds: from the headers to the last byte
    of the response that the client took. connections: open at a time.
    """

    body: int = 4 * MIB
    rows: int = 10_000
    explained_body: int = 128 << 10
    explained: int = 100
    buffered: int = 256 * MIB
    head_seconds: float = 10.0
    body_seconds: float = 20.0
    request_seconds: float = 60.0
    idle_seconds: float = 60.0
    connections: int = 1000


class Refusal(Exception):
    """A request that is answered with an error: status, a code for programs, and a message."""

    def __init__(self, status: int, code: str, message: str, **more: object) -> None:
        super().__init__(message)
        self.status, self.code, self.more = status, code, more
