"""Training in one process: shards, features, engine, metrics, checkpoint, in order and exactly."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from streamomd.checkpoint import (
    Loaded,
    Writer,
    compare,
    explain,
    keep_document,
    open_store,
    read_document,
)
from streamomd.errors import DataError, ResumeRefusedError, StoppedError, UsageError
from streamomd.features import check_schema, describe, make_plan
from streamomd.job import build, change
from streamomd.keep import Keeper
from streamomd.model import Model
from streamomd.report import Log, Watcher, check_log, hushed, note, progress, watching
from streamomd.shards.cursor import Cursor
from streamomd.shards.find import ShardSet, find
from streamomd.shards.labels import distinct_labels
from streamomd.shards.order import permutation
from streamomd.shards.read import Piece
from streamomd.spec import Spec
from streamomd.stop import StopRequest, stop_on_signals
from streamomd.stream import Rows, Source, no_rows, rows_of


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
        model = _new(spec, shards)
        for line in describe(model.plan):
            note(line)
        with _connected(spec, client) as connection:
            keeper = _begin(model, shards, restart=restart)
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
        model, loaded = Model.load(
            url,
            storage_options=checkpoint_storage_options,
            far=lambda spec: client is not None and spec.train.mode == "sharded",
        )
        for sequence, reason in loaded.rejected:
            note(f"commit {sequence} rejected: {reason}; going on from {model.sequence}")
        more = _change_job(model, sets or {}, *options)
        if model.finished and not more:
            if accept_new_shards:
                note(f"this run is finished; new shards go on from it with train --start {url}")
            return model
        data = model.spec.data
        shards = find(data.shards, order=data.order, storage_options=data.storage_options)
        with _connected(model.spec, client) as connection:
            keeper = _take_over(model, loaded, shards, accept_new=accept_new_shards)
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
    learned = Model.load(model.url, storage_options=options[1])[0]
    learned.seconds = found["seconds"]
    learned.rows_per_second = (learned.metrics.total_rows - rows) / learned.seconds
    return learned


def _go_on(url: str, topic: str, options: Options) -> dict[str, Any]:
    """On a worker: what ``resume`` does, told to whoever submitted it."""
    from streamomd.distribute.learner import figures, teller

    stop = StopRequest()
    with hushed(True), teller(topic, stop) as (client, watcher):
        model, loaded = Model.load(url, storage_options=options[1])
        if not model.finished:
            _change_job(model, {}, *options)
            data, decode = model.spec.data, model.spec.cluster.decode
            shards = find(data.shards, order=data.order, storage_options=data.storage_options)
            keeper = _take_over(model, loaded, shards, accept_new=False)
            connection = None if decode == "local" else client
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


Options = tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]
"""Storage options of the shards, and of the checkpoint."""


@dataclass(eq=False)
class Run:
    """One walk of a model over its shards, from its cursor to the end of its last epoch."""

    model: Model
    shards: ShardSet
    keeper: Keeper | None
    watchers: list[Watcher]
    stop: StopRequest
    connection: Any = None

    def go(self) -> None:
        """Learn every row that is left. Raises StoppedError after a signal, its commit made."""
        model = self.model
        rows = self._source()
        while model.cursor.epoch < model.spec.train.epochs:
            at = model.cursor
            if at.epoch >= 0:
                model.metrics.begin(at.epoch)
            order = places(model.spec, len(self.shards), at.epoch)
            for piece in rows(order, (at.place, at.row)):
                self._learn(piece)
            model.cursor = Cursor(at.epoch + 1)

    def _source(self) -> Source:
        """Where rows come from: this process, or a cluster. They are the same rows."""
        if self.connection is None:
            return self._here
        from streamomd.distribute.source import source

        return source(self.model, self.shards, self._here, self.connection, self._while_waiting)

    def _here(self, order: Sequence[int], start: tuple[int, int]) -> Iterator[Piece[Rows]]:
        return rows_of(
            self.model.plan,
            self.shards,
            order,
            start=start,
            names=self.model.names,
            ahead_bytes=self.model.spec.train.prefetch << 20,
        )

    def _while_waiting(self) -> None:
        for watcher in self.watchers:
            watcher.update(self.model.metrics)
        if self.stop.signal:
            self._leave()

    def _learn(self, piece: Piece[Rows]) -> None:
        """Learn a piece, cut where a watcher wants to be told: cuts change no bit."""
        model, low = self.model, 0
        while low < piece.rows:
            high = min(piece.rows, low + self._rows_to_tell())
            rows = piece.value.batch.rows(low, high)
            if model.cursor.epoch < 0:
                model.engine.look(model.state, rows)
            else:
                model.consume(rows)
            model.cursor = Cursor(model.cursor.epoch, piece.position, piece.row + high)
            low = high
            for watcher in self.watchers:
                watcher.update(model.metrics)
            if self.stop.signal:
                self._leave()

    def _rows_to_tell(self) -> int:
        rows = self.model.metrics.total_rows
        return int(min([2.0**62, *(watcher.next_row - rows for watcher in self.watchers)]))

    def _leave(self) -> None:
        kept = "nothing was kept (checkpoint none)"
        if self.keeper:
            sequence = self.keeper.commit().sequence
            kept = f"commit {sequence}; go on with: streamomd resume {self.model.url}"
        rows = self.model.metrics.total_rows
        raise StoppedError(f"stopped after row {rows:,}: {kept}", signal=self.stop.signal)


def places(spec: Spec, shards: int, epoch: int) -> list[int]:
    """The order of the shards in an epoch."""
    if spec.data.order == "shuffled" and epoch >= 0:
        return permutation(shards, spec.data.seed, epoch)
    return list(range(shards))


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
    if model.spec.train.mode == "exact":
        model.engine.warm(model.state, no_rows(model.plan, shards), learning=True)
    rows_before, began = model.metrics.total_rows, time.perf_counter()
    expected = shards.rows * model.spec.train.epochs
    watchers: list[Watcher] = [Log(log, model.metrics)] if log else []
    watchers += [] if quiet else [progress(model.metrics, expected, model.live)]
    watchers += [*told, *([keeper] if keeper else [])]
    with watching(watchers, model.metrics):
        _walk_of(model)(model, shards, keeper, watchers, stop, connection).go()
    if not model.metrics.total_rows:
        raise DataError("no rows were read")
    model.finished = True
    if keeper:
        keeper.commit()
    model.seconds = time.perf_counter() - began
    model.rows_per_second = (model.metrics.total_rows - rows_before) / model.seconds
    return model


def _walk_of(model: Model) -> Any:
    if model.spec.train.mode == "sharded":
        from streamomd.sharded import Sharded

        return Sharded
    return Run


def _new(spec: Spec, shards: ShardSet) -> Model:
    """A model that starts at its beginning, or from another's state."""
    if not shards.rows:
        raise DataError(f"no rows: all {len(shards)} shards are empty")
    schema = next(iter(shards)).schema
    plan = make_plan(
        spec.data, spec.model, schema, lambda: distinct_labels(shards, spec.data.label)
    )
    for shard in shards:
        check_schema(plan, shard.schema, shard.url)
    model = Model.new(spec, plan)
    if spec.model.start:
        options = spec.checkpoint.storage_options
        model.start_from(Model.load(spec.model.start, storage_options=options)[0])
    return model


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
    if not known or (spec.train.mode == "exact" and cluster.decode == "local" and not away):
        yield None
        return
    # Dask is slow to import, and needed only here.
    from streamomd.distribute.cluster import connected

    with connected(client, cluster.scheduler) as connection:
        yield connection


