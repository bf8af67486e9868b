"""The cluster that a ``ClusterFactory`` makes: opened here, and closed here."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from distributed import Client, SpecCluster

from streamomd.config.cluster_choice import ClusterFactory
from streamomd.core.errors import UsageError
from streamomd.core.urls import scrub
from streamomd.training.progress import note
from streamomd.training.signals import StopRequest, interrupt_on_signals

_made: WeakKeyDictionary[Client, ClusterFactory] = WeakKeyDictionary()


@contextmanager
def open_made(factory: ClusterFactory, stop: StopRequest | None) -> Iterator[Client]:
    """A client of the cluster that a factory returns; both are closed at the end.

    stop: the run's signals; None: they are received here. Raises UsageError for a factory that
    fails or returns something else, StoppedError after a signal.
    """
    note(f"making a cluster: {factory}")
    with interrupt_on_signals(stop, f"stopped while making a cluster: {factory}"):
        made: Any = factory.make()
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
