"""Runs: begun, gone on with, loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamomd.checkpoint.manifest import KINDS
from streamomd.config.recorded import with_settings
from streamomd.config.spec import Spec
from streamomd.core.urls import shown
from streamomd.features import describe
from streamomd.runs.modes import connected, is_far, read_state, record_cluster, run
from streamomd.runs.on_collection import again, set_apart, train_on
from streamomd.runs.submit import watch
from streamomd.shards.find import ShardSet, find
from streamomd.shards.formats.checksums import without_checksums
from streamomd.training.callbacks import Callback, refuse_illegal
from streamomd.training.job import build
from streamomd.training.load_model import load_model
from streamomd.training.model import Model
from streamomd.training.progress import check_log, hushed, note
from streamomd.training.session import (
    begin,
    change_job,
    divergence,
    new_model,
    refuse_diverged_again,
    take_over,
)
from streamomd.training.signals import stop_on_signals
from streamomd.training.warm_start import set_apart as weights_apart


def train(
    job: str | Mapping[str, Any] | Spec | None = None,
    *,
    client: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    restart: bool = False,
    log: str | None = None,
    quiet: bool = False,
    callbacks: Sequence[Callback] = (),
    sets: Mapping[str, Any] | None = None,
    **flags: Any,
) -> Model:
    """Train on shards, from their first row to their last, and keep the run in a checkpoint.

    job: path of a TOML file, nested tables, a Spec, or none. flags: those of the command by name
    (``shards``, ``label``, ``numeric``, ``hashed``, ``rule``, ``loss``, ``eta``, ``epochs``, …).
    shards: names, or a Dask DataFrame, or Dask arrays (X, y) or (X, y, weights), dense, cut by rows
    alone and alike: then the order is that of the partitions (docs/dask-collections.md).
    start: a checkpoint's URL, a Parquet file of weights, or a fitted linear model (``coef_``).
    restart: begin anew in a checkpoint that holds a run already. log: file for JSON lines.
    callbacks: told of the figures as they go (``streamomd.training.callbacks``), as trackers are.
    client: a distributed.Client (else one is made for ``cluster.scheduler``, if that is given); its
    workers may decode: see the job's [cluster]. The bits are those of this process alone.

    Raises the errors of ``streamomd.core.errors``: UsageError (job), DataError (shards),
    OutputExistsError (the checkpoint holds a run), ConcurrentWriterError, StoppedError (signal),
    DivergedError (a number of the model is no longer finite; the last commit stands),
    ClusterError (nobody answers, or the scheduler is lost: resume goes on without it).
    """
    job, flags, collection = set_apart(job, flags)
    flags, weights = weights_apart(flags)
    spec = build(job, {**flags, "storage_options": storage_options}, sets)
    check_log(log)
    refuse_illegal(callbacks)
    told: Any = {"log": log, "quiet": quiet, "callbacks": callbacks}
    with stop_on_signals() as stop, hushed(quiet):
        if collection is not None:
            given = (collection, spec, client, stop, weights)
            return train_on(*given, restart=restart, **told)
        shards = find(
            spec.data.shards, order=spec.data.order, storage_options=spec.data.storage_options
        )
        model = new_model(spec, shards, weights)
        for line in (*describe(model.plan), *without_checksums(shards)):
            note(line)
        with connected(spec, client, stop) as connection:
            record_cluster(model, client)
            keeper = begin(model, shards, restart=restart)
            if connection is not None and spec.cluster.learner == "worker":
                return watch(model, shards, connection, stop, **told)
            return run(model, shards, keeper, stop, connection, **told)


def resume(
    url: str,
    *,
    shards: Any = None,
    client: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    checkpoint_storage_options: Mapping[str, Any] | None = None,
    sets: Mapping[str, Any] | None = None,
    accept_new_shards: bool = False,
    log: str | None = None,
    quiet: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Model:
    """Go on with the run that is kept at ``url``; a finished one gives its result again.

    shards: the Dask collection that the run was begun on, made again; of others nothing.
    sets: what may change, by dotted key: train.epochs (upward), train.prefetch, data.cache,
    checkpoint.*, cluster.*; of a run that diverged also data.on_bad_row (to "skip"). client: as
    in ``train``; another cluster than before, or none, gives the same bits. callbacks: as in
    ``train``.

    The cluster and the cache of decoded rows are those given here, never those that the checkpoint
    records. The URLs of its shards are printed before they are opened, and must be on the
    allow-list if one is set (docs/checkpoints.md).

    Raises NoCommitError, ResumeRefusedError (data or job changed), DivergedError (the run diverged,
    and nothing changed since), UsageError (a URL outside the allow-list), TooLargeError (sharded
    mode without a cluster), and what ``train`` raises.
    """
    check_log(log)
    refuse_illegal(callbacks)
    told: Any = {"log": log, "quiet": quiet, "callbacks": callbacks}
    options = (storage_options, checkpoint_storage_options)
    with stop_on_signals() as stop, hushed(quiet):
        sets = sets or {}
        model, loaded = load_model(
            url, storage_options=checkpoint_storage_options, far=is_far, needs=KINDS, finite=True
        )
        for sequence, reason in loaded.rejected:
            note(f"commit {sequence} rejected: {reason}; going on from {model.sequence}")
        more = change_job(model, sets, *options, diverged=bool(divergence(loaded)))
        refuse_diverged_again(model, loaded)
        if model.finished and not more:
            if accept_new_shards:
                note(f"this run is finished; new shards go on with train --start {shown(url)}")
            return model
        for line in model.recorded.hints(
            model.url,
            cluster=client is None and "cluster.scheduler" not in sets,
            cache="data.cache" not in sets,
        ):
            note(line)
        dataset, holder = again(model.spec, shards)
        with connected(model.spec, client or holder, stop) as connection:
            if connection is None:
                read_state(model)
            record_cluster(model, client)
            keeper = take_over(model, loaded, dataset, accept_new=accept_new_shards)
            rows = model.metrics.total_rows
            note(f"going on from commit {model.sequence} of {shown(model.url)}, after row {rows:,}")
            if connection is not None and model.spec.cluster.learner == "worker":
                keeper.commit()  # with the job as it is now
                assert isinstance(dataset, ShardSet)
                return watch(model, dataset, connection, stop, **told)
            return run(model, dataset, keeper, stop, connection, **told)


def load(
    url: str,
    storage_options: Mapping[str, Any] | None = None,
    at: int | None = None,
    *,
    cache: str = "",
) -> Model:
    """The model of the newest commit at ``url`` that is whole, or of commit ``at``.

    cache: local folder of decoded rows for ``evaluate`` and ``certify``; the one that the
    checkpoint records is not used. No URL that the checkpoint names is opened.

    Raises NoCommitError if there is none, StorageError if the store does not answer.
    """
    model, loaded = load_model(url, storage_options=storage_options, at=at)
    for sequence, reason in loaded.rejected:
        note(f"commit {sequence} rejected: {reason}; this is {model.sequence}")
    if cache:
        model.spec = with_settings(model.spec, {"data.cache": cache})
    return model
