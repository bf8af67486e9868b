"""Requests to the scheduler: always with a deadline, and an error if it is lost."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future as ConcurrentFuture
from contextlib import contextmanager, suppress
from typing import Any

from distributed import Client

from streamomd.config.settings import seconds
from streamomd.core.errors import SchedulerLostError, StreamomdError
from streamomd.core.urls import shown

BROKEN = (OSError, RuntimeError)
"""Errors of a broken connection; RuntimeError: the client's connection pool is closed."""


def ask_workers(client: Client) -> dict[str, Any] | None:
    """The scheduler's information about each worker, by address; None if it does not answer."""
    scheduler: Any = client.scheduler

    async def check() -> Any:
        return await scheduler.identity(n_workers=-1)

    try:
        request = run_on_loop(client, check())
    except RuntimeError:  # the event loop is closed
        return None
    try:
        workers: dict[str, Any] = request.result(seconds("answer"))["workers"]
    except (*BROKEN, KeyError, AttributeError):  # the last: the client is closed
        request.cancel()
        return None
    return workers


def workers_of(client: Client) -> dict[str, Any]:
    """Returns what ``ask_workers`` does; {} if the scheduler does not answer."""
    return ask_workers(client) or {}


def removal_of(client: Client, address: str) -> dict[str, Any]:
    """The scheduler's last event about the removal of a worker; {} if there is none, or it does not
    answer."""
    scheduler: Any = client.scheduler

    async def ask() -> Any:
        return await scheduler.events(topic=address)

    try:
        events = run_on_loop(client, ask()).result(seconds("answer"))
        return [dict(one) for _, one in events if one.get("action") == "remove-worker"][-1]
    except (*BROKEN, LookupError, AttributeError, TypeError):
        return {}


def left_as_expected(client: Client, address: str) -> bool:
    """Whether a worker that the scheduler no longer has was asked to close."""
    return bool(removal_of(client, address).get("expected"))


def refuse_lost(client: Client, error: BaseException | None = None, *, check: bool = False) -> None:
    """Raise SchedulerLostError if the scheduler is lost.

    error: raised by a call. The call fails before the client notices a broken connection, so the
    scheduler is queried once more; also with ``check``.
    """
    address = address_of(client)
    is_broken = (check or isinstance(error, BROKEN)) and ask_workers(client) is None
    if is_broken or client.status != "running":
        raise SchedulerLostError(f"the scheduler at {address} was lost")


@contextmanager
def report_lost_scheduler(client: Client, url: str | None = None) -> Iterator[None]:
    """Raise every error of a lost scheduler as SchedulerLostError, with the command that resumes
    the run at ``url`` ("": nothing is saved; None: there is no run)."""
    try:
        yield
    except SchedulerLostError as error:
        raise SchedulerLostError(f"{error}{_how_to_resume(url)}") from None
    except StreamomdError:
        raise
    except Exception as error:  # calls on a closing client raise many types of errors
        try:
            refuse_lost(client, error)
        except SchedulerLostError as lost:
            raise SchedulerLostError(f"{lost}{_how_to_resume(url)}") from None
        raise


def _how_to_resume(url: str | None) -> str:
    if url is None:
        return ""
    if not url:
        return "; nothing was saved (checkpoint none)"
    command = f"streamomd resume {shlex.quote(shown(url))}"
    return f"; the last commit is intact. Resume, with --scheduler ADDRESS on a cluster: {command}"


def address_of(client: Client) -> str:
    """The scheduler's address."""
    return shown(str(getattr(client.scheduler, "address", "its address")))


def run_on_loop(client: Client, coroutine: Awaitable[Any]) -> ConcurrentFuture[Any]:
    """Run a coroutine in the client's event loop, while this thread continues to watch the run.

    Raises RuntimeError if the loop is closed.
    """
    loop: Any = client.loop
    try:
        return asyncio.run_coroutine_threadsafe(coroutine, loop.asyncio_loop)  # type: ignore[arg-type]
    except RuntimeError:
        close = getattr(coroutine, "close", None)  # else Python warns that it was never awaited
        if close is not None:
            close()
        raise


Event = tuple[float, Any]


@contextmanager
def subscribe_events(client: Client, topic: str, handler: Callable[[Event], Any]) -> Iterator[None]:
    """Call ``handler`` with (time, event) for each event of a topic, inside this context.

    Dask references a handler after its topic is unsubscribed, and with it everything the handler
    references, such as a model: so that handler references only a list, which is empty then.
    """
    handlers = [handler]

    def handle(event: Event) -> None:
        for one_handler in handlers:
            one_handler(event)

    client.subscribe_topic(topic, handle)
    try:
        yield
    finally:
        handlers.clear()
        if client.status == "running":
            with suppress(OSError, TimeoutError, ValueError):
                client.unsubscribe_topic(topic)
