"""Calls divided over threads of this process: compiled loops, which release the GIL."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from contextvars import copy_context
from typing import Any, Self, TypeVar

from streamomd.core.profiling import Stage

T = TypeVar("T")


class Threads:
    """Runs calls in ``count`` threads, one of which is the caller's.

    stage: where a profile counts the time of the other threads; "": nowhere.

    >>> with Threads(2) as threads:
    ...     threads.run([lambda: 1, lambda: 2, lambda: 3])
    [1, 2, 3]
    """

    def __init__(self, count: int, stage: str = "") -> None:
        self.count, self._stage = count, stage
        self._pool = ThreadPoolExecutor(count - 1, "streamomd-threads") if count > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def run(self, calls: Sequence[Callable[[], T]], *, worth: bool = True) -> list[T]:
        """The results of the calls, in their order.

        Of several errors the first in that order is raised, after all calls have ended. worth:
        False runs them one after another, where waking a thread takes longer than the calls.
        """
        if self._pool is None or len(calls) < 2 or not worth:
            return [call() for call in calls]
        ahead, found = deque(enumerate(calls)), dict[int, Any]()
        errors: dict[int, BaseException] = {}

        def work() -> None:
            while True:
                try:
                    at, call = ahead.popleft()
                except IndexError:
                    return
                try:
                    found[at] = call()
                except BaseException as error:
                    errors[at] = error

        def help_out() -> None:
            with Stage(self._stage) if self._stage else nullcontext():
                work()

        helpers = range(min(self.count, len(calls)) - 1)
        waiting = [self._pool.submit(copy_context().run, help_out) for _ in helpers]
        work()
        wait(waiting)
        if errors:
            raise errors[min(errors)]
        return [found[at] for at in range(len(calls))]
