"""The bearer token of a server that others can reach."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Sequence
from pathlib import Path

from streamomd.core.errors import InputNotFoundError, UsageError
from streamomd.core.http_servers import is_loopback, names_this_machine
from streamomd.core.urls import scrub, shown
from streamomd.training.progress import note

VARIABLE = "STREAMOMD_SERVE_TOKEN"
LEAST = 16
"""Characters of a token; ``openssl rand -hex 32`` makes 64."""
Headers = Sequence[tuple[bytes, bytes]]


def find_token(path: str | None, host: str) -> str:
    """The token of a file or of the environment; empty without one, on a loopback address.

    Raises UsageError for a token that is too short, or none where one is needed.
    """
    text = _read(path) if path else os.environ.get(VARIABLE, "").strip()
    source = f"token file {shown(path)}" if path else VARIABLE
    if not text and not path:
        if is_loopback(host):
            return ""
        raise UsageError(
            f"--host {host} can be reached from other machines: set {VARIABLE}, or pass "
            "--token-file FILE, and send the token as 'Authorization: Bearer …'; or leave out "
            "--host to serve this machine only"
        )
    if len(text) < LEAST or not text.isascii() or not text.isprintable() or " " in text:
        raise UsageError(
            f"{source}: expected one line of at least {LEAST} ASCII characters without spaces, "
            "such as openssl rand -hex 32 prints"
        )
    return text


def _read(path: str) -> str:
    try:
        text = Path(path).read_text("utf-8").strip()
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        raise InputNotFoundError(f"no token file {shown(path)!r}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"token file {shown(path)!r}: {scrub(str(error))}") from None
    if mode & 0o022:
        raise UsageError(
            f"token file {shown(path)!r}: other users can write it, and so choose the token: run "
            "chmod 600 on it"
        )
    if mode & 0o044:  # not refused: secrets that Docker and Kubernetes mount have mode 0444
        note(f"others may read the token in {shown(path)}: run chmod 600 on it")
    return text


def is_authorized(headers: Headers, token: str) -> bool:
    """Whether a request has the token, as its only Authorization header. In constant time."""
    found = [value for name, value in headers if name == b"authorization"]
    scheme, _, given = (found[0] if len(found) == 1 else b"").partition(b" ")
    same = hmac.compare_digest(_digest(given.strip()), _digest(token.encode()))
    return same and scheme.lower() == b"bearer"


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


def is_local_name(headers: Headers) -> bool:
    """Whether a request names a loopback address as its host."""
    return names_this_machine(
        [value.decode("latin-1") for name, value in headers if name == b"host"]
    )
