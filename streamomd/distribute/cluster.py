"""A Dask cluster: connect, wait for a future without hanging, say what was lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from distributed import Client, Future, wait

from streamomd.errors import ClusterError, UsageError
from streamomd.report import note
from streamomd.urls import scrub

CONNECT_SECONDS = 10
LOOK_SECONDS = 0.5
LONELY_SECONDS = 300  # without a worker, before it is called an error
TOLD_SECONDS = 10


@contextmanager
def connected(client: object, address: str) -> Iterator[Client]:
    """The client that was given, or one for an address, closed at the end.

    Raises UsageError for what is no client, ClusterError where nobody answers.
    """
    if isinstance(client, Client):
        if client.asynchronous:
            raise UsageError("this client is asynchronous: pass one made with asynchronous=False")
        yield client
        return
    if client is not None:
        raise UsageError(f"client is a distributed.Client, not {type(client).__name__}")
    try:
        made = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        raise ClusterError(
            f"no Dask scheduler answers at {address}: {scrub(str(error))}. Give another address "
            'with --scheduler, or --scheduler "" to go without'
        ) from None
    try:
        yield made
    finally:
        made.close()


def told(client: Client) -> str:
    """What a person wants to know of a cluster, once."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    threads = sum(worker["nthreads"] for worker in workers.values())
    return (
        f"cluster {_address(client)}: {len(workers)} workers, {threads} threads; "
        f"dashboard {client.dashboard_link}"
    )


def settled(client: Client, future: Future[Any], waiting: Callable[[], None]) -> None:
    """Wait until a future is done, well or ill. ``waiting`` is called twice a second.

    Raises ClusterError when the scheduler is lost, or no worker has been there for minutes.
    """
    began = spoke = time.monotonic()
    while not future.done():
        try:
            wait([future], timeout=LOOK_SECONDS)
        except TimeoutError:
            pass
        except Exception as error:  # a lost scheduler cancels what was asked of it
            refuse_lost(client, error)
        waiting()
        refuse_lost(client)
        now = time.monotonic()
        if now - spoke < TOLD_SECONDS:
            continue
        spoke = now
        if has_workers(client):
            began = now
        elif now - began > LONELY_SECONDS:
            raise ClusterError(f"no worker at {_address(client)} for {now - began:.0f} s")
        else:
            note(f"no worker at {_address(client)}: waiting")


def has_workers(client: Client) -> bool:
    """Whether the scheduler knows of any."""
    return bool(client.scheduler_info(n_workers=1)["workers"])


def refuse_lost(client: Client, error: Exception | None = None) -> None:
    """Raise ClusterError if the scheduler is gone."""
    if client.status != "running":
        why = f" ({type(error).__name__})" if error else ""
        raise ClusterError(
            f"the scheduler at {_address(client)} was lost{why}: "
            "streamomd resume goes on from the last commit, on any cluster or none"
        )


def _address(client: Client) -> Any:
    return getattr(client.scheduler, "address", "its address")
