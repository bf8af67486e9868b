"""The cluster of a run: connected to before anything is saved, recorded, lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streamomd.config.cluster_choice import (
    NO_CLUSTER,
    ClusterChoice,
    ClusterFactory,
    choose_cluster,
)
from streamomd.config.spec import Spec
from streamomd.core.errors import StoppedError, UsageError
from streamomd.core.urls import protocol, shown
from streamomd.training.model_data import ModelData
from streamomd.training.progress import note
from streamomd.training.signals import StopRequest
from streamomd.training.url_trust import scheduler_warnings


@contextmanager
def connect_cluster(spec: Spec, client: Any, stop: StopRequest) -> Iterator[Any]:
    """A client of the cluster that a job uses, or None.

    client: one that was passed, or a ClusterFactory, used where the job uses a cluster. Raises
    ClusterError where no scheduler answers or no worker is usable, UsageError for two clusters or
    an invalid one, StoppedError after a signal.
    """
    cluster = spec.cluster
    on_worker = cluster.learner == "worker"
    asked = spec.train.mode != "exact" or on_worker or cluster.decode == "remote"
    choice = choose_cluster(client, cluster.scheduler, needed=asked)
    if on_worker and not (choice.known and spec.checkpoint.url != "none"):
        raise UsageError(
            'cluster.learner = "worker" needs a cluster (--scheduler, --cluster, or client=) and a '
            "checkpoint whose URL workers reach: what is learned there comes back through it"
        )
    # Owners on this machine's own cores would have no more memory than this process alone.
    needed = spec.train.mode == "averaged"
    local = spec.train.mode == "exact" and cluster.decode == "local" and not on_worker
    if not needed and (not choice.known or local):
        yield None
        return
    # Dask is slow to import, and needed only here.
    from streamomd.distributed.cluster import describe_cluster
    from streamomd.distributed.scheduler import address_of
    from streamomd.distributed.worker_monitor import choose_workers, probe_workers

    def refuse_stopped() -> None:
        if stop.signal:
            raise StoppedError("stopped while connecting to a cluster", signal=stop.signal)

    with _connect(choice, stop) as connection:
        for line in scheduler_warnings(spec, address_of(connection)):
            note(line)
        choose_workers(connection, spec)
        probe_workers(connection, refuse_stopped)
        note(describe_cluster(connection))
        yield connection


@contextmanager
def connect_needed(client: Any, scheduler: str | None) -> Iterator[Any]:
    """A client of the cluster that a command is about. Raises UsageError if none is named."""
    choice = choose_cluster(client, scheduler, needed=True)
    if not choice.known:
        raise UsageError(f"no cluster: {NO_CLUSTER}")
    with _connect(choice, None) as connection:
        yield connection


@contextmanager
def _connect(choice: ClusterChoice, stop: StopRequest | None) -> Iterator[Any]:
    from streamomd.distributed.cluster import connect_client

    if choice.origin:
        name = shown(choice.address) if choice.address else choice.client.name
        note(f"cluster {name}: from {choice.origin}")
    with connect_client(choice.client, choice.address, stop) as connection:
        yield connection


def record_cluster(model: ModelData, client: Any) -> None:
    """Record the cluster of a client that was passed, for resume to print its address."""
    if client is None or isinstance(client, ClusterFactory):  # whose cluster ends here
        return
    address = getattr(client.scheduler, "address", "")
    if address and protocol(address) != "inproc":  # which no other process reaches
        model.recorded = model.recorded.used(model.spec, address)


@contextmanager
def report_lost_scheduler(model: ModelData, connection: Any) -> Iterator[None]:
    """A scheduler that is lost while inside is reported with the command that resumes the run."""
    if connection is None:
        yield
        return
    from streamomd.distributed import scheduler

    with scheduler.report_lost_scheduler(connection, model.url):
        yield


def learns_on_worker(model: ModelData, connection: Any) -> bool:
    """Whether a task on a worker learns, and this process watches it."""
    return connection is not None and model.spec.cluster.learner == "worker"
