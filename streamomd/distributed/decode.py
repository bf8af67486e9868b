"""Exact mode's rows, decoded and hashed by a cluster's workers, in order.

A task decodes a row group, or a piece of a large one, into plain arrays; tasks are prefetched
within a window of bytes. Results are used in order, so the rows come in the order of one process
and the model is bit-identical to that of one process. A task is pure: a worker that dies or is
removed costs only the time of its tasks.

If this process alone would finish soon, the cluster is not tried: a trial that finds it slower, and
the cancellation of its tasks, costs two seconds or more.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from distributed import Client, Future

from streamomd.core.batch import Batch, DenseBatch, Skipped, SparseBatch
from streamomd.core.errors import ClusterError
from streamomd.core.urls import shown
from streamomd.distributed.cluster import (
    ResultTimeoutError,
    TaskLostError,
    report_lost_task,
    send_task,
    wait_for_result,
)
from streamomd.distributed.worker_monitor import usable_workers
from streamomd.features import Names, Plan
from streamomd.shards.encoded_rows import Rows
from streamomd.shards.order import Group, jobs_of
from streamomd.shards.reader import Piece
from streamomd.shards.shard import Digests, Found, ShardSet
from streamomd.training.model_data import ModelData
from streamomd.training.progress import note
from streamomd.training.row_stream import Source, rows_of_group
from streamomd.training.training_step import reader_plan

TASK_BYTES = 64 << 20
UNIT_BYTES = 16 << 20
PROBE_ROWS = 1024  # of the first task, which measures the bytes per row
ATTEMPTS = 3  # of a task whose workers die: Dask itself gives up after four deaths per attempt

Arrays = tuple[Any, ...]
Decoded = tuple[list[tuple[int, Arrays]], dict[int, tuple[str, ...]], list[Found]]


@dataclass(frozen=True)
class DecodeRequest:
    """Input of every task: the feature plan and the storage options."""

    plan: Plan
    options: Mapping[str, Any] = field(repr=False)


def decode(request: DecodeRequest, group: Group, begin: int, end: int) -> Decoded:
    """Rows ``begin`` … ``end`` − 1 of a shard, within one row group; their names; the group's
    digest.

    Runs on a worker. Pieces are (first row, arrays).
    """
    names, digests = Names(), Digests()
    pieces = rows_of_group(
        request.plan,
        group,
        begin,
        end,
        options=request.options,
        names=names,
        digests=digests,
        unit_bytes=UNIT_BYTES,
    )
    rows = [(piece.row, batch_to_arrays(piece.value.batch)) for piece in pieces]
    return rows, names.seen(), digests.found()


def batch_to_arrays(batch: Batch) -> Arrays:
    """A batch as plain arrays, which Dask transfers without copies."""
    skipped = (batch.columns, batch.time, batch.skipped.places, batch.skipped.reasons)
    if isinstance(batch, SparseBatch):
        return batch.indptr, batch.indices, batch.values, batch.y, batch.weight, *skipped
    return batch.values, batch.y, batch.weight, *skipped


def arrays_to_batch(arrays: Arrays) -> Batch:
    """The batch of ``batch_to_arrays``."""
    given, (values, time), skipped = arrays[:-4], arrays[-4:-2], Skipped(*arrays[-2:])
    decoded = SparseBatch(*given) if len(given) == 5 else DenseBatch(*given)
    return replace(decoded, skipped=skipped, time=time, columns=values)


@dataclass
class _DecodeTask:
    """A submitted task."""

    position: int
    group: Group
    begin: int
    end: int
    future: Future[Any]

    @property
    def where(self) -> str:
        """The shard and rows of the task, for messages."""
        return f"shard {shown(self.group.shard.url)}, rows {self.begin} to {self.end - 1}"


class Decoders:
    """Decodes on the workers, prefetching for the learner."""

    def __init__(
        self,
        client: Client,
        request: DecodeRequest,
        shards: ShardSet,
        *,
        window_bytes: int,
        names: Names | None = None,
        digests: Digests | None = None,
        waiting: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._request = request
        self._shards = shards
        self._window = window_bytes
        self._names, self._digests = names, digests
        self._waiting = waiting
        self._width = 0.0  # bytes per row of the last task; 0: not measured yet
        self._run = uuid.uuid4().hex[:8]
        self._count = itertools.count()
        self._task_number = 0
        self._direct: bool | None = True

    def rows(self, places: Sequence[int], start: tuple[int, int] = (0, 0)) -> Iterator[Piece[Rows]]:
        """Pieces of the shards at ``places``, from position and row ``start`` on, in order.

        Raises what a worker raised, at its position in the order; ClusterError if tasks repeatedly
        lose their workers or the scheduler is lost.
        """
        spans = self._spans(places, start)
        pending: deque[_DecodeTask] = deque()
        try:
            while True:
                while self._has_room(pending) and (task := next(spans, None)) is not None:
                    pending.append(task)
                if not pending:
                    return
                decoded = self._wait_for(pending[0])
                task = pending.popleft()
                yield from self._pieces(task, decoded)
                del task, decoded  # free them before the next result arrives
        finally:
            if self._client.status == "running":  # a lost client cannot cancel tasks
                self._client.cancel([task.future for task in pending])

    def _has_room(self, pending: deque[_DecodeTask]) -> bool:
        rows = sum(task.end - task.begin for task in pending)
        # Until the bytes of a row are known one task is enough: the window is in bytes.
        return not pending or 0.0 < rows * self._width < self._window

    def _spans(self, places: Sequence[int], start: tuple[int, int]) -> Iterator[_DecodeTask]:
        """Tasks in order, submitted one by one; a large group is divided by the measured bytes per
        row.

        Reading the second half of a group decodes the first half too: two halves cost 1.5 groups.
        """
        for job in jobs_of(self._shards, places, start):
            group, begin = job.group, job.begin
            last = group.row + group.rows
            while begin < last:
                limit_rows = PROBE_ROWS
                if self._width:
                    limit_rows = max(1, int(min(TASK_BYTES, self._window) / self._width))
                # A short rest is taken along: a task for it would decode the group once more.
                end = last if last - begin <= 2 * limit_rows else begin + limit_rows
                self._task_number += 1
                future = self._send(group, begin, end, self._task_number)
                yield _DecodeTask(job.position, group, begin, end, future)
                begin = end

    def _send(self, group: Group, begin: int, end: int, task_number: int) -> Future[Any]:
        """task_number: index among all tasks; earlier ones have a higher priority."""
        key = f"omd-decode-{self._run}-{next(self._count)}"
        given = (self._request, group, begin, end)
        return send_task(
            self._client, key, decode, *given, waiting=self._waiting, priority=-task_number
        )

    def _wait_for(self, task: _DecodeTask) -> Decoded:
        """A task's result; a lost task is submitted again. Raises what the task raised."""
        for attempt in range(ATTEMPTS):
            if attempt:
                # 0 is the highest priority: the learner waits for this one.
                task.future = self._send(task.group, task.begin, task.end, 0)
            try:
                # From the worker itself while it is reachable; else through the scheduler.
                decoded: Decoded = wait_for_result(
                    self._client, task.future, self._waiting, direct=self._direct
                )
                return decoded
            except TaskLostError as error:
                report_lost_task(task.where, error)
                if isinstance(error, ResultTimeoutError):
                    self._direct = None
        raise ClusterError(
            f"{task.where}: the workers that decode them died or stopped responding, {ATTEMPTS} "
            "times; are they larger than a worker's memory? Check the workers' logs"
        )

    def _pieces(self, task: _DecodeTask, decoded: Decoded) -> Iterator[Piece[Rows]]:
        pieces, names, digests = decoded
        # Before a row is learned, so that those of a changed shard never enter the state.
        if self._digests is not None:
            self._digests.check_all(digests)
        if self._names is not None:
            self._names.update(names)
        nbytes = 0
        for row, arrays in pieces:
            rows = Rows(arrays_to_batch(arrays), None)
            nbytes += rows.nbytes
            yield Piece(task.position, row, rows.batch.passed, rows)
        # Never below half in one step: a few small rows say little about the next ones.
        self._width = max(1.0, nbytes / (task.end - task.begin), 0.5 * self._width)


