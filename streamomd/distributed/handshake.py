"""Open a client for an address: the whole handshake has a deadline, and a signal stops it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager, suppress

from distributed import Client

from streamomd.config.settings import seconds
from streamomd.core.errors import ClusterError, StoppedError
from streamomd.core.urls import shown
from streamomd.distributed.connection_errors import connection_problem
from streamomd.distributed.quiet_logs import suppress_client_logs
from streamomd.training.signals import StopRequest, stop_on_signals

POLL_SECONDS = 0.1
CLOSE_SECONDS = 5.0


@contextmanager
def open_client(address: str, stop: StopRequest | None = None) -> Iterator[Client]:
    """A client of the scheduler at an address, closed at the end.

    stop: the run's signals; None: they are received here until the client is connected. Raises
    ClusterError if no scheduler answers in ``connect-seconds``, StoppedError after a signal.
    """
    clients: list[Client] = []

    def running() -> bool:
        return bool(clients) and clients[0].status == "running"

    with _event_loop(running) as loop:
        with _stop_signals(stop) as signals:
            clients.append(_connect(loop, address, signals))
        try:
            yield clients[0]
        finally:
            with suppress(OSError, TimeoutError):  # a lost client cannot close properly
                clients[0].close()


@contextmanager
def _stop_signals(stop: StopRequest | None) -> Iterator[StopRequest]:
    if stop is not None:
        yield stop
        return
    with stop_on_signals() as signals_here:
        yield signals_here


@contextmanager
def _event_loop(running: Callable[[], bool]) -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in its own thread; its logs are suppressed while the client is not ``running``.

    Remaining tasks are cancelled and awaited at the end: a dropped coroutine would print a warning
    on stderr.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="streamomd-client", daemon=True)
    thread.start()
    with suppress_client_logs(thread.ident or 0, running):
        try:
            yield loop
        finally:
            with suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(_cancel_rest(), loop).result(CLOSE_SECONDS)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(CLOSE_SECONDS)
            if not loop.is_running():
                loop.close()


async def _cancel_rest() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _connect(loop: asyncio.AbstractEventLoop, address: str, stop: StopRequest) -> Client:
    limit = seconds("connect")
    # The rest of the time is for the check whether anything listens there.
    connecting = asyncio.run_coroutine_threadsafe(_connect_async(address, 0.9 * limit), loop)
    while not connecting.done():
        wait([connecting], POLL_SECONDS)
        if stop.signal:
            connecting.cancel()
            raise StoppedError(f"stopped while connecting to {shown(address)}", signal=stop.signal)
    try:
        return connecting.result()
    except Exception as error:  # an unknown server's bytes may raise anything
        raise ClusterError(connection_problem(loop, address, error, 0.1 * limit)) from None


async def _connect_async(address: str, limit: float) -> Client:
    """A client in this event loop; other threads can use it as usual."""
    client = Client(address, asynchronous=True, timeout=limit, set_as_default=False)
    try:
        # Dask has deadlines for the connection and some later steps, not for the first answer.
        async with asyncio.timeout(limit):
            await client
    except BaseException:
        client.status = "closing"
        with suppress(Exception):
            await client.rpc.close()
        client.status = "closed"
        raise
    return client