def _begin(model: Model, shards: ShardSet, *, restart: bool) -> Keeper | None:
    """Commit 0: the job, the shards' fingerprint and the state before the first row."""
    kept = model.spec.checkpoint
    if kept.url == "none":
        return None
    store = open_store(kept.url, kept.storage_options)
    dataset = keep_document(store, "dataset", shards.fingerprint())
    names = keep_document(store, "names", model.names.to_json())
    document = model.document(dataset=dataset, names=names)
    writer = Writer.begin(store, document, model.parts(), keep=kept.keep, restart=restart)
    model.url = store.url
    return Keeper(model, store, writer, dataset)


def _take_over(model: Model, loaded: Loaded, shards: ShardSet, *, accept_new: bool) -> Keeper:
    """Compare the shards with those the run was begun on, then fence an older writer.

    Raises ResumeRefusedError telling what differs, field by field.
    """
    kept, found = model.spec.checkpoint, shards.fingerprint()
    store = open_store(model.url, kept.storage_options)
    dataset = str(loaded.commit.document["dataset"])
    saved = read_document(store, "dataset", dataset)
    differences = compare(saved, found, accept_new=accept_new)
    refused = [difference for difference in differences if difference.refused]
    if refused:
        raise ResumeRefusedError(
            f"the shards are not those this run was begun on:\n{explain(refused)}\n"
            "put them back; a shard that was mended is another shard: train --restart begins anew, "
            "train --start URL goes on from this state with other rows"
        )
    if len(found) > len(saved) and model.spec.data.order == "shuffled":
        raise ResumeRefusedError(
            'new shards change the order of those already read, with data.order = "shuffled":\n'
            f"{explain(differences)}\n"
            "take them away, or go on from this state with other rows: train --start URL"
        )
    if differences:
        note(explain(differences))
    if found != saved:
        dataset = keep_document(store, "dataset", found)
    writer = Writer.take_over(store, loaded, keep=kept.keep)
    return Keeper(model, store, writer, dataset)


def _change_job(
    model: Model,
    sets: Mapping[str, Any],
    storage_options: Mapping[str, Any] | None,
    checkpoint_storage_options: Mapping[str, Any] | None,
) -> bool:
    """Apply what may change on resume; whether there are more epochs than before."""
    secrets = {
        "data.storage_options": dict(storage_options or {}),
        "checkpoint.storage_options": dict(checkpoint_storage_options or {}),
        "checkpoint.url": model.url,
    }
    if "checkpoint.url" in sets:
        raise ResumeRefusedError(
            f"checkpoint.url is {model.url} and stays so: to go on elsewhere, copy the whole "
            "checkpoint there and resume the copy"
        )
    epochs = model.spec.train.epochs
    model.spec = change(model.spec.to_json(), {**sets, **secrets})
    if model.spec.train.epochs < epochs:
        raise ResumeRefusedError(
            f"train.epochs was {epochs} and may only grow; got {model.spec.train.epochs}"
        )
    more = model.spec.train.epochs > epochs
    model.finished = model.finished and not more
    return more