def choose_source(
    model: ModelData, shards: ShardSet, local: Source, client: Client, waiting: Callable[[], None]
) -> Source:
    """Rows from the workers (cluster.decode = "remote"), or from the faster source ("auto").

    local: rows decoded by this process. waiting: called twice a second while rows are awaited.
    """
    cluster = model.spec.cluster
    decoders = Decoders(
        client,
        DecodeRequest(reader_plan(model), model.spec.data.store_options),
        shards,
        window_bytes=cluster.window << 20,
        names=model.names,
        digests=model.digests,
        waiting=waiting,
    )
    if cluster.decode == "remote":
        return decoders.rows
    total = shards.rows * model.spec.train.epochs

    def remaining() -> int:
        return total - model.metrics.total_rows

    return FasterSource(
        local, decoders.rows, lambda: bool(usable_workers(client, waiting)), remaining
    ).rows


TRIAL_SECONDS = 2.0
MIN_REMAINING_SECONDS = (
    30.0  # work that must remain for a trial of the cluster to cost less than a tenth
)
LOCAL, REMOTE = "this process", "the cluster"
clock = time.monotonic


class FasterSource:
    """A row source that switches to the faster of two sources after a trial. Both yield equal rows.

    ready: whether there is a usable worker. remaining: rows to come, including the next epochs.
    If the cluster fails, this process continues alone.
    """

    def __init__(
        self, local: Source, remote: Source, ready: Callable[[], bool], remaining: Callable[[], int]
    ) -> None:
        self._sources = {LOCAL: local, REMOTE: remote}
        self._ready, self._remaining = ready, remaining
        self._chosen = ""
        self._position = 0, 0

    def rows(self, places: Sequence[int], start: tuple[int, int] = (0, 0)) -> Iterator[Piece[Rows]]:
        """Pieces in order, from position and row ``start`` on."""
        self._position = start
        if not self._chosen and not self._ready():
            text = f"the cluster has no usable worker: {LOCAL} decodes alone"
            note(text, "cluster_left", "warning")
            self._chosen = LOCAL
        try:
            yield from self._choose_source(places)
        except ClusterError as error:
            text = f"{error}. {LOCAL} decodes alone from now on; no row is learned again"
            note(text, "cluster_left", "warning", rows_again=0)
            self._chosen = LOCAL
            yield from self._sources[LOCAL](places, self._position)

    def _choose_source(self, places: Sequence[int]) -> Iterator[Piece[Rows]]:
        if not self._chosen:
            rates: dict[str, float] = {}
            for name in self._sources:
                rate = yield from self._trial(name, places)
                if rate is None:
                    return
                # Learning is included: on one machine the cluster's workers take its time.
                rates[name] = rate
                if name == LOCAL and self._remaining() < rate * MIN_REMAINING_SECONDS:
                    break
            self._chosen = max(rates, key=lambda name: rates[name])
            speeds = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items())
            note(f"rows decoded and learned a second: {speeds}; continuing with {self._chosen}")
        yield from self._read_from(self._chosen, places)

    def _trial(
        self, name: str, places: Sequence[int]
    ) -> Generator[Piece[Rows], None, float | None]:
        """Yield rows for some seconds; return rows per second, or None if all were read.

        The clock starts after the first piece, so that start-up time is not counted.
        """
        started: float | None = None
        rows = 0
        with closing(self._read_from(name, places)) as pieces:
            for piece in pieces:
                yield piece
                now = clock()
                if started is None:
                    started = now
                    continue
                rows += piece.rows
                if now - started >= TRIAL_SECONDS:
                    return rows / (now - started)
        return None

    def _read_from(self, name: str, places: Sequence[int]) -> Generator[Piece[Rows], None, None]:
        """Yield a source's pieces and record where the next one begins."""
        source: Any = self._sources[name](places, self._position)
        with closing(source) as pieces:
            for piece in pieces:
                # Before it is learned: after an error of the cluster no row is learned twice.
                self._position = piece.position, piece.row + piece.rows
                yield piece
