"""Listening for HTTP: which hosts only this machine reaches, and the socket of a server."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Sequence

from streamomd.core.errors import UsageError
from streamomd.core.urls import printable

_HOST = re.compile(r"(?:\[([0-9a-f:.]*:[0-9a-f:.]*)\]|([a-z0-9.-]+))(?::([0-9]{1,5}))?")
"""An IPv6 address, or a name or IPv4 address; a port."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> [is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "", "box")]
    [True, True, True, False, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def names_this_machine(hosts: Sequence[str]) -> bool:
    """Whether a request's Host headers are one, and a loopback address.

    A web page can make its own name lead to this machine (DNS rebinding); a browser then sends that
    name.

    >>> [names_this_machine([host]) for host in ("127.0.0.1:80", "[::1]:9100", "evil.example:80")]
    [True, True, False]
    >>> [names_this_machine([host]) for host in ("localhost:80@evil", "localhost:abc", "[::1]x")]
    [False, False, False]
    """
    found = _HOST.fullmatch(hosts[0].strip(" \t").lower()) if len(hosts) == 1 else None
    if found is None or int(found[3] or 0) > 65535:
        return False
    return is_loopback(found[1] or found[2])


def listen(host: str, port: int, *, options: str) -> socket.socket:
    """A socket that listens. options: what sets the address, for the error.

    Raises UsageError for an address that cannot be used.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        if family not in (socket.AF_INET, socket.AF_INET6):
            raise OSError("no IP address")
        return socket.create_server(address, family=family, backlog=1024)
    except (OSError, UnicodeError, OverflowError) as error:
        raise UsageError(
            f"cannot listen on {printable(host)!r}, port {port}: {error}; choose another {options}"
        ) from None


def address_text(listener: socket.socket) -> str:
    """The URL of a socket that listens."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
