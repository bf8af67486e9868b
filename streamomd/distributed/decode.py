"""Exact mode's rows, decoded and hashed by a cluster's workers, in order.

A task is a row group, or a part of a large one, as plain arrays; so many are asked for ahead as
fit in a window of bytes. The oldest is taken first, whatever else is done: so the rows come in the
order of one process, and the learner's bits are those of one process. A task is pure: a worker that
dies, or is taken away, costs the time of its tasks.
"""

from __future__ import annotations

import itertools
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from distributed import Client, Future

from streamomd.core.batch import Batch, DenseBatch, Skipped, SparseBatch
from streamomd.core.errors import ClusterError
from streamomd.core.urls import shown
from streamomd.distributed.cluster import LostError, SilentError, outcome, sent
from streamomd.features import Names, Plan
from streamomd.shards.digests import Digests, Found
from streamomd.shards.encoded_rows import Rows
from streamomd.shards.reader import Group, Piece, jobs_of
from streamomd.shards.shard import ShardSet
from streamomd.training.row_stream import rows_of_group

TASK_BYTES = 64 << 20
UNIT_BYTES = 16 << 20
PROBE_ROWS = 1024  # the first task alone, to learn how many bytes a row has
TRIES = 3  # of a task whose workers die: Dask itself gives up after four deaths each time

Arrays = tuple[Any, ...]
Decoded = tuple[list[tuple[int, Arrays]], dict[int, tuple[str, ...]], list[Found]]


@dataclass(frozen=True)
class DecodeRequest:
    """What every task is told: how columns become coordinates, and how to reach the store."""

    plan: Plan
    options: Mapping[str, Any] = field(repr=False)


def decode(reading: DecodeRequest, group: Group, begin: int, end: int) -> Decoded:
    """Rows ``begin`` … ``end`` − 1 of a shard, which lie in one group; names seen in them; and the
    group's digest.

    Runs on a worker. Pieces are (first row, arrays).
    """
    names, digests = Names(), Digests()
    pieces = rows_of_group(
        reading.plan,
        group,
        begin,
        end,
        options=reading.options,
        names=names,
        digests=digests,
        unit_bytes=UNIT_BYTES,
    )
    rows = [(piece.row, arrays_of(piece.value.batch)) for piece in pieces]
    return rows, names.seen(), digests.found()


def arrays_of(batch: Batch) -> Arrays:
    """A batch as what travels best."""
    skipped = (batch.skipped.places, batch.skipped.reasons)
    if isinstance(batch, SparseBatch):
        return batch.indptr, batch.indices, batch.values, batch.y, batch.weight, *skipped
    return batch.values, batch.y, batch.weight, *skipped


def batch_of(arrays: Arrays) -> Batch:
    """The batch again."""
    told, skipped = arrays[:-2], Skipped(*arrays[-2:])
    found = SparseBatch(*told) if len(told) == 5 else DenseBatch(*told)
    return replace(found, skipped=skipped)


@dataclass
class _DecodeTask:
    """A task under way."""

    position: int
    group: Group
    begin: int
    end: int
    future: Future[Any]

    @property
    def where(self) -> str:
        return f"shard {shown(self.group.shard.url)}, rows {self.begin} to {self.end - 1}"


class Decoders:
    """Workers that decode ahead of one learner."""

    def __init__(
        self,
        client: Client,
        reading: DecodeRequest,
        shards: ShardSet,
        *,
        window_bytes: int,
        names: Names | None = None,
        digests: Digests | None = None,
        waiting: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._reading = reading
        self._shards = shards
        self._window = window_bytes
        self._names, self._digests = names, digests
        self._waiting = waiting
        self._width = 0.0  # bytes a row, of those seen last; 0: none seen
        self._run = uuid.uuid4().hex[:8]
        self._count = itertools.count()
        self._place = 0
        self._direct: bool | None = True

    def rows(self, places: Sequence[int], start: tuple[int, int] = (0, 0)) -> Iterator[Piece[Rows]]:
        """Pieces of the shards at ``places``, from place and row ``start`` on, in order.

        Raises what a worker raised, in its place in the order; ClusterError when tasks keep losing
        their workers, or the scheduler is lost.
        """
        spans = self._spans(places, start)
        pending: deque[_DecodeTask] = deque()
        try:
            while True:
                while self._has_room(pending) and (task := next(spans, None)) is not None:
                    pending.append(task)
                if not pending:
                    return
                found = self._taken(pending[0])
                task = pending.popleft()
                yield from self._pieces(task, found)
                del task, found  # not held while the next one comes
        finally:
            if self._client.status == "running":  # of a lost one nothing can be taken back
                self._client.cancel([task.future for task in pending])

    def _has_room(self, pending: deque[_DecodeTask]) -> bool:
        rows = sum(task.end - task.begin for task in pending)
        return not pending or 0.0 < rows * self._width < self._window

    def _spans(self, places: Sequence[int], start: tuple[int, int]) -> Iterator[_DecodeTask]:
        """Tasks in order, sent one by one; a large group is cut by what rows have weighed so far.

        Who reads the second half of a group decodes the first too: halves cost 1.5 groups.
        """
        for job in jobs_of(self._shards, places, start):
            group, begin = job.group, job.begin
            last = group.row + group.rows
            while begin < last:
                most = PROBE_ROWS
                if self._width:
                    most = max(1, int(min(TASK_BYTES, self._window) / self._width))
                end = last if last - begin <= 2 * most else begin + most
                self._place += 1
                future = self._send(group, begin, end, self._place)
                yield _DecodeTask(job.position, group, begin, end, future)
                begin = end

    def _send(self, group: Group, begin: int, end: int, place: int) -> Future[Any]:
        """``place``: among all tasks; the earlier, the sooner."""
        key = f"omd-decode-{self._run}-{next(self._count)}"
        given = (self._reading, group, begin, end)
        return sent(self._client, key, decode, *given, waiting=self._waiting, priority=-place)

    def _taken(self, task: _DecodeTask) -> Decoded:
        """A task's result, asked for again when it is lost. What the task raised is raised."""
        for tried in range(TRIES):
            if tried:
                task.future = self._send(task.group, task.begin, task.end, 0)
            try:
                # From the worker itself while it can be reached; else through the scheduler.
                found: Decoded = outcome(
                    self._client, task.future, self._waiting, direct=self._direct
                )
                return found
            except LostError as error:
                if isinstance(error, SilentError):
                    self._direct = None
        raise ClusterError(
            f"{task.where}: the workers that decode them die or fall silent, {TRIES} times; are "
            "they larger than a worker's memory? Look at the workers' logs"
        )

    def _pieces(self, task: _DecodeTask, found: Decoded) -> Iterator[Piece[Rows]]:
        pieces, names, digests = found
        if self._digests is not None:
            self._digests.check_all(digests)
        if self._names is not None:
            self._names.update(names)
        nbytes = 0
        for row, arrays in pieces:
            rows = Rows(batch_of(arrays), None)
            nbytes += rows.nbytes
            yield Piece(task.position, row, rows.batch.passed, rows)
        # Never at once to a half: a few slim rows say little of those that follow.
        self._width = max(1.0, nbytes / (task.end - task.begin), 0.5 * self._width)
