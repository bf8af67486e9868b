"""A client for an address: the handshake as a whole is bounded, and a signal ends it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager, suppress

from distributed import Client
from distributed.comm.addressing import get_address_host_port

from streamomd.config.settings import seconds
from streamomd.core.errors import ClusterError, StoppedError
from streamomd.core.urls import scrub, shown
from streamomd.distributed.quiet_logs import silenced
from streamomd.training.signals import StopRequest, stop_on_signals

LOOK_SECONDS = 0.1
KNOCK_SECONDS = 1.0  # for a machine to take a connection
LEAVE_SECONDS = 5.0
NOT_A_SCHEDULER = (
    "this address accepts connections but is not a Dask scheduler (is it the dashboard's port?)"
)


@contextmanager
def client_at(address: str, stop: StopRequest | None = None) -> Iterator[Client]:
    """A client of the scheduler at an address, closed at the end.

    stop: the run's signals; None: they are received here until the client is connected. Raises
    ClusterError if no scheduler answers in ``connect-seconds``, StoppedError after a signal.
    """
    made: list[Client] = []

    def running() -> bool:
        return bool(made) and made[0].status == "running"

    with _looping(running) as loop:
        with _received(stop) as signals:
            made.append(_connected(loop, address, signals))
        try:
            yield made[0]
        finally:
            with suppress(OSError, TimeoutError):  # of a lost one nothing can be closed
                made[0].close()


@contextmanager
def _received(stop: StopRequest | None) -> Iterator[StopRequest]:
    if stop is not None:
        yield stop
        return
    with stop_on_signals() as mine:
        yield mine


@contextmanager
def _looping(running: Callable[[], bool]) -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread of its own, silenced while the client is not ``running``.

    What is left in it at the end is cancelled and awaited: a coroutine that is dropped instead is a
    warning on stderr.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="streamomd-client", daemon=True)
    thread.start()
    with silenced(thread.ident or 0, running):
        try:
            yield loop
        finally:
            with suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(_cancel_rest(), loop).result(LEAVE_SECONDS)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(LEAVE_SECONDS)
            if not loop.is_running():
                loop.close()


async def _cancel_rest() -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


def _connected(loop: asyncio.AbstractEventLoop, address: str, stop: StopRequest) -> Client:
    limit = seconds("connect")
    # The rest is for the question whether anything listens there at all.
    coming = asyncio.run_coroutine_threadsafe(_greeted(address, 0.9 * limit), loop)
    while not coming.done():
        wait([coming], LOOK_SECONDS)
        if stop.signal:
            coming.cancel()
            raise StoppedError(f"stopped while connecting to {shown(address)}", signal=stop.signal)
    try:
        return coming.result()
    except Exception as error:  # whatever an unknown server's bytes lead to
        raise _refusal(address, error, 0.1 * limit) from None


async def _greeted(address: str, limit: float) -> Client:
    """A client in this event loop; other threads use it as any client."""
    client = Client(address, asynchronous=True, timeout=limit, set_as_default=False)
    try:
        # Dask bounds the connection, and some of what follows: not the first answer.
        async with asyncio.timeout(limit):
            await client
    except BaseException:
        client.status = "closing"
        with suppress(Exception):
            await client.rpc.close()
        client.status = "closed"
        raise
    return client


def _refusal(address: str, error: Exception, limit: float) -> ClusterError:
    why = f": {text}" if (text := scrub(str(error))) else ""
    if isinstance(error, ImportError):  # a scheduler's own answer: versions that do not match
        return ClusterError(f"the Dask scheduler at {shown(address)} refuses this client{why}")
    if answers(address, min(limit, KNOCK_SECONDS)):
        return ClusterError(f"{shown(address)}: {NOT_A_SCHEDULER}")
    return ClusterError(
        f"no Dask scheduler answers at {shown(address)}{why}. Give another address with "
        '--scheduler, or --scheduler "" to go without'
    )


def answers(address: str, limit: float = KNOCK_SECONDS) -> bool:
    """Whether a machine takes connections at an address: its system does, however busy it is."""
    try:
        socket.create_connection(get_address_host_port(address), timeout=limit).close()
    except (OSError, ValueError, TypeError, NotImplementedError):
        return False
    return True
