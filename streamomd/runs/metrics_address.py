"""Where a run serves its metrics. The server is in ``metrics_server``: it imports Python's own."""

from __future__ import annotations

from dataclasses import dataclass

from streamomd.core.errors import UsageError

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
