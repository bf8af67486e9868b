"""A Dask cluster: connect, wait without ever hanging, say what was lost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import CancelledError
from concurrent.futures import Future as Coming
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import Any
from weakref import WeakKeyDictionary

from distributed import Client, Future, KilledWorker, LocalCluster
from distributed.security import Security

from streamomd.distribute.settings import seconds
from streamomd.errors import ClusterError, UsageError
from streamomd.report import note
from streamomd.urls import scrub, shown

LOOK_SECONDS = 0.5
Waiting = Callable[[], None]
VERSION = version("streamomd")


class LostError(Exception):
    """A task whose outcome will not come: its workers die, fall silent, or it was taken back."""


class SilentError(LostError):
    """A result that is there and does not come: perhaps by another way."""


@contextmanager
def connected(client: object, address: str) -> Iterator[Client]:
    """The client that was given, or one for an address, or with neither one for a cluster of this
    machine's cores; what was made here is closed at the end.

    Raises UsageError for what is no client, ClusterError where nobody answers.
    """
    if isinstance(client, Client):
        if client.asynchronous:
            raise UsageError("this client is asynchronous: pass one made with asynchronous=False")
        refuse_lost(client)
        yield client
        return
    if client is not None:
        raise UsageError(f"client is a distributed.Client, not {type(client).__name__}")
    if not address:
        with (
            LocalCluster(
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",
                security=Security.temporary(),  # other users of the machine reach the address, too
            ) as local,
            Client(local, set_as_default=False) as made,
        ):
            yield made
        return
    try:
        made = Client(address, timeout=seconds("connect"), set_as_default=False)
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        raise ClusterError(
            f"no Dask scheduler answers at {shown(address)}: {scrub(str(error))}. Give another "
            'address with --scheduler, or --scheduler "" to go without'
        ) from None
    try:
        yield made
    finally:
        with suppress(OSError, TimeoutError):  # of a lost one nothing can be closed properly
            made.close()


def told(client: Client) -> str:
    """What a person wants to know of a cluster, once."""
    found = _workers(client) or {}
    threads = sum(worker["nthreads"] for worker in found.values())
    link = client.dashboard_link
    dashboard = f"; dashboard {link}" if link else ""
    return f"cluster {_address(client)}: {len(found)} workers, {threads} threads{dashboard}"


def sent(
    client: Client, key: str, function: Callable[..., Any], *given: Any, priority: int = 0
) -> Future[Any]:
    """A task under way, for ``outcome``. Raises ClusterError when the scheduler is lost."""
    try:
        return client.submit(
            _checked, VERSION, function, *given, key=key, pure=False, priority=priority
        )
    except Exception as error:
        refuse_lost(client, error)
        raise


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

    Raises ClusterError when the scheduler is lost, or no worker has been there for minutes.
    """
    done = threading.Event()
    future.add_done_callback(lambda _: done.set())
    while not future.done():
        done.wait(LOOK_SECONDS)
        done.clear()
        refuse_lost(client)
        waiting()
        look_out(client)


def look_out(client: Client) -> list[str]:
    """While something is waited for: workers that have just been given up.

    Raises ClusterError when no worker has been there for minutes.
    """
    return _lookouts.setdefault(client, Lookout()).look(client)


class Lookout:
    """Looks at the workers every few seconds, over all that is waited for with one client.

    One that is not heard of is taken off the scheduler's list, so that its tasks run elsewhere:
    Dask itself waits five minutes for a machine that was stopped or cut off.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, float]] = {}  # what the scheduler said last, and when
        self._looked = self._company = time.monotonic()

    def look(self, client: Client) -> list[str]:
        """Those given up just now; see ``look_out``."""
        now = time.monotonic()
        if now - self._looked < seconds("look"):
            return []
        if now - self._looked > 2 * seconds("silent"):  # nothing was waited for meanwhile
            self._seen.clear()
            self._company = now
        self._looked = now
        found = _workers(client) or {}
        self._seen = {address: self._heard(address, found[address], now) for address in found}
        silent = [
            address for address, (_, since) in self._seen.items() if now - since > seconds("silent")
        ]
        for address in silent:
            _give_up(client, address)
        where = _address(client)
        if found:
            self._company = now
        elif now - self._company > seconds("lonely"):
            raise ClusterError(f"no worker at {where} for {now - self._company:.0f} s")
        else:
            note(f"no worker at {where}: waiting")
        return silent

    def _heard(self, address: str, worker: dict[str, Any], now: float) -> tuple[float, float]:
        before = self._seen.get(address)
        heard = worker["last_seen"]
        return before if before is not None and before[0] == heard else (heard, now)


_lookouts: WeakKeyDictionary[Client, Lookout] = WeakKeyDictionary()


def _give_up(client: Client, address: str) -> None:
    note(f"worker {address} is silent: what it was to do is done elsewhere")
    scheduler: Any = client.scheduler
    leave = scheduler.unregister(address=address, stimulus_id="streamomd-silent")
    with suppress(OSError, TimeoutError):
        _on_the_loop(client, leave).result(seconds("answer"))


def _fetched(client: Client, future: Future[Any], waiting: Waiting, direct: bool | None) -> Any:
    """A settled future's result: Dask's own gather has no deadline."""

    async def gather() -> Any:
        return await client.gather([future], direct=direct, asynchronous=True)

    coming = _on_the_loop(client, gather())
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


def workers_of(client: Client) -> dict[str, Any]:
    """What the scheduler says of each worker, by address; none if it does not answer."""
    return _workers(client) or {}


def has_workers(client: Client) -> bool:
    """Whether the scheduler answers, and knows of any."""
    return bool(_workers(client))


def refuse_lost(client: Client, error: BaseException | None = None) -> None:
    """Raise ClusterError if the scheduler is gone."""
    if client.status != "running":
        why = f" ({type(error).__name__})" if error else ""
        raise ClusterError(
            f"the scheduler at {_address(client)} was lost{why}: "
            "streamomd resume goes on from the last commit, on any cluster or none"
        )


def _workers(client: Client) -> dict[str, Any] | None:
    """What the scheduler says of its workers; None if it does not answer."""

    scheduler: Any = client.scheduler

    async def ask() -> Any:
        return await scheduler.identity(n_workers=-1)

    asked = _on_the_loop(client, ask())
    try:
        found: dict[str, Any] = asked.result(seconds("answer"))["workers"]
    except (OSError, TimeoutError, KeyError):
        asked.cancel()
        return None
    return found


def _on_the_loop(client: Client, what: Awaitable[Any]) -> Coming[Any]:
    """Where Dask's own thread works, so that this one can look around meanwhile."""
    loop: Any = client.loop
    return asyncio.run_coroutine_threadsafe(what, loop.asyncio_loop)  # type: ignore[arg-type]


def _address(client: Client) -> Any:
    return getattr(client.scheduler, "address", "its address")
