"""Walking the rows that are left, in the mode of the job, with a cluster or without."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from streamomd.config.spec import Spec
from streamomd.core.errors import (
    DataError,
    DivergedError,
    StoppedError,
    StreamomdError,
    TooLargeError,
    UsageError,
)
from streamomd.core.finite import FiniteCheck
from streamomd.core.profiling import Stage, current
from streamomd.core.urls import protocol, redact
from streamomd.runs.exact import ExactRun
from streamomd.runs.sharded_local import Sharded
from streamomd.shards.dataset import Dataset
from streamomd.shards.shard import ShardSet
from streamomd.training.async_commit import left
from streamomd.training.callbacks import Callback, CallbackWatcher
from streamomd.training.checkpoint_manager import CheckpointManager
from streamomd.training.load_model import load_model
from streamomd.training.metrics import worded
from streamomd.training.model import Model
from streamomd.training.progress import Log, Watcher, hushed, note, progress, watching
from streamomd.training.remote_state import RemoteState
from streamomd.training.row_stream import no_rows
from streamomd.training.signals import StopRequest


@contextmanager
def connected(spec: Spec, client: Any, stop: StopRequest | None = None) -> Iterator[Any]:
    """The cluster that is to help, or None. Asked for before anything is saved.

    Raises ClusterError where no scheduler answers or no worker is usable, StoppedError after a
    signal.
    """
    cluster = spec.cluster
    away, known = cluster.learner == "worker", client is not None or bool(cluster.scheduler)
    if away and not (known and spec.checkpoint.url != "none"):
        raise UsageError(
            'cluster.learner = "worker" needs a cluster (--scheduler, or client=) and a checkpoint '
            "whose URL workers reach: what is learned there comes back through it"
        )
    # Owners on this machine's own cores would have no more memory than this process alone.
    needed = spec.train.mode == "averaged"
    local = spec.train.mode == "exact" and cluster.decode == "local" and not away
    if not needed and (not known or local):
        yield None
        return
    # Dask is slow to import, and needed only here.
    from streamomd.distributed.cluster import connect_client, describe_cluster
    from streamomd.distributed.worker_monitor import probe_workers

    def waiting() -> None:
        if stop is not None and stop.signal:
            raise StoppedError("stopped while connecting to a cluster", signal=stop.signal)

    with connect_client(client, cluster.scheduler, stop) as connection:
        probe_workers(connection, waiting)
        note(describe_cluster(connection))
        yield connection


def run(
    model: Model,
    shards: Dataset,
    keeper: CheckpointManager | None,
    stop: StopRequest,
    connection: Any,
    *,
    log: str | None = None,
    quiet: bool,
    told: Sequence[Watcher] = (),
    callbacks: Sequence[Callback] = (),
) -> Model:
    """Learn what is left, keep it, and tell how it goes; the model, finished.

    Raises DivergedError if numbers are no longer finite; the last commit stands.
    """
    # Sharded mode has loops of its own; of a collection's rows nobody knows before they come.
    if model.spec.train.mode != "sharded" and isinstance(shards, ShardSet):
        with Stage("compile"):
            model.engine.warm(model.state, no_rows(model.plan, shards), learning=True)
    compiled = model.engine.compile_seconds
    rows_before, began = model.metrics.total_rows, time.perf_counter()
    expected = learned_of(shards.rows, model.spec.data.holdout) * model.spec.train.epochs
    watchers: list[Watcher] = [Log(log, model.metrics)] if log else []
    watchers += [] if quiet else [progress(model.metrics, expected, model.live)]
    watchers += [*told, *told_to(callbacks, model, expected), *([keeper] if keeper else [])]
    try:
        with resumable(model, connection), watching(watchers, model.metrics):
            _walk(model, shards, keeper, watchers, stop, connection)
        if not model.metrics.total_rows:
            bad = model.metrics.skipped
            raise DataError(f"every row is bad ({worded(bad)})" if bad else "no rows were read")
        model.finished = True
        if keeper:
            keeper.commit()
        else:
            model.guard.finish(model.state)
    except DivergedError as error:
        if keeper:
            error = _first_batch(error, model, shards, keeper, stop, connection)
            raise keeper.diverged(error) from None
        raise
    compiled -= model.engine.compile_seconds
    model.seconds = max(time.perf_counter() - began + compiled, 1e-9)
    learned = model.metrics.total_rows - rows_before
    model.rows_per_second = learned / model.seconds
    if profile := current():
        profile.rows += learned
    return model


def _first_batch(
    error: DivergedError,
    model: Model,
    shards: Dataset,
    keeper: CheckpointManager,
    stop: StopRequest,
    connection: Any,
) -> DivergedError:
    """The error that names the first batch after which a number was not finite.

    Slots of a large state are looked at rarely. Then the rows since the last commit are learned
    again, with a look at every slot after every batch. Where that fails, the error as it is.
    """
    mode, options = model.spec.train.mode, model.spec.checkpoint.storage_options
    if model.guard.exact or mode == "averaged" or (mode == "sharded" and connection is not None):
        return error
    note(f"{error}; looking for the first batch since commit {keeper.sequence}")
    try:
        with hushed(True):
            again, _ = load_model(model.url, storage_options=options, at=keeper.sequence)
            again.spec, again.plan, again.guard = model.spec, model.plan, FiniteCheck(always=True)
            _walk(again, shards, None, [], stop, connection)
    except DivergedError as first:
        return first
    except StreamomdError as problem:
        note(f"the first batch is not known: {problem}")
    return error


@contextmanager
def resumable(model: Model, connection: Any) -> Iterator[None]:
    """A scheduler that is lost while inside is reported with the command that resumes the run."""
    if connection is None:
        yield
        return
    from streamomd.distributed.scheduler import report_lost_scheduler

    with report_lost_scheduler(connection, model.url):
        yield


def told_to(callbacks: Sequence[Callback], model: Model, expected: int) -> list[Watcher]:
    """The watcher that tells callbacks, if there are any; rows ``expected`` in all."""
    if not callbacks:
        return []
    about = {"job": model.spec.to_json(), "checkpoint": redact(model.url)}
    return [CallbackWatcher(callbacks, model.metrics, about, expected, model.live)]


def learned_of(rows: int, holdout: int) -> int:
    """About how many of these rows are learned."""
    return rows - rows // holdout if holdout else rows


def record_cluster(model: Model, client: Any) -> None:
    """Record the cluster of a client that was passed, for resume to print its address."""
    address = getattr(client.scheduler, "address", "") if client is not None else ""
    if address and protocol(address) != "inproc":  # which no other process reaches
        model.recorded = model.recorded.used(model.spec, address)


def is_far(spec: Spec) -> bool:
    """Whether workers may own a job's state: then a run is loaded without it."""
    return spec.train.mode == "sharded"


