"""A Dask cluster: connect, send tasks to usable workers, wait without ever hanging."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from distributed import Client, Future, KilledWorker, LocalCluster
from distributed.security import Security

from streamomd.config.settings import seconds
from streamomd.core.errors import ClusterError, UsageError
from streamomd.distributed.handshake import client_at
from streamomd.distributed.quiet_logs import silenced, thread_of
from streamomd.distributed.scheduler import address_of, lost_reported, on_the_loop, refuse_lost
from streamomd.distributed.worker_monitor import (
    LOOK_SECONDS,
    Waiting,
    forget,
    look_out,
    lookout_of,
    usable_workers,
)
from streamomd.distributed.worker_probe import VERSION, packed
from streamomd.training.signals import StopRequest

_placed: WeakKeyDictionary[Future[Any], frozenset[str]] = WeakKeyDictionary()
"""The only workers that may run a task."""


class LostError(Exception):
    """A task whose outcome will not come: its workers die, fall silent, or it was taken back."""


class SilentError(LostError):
    """A result that is there and does not come: perhaps by another way."""


@contextmanager
def connected(client: object, address: str, stop: StopRequest | None = None) -> Iterator[Client]:
    """The client that was given, or one for an address, or with neither one for a cluster of this
    machine's cores; what was made here is closed at the end.

    stop: the run's signals. Raises UsageError for what is no client, ClusterError where no
    scheduler answers, StoppedError after a signal.
    """
    with _client(client, address, stop) as found:
        try:
            with lost_reported(found):
                yield found
        finally:
            forget(found)


@contextmanager
def _client(client: object, address: str, stop: StopRequest | None) -> Iterator[Client]:
    if isinstance(client, Client):
        if client.asynchronous:
            raise UsageError("this client is asynchronous: pass one made with asynchronous=False")
        refuse_lost(client)
        with silenced(thread_of(client), lambda: client.status == "running"):
            yield client
    elif client is not None:
        raise UsageError(f"client is a distributed.Client, not {type(client).__name__}")
    elif address:
        with client_at(address, stop) as made:
            yield made
    else:
        with (
            LocalCluster(
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",
                security=Security.temporary(),  # other users of the machine reach the address, too
            ) as local,
            Client(local, set_as_default=False) as made,
        ):
            yield made


def told(client: Client) -> str:
    """What a person wants to know of a cluster, once."""
    lookout = lookout_of(client)
    found, usable = lookout.there, lookout.usable
    threads = sum(worker["nthreads"] for worker in found.values())
    link = client.dashboard_link
    dashboard = f"; dashboard {link}" if link else ""
    fewer = f" ({len(usable)} usable)" if len(usable) < len(found) else ""
    return (
        f"cluster {address_of(client)}: {len(found)} workers{fewer}, {threads} threads{dashboard}"
    )


def sent(
    client: Client,
    key: str,
    function: Callable[..., Any],
    *given: Any,
    waiting: Waiting,
    held: Sequence[Future[Any]] = (),
    on: Sequence[str] = (),
    elsewhere: bool = False,
    priority: int = 0,
) -> Future[Any]:
    """A task under way on usable workers, for ``outcome``; waits until there is one.

    held: futures whose results follow ``given``. on: these workers only. elsewhere: any worker once
    all of those are gone: for a task that outlives this client. Raises ClusterError when no worker
    is usable, or the scheduler is lost.
    """
    places = list(on) or lookout_of(client).some_usable(client, waiting)
    try:
        future = client.submit(
            *packed(_checked, (VERSION, function, *given), held),
            key=key,
            pure=False,
            priority=priority,
            workers=places,
            allow_other_workers=elsewhere,
        )
    except Exception as error:
        refuse_lost(client, error)
        raise
    if not elsewhere:
        _placed[future] = frozenset(places)
    return future


def outcome(
    client: Client, future: Future[Any], waiting: Waiting, *, direct: bool | None = None
) -> Any:
    """What a task sent gives, or what it raised. ``waiting`` is called twice a second until then.

    direct: from the worker itself, or through the scheduler; None: as the client does. Raises
    LostError where it is to be sent again, ClusterError when the scheduler is lost, no worker has
    been there for minutes, or one has another streamomd.
    """
    settled(client, future, waiting)
    try:
        return _fetched(client, future, waiting, direct)
    except KilledWorker as error:
        raise LostError("its workers died") from error
    except (CancelledError, OSError) as error:
        if future.status == "error":  # the task's own
            raise
        refuse_lost(client, error)
        raise LostError(type(error).__name__) from error


def _checked(version: str, function: Callable[..., Any], *given: Any) -> Any:
    """On the worker. Another version may hash otherwise, or learn otherwise."""
    if version != VERSION:
        raise ClusterError(
            f"a worker has streamomd {VERSION}, the driver {version}: install the same on all"
        )
    return function(*given)


def settled(client: Client, future: Future[Any], waiting: Waiting) -> None:
    """Wait until a future is done, well or ill. ``waiting`` is called twice a second.

    Raises LostError when all workers it was sent to are gone, ClusterError when the scheduler is
    lost, or no worker has been there for minutes.
    """
    done = threading.Event()
    future.add_done_callback(lambda _: done.set())
    while not future.done():
        done.wait(LOOK_SECONDS)
        done.clear()
        refuse_lost(client)
        waiting()
        look_out(client)
        places = _placed.get(future)
        # Dask would wait for ever: a worker that is restarted has another address.
        there = lookout_of(client).there
        if places and there and places.isdisjoint(there) and not future.done():
            raise LostError("its workers are gone")


def _fetched(client: Client, future: Future[Any], waiting: Waiting, direct: bool | None) -> Any:
    """A settled future's result: Dask's own gather has no deadline."""

    async def gather() -> Any:
        return await client.gather([future], direct=direct, asynchronous=True)

    coming = on_the_loop(client, gather())
    limit = seconds("fetch")
    deadline = time.monotonic() + limit
    while True:
        try:
            return coming.result(LOOK_SECONDS)[0]
        except TimeoutError:
            if coming.done():  # the task's own
                raise
        refuse_lost(client)
        waiting()
        if look_out(client):  # the result may have been there
            coming.cancel()
            raise LostError("a worker fell silent")
        if time.monotonic() > deadline:
            coming.cancel()
            raise SilentError(f"no answer in {limit:.0f} s")


def has_workers(client: Client, waiting: Waiting) -> bool:
    """Whether the scheduler answers, and has a usable worker."""
    return bool(usable_workers(client, waiting))
