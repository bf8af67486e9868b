"""Connect to a scheduler: a handshake with a deadline, why it failed, clusters that a factory
makes.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import Any
from weakref import WeakKeyDictionary

from distributed import Client, SpecCluster, WorkerPlugin, rpc
from distributed.comm.addressing import get_address_host_port

from streamomd.config.cluster_choice import ClusterFactory
from streamomd.config.settings import seconds
from streamomd.core.errors import ClusterError, StoppedError, StreamomdError, UsageError
from streamomd.core.urls import scrub, shown
from streamomd.distributed.scheduler import run_on_loop
from streamomd.training.progress import note
from streamomd.training.signals import StopRequest, interrupt_on_signals, stop_on_signals

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
    # What is above is known without asking the network.
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
    # Without TLS, also where the address has it: an answer is the sign of a wrong protocol.
    describing = _distributed_version(f"tcp://{host}", limit)
    their_version = asyncio.run_coroutine_threadsafe(describing, loop).result()
    if their_version is None:
        # Later: a greeting of TLS is an error in the log of a Dask server without it.
        if not address.startswith(TLS) and _speaks_tls(address, limit):
            return (
                f"{name}: this address uses TLS: if it is a Dask scheduler, pass "
                f"{TLS}{shown(host)}, and for its certificates {CERTIFICATES}"
            )
        return f"{name}: {NOT_A_SCHEDULER}"
    if address.startswith(TLS):
        return f"the Dask scheduler at {name} does not use TLS: pass tcp://{shown(host)}"
    if _numbers(their_version) < OLDEST:
        return (
            f"the Dask scheduler at {name} has distributed {their_version}, and this process "
            f"{version('distributed')}: upgrade the scheduler to {'.'.join(map(str, OLDEST))}.0 "
            "or later"
        )
    return (
        f"the Dask scheduler at {name} (distributed {their_version}) did not accept this client in "
        "time"
    )


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
    # Nothing is sent or trusted: the question is only whether TLS is spoken.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with suppress(OSError, ValueError):  # OSError: also of TLS
        where = get_address_host_port(address)
        with socket.create_connection(where, timeout=limit) as plain, context.wrap_socket(plain):
            return True
    return False


def accepts_connections(address: str, limit: float = CONNECT_SECONDS) -> bool:
    """Whether a machine accepts connections at an address, even if its processes are busy."""
    try:
        socket.create_connection(get_address_host_port(address), timeout=limit).close()
    except (OSError, ValueError, TypeError, NotImplementedError):
        return False
    return True


LOGGERS = ("distributed", "tornado", "asyncio")


class _Teardown(logging.Filter):
    """Drops log records of a client's event loop while its scheduler is not connected."""

    def __init__(self, thread: int, running: Callable[[], bool]) -> None:
        super().__init__()
        self._thread, self._running = thread, running

    def filter(self, record: logging.LogRecord) -> bool:
        """Called by logging."""
        return record.thread != self._thread or self._running()


@contextmanager
def suppress_client_logs(thread: int, running: Callable[[], bool]) -> Iterator[None]:
    """Inside this context a lost scheduler is reported only by the error that is raised.

    thread: identifier of the client's thread; 0: none. running: whether it is connected.
    """
    rule = _Teardown(thread, running)
    # A filter applies to records of its own logger, not to those propagated from children.
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] in LOGGERS]
    loggers = [logging.getLogger(name) for name in names]
    for logger in loggers:
        logger.addFilter(rule)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(rule)


class QuietTaskErrors(WorkerPlugin):
    """A worker with this plugin logs no traceback of a task that raised one of our errors, which
    the driver raises. For a cluster of this process, whose workers log to its stderr."""

    name = "streamomd-quiet-task-errors"
    idempotent = True

    def setup(self, worker: object) -> None:
        """Called by Dask on every worker."""
        logging.getLogger("distributed.worker").addFilter(_drop_named_errors)


