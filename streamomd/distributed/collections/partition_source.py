"""The feature plan and the rows of a collection."""

from __future__ import annotations

import itertools
import os
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import dask.threaded
from distributed import Client, Future

from streamomd.config.spec import Spec
from streamomd.core.batch import Batch
from streamomd.core.errors import (
    ClusterError,
    DataError,
    StreamomdError,
    UnsupportedError,
    UsageError,
)
from streamomd.distributed.cluster import (
    ResultTimeoutError,
    TaskLostError,
    describe_cluster,
    report_lost_task,
    send_task,
    wait_for_result,
)
from streamomd.distributed.collections.collection import Collection, Graph, partition_url
from streamomd.distributed.decode import (
    ATTEMPTS,
    TASK_BYTES,
    Arrays,
    arrays_to_batch,
    batch_to_arrays,
)
from streamomd.distributed.scheduler import refuse_lost
from streamomd.distributed.worker_monitor import monitor_of
from streamomd.features import Names, Plan, check_schema, encode, make_plan
from streamomd.shards.distinct_values import distinct_among
from streamomd.shards.encoded_rows import Rows
from streamomd.shards.prefetch import Prefetcher, return_freed_memory
from streamomd.shards.reader import Piece
from streamomd.sources.memory.frames import batches, distinct_in, table_of, without_null_types
from streamomd.training.model_data import ModelData
from streamomd.training.new_model import enough_labels, report_task
from streamomd.training.progress import note
from streamomd.training.row_stream import AHEAD_BYTES, Source
from streamomd.training.training_step import reader_plan


def make_collection_plan(collection: Collection, spec: Spec, client: Client | None) -> Plan:
    """The feature plan of a collection; its first partitions are computed for it.

    Raises DataError if all are empty, and what ``make_plan`` raises.
    """
    if spec.model.shapes != "none":
        raise UnsupportedError(
            f"model.shapes = {spec.model.shapes!r}: shapes are decided by the first rows before "
            "training, and a Dask collection is read once; write it as Parquet (to_parquet) and "
            "train on the files, or leave model.shapes out"
        )
    reader = _reader(collection, spec, client, None, lambda: None)
    known: list[PartitionSummary] = []

    def summaries() -> Iterator[PartitionSummary]:
        yield from known
        for number in range(len(known), len(collection)):
            known.append(reader.call(number, summarize, spec.data.label))
            yield known[-1]

    first = next((one for one in summaries() if one.rows), None)
    if first is None:
        raise DataError(f"no rows: all {len(collection)} partitions are empty")

    def labels() -> list[Any]:
        pieces = ((one, [one.labels]) for one in summaries())
        found = distinct_among(pieces, spec.data.label, enough=enough_labels(spec))
        report_task(spec, found)
        return found

    return make_plan(spec.data, spec.model, first.schema, labels)


def collection_source(
    model: ModelData, collection: Collection, client: Client | None, waiting: Callable[[], None]
) -> Source:
    """The rows of a collection, from the workers if there are any; compiles the loops first."""
    if client is not None:
        note(describe_cluster(client))
    reader = _reader(collection, model.spec, client, model.plan.columns, waiting)
    ready = False

    def rows(places: Sequence[int], start: tuple[int, int]) -> Iterator[Piece[Rows]]:
        nonlocal ready
        pieces: Any = reader.rows(reader_plan(model), model.names, places, start)
        with closing(pieces):
            for piece in pieces:
                if not ready:
                    model.engine.warm(model.state, piece.value.batch.rows(0, 0), learning=True)
                    ready = True
                yield piece

    return rows


def _reader(
    collection: Collection,
    spec: Spec,
    client: Client | None,
    columns: Sequence[str] | None,
    waiting: Callable[[], None],
) -> LocalPartitions | ClusterPartitions:
    graph = collection.graph(columns)
    if client is not None:
        return ClusterPartitions(client, graph, spec.cluster.window << 20, waiting)
    if collection.client is not None:
        raise UsageError(
            "this collection is persisted on a cluster and can only be computed there: pass its "
            'client=, and leave cluster.decode at "auto"'
        )
    return LocalPartitions(graph, (spec.train.prefetch << 20) or AHEAD_BYTES)


LOCAL_PARTITIONS = 2  # partitions in memory: the current one and the next
MIN_BYTES = 1 << 20  # minimum size of a partition, which limits the number of small ones
Start = tuple[int, int]


