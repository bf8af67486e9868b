"""The cluster of a run: connected to before anything is saved, recorded, lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streamomd.config.spec import Spec
from streamomd.core.errors import StoppedError, UsageError
from streamomd.core.urls import protocol
from streamomd.training.model import Model
from streamomd.training.progress import note
from streamomd.training.signals import StopRequest


@contextmanager
def connect_cluster(spec: Spec, client: Any, stop: StopRequest) -> Iterator[Any]:
    """A client of the cluster that a job uses, or None.

    client: one that was passed, used where the job uses a cluster. Raises ClusterError where no
    scheduler answers or no worker is usable, StoppedError after a signal.
    """
    cluster = spec.cluster
    on_worker, known = cluster.learner == "worker", client is not None or bool(cluster.scheduler)
    if on_worker and not (known and spec.checkpoint.url != "none"):
        raise UsageError(
            'cluster.learner = "worker" needs a cluster (--scheduler, or client=) and a checkpoint '
            "whose URL workers reach: what is learned there comes back through it"
        )
    # Owners on this machine's own cores would have no more memory than this process alone.
    needed = spec.train.mode == "averaged"
    local = spec.train.mode == "exact" and cluster.decode == "local" and not on_worker
    if not needed and (not known or local):
        yield None
        return
    # Dask is slow to import, and needed only here.
    from streamomd.distributed.cluster import connect_client, describe_cluster
    from streamomd.distributed.worker_monitor import probe_workers

    def refuse_stopped() -> None:
        if stop.signal:
            raise StoppedError("stopped while connecting to a cluster", signal=stop.signal)

    with connect_client(client, cluster.scheduler, stop) as connection:
        probe_workers(connection, refuse_stopped)
        note(describe_cluster(connection))
        yield connection


def record_cluster(model: Model, client: Any) -> None:
    """Record the cluster of a client that was passed, for resume to print its address."""
    address = getattr(client.scheduler, "address", "") if client is not None else ""
    if address and protocol(address) != "inproc":  # which no other process reaches
        model.recorded = model.recorded.used(model.spec, address)


@contextmanager
def report_lost_scheduler(model: Model, connection: Any) -> Iterator[None]:
    """A scheduler that is lost while inside is reported with the command that resumes the run."""
    if connection is None:
        yield
        return
    from streamomd.distributed import scheduler

    with scheduler.report_lost_scheduler(connection, model.url):
        yield
