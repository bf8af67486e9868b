"""What a client asks its scheduler: always with a deadline, and an error when it is lost."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Iterator
from concurrent.futures import Future as Coming
from contextlib import contextmanager
from typing import Any

from distributed import Client

from streamomd.config.settings import seconds
from streamomd.core.errors import SchedulerLostError, StreamomdError
from streamomd.core.urls import shown

BROKEN = (OSError, RuntimeError)
"""What a broken connection raises; RuntimeError: the client's own pool of connections is closed."""


def ask_workers(client: Client) -> dict[str, Any] | None:
    """What the scheduler knows of each worker, by address; None if it does not answer."""
    scheduler: Any = client.scheduler

    async def ask() -> Any:
        return await scheduler.identity(n_workers=-1)

    try:
        asked = on_the_loop(client, ask())
    except RuntimeError:  # the event loop is closed
        return None
    try:
        found: dict[str, Any] = asked.result(seconds("answer"))["workers"]
    except (*BROKEN, KeyError, AttributeError):  # the last: the client is closed
        asked.cancel()
        return None
    return found


def workers_of(client: Client) -> dict[str, Any]:
    """As ``ask_workers``; no worker where the scheduler does not answer."""
    return ask_workers(client) or {}


def refuse_lost(client: Client, error: BaseException | None = None, *, ask: bool = False) -> None:
    """Raise SchedulerLostError if the scheduler is lost.

    error: what was raised by a call. A connection that breaks is noticed by the call first and by
    the client later, so the scheduler is asked once more; also with ``ask``.
    """
    where = address_of(client)
    broken = (ask or isinstance(error, BROKEN)) and ask_workers(client) is None
    if broken or client.status != "running":
        raise SchedulerLostError(f"the scheduler at {where} was lost")


@contextmanager
def lost_reported(client: Client, url: str | None = None) -> Iterator[None]:
    """While inside, whatever a lost scheduler leads to is raised as SchedulerLostError, with the
    command that resumes the run at ``url`` ("": nothing is saved; None: there is no run)."""
    try:
        yield
    except SchedulerLostError as error:
        raise SchedulerLostError(f"{error}{_how_to_resume(url)}") from None
    except StreamomdError:
        raise
    except Exception as error:  # calls of a client that gives up end in many ways
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


def on_the_loop(client: Client, what: Awaitable[Any]) -> Coming[Any]:
    """Run a coroutine in the client's event loop, so that this thread can watch the run meanwhile.

    Raises RuntimeError if the loop is closed.
    """
    loop: Any = client.loop
    try:
        return asyncio.run_coroutine_threadsafe(what, loop.asyncio_loop)  # type: ignore[arg-type]
    except RuntimeError:
        close = getattr(what, "close", None)  # or Python warns that it was never awaited
        if close is not None:
            close()
        raise