class LocalPartitions:
    """Partitions computed in this process, by Dask's threads; at most ``budget`` bytes
    prefetched."""

    def __init__(self, graph: Graph, budget: int) -> None:
        self._graph, self._budget = graph, budget

    def call(self, number: int, function: Callable[..., Any], *given: Any) -> Any:
        """The result of ``function(url, *given, *inputs)`` for a partition."""
        return function(partition_url(number), *given, *self._parts(number))

    def rows(
        self, plan: Plan, names: Names, places: Sequence[int], start: Start
    ) -> Iterator[Piece[Rows]]:
        """Pieces of the partitions at ``places``, from position and row ``start`` on, in order."""
        return_freed_memory()
        threads = dask.config.get("num_workers", None) or os.cpu_count()
        with ThreadPoolExecutor(threads, "streamomd-dask") as pool:

            def run(position: int) -> Iterator[Piece[Rows]]:
                number, begin = places[position], start[1] if position == start[0] else 0
                parts = self._parts(number, pool)
                for row, batch in encode_partition(
                    plan, partition_url(number), begin, parts, names
                )[2]:
                    yield Piece(position, row, batch.passed, Rows(batch, None), batch.nbytes)

            jobs, session = iter(range(start[0], len(places))), lambda: nullcontext(run)
            yield from Prefetcher(
                jobs, session, threads=LOCAL_PARTITIONS, budget=self._budget
            ).results()

    def _parts(self, number: int, pool: Executor | None = None) -> tuple[Any, ...]:
        tasks, keys = self._graph.of(number)
        with _note_partition(number):
            return tuple(dask.threaded.get(tasks, keys, pool=pool))


@dataclass
class _PartitionTask:
    """A request to a partition. inputs: its futures, held on their worker until it is done."""

    position: int
    number: int
    request: tuple[Any, ...]
    inputs: list[Future[Any]]
    future: Future[Any]


class ClusterPartitions:
    """Partitions computed and decoded by a cluster's workers, prefetched for the learner.

    Results are used in order; the window of bytes limits the submitted tasks. A partition of more
    than TASK_BYTES stays on its worker and is transferred in several pieces.
    """

    def __init__(
        self, client: Client, graph: Graph, window: int, waiting: Callable[[], None]
    ) -> None:
        self._client, self._graph, self._waiting = client, graph, waiting
        self._window, self._size = window, 0.0
        self._run, self._count = uuid.uuid4().hex[:8], itertools.count(1)
        self._direct: bool | None = True

    def call(self, number: int, function: Callable[..., Any], *given: Any) -> Any:
        """The result of ``function(url, *given, *inputs)`` for a partition."""
        return self._wait_for(self._start(0, number, function, *given))

    def rows(
        self, plan: Plan, names: Names, places: Sequence[int], start: Start
    ) -> Iterator[Piece[Rows]]:
        """Pieces of the partitions at ``places``, from position and row ``start`` on, in order.

        Raises what a worker raised, at its position in the order; ClusterError if tasks repeatedly
        lose their workers or the scheduler is lost.
        """
        limit = min(TASK_BYTES, self._window)
        remaining = iter(range(start[0], len(places)))
        pending: deque[_PartitionTask] = deque()
        try:
            while True:
                while self._has_room(pending) and (position := next(remaining, None)) is not None:
                    begin = start[1] if position == start[0] else 0
                    pending.append(
                        self._start(position, places[position], decode, plan, begin, limit)
                    )
                if not pending:
                    return
                found: DecodedRows = self._wait_for(pending[0])
                task = pending.popleft()
                if found.end < found.rows:
                    request = (decode, plan, found.end, limit)
                    pending.appendleft(
                        self._submit(task.position, task.number, request, task.inputs)
                    )
                names.update(found.names)
                self._size = max(found.nbytes, MIN_BYTES, 0.5 * self._size)
                position = task.position
                del task
                for row, arrays in found.pieces:
                    rows = Rows(arrays_to_batch(arrays), None)
                    yield Piece(position, row, rows.batch.passed, rows)
                del found  # free it before the next result arrives
        finally:
            if self._client.status == "running":  # a lost client cannot cancel tasks
                self._client.cancel([task.future for task in pending])

    def _has_room(self, pending: deque[_PartitionTask]) -> bool:
        return not pending or 0.0 < len(pending) * self._size < self._window

    def _start(self, position: int, number: int, *request: Any) -> _PartitionTask:
        """Submit a partition's own tasks, and a request that depends on them.

        The inputs' futures are released, never cancelled: the user may hold the same keys.
        """
        tasks, keys = self._graph.of(number)
        places = monitor_of(self._client).wait_for_usable(self._client, self._waiting)
        try:
            priority = -next(self._count)
            inputs = self._client.get(tasks, keys, sync=False, priority=priority, workers=places)
        except Exception as error:
            refuse_lost(self._client, error)
            raise
        return self._submit(position, number, request, inputs)

    def _submit(
        self, position: int, number: int, request: tuple[Any, ...], inputs: list[Future[Any]]
    ) -> _PartitionTask:
        count = next(self._count)
        key, (function, *given) = f"omd-partition-{self._run}-{count}", request
        more: Any = {"waiting": self._waiting, "inputs": inputs, "priority": -count}
        future = send_task(self._client, key, function, partition_url(number), *given, **more)
        return _PartitionTask(position, number, request, inputs, future)

    def _wait_for(self, task: _PartitionTask) -> Any:
        """The result of a request; a lost one is submitted again. Raises what the task raised."""
        for attempt in range(ATTEMPTS):
            if attempt:
                task.inputs = []  # first, so that Dask forgets the lost results
                task.future.release()
                again = self._start(task.position, task.number, *task.request)
                task.inputs, task.future = again.inputs, again.future
            try:
                with _note_partition(task.number):
                    return wait_for_result(
                        self._client, task.future, self._waiting, direct=self._direct
                    )
            except TaskLostError as error:
                report_lost_task(partition_url(task.number), error)
                if isinstance(error, ResultTimeoutError):
                    self._direct = None
        raise ClusterError(
            f"{partition_url(task.number)}: the workers that compute it died or stopped "
            f"responding, {ATTEMPTS} times; is it larger than a worker's memory? "
            "ddf.repartition() makes smaller ones"
        )