def read_state(model: Model) -> None:
    """Read a state that was left in its checkpoint, where this process is to learn it.

    Raises TooLargeError with the bytes needed and available.
    """
    if not isinstance(model.state, RemoteState):
        return
    needed, available = model.state.layout.nbytes, left()
    if needed > available:
        raise TooLargeError(
            f"{model.spec.train.mode} mode without a cluster keeps the whole state in this "
            f"process: it needs {needed:,} bytes, and {available:,.0f} bytes of memory are "
            "available here. Give --scheduler ADDRESS of a cluster whose workers share it, or "
            "resume on a machine with more memory"
        )
    model.state = model.state.here()


def _walk(
    model: Model,
    shards: Dataset,
    keeper: CheckpointManager | None,
    watchers: list[Watcher],
    stop: StopRequest,
    connection: Any,
) -> None:
    """Every row that is left, in the job's mode."""
    train = model.spec.train
    if train.mode == "exact":
        ExactRun(model, shards, keeper, watchers, stop, connection).go(train.epochs)
        return
    assert isinstance(shards, ShardSet)
    if train.mode == "sharded":
        Sharded(model, shards, keeper, watchers, stop, connection).go()
        return
    assert keeper is not None
    begun = model.cursor
    ExactRun(model, shards, keeper, watchers, stop, connection).go(train.exact_epochs)
    if model.cursor != begun:  # the first round begins from a commit
        keeper.commit()
    from streamomd.distributed.averaged import Averaged

    told = [watcher for watcher in watchers if watcher is not keeper]
    Averaged(model, shards, keeper, told, stop, connection).go()
