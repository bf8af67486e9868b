"""Stored bytes of a store's shards, requested before the threads that decode need them.

Requests of the next jobs run at the same time. A job's bytes are in memory from its request until
its rows were decoded; those of all jobs are bounded. Nothing here raises: what could not be fetched
is requested again by the thread that needs it, which reports the error in its place.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import NamedTuple

from streamomd.shards.order import Job
from streamomd.shards.stored_object import Span, StoredObject

JOBS_AT_ONCE = 16
"""Jobs that request bytes at the same time."""
JOBS_AHEAD = 256
"""Several small row groups are one request: so many more jobs wait than requests."""


class Load:
    """One request for the bytes of one job or several; ``spans``: what the object does not hold
    itself, once ``run`` was called."""

    def __init__(self, request: Callable[[], Sequence[Span]] = tuple) -> None:
        self._request = request
        self._lock, self._begun = threading.Lock(), False
        self.spans: Future[Sequence[Span]] = Future()

    def begin(self) -> bool:
        """Whether the caller is the first, who is to ``run`` it."""
        with self._lock:
            begun, self._begun = self._begun, True
            return not begun

    def run(self) -> None:
        """Request it."""
        try:
            found = self._request()
        except BaseException as error:
            self.spans.set_exception(error)
        else:
            self.spans.set_result(found)


@dataclass(frozen=True)
class Need:
    """What a job reads of an object, and the request of it, which may be that of other jobs."""

    stored: StoredObject | None = None
    nbytes: int = 0
    load: Load = field(default_factory=Load)


class Fetched(NamedTuple):
    """Bytes of a job in memory, and the object that has more of them."""

    spans: Sequence[Span] = ()
    stored: StoredObject | None = None
    nbytes: int = 0


class OrderedBudget:
    """Bytes that jobs may hold, given in the jobs' order; a job that needs more waits until it
    would be the only one."""

    def __init__(self, most: int) -> None:
        self._most, self.held, self._next, self._closed = most, 0, 0, False
        self._changed = threading.Condition()
        self.most_held = 0

    def take(self, number: int, nbytes: int) -> bool:
        """Wait for the job's turn and for room; False when everything is to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._may(number, nbytes))
            self._next += 1
            if not self._closed:
                self.held += nbytes
                self.most_held = max(self.most_held, self.held)
            self._changed.notify_all()
            return not self._closed

    def _may(self, number: int, nbytes: int) -> bool:
        fits = not self.held or self.held + nbytes <= self._most
        return number == self._next and (not nbytes or fits)

    def give_back(self, nbytes: int) -> None:
        """A job's bytes are no longer held."""
        with self._changed:
            self.held -= nbytes
            self._changed.notify_all()

    def close(self) -> None:
        """No thread waits any longer."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class FetchAhead:
    """Iterate it for the jobs; ``claim`` one to get its bytes, once.

    need: what a job reads, which may take requests itself. most: bytes of all jobs; one job may
    have more.
    """

    def __init__(self, jobs: Iterator[Job], need: Callable[[Job], Need], most: int) -> None:
        self._jobs, self._need = jobs, need
        self.budget = OrderedBudget(most)
        self._tasks: SimpleQueue[tuple[int, Job, Future[Fetched]] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._cancelled = False
        self._window: deque[Job] = deque()
        self._started: dict[tuple[int, int], Future[Fetched]] = {}
        self._count = 0

    def __iter__(self) -> Iterator[Job]:
        return self

    def __next__(self) -> Job:
        while len(self._window) <= JOBS_AHEAD:
            job = next(self._jobs, None)
            if job is None:
                break
            self._window.append(job)
            self._started[_key(job)] = self._submit(job)
        if not self._window:
            raise StopIteration
        return self._window.popleft()

    def claim(self, job: Job) -> Claim:
        """The bytes of a job that was given."""
        return Claim(_key(job), self._started.pop(_key(job), None), self.budget)

    def cancel(self) -> None:
        """Begin no other request, and let no thread wait."""
        self._cancelled = True
        self.budget.close()

    def close(self) -> None:
        """Wait for the threads."""
        self.cancel()
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _submit(self, job: Job) -> Future[Fetched]:
        future: Future[Fetched] = Future()
        self._tasks.put((self._count, job, future))
        self._count += 1
        if len(self._threads) < JOBS_AT_ONCE:
            self._start_thread()
        return future

    def _start_thread(self) -> None:
        # Daemons, unlike those of concurrent.futures: none that waits for room delays an exit.
        name, run = f"streamomd-fetch-{len(self._threads)}", copy_context().run
        thread = threading.Thread(target=run, args=(self._work,), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system allows no more; those that run are enough
            if not self._threads:
                raise
        else:
            self._threads.append(thread)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            number, job, future = task
            if self._cancelled:
                future.set_result(Fetched())
            else:
                self._fetch(number, job, future)
            del task, job, future

    def _fetch(self, number: int, job: Job, future: Future[Fetched]) -> None:
        need = Need()
        with suppress(Exception):
            need = self._need(job)
        if not self.budget.take(number, need.nbytes):
            future.set_result(Fetched())
            return
        if need.load.begin():
            need.load.run()
        # Where another thread requests it, this one is free for the next job.
        need.load.spans.add_done_callback(
            partial(self._hand_over, need.stored, need.nbytes, future)
        )

    def _hand_over(
        self,
        stored: StoredObject | None,
        nbytes: int,
        future: Future[Fetched],
        spans: Future[Sequence[Span]],
    ) -> None:
        # It is not given the Need: that would be a cycle, in which bytes wait for the collector.
        if spans.exception() is None:
            future.set_result(Fetched(spans.result(), stored, nbytes))
        else:
            self.budget.give_back(nbytes)
            future.set_result(Fetched())


class Claim:
    """The bytes of one job, for the thread that runs it."""

    def __init__(
        self,
        key: tuple[int, int] | None = None,
        future: Future[Fetched] | None = None,
        budget: OrderedBudget | None = None,
    ) -> None:
        self.key, self._future, self._budget = key, future, budget

    def wait(self) -> Fetched:
        """What was fetched; nothing where that failed or was cancelled."""
        return Fetched() if self._future is None else self._future.result()

    def release(self) -> None:
        """The bytes are no longer used."""
        future, self._future = self._future, None
        if future is not None:
            future.add_done_callback(self._give_back)

    def _give_back(self, future: Future[Fetched]) -> None:
        if self._budget is not None:
            self._budget.give_back(future.result().nbytes)

    def is_of(self, job: Job) -> bool:
        """Whether it is of the row group that a job reads."""
        return self.key == _key(job)


def _key(job: Job) -> tuple[int, int]:
    """A job is one row group, or what is left of it."""
    return job.position, job.group.number
