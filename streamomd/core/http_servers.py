"""What HTTP servers share: the socket that they listen on, and metrics as Prometheus reads them.

Values are read when they are asked for; nothing is registered globally.
"""

from __future__ import annotations

import ipaddress
import math
import re
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from streamomd.core.errors import UsageError
from streamomd.core.installed import needs_extra
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


TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = tuple[tuple[str, str], ...]


class Histogram(NamedTuple):
    """counts: values up to each limit, and then all of them; total: their sum."""

    limits: Sequence[float]
    counts: Sequence[float]
    total: float


@dataclass(frozen=True)
class Family:
    """A metric with its samples by labels. kind: "counter" (its name ends with ``_total``), "gauge"
    or "histogram"."""

    name: str
    kind: str
    help: str
    samples: dict[Labels, float | Histogram] = field(default_factory=dict)


def require_prometheus() -> Any:
    """The library. Raises MissingExtraError without ``streamomd[metrics]``."""
    with needs_extra("prometheus-client is not installed", "metrics"):
        import prometheus_client
    return prometheus_client


def prometheus_text(families: Iterable[Family]) -> bytes:
    """The families as text; its content type is ``TYPE``.

    >>> loss = Family("streamomd_loss", "gauge", "Progressive loss.", {(("learner", "000"),): 0.5})
    >>> print(prometheus_text([loss]).decode(), end="")
    # HELP streamomd_loss Progressive loss.
    # TYPE streamomd_loss gauge
    streamomd_loss{learner="000"} 0.5
    """
    library = require_prometheus()
    registry = library.CollectorRegistry()
    registry.register(_Families([*families]))
    text: bytes = library.exposition.choose_encoder("")[0](registry)
    return text


class _Families:
    """A collector, as the library calls it."""

    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def describe(self) -> list[Any]:
        """Called when it is registered: the names are checked nowhere else."""
        return []

    def collect(self) -> Iterator[Any]:
        """Called once a text."""
        core = require_prometheus().metrics_core
        for family in self._families:
            made = core.Metric(family.name.removesuffix("_total"), family.help, family.kind)
            for labels, value in family.samples.items():
                if isinstance(value, Histogram):
                    _add_histogram(made, dict(labels), value)
                else:
                    made.add_sample(family.name, dict(labels), value)
            yield made


def _add_histogram(made: Any, labels: dict[str, str], value: Histogram) -> None:
    for limit, count in zip((*value.limits, math.inf), value.counts, strict=True):
        edge = "+Inf" if limit == math.inf else f"{limit:g}"
        made.add_sample(f"{made.name}_bucket", {**labels, "le": edge}, count)
    made.add_sample(f"{made.name}_sum", labels, value.total)
    made.add_sample(f"{made.name}_count", labels, value.counts[-1])


HOST = "127.0.0.1"
MOST_PORT = 65_535


@dataclass(frozen=True)
class MetricsAddress:
    """Where metrics are served. port: 0: any free one. Raises UsageError for what is not a port."""

    port: int
    host: str = HOST

    def __post_init__(self) -> None:
        whole = isinstance(self.port, int) and not isinstance(self.port, bool)
        if not whole or not 0 <= self.port <= MOST_PORT:
            raise UsageError(
                f"metrics_port = {self.port!r}: expected a port from 0 (any free one) to 65535"
            )

    @classmethod
    def of(cls, port: int | None, host: str = "") -> MetricsAddress | None:
        """The address of two options; None without a port. Raises UsageError for a host alone."""
        if port is None and host:
            raise UsageError(f"--metrics-host {host} needs --metrics-port PORT")
        return None if port is None else cls(port, host or HOST)
