"""A collection's rows in order: its partitions computed ahead, by this process or by a cluster."""

from __future__ import annotations

import itertools
import os
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import dask.threaded
from distributed import Client, Future

from streamomd.core.errors import ClusterError, StreamomdError
from streamomd.distributed.cluster import LostError, SilentError, outcome, sent
from streamomd.distributed.collections.collection import Graph, url_of
from streamomd.distributed.collections.partition import DecodedRows, decode, encoded
from streamomd.distributed.decode import TASK_BYTES, TRIES, batch_of
from streamomd.distributed.scheduler import refuse_lost
from streamomd.distributed.worker_monitor import lookout_of
from streamomd.features import Names, Plan
from streamomd.shards.allocator import steady
from streamomd.shards.encoded_rows import Rows
from streamomd.shards.prefetch import Prefetcher
from streamomd.shards.reader import Piece

AT_ONCE = 2  # partitions in this process: the one whose rows are learned, and the next
LEAST_BYTES = 1 << 20  # a partition counts as this much, so that small ones are bounded in number
Start = tuple[int, int]


class LocalPartitions:
    """Partitions computed in this process, by Dask's threads; at most ``budget`` bytes wait."""

    def __init__(self, graph: Graph, budget: int) -> None:
        self._graph, self._budget = graph, budget

    def ask(self, number: int, function: Callable[..., Any], *given: Any) -> Any:
        """What a function says of a partition: ``function(url, *given, *parts)``."""
        return function(url_of(number), *given, *self._parts(number))

    def rows(
        self, plan: Plan, names: Names, places: Sequence[int], start: Start
    ) -> Iterator[Piece[Rows]]:
        """Pieces of the partitions at ``places``, from place and row ``start`` on, in order."""
        steady()
        threads = dask.config.get("num_workers", None) or os.cpu_count()
        with ThreadPoolExecutor(threads, "streamomd-dask") as pool:

            def run(position: int) -> Iterator[Piece[Rows]]:
                number, begin = places[position], start[1] if position == start[0] else 0
                parts = self._parts(number, pool)
                for row, batch in encoded(plan, url_of(number), begin, parts, names)[2]:
                    yield Piece(position, row, batch.passed, Rows(batch, None), batch.nbytes)

            jobs, session = iter(range(start[0], len(places))), lambda: nullcontext(run)
            yield from Prefetcher(jobs, session, threads=AT_ONCE, budget=self._budget).results()

    def _parts(self, number: int, pool: Executor | None = None) -> tuple[Any, ...]:
        tasks, keys = self._graph.of(number)
        with _noted(number):
            return tuple(dask.threaded.get(tasks, keys, pool=pool))


@dataclass
class _PartitionTask:
    """Something asked of a partition. held: its parts, kept on their worker until it is done."""

    position: int
    number: int
    asked: tuple[Any, ...]
    held: list[Future[Any]]
    future: Future[Any]


class ClusterPartitions:
    """Partitions computed and decoded by a cluster's workers, ahead of one learner.

    The oldest is taken first, whatever else is done; so many are under way as fit in the window. A
    partition of more than TASK_BYTES stays on its worker and comes in several pieces.
    """

    def __init__(
        self, client: Client, graph: Graph, window: int, waiting: Callable[[], None]
    ) -> None:
        self._client, self._graph, self._waiting = client, graph, waiting
        self._window, self._size = window, 0.0
        self._run, self._count = uuid.uuid4().hex[:8], itertools.count(1)
        self._direct: bool | None = True

    def ask(self, number: int, function: Callable[..., Any], *given: Any) -> Any:
        """What a function says of a partition: ``function(url, *given, *parts)``."""
        return self._taken(self._begun(0, number, function, *given))

    def rows(
        self, plan: Plan, names: Names, places: Sequence[int], start: Start
    ) -> Iterator[Piece[Rows]]:
        """Pieces of the partitions at ``places``, from place and row ``start`` on, in order.

        Raises what a worker raised, in its place in the order; ClusterError when tasks keep losing
        their workers, or the scheduler is lost.
        """
        limit = min(TASK_BYTES, self._window)
        left = iter(range(start[0], len(places)))
        pending: deque[_PartitionTask] = deque()
        try:
            while True:
                while self._has_room(pending) and (at := next(left, None)) is not None:
                    begin = start[1] if at == start[0] else 0
                    pending.append(self._begun(at, places[at], decode, plan, begin, limit))
                if not pending:
                    return
                found: DecodedRows = self._taken(pending[0])
                task = pending.popleft()
                if found.end < found.rows:
                    asked = (decode, plan, found.end, limit)
                    pending.appendleft(self._sent(task.position, task.number, asked, task.held))
                names.update(found.names)
                self._size = max(found.nbytes, LEAST_BYTES, 0.5 * self._size)
                position = task.position
                del task
                for row, arrays in found.pieces:
                    rows = Rows(batch_of(arrays), None)
                    yield Piece(position, row, rows.batch.passed, rows)
                del found  # not held while the next one comes
        finally:
            if self._client.status == "running":  # of a lost one nothing can be taken back
                self._client.cancel([task.future for task in pending])

    def _has_room(self, pending: deque[_PartitionTask]) -> bool:
        return not pending or 0.0 < len(pending) * self._size < self._window

    def _begun(self, position: int, number: int, *asked: Any) -> _PartitionTask:
        """A partition's own tasks under way, and what is asked of it behind them.

        The parts' futures are dropped, never cancelled: their keys may be the user's too.
        """
        tasks, keys = self._graph.of(number)
        places = lookout_of(self._client).some_usable(self._client, self._waiting)
        try:
            priority = -next(self._count)
            held = self._client.get(tasks, keys, sync=False, priority=priority, workers=places)
        except Exception as error:
            refuse_lost(self._client, error)
            raise
        return self._sent(position, number, asked, held)

    def _sent(
        self, position: int, number: int, asked: tuple[Any, ...], held: list[Future[Any]]
    ) -> _PartitionTask:
        count = next(self._count)
        key, (function, *given) = f"omd-partition-{self._run}-{count}", asked
        more: Any = {"waiting": self._waiting, "held": held, "priority": -count}
        future = sent(self._client, key, function, url_of(number), *given, **more)
        return _PartitionTask(position, number, asked, held, future)

    def _taken(self, task: _PartitionTask) -> Any:
        """What was asked for, asked for again when it is lost. What the task raised is raised."""
        for tried in range(TRIES):
            if tried:
                task.held = []  # first, so that what was lost is forgotten
                task.future.release()
                again = self._begun(task.position, task.number, *task.asked)
                task.held, task.future = again.held, again.future
            try:
                with _noted(task.number):
                    return outcome(self._client, task.future, self._waiting, direct=self._direct)
            except LostError as error:
                if isinstance(error, SilentError):
                    self._direct = None
        raise ClusterError(
            f"{url_of(task.number)}: the workers that compute it die or fall silent, {TRIES} "
            "times; is it larger than a worker's memory? ddf.repartition() makes smaller ones"
        )


@contextmanager
def _noted(number: int) -> Iterator[None]:
    """Errors of the collection's own functions are raised as they are, with their partition."""
    try:
        yield
    except (StreamomdError, LostError):
        raise
    except Exception as error:
        error.add_note(f"while {url_of(number)} was computed")
        raise