def _drop_named_errors(record: logging.LogRecord) -> bool:
    """Called by logging: whether a record is logged. Dask gives the task's error as its repr."""
    failed = str(record.msg).startswith("Compute Failed")
    texts = record.args if failed and isinstance(record.args, tuple) else ()
    names = {text.partition("(")[0] for text in texts if isinstance(text, str)}
    return names.isdisjoint(_error_names(StreamomdError))


def _error_names(error: type[BaseException]) -> set[str]:
    return {error.__name__}.union(*map(_error_names, error.__subclasses__()))


def loop_thread_of(client: Client) -> int:
    """The identifier of the thread whose event loop a client uses; 0 if it is closed."""

    async def ident() -> int:
        return threading.get_ident()

    with suppress(RuntimeError, TimeoutError, AttributeError):
        return int(run_on_loop(client, ident()).result(seconds("answer")))
    return 0


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
            # The event loop ends after this: Dask's own close needs it.
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
    # Of its own, so that it can be stopped when the client is closed.
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


_made: WeakKeyDictionary[Client, ClusterFactory] = WeakKeyDictionary()


@contextmanager
def open_made(factory: ClusterFactory, stop: StopRequest | None) -> Iterator[Client]:
    """A client of the cluster that a factory returns; both are closed at the end.

    stop: the run's signals; None: they are received here. Raises UsageError for a factory that
    fails or returns something else, StoppedError after a signal.
    """
    note(f"making a cluster: {factory}")
    # A person's code may block for minutes and checks no flag: the signal is raised inside it.
    with interrupt_on_signals(stop, f"stopped while making a cluster: {factory}"):
        made: Any = factory.make()
    # Before anything is checked, so that what is refused is closed too.
    with _closed_at_end(factory, made):
        _refuse_unusable(factory, made)
        if isinstance(made, Client):
            _made[made] = factory
            yield made
            return
        try:
            client = Client(made, set_as_default=False)
        except Exception as error:  # of any library
            text = scrub(f"{type(error).__name__}: {error}")
            raise UsageError(f"{factory}: no client of its cluster can be made: {text}") from error
        with _closed_at_end(factory, client):
            _made[client] = factory
            yield client


def _refuse_unusable(factory: ClusterFactory, made: Any) -> None:
    """Raises UsageError for what is neither a cluster nor a client, or is asynchronous."""
    is_cluster = not inspect.isclass(made) and hasattr(made, "scheduler_address")
    if not isinstance(made, Client) and not is_cluster:
        raise UsageError(
            f"{factory} returned {type(made).__name__}; expected a Dask cluster or a "
            "distributed.Client"
        )
    if getattr(made, "asynchronous", False):
        raise UsageError(
            f"{factory} returned an asynchronous {type(made).__name__}: expected one made with "
            "asynchronous=False"
        )


@contextmanager
def _closed_at_end(factory: ClusterFactory, made: Any) -> Iterator[None]:
    """What cannot be closed is reported: the result of the run stands."""
    try:
        yield
    finally:
        close = None if inspect.isclass(made) else getattr(made, "close", None)
        try:
            closing = close() if callable(close) else None
            if inspect.iscoroutine(closing):  # of an asynchronous cluster, which was refused
                closing.close()
        except Exception as error:  # of any library
            text = scrub(f"{type(error).__name__}: {error}")
            what = type(made).__name__
            note(f"{factory}: its {what} was not closed: {text}", "cluster_open", "warning")


def refuse_ending(client: Client) -> None:
    """Raises UsageError for a cluster that a factory made and that ends with this process."""
    factory, cluster = _made.get(client), client.cluster
    if factory and (
        isinstance(cluster, SpecCluster) or getattr(cluster, "shutdown_on_close", False)
    ):
        raise UsageError(
            f"{factory}: the {type(cluster).__name__} that it made ends with this process, and a "
            "submitted job with it: return a client of a cluster that stays (for example one made "
            "with shutdown_on_close=False), or use `streamomd train`"
        )
