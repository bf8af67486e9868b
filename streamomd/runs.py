"""A run: begun, gone on with, watched; and which mode walks its rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from streamomd.begin import begin, change_job, new_model, take_over
from streamomd.errors import DataError, UsageError
from streamomd.exact import Run
from streamomd.features import describe
from streamomd.job import build
from streamomd.keep import Keeper
from streamomd.model import Model
from streamomd.report import Log, Watcher, check_log, hushed, note, progress, watching
from streamomd.sharded import Sharded
from streamomd.shards.find import ShardSet, find
from streamomd.spec import Spec
from streamomd.stop import StopRequest, stop_on_signals
from streamomd.stream import no_rows


def train(
    job: str | Mapping[str, Any] | Spec | None = None,
    *,
    client: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    restart: bool = False,
    log: str | None = None,
    quiet: bool = False,
    sets: Mapping[str, Any] | None = None,
    **flags: Any,
) -> Model:
    """Train on shards, from their first row to their last, and keep the run in a checkpoint.

    job: path of a TOML file, nested tables, a Spec, or none. flags: those of the command by name
    (``shards``, ``label``, ``numeric``, ``hashed``, ``rule``, ``loss``, ``eta``, ``epochs``, …).
    restart: begin anew in a checkpoint that holds a run already. log: file for JSON lines.
    client: a distributed.Client (else one is made for ``cluster.scheduler``, if that is given); its
    workers may decode: see the job's [cluster]. The bits are those of this process alone.

    Raises the errors of ``streamomd.errors``: UsageError (job), DataError (shards),
    OutputExistsError (the checkpoint holds a run), ConcurrentWriterError, StoppedError (signal),
    ClusterError (nobody answers, or the scheduler is lost: resume goes on without it).
    """
    spec = build(job, {**flags, "storage_options": storage_options}, sets)
    check_log(log)
    with stop_on_signals() as stop, hushed(quiet):
        shards = find(
            spec.data.shards, order=spec.data.order, storage_options=spec.data.storage_options
        )
        model = new_model(spec, shards)
        for line in describe(model.plan):
            note(line)
        with _connected(spec, client) as connection:
            keeper = begin(model, shards, restart=restart)
            if connection is not None and spec.cluster.learner == "worker":
                options = (spec.data.storage_options, spec.checkpoint.storage_options)
                return _watch(model, shards, connection, stop, options, log=log, quiet=quiet)
            return _run(model, shards, keeper, stop, connection, log=log, quiet=quiet)


def resume(
    url: str,
    *,
    client: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    checkpoint_storage_options: Mapping[str, Any] | None = None,
    sets: Mapping[str, Any] | None = None,
    accept_new_shards: bool = False,
    log: str | None = None,
    quiet: bool = False,
) -> Model:
    """Go on with the run that is kept at ``url``; a finished one gives its result again.

    sets: what may change, by dotted key: train.epochs (upward), train.prefetch, checkpoint.*,
    cluster.*. client: as in ``train``; another cluster than before, or none, gives the same bits.

    Raises NoCommitError, ResumeRefusedError (data or job changed), and what ``train`` raises.
    """
    check_log(log)
    options = (storage_options, checkpoint_storage_options)
    with stop_on_signals() as stop, hushed(quiet):
        far = _far(client, sets or {})
        model, loaded = Model.load(url, storage_options=checkpoint_storage_options, far=far)
        for sequence, reason in loaded.rejected:
            note(f"commit {sequence} rejected: {reason}; going on from {model.sequence}")
        more = change_job(model, sets or {}, *options)
        if model.finished and not more:
            if accept_new_shards:
                note(f"this run is finished; new shards go on from it with train --start {url}")
            return model
        data = model.spec.data
        shards = find(data.shards, order=data.order, storage_options=data.storage_options)
        with _connected(model.spec, client) as connection:
            keeper = take_over(model, loaded, shards, accept_new=accept_new_shards)
            rows = model.metrics.total_rows
            note(f"going on from commit {model.sequence} of {model.url}, after row {rows:,}")
            if connection is not None and model.spec.cluster.learner == "worker":
                keeper.commit()  # with the job as it is now
                return _watch(model, shards, connection, stop, options, log=log, quiet=quiet)
            return _run(model, shards, keeper, stop, connection, log=log, quiet=quiet)


def _watch(
    model: Model,
    shards: ShardSet,
    connection: Any,
    stop: StopRequest,
    options: Options,
    *,
    log: str | None,
    quiet: bool,
) -> Model:
    """Have a worker go on with the run that was begun, and watch it; the finished model."""
    from streamomd.distribute.learner import Submitted

    rows, expected = model.metrics.total_rows, shards.rows * model.spec.train.epochs
    watchers: list[Watcher] = [Log(log, model.metrics)] if log else []
    watchers += [] if quiet else [progress(model.metrics, expected)]
    with watching(watchers, model.metrics):
        task = Submitted(connection, _go_on, model.url, options, model.metrics, watchers, stop)
        found = task.result()
    far = _far(connection, {})
    learned = Model.load(model.url, storage_options=options[1], far=far)[0]
    learned.seconds = found["seconds"]
    learned.rows_per_second = (learned.metrics.total_rows - rows) / learned.seconds
    return learned


def _go_on(url: str, topic: str, options: Options) -> dict[str, Any]:
    """On a worker: what ``resume`` does, told to whoever submitted it."""
    from streamomd.distribute.learner import figures, teller

    stop = StopRequest()
    with hushed(True), teller(topic, stop) as (client, watcher):
        model, loaded = Model.load(url, storage_options=options[1], far=_far(client, {}))
        if not model.finished:
            change_job(model, {}, *options)
            data = model.spec.data
            alone = model.spec.train.mode == "exact" and model.spec.cluster.decode == "local"
            shards = find(data.shards, order=data.order, storage_options=data.storage_options)
            keeper = take_over(model, loaded, shards, accept_new=False)
            connection = None if alone else client
            _run(model, shards, keeper, stop, connection, told=[watcher], quiet=True)
    return {"seconds": model.seconds or 1e-9, **figures(model.metrics)}


def load(
    url: str, storage_options: Mapping[str, Any] | None = None, at: int | None = None
) -> Model:
    """The model of the newest commit at ``url`` that is whole, or of commit ``at``.

    Raises NoCommitError if there is none, StorageError if the store does not answer.
    """
    model, loaded = Model.load(url, storage_options=storage_options, at=at)
    for sequence, reason in loaded.rejected:
        note(f"commit {sequence} rejected: {reason}; this is {model.sequence}")
    return model


def _far(client: Any, sets: Mapping[str, Any]) -> Callable[[Spec], bool]:
    """Whether the owners of a state are to be workers: then it is not read here."""

    def tell(spec: Spec) -> bool:
        scheduler = sets.get("cluster.scheduler", spec.cluster.scheduler)
        return spec.train.mode == "sharded" and (client is not None or bool(scheduler))

    return tell


Options = tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]
"""Storage options of the shards, and of the checkpoint."""


def _run(
    model: Model,
    shards: ShardSet,
    keeper: Keeper | None,
    stop: StopRequest,
    connection: Any,
    *,
    log: str | None = None,
    quiet: bool,
    told: Sequence[Watcher] = (),
) -> Model:
    if model.spec.train.mode != "sharded":  # which has loops of its own
        model.engine.warm(model.state, no_rows(model.plan, shards), learning=True)
    rows_before, began = model.metrics.total_rows, time.perf_counter()
    expected = shards.rows * model.spec.train.epochs
    watchers: list[Watcher] = [Log(log, model.metrics)] if log else []
    watchers += [] if quiet else [progress(model.metrics, expected, model.live)]
    watchers += [*told, *([keeper] if keeper else [])]
    with watching(watchers, model.metrics):
        _walk(model, shards, keeper, watchers, stop, connection)
    if not model.metrics.total_rows:
        raise DataError("no rows were read")
    model.finished = True
    if keeper:
        keeper.commit()
    model.seconds = time.perf_counter() - began
    model.rows_per_second = (model.metrics.total_rows - rows_before) / model.seconds
    return model


def _walk(
    model: Model,
    shards: ShardSet,
    keeper: Keeper | None,
    watchers: list[Watcher],
    stop: StopRequest,
    connection: Any,
) -> None:
    """Every row that is left, in the job's mode."""
    train = model.spec.train
    if train.mode == "exact":
        Run(model, shards, keeper, watchers, stop, connection).go(train.epochs)
        return
    if train.mode == "sharded":
        Sharded(model, shards, keeper, watchers, stop, connection).go()
        return
    assert keeper is not None
    begun = model.cursor
    Run(model, shards, keeper, watchers, stop, connection).go(train.exact_epochs)
    if model.cursor != begun:  # the first round begins from a commit
        keeper.commit()
    from streamomd.distribute.averaged import Averaged

    told = [watcher for watcher in watchers if watcher is not keeper]
    Averaged(model, shards, keeper, told, stop, connection).go()


@contextmanager
def _connected(spec: Spec, client: Any) -> Iterator[Any]:
    """The cluster that is to help, or None. Asked for before anything is kept."""
    cluster = spec.cluster
    away, known = cluster.learner == "worker", client is not None or bool(cluster.scheduler)
    if away and not (known and spec.checkpoint.url != "none"):
        raise UsageError(
            'cluster.learner = "worker" needs a cluster (--scheduler, or client=) and a checkpoint '
            "whose URL workers reach: what is learned there comes back through it"
        )
    # Of one machine's memory owners would have no more than this process alone.
    needed = spec.train.mode == "averaged"
    here = spec.train.mode == "exact" and cluster.decode == "local" and not away
    if not needed and (not known or here):
        yield None
        return
    # Dask is slow to import, and needed only here.
    from streamomd.distribute.cluster import connected

    with connected(client, cluster.scheduler) as connection:
        yield connection