@contextmanager
def _note_partition(number: int) -> Iterator[None]:
    """Add the partition as a note to errors of the collection's own functions."""
    try:
        yield
    except (StreamomdError, TaskLostError):
        raise
    except Exception as error:
        error.add_note(f"while {partition_url(number)} was computed")
        raise


UNIT_BYTES = 4 << 20
LABELS = 1000  # with more it is not a classification


@dataclass(frozen=True)
class PartitionSummary:
    """A partition's columns, number of rows, and distinct labels."""

    url: str
    schema: Any
    rows: int
    labels: list[Any]


@dataclass(frozen=True)
class DecodedRows:
    """Rows of a partition from a given row on: all remaining ones, or up to a limit.

    pieces: (first row, arrays). end: the row after the last. rows, nbytes: of the whole partition.
    """

    pieces: list[tuple[int, Arrays]]
    names: dict[int, tuple[str, ...]]
    end: int
    rows: int
    nbytes: int


def summarize(url: str, label: str, *parts: Any) -> PartitionSummary:
    """The summary that a feature plan is made from."""
    table = table_of(parts, url)
    return PartitionSummary(url, table.schema, table.num_rows, distinct_in(table, label, LABELS))


def encode_partition(
    plan: Plan,
    url: str,
    begin: int,
    parts: tuple[Any, ...],
    names: Names,
    unit_bytes: int = UNIT_BYTES,
) -> tuple[int, int, Iterator[tuple[int, Batch]]]:
    """A partition's rows and bytes, and (first row, batch) from row ``begin`` on.

    Raises SchemaError, BadRowError and DataError as a shard of these rows would.
    """
    table = without_null_types(table_of(parts, url), plan.families)
    check_schema(plan, table.schema, url)
    if begin > table.num_rows:
        raise DataError(
            f"{url} had at least {begin} rows, and has {table.num_rows} now that it is computed "
            "again: its computation must be deterministic (set a seed?)"
        )
    table = table.select([*plan.columns])
    rows = batches(table, begin, unit_bytes)
    pieces = ((row, encode(plan, some, shard=url, row=row, names=names)) for row, some in rows)
    return table.num_rows, table.nbytes, pieces


def decode(url: str, plan: Plan, begin: int, limit: int, *parts: Any) -> DecodedRows:
    """Runs on a worker: a partition's rows from ``begin`` on, up to ``limit`` bytes."""
    names = Names()
    rows, nbytes, batches = encode_partition(plan, url, begin, parts, names, min(UNIT_BYTES, limit))
    pieces, taken, end = [], 0, rows
    for row, batch in batches:
        pieces.append((row, batch_to_arrays(batch)))
        taken, end = taken + batch.nbytes, row + batch.passed
        if taken >= limit:
            break
    return DecodedRows(pieces, names.seen(), end, rows, max(nbytes, taken))
