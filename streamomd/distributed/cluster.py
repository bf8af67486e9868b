"""A Dask cluster: connect, send tasks to usable workers, wait without ever hanging."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from distributed import Client, Future, KilledWorker, LocalCluster
from distributed.security import Security

from streamomd.config.cluster_choice import ClusterFactory, is_scheduler_file
from streamomd.config.settings import seconds
from streamomd.core.errors import (
    ClusterError,
    InputNotFoundError,
    MissingExtraError,
    StoppedError,
    UsageError,
)
from streamomd.core.urls import scrub, shown
from streamomd.distributed.connect import (
    QuietTaskErrors,
    loop_thread_of,
    open_client,
    open_made,
    suppress_client_logs,
)
from streamomd.distributed.scheduler import (
    address_of,
    refuse_lost,
    report_lost_scheduler,
    run_on_loop,
)
from streamomd.distributed.worker_monitor import (
    POLL_SECONDS,
    Waiting,
    check_workers,
    drop_monitor,
    monitor_of,
    report_last_losses,
)
from streamomd.distributed.worker_probe import VERSION, pack_call
from streamomd.training.progress import note
from streamomd.training.signals import StopRequest, stop_on_signals

_allowed_workers: WeakKeyDictionary[Future[Any], frozenset[str]] = WeakKeyDictionary()
"""The only workers that may run each task."""


class TaskLostError(Exception):
    """A task without a result: its workers died or stopped responding, or it was cancelled."""


class ResultTimeoutError(TaskLostError):
    """A result exists but was not received in time; another route may work."""


def report_lost_task(where: str, error: TaskLostError) -> None:
    """Report that a task that decodes rows is submitted again."""
    note(f"{where}: {error}; decoded again: 1 task", "task_lost", "warning", tasks_again=1)


@contextmanager
def connect_client(
    client: object, address: str, stop: StopRequest | None = None
) -> Iterator[Client]:
    """The given client, or a new one: for the cluster of a ClusterFactory, for an address or a
    scheduler file, or for a new LocalCluster; what was opened here is closed at the end.

    stop: the run's signals. Raises UsageError for an invalid client, file or factory, ClusterError
    if no scheduler answers, StoppedError after a signal.
    """
    with restored_log_levels(), _client(client, address, stop) as opened:
        try:
            with report_lost_scheduler(opened):
                yield opened
                report_last_losses(opened)
        finally:
            drop_monitor(opened)


@contextmanager
def _client(client: object, address: str, stop: StopRequest | None) -> Iterator[Client]:
    """Yields the client of a run's cluster: that of the caller, or one that is opened for the
    run."""
    if isinstance(client, ClusterFactory):
        with open_made(client, stop) as made, _connected(made):
            # Of other factories' clusters the logs are the caller's.
            own = isinstance(client, LocalProcesses)
            with own_cluster(made) if own else nullcontext():
                yield made
    elif isinstance(client, Client):
        with _connected(client):
            yield client
    elif client is not None:
        raise UsageError(f"client is a distributed.Client, not {type(client).__name__}")
    elif address:
        if is_scheduler_file(address):
            name, address = address, read_scheduler_file(address, stop)
            note(f"the scheduler file {shown(name)} names {shown(address)}")
        with open_client(address, stop) as opened:
            yield opened
    else:
        with (
            local_cluster(None) as local,
            Client(local, set_as_default=False) as opened,
            own_cluster(opened),
        ):
            yield opened


@dataclass(frozen=True)
class LocalProcesses(ClusterFactory):
    """A cluster of worker processes on this machine; the name is their number."""

    origin: str = "--processes"

    def __post_init__(self) -> None:
        """It imports no module that a person names."""

    def make(self) -> object:
        """Workers of one thread each."""
        return local_cluster(int(self.name))


def local_cluster(workers: int | None) -> Any:
    """Workers of one thread each; None: one for each core."""
    return LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        # Any free port: a fixed one would be taken by the next run on this machine.
        dashboard_address="127.0.0.1:0",
        security=local_security(),  # other users of the machine can reach the address
    )


@contextmanager
def own_cluster(client: Client) -> Iterator[None]:
    """A cluster that this process made and closes afterwards: a signal ends its tasks, about which
    neither workers nor nannies, which are in this process, log warnings."""
    client.register_plugin(QuietTaskErrors())
    try:
        yield
    except StoppedError:
        with suppress(Exception):  # a cluster that is lost logs nothing
            client.run(_log_errors_alone)
        _log_errors_alone()
        raise


@contextmanager
def restored_log_levels() -> Iterator[None]:
    """Around a cluster of this process until it is closed: then its loggers log as before."""
    levels = {name: logging.getLogger(name).level for name in LOGGERS_OF_ENDS}
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def _log_errors_alone() -> None:
    for name in LOGGERS_OF_ENDS:
        logging.getLogger(name).setLevel(logging.ERROR)


LOGGERS_OF_ENDS = ("distributed.nanny", "distributed.worker", "distributed.worker.state_machine")


def local_security() -> Security:
    """TLS with a certificate for one cluster, in memory. Raises MissingExtraError without
    cryptography, which makes it."""
    try:
        made: Security = Security.temporary()
    except ImportError as error:
        raise MissingExtraError(
            "a cluster on this machine needs cryptography, which makes its certificate: "
            "pip install 'streamomd[cluster]', or name a cluster with --scheduler"
        ) from error
    return made


@contextmanager
def _connected(client: Client) -> Iterator[None]:
    """A client that was not opened here. Raises UsageError for an asynchronous one."""
    if client.asynchronous:
        raise UsageError("this client is asynchronous: pass one made with asynchronous=False")
    refuse_lost(client)
    with suppress_client_logs(loop_thread_of(client), lambda: client.status == "running"):
        yield


def describe_cluster(client: Client) -> str:
    """One line about a cluster: address, workers, threads, dashboard."""
    monitor = monitor_of(client)
    workers, usable = monitor.workers, monitor.usable
    threads = sum(worker["nthreads"] for worker in workers.values())
    dashboard_link = client.dashboard_link
    dashboard = f"; dashboard {dashboard_link}" if dashboard_link else ""
    usable_note = f" ({len(usable)} usable)" if len(usable) < len(workers) else ""
    size = f"{len(workers)} workers{usable_note}, {threads} threads"
    return f"cluster {address_of(client)}: {size}{dashboard}"


def send_task(
    client: Client,
    key: str,
    function: Callable[..., Any],
    *given: Any,
    waiting: Waiting,
    inputs: Sequence[Future[Any]] = (),
    only: Sequence[str] = (),
    any_worker: bool = False,
    priority: int = 0,
    resources: Mapping[str, float] | None = None,
) -> Future[Any]:
    """Submit a task to usable workers, for ``wait_for_result``; waits until there is one.

    inputs: futures whose results follow ``given``. only: these workers only. any_worker: any worker
    once all of those are gone, for a task that others wait for or that outlives this client.
    resources: what Dask reserves on the worker while the task runs.
    Raises ClusterError if no worker is usable or the scheduler is lost.
    """
    addresses = list(only) or monitor_of(client).wait_for_usable(client, waiting)
    try:
        future = client.submit(
            *pack_call(_call_checked, (VERSION, function, *given), inputs),
            key=key,
            # Dask would otherwise give the result of an earlier task with equal arguments.
            pure=False,
            priority=priority,
            resources={**resources} if resources else None,
            workers=addresses,
            allow_other_workers=any_worker,
        )
    except Exception as error:
        refuse_lost(client, error)
        raise
    if not any_worker:
        _allowed_workers[future] = frozenset(addresses)
    return future


def wait_for_result(
    client: Client, future: Future[Any], waiting: Waiting, *, direct: bool | None = None
) -> Any:
    """The result of a task, or raise what it raised. ``waiting`` is called twice a second until
    then.

    direct: from the worker itself, or through the scheduler; None: the client's default. Raises
    TaskLostError if the task must be submitted again, ClusterError if the scheduler is lost, there
    was no worker for minutes, or a worker has another streamomd.
    """
    wait_until_done(client, future, waiting)
    try:
        return _fetch_result(client, future, waiting, direct)
    except KilledWorker as error:
        raise TaskLostError("its workers died") from error
    except (CancelledError, OSError) as error:
        if future.status == "error":  # raised by the task
            raise
        refuse_lost(client, error)
        raise TaskLostError(type(error).__name__) from error


def _call_checked(version: str, function: Callable[..., Any], *given: Any) -> Any:
    """Runs on the worker. Another version may hash or learn differently."""
    if version != VERSION:
        raise ClusterError(
            f"a worker has streamomd {VERSION}, the driver {version}: install the same on all"
        )
    return function(*given)


def wait_until_done(client: Client, future: Future[Any], waiting: Waiting) -> None:
    """Wait until a future succeeded or failed. ``waiting`` is called twice a second.

    Raises TaskLostError if all workers it was sent to are gone, ClusterError if the scheduler is
    lost or there was no worker for minutes.
    """
    # Not future.result(): it has no deadline, and would not notice a lost scheduler.
    wait_for_any(client, [future], waiting)
    if not future.done():
        raise TaskLostError("its workers are gone")


def wait_for_any(
    client: Client, futures: Sequence[Future[Any]], waiting: Waiting
) -> list[Future[Any]]:
    """Wait until futures succeeded, failed or lost all workers they were sent to; which.

    As ``wait_until_done`` otherwise.
    """
    done = threading.Event()
    for future in futures:
        # Called from Dask's thread, so the wait below ends without the rest of its half second.
        future.add_done_callback(lambda _: done.set())
    while not (ended := [one for one in futures if one.done() or _has_no_worker(client, one)]):
        done.wait(POLL_SECONDS)
        done.clear()
        refuse_lost(client)
        waiting()
        check_workers(client)
    return ended


def _has_no_worker(client: Client, future: Future[Any]) -> bool:
    """Whether none of the workers that a future was sent to is left. Dask would wait forever: a
    restarted worker has another address."""
    addresses, workers = _allowed_workers.get(future), monitor_of(client).workers
    return bool(addresses and workers and addresses.isdisjoint(workers))


def _fetch_result(
    client: Client, future: Future[Any], waiting: Waiting, direct: bool | None
) -> Any:
    """A finished future's result: Dask's own gather has no deadline."""

    async def gather() -> Any:
        return await client.gather([future], direct=direct, asynchronous=True)

    # In the client's loop, so that this thread watches signals and workers meanwhile.
    fetching = run_on_loop(client, gather())
    limit = seconds("fetch")
    deadline = time.monotonic() + limit
    while True:
        try:
            return fetching.result(POLL_SECONDS)[0]
        except TimeoutError:
            if fetching.done():  # raised by the task
                raise
        refuse_lost(client)
        waiting()
        if check_workers(client):  # the lost worker may have held the result
            fetching.cancel()
            raise TaskLostError("a worker stopped responding")
        if time.monotonic() > deadline:
            fetching.cancel()
            raise ResultTimeoutError(f"no answer in {limit:.0f} s")


FILE_POLL_SECONDS = 0.1
MAX_BYTES = 16 << 20  # it lists the workers as well


def read_scheduler_file(path: str, stop: StopRequest | None = None) -> str:
    """The address in a scheduler file. A scheduler that starts may write it within
    ``connect-seconds``.

    stop: the run's signals; None: they are received here. Raises InputNotFoundError, UsageError for
    a file without an address, StoppedError after a signal.
    """
    if stop is None:
        with stop_on_signals() as signals:
            return read_scheduler_file(path, signals)
    limit = seconds("connect")
    deadline = time.monotonic() + limit
    while True:
        try:
            return _address_in(path)
        except (InputNotFoundError, UsageError) as error:  # not there, or half written
            if time.monotonic() > deadline:
                raise type(error)(f"{error}; waited {limit:g} s for it") from None
        time.sleep(FILE_POLL_SECONDS)
        if stop.signal:
            message = f"stopped while waiting for the scheduler file {shown(path)}"
            raise StoppedError(message, signal=stop.signal)


def _address_in(path: str) -> str:
    problem = f"{shown(path)} is not a scheduler file"
    try:
        with Path(path).open("rb") as file:
            # A limit: the path may name any file, such as a device without an end.
            content = json.loads(file.read(MAX_BYTES))
    except FileNotFoundError:
        raise InputNotFoundError(f"no scheduler file {shown(path)}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{problem}: {scrub(str(error))}") from None
    address = content.get("address") if isinstance(content, dict) else None
    if not isinstance(address, str) or "://" not in address:
        raise UsageError(f"{problem}: it has no text 'address' such as tcp://10.0.0.5:8786")
    return address
