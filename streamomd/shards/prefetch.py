"""Running jobs ahead in threads: results in order, the waiting ones bounded in bytes.

Decoded rows are buffers of megabytes, allocated by the threads that decode and freed by the one
that learns. By default, glibc raises its mmap threshold above them and scatters them over one arena
per thread, and Arrow's pool never returns memory: resident memory then grows for minutes.
"""

from __future__ import annotations

import contextvars
import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import pyarrow as pa

from streamomd.core.platform_calls import set_allocator
from streamomd.core.profiling import waiting

MMAP_THRESHOLD = -3  # glibc's M_MMAP_THRESHOLD
ARENA_MAX = -8  # glibc's M_ARENA_MAX
LARGE_BYTES = 256 << 10
RELEASE_BYTES = 128 << 20


@functools.cache
def return_freed_memory() -> None:
    """Make glibc return large buffers when they are freed; for the whole process, once.

    Does nothing with another C library, or if MALLOC_* variables are set.
    """
    if any(name.startswith("MALLOC_") for name in os.environ):
        return
    set_allocator([(MMAP_THRESHOLD, LARGE_BYTES), (ARENA_MAX, 1)])


class Release:
    """Counts bytes allocated from Arrow's pool, and makes the pool return unused memory."""

    def __init__(self) -> None:
        self._passed = 0

    def passed(self, nbytes: int) -> None:
        """Count a buffer. Returned memory costs page faults when it is allocated again: 15 % of a
        training after each unit, 7 % after 32 MiB, 5 % after 64 MiB.
        """
        self._passed += nbytes
        if self._passed >= RELEASE_BYTES:
            self._passed = 0
            pa.default_memory_pool().release_unused()


J = TypeVar("J")
R = TypeVar("R")
Run = Callable[[J], Iterator[R]]
"""Yields the results of a job. A result counts as its ``nbytes``, if it has that attribute."""

LEAST_BYTES = 1 << 12
"""A result counts as at least this much, so that tiny ones are bounded in number as well."""
CHECK_SECONDS = 0.2
_END: Any = object()


@dataclass
class _Lane(Generic[J, R]):
    """One job and its results that wait, each with its bytes."""

    job: J
    results: deque[tuple[R, int]] = field(default_factory=deque)
    done: bool = False
    error: BaseException | None = None


class Prefetcher(Generic[J, R]):
    """Threads that run jobs at the same time, and hand over their results in the jobs' order.

    A thread pauses before a result while ``budget`` bytes wait, except that the job whose turn
    it is may always have one result: so there is no deadlock, and at most one result a thread
    beyond the budget. ``session`` makes what a thread runs its jobs with. An error is raised
    where its result would have come; no job is started after it. ``cancel`` is called before the
    threads are waited for: it ends what they may wait for. ``check`` is called periodically while a
    result is waited for, and may raise.
    """

    def __init__(
        self,
        jobs: Iterator[J],
        session: Callable[[], AbstractContextManager[Run[J, R]]],
        *,
        threads: int,
        budget: int,
        cancel: Callable[[], None] | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        self._jobs = jobs
        self._session = session
        self._budget = budget
        self._cancel, self._check = cancel, check
        self._changed = threading.Condition()
        self._lanes: deque[_Lane[J, R]] = deque()
        self._closed = False
        self._exhausted = False
        self.waiting = 0
        self.most_waiting = 0
        self._threads = [
            threading.Thread(
                target=contextvars.copy_context().run,
                args=(self._work,),
                name=f"streamomd-ahead-{i}",
                daemon=True,
            )
            for i in range(threads)
        ]

    def results(self) -> Generator[R, None, None]:
        """The results in order; closing this ends the threads and waits for them."""
        try:
            for thread in self._threads:
                thread.start()
            while self._await_result():
                with self._changed:
                    taken = [self._lanes[0].results.popleft()]
                    self.waiting -= taken[0][1]
                    self._changed.notify_all()
                # Not bound to a name: a result must not stay in memory after its consumer drops it.
                yield taken.pop()[0]
        finally:
            self._close()

    def _await_result(self) -> bool:
        """Wait for the next result in order; False after the last one."""
        with waiting(), self._changed:
            while True:
                wait = None if self._check is None else CHECK_SECONDS
                while not self._changed.wait_for(self._is_consumer_due, wait):
                    assert self._check is not None
                    self._check()
                if not self._lanes:
                    return False
                lane = self._lanes[0]
                if lane.results:
                    return True
                if lane.error is not None:
                    raise lane.error
                self._lanes.popleft()
                self._changed.notify_all()

    def _is_consumer_due(self) -> bool:
        if not self._lanes:
            return self._exhausted
        return bool(self._lanes[0].results) or self._lanes[0].done

    def _close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._cancel is not None:
            self._cancel()
        for thread in self._threads:
            # The collector may close a generator that an error left behind, in any thread.
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join()
        self._lanes.clear()

    def _work(self) -> None:
        with self._session() as run:
            while (lane := self._next_lane()) is not None:
                try:
                    self._fill(lane, run)
                except BaseException as error:
                    self._fail(lane, error)

    def _next_lane(self) -> _Lane[J, R] | None:
        with self._changed:
            if self._closed or self._exhausted:
                return None
            try:
                job = next(self._jobs, _END)
            except BaseException as error:
                self._lanes.append(_Lane(_END))
                self._fail(self._lanes[-1], error)
                return None
            if job is not _END:
                self._lanes.append(_Lane(job))
                return self._lanes[-1]
            self._exhausted = True
            self._changed.notify_all()
            return None

    def _fill(self, lane: _Lane[J, R], run: Run[J, R]) -> None:
        results = run(lane.job)
        while self._may_go(lane):
            result = next(results, _END)
            if result is _END:
                break
            size = max(LEAST_BYTES, getattr(result, "nbytes", 0))
            with self._changed:
                lane.results.append((result, size))
                self.waiting += size
                self.most_waiting = max(self.most_waiting, self.waiting)
                self._changed.notify_all()
            del result
        with self._changed:
            lane.done = True
            self._changed.notify_all()

    def _may_go(self, lane: _Lane[J, R]) -> bool:
        """Wait until this lane may make a result; False when everything is to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._has_room(lane))
            return not self._closed

    def _has_room(self, lane: _Lane[J, R]) -> bool:
        return self.waiting < self._budget or (lane is self._lanes[0] and not lane.results)

    def _fail(self, lane: _Lane[J, R], error: BaseException) -> None:
        with self._changed:
            lane.error = error
            lane.done = self._exhausted = True
            self._changed.notify_all()
