"""Why a connection to a scheduler failed, from the error and from what answers at its address."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from contextlib import suppress
from importlib.metadata import version
from typing import Any

from distributed import rpc
from distributed.comm.addressing import get_address_host_port

from streamomd.core.urls import scrub, shown

CONNECT_SECONDS = 1.0  # for a machine to accept a connection
TLS = "tls://"
NOT_A_SCHEDULER = (
    "this address accepts connections but is not a Dask scheduler (is it the dashboard's port?)"
)
CERTIFICATES = (
    "set distributed.comm.tls.ca-file, .client.cert and .client.key in Dask's configuration, or "
    "pass a client"
)
OLDEST = (2025, 4)
"""The first distributed whose scheduler knows identity(n_workers=), which this client asks for."""


def connection_problem(
    loop: asyncio.AbstractEventLoop, address: str, error: Exception, limit: float
) -> str:
    """The message of a handshake that failed. loop: it runs in another thread. limit: seconds for
    each look at what is at the address."""
    reason, name = f": {text}" if (text := scrub(str(error))) else "", shown(address)
    if isinstance(error, ImportError):  # the scheduler's answer: incompatible versions
        return f"the Dask scheduler at {name} refuses this client{reason}"
    if address.startswith(TLS) and "ssl_context" in str(error):  # Dask's TypeError
        return f"{name}: this process has no certificates for TLS: {CERTIFICATES}"
    if address.startswith(TLS) and re.search("certificate|unknown_ca", str(error), re.IGNORECASE):
        return f"{name}: the certificates of scheduler and client do not match: {CERTIFICATES}"
    limit = min(limit, CONNECT_SECONDS)
    if accepts_connections(address, limit):
        return _problem_of_server(loop, address, limit)
    return (
        f"no Dask scheduler answers at {name}{reason}. Pass another address with "
        '--scheduler, or --scheduler "" to run without a cluster'
    )


def _problem_of_server(loop: asyncio.AbstractEventLoop, address: str, limit: float) -> str:
    """Why this client cannot use what accepts connections at an address as its scheduler."""
    host, name = address.rpartition("://")[2], shown(address)
    describing = _distributed_version(f"tcp://{host}", limit)
    found = asyncio.run_coroutine_threadsafe(describing, loop).result()
    if found is None:
        # Later: a greeting of TLS is an error in the log of a Dask server without it.
        if not address.startswith(TLS) and _speaks_tls(address, limit):
            return (
                f"{name}: this address uses TLS: if it is a Dask scheduler, pass "
                f"{TLS}{shown(host)}, and for its certificates {CERTIFICATES}"
            )
        return f"{name}: {NOT_A_SCHEDULER}"
    if address.startswith(TLS):
        return f"the Dask scheduler at {name} does not use TLS: pass tcp://{shown(host)}"
    if _numbers(found) < OLDEST:
        return (
            f"the Dask scheduler at {name} has distributed {found}, and this process "
            f"{version('distributed')}: upgrade the scheduler to {'.'.join(map(str, OLDEST))}.0 "
            "or later"
        )
    return f"the Dask scheduler at {name} (distributed {found}) did not accept this client in time"


def _numbers(found: str) -> tuple[int, ...]:
    """Year and month of a version of distributed.

    >>> _numbers("2024.8.2"), _numbers("2026.1.1+3.gabc")
    ((2024, 8), (2026, 1))
    """
    return tuple(int(one) for one in found.split(".")[:2] if one.isdecimal())


async def _distributed_version(address: str, limit: float) -> str | None:
    """Returns the version of the scheduler at an address; None if there is none. Old ones answer
    both requests, too."""
    with suppress(Exception):  # an unknown server's bytes may raise anything
        async with asyncio.timeout(limit):
            server: Any
            async with rpc(address) as server:
                identity, versions = await server.identity(), await server.versions()
        if identity["type"] == "Scheduler":
            return str(versions["packages"]["distributed"])
    return None


def _speaks_tls(address: str, limit: float) -> bool:
    """Whether what is at an address answers the greeting of TLS. No certificate is checked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with suppress(OSError, ValueError):  # OSError: also of TLS
        where = get_address_host_port(address)
        with (
            socket.create_connection(where, timeout=limit) as plain,
            context.wrap_socket(plain),
        ):
            return True
    return False


def accepts_connections(address: str, limit: float = CONNECT_SECONDS) -> bool:
    """Whether a machine accepts connections at an address, even if its processes are busy."""
    try:
        socket.create_connection(get_address_host_port(address), timeout=limit).close()
    except (OSError, ValueError, TypeError, NotImplementedError):
        return False
    return True
