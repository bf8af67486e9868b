"""A commit off the learning thread: the state is copied at a row's edge, a thread puts the copy.

One commit is under way at a time, and the copy's memory is used again: twice the state in all.
"""

from __future__ import annotations

import contextvars
import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from streamomd.engine.state import State

T = TypeVar("T")

LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class GivenUpError(Exception):
    """A commit under way was given up between two of its parts; the one before it stands."""


class AsyncCommitter:
    """The copy of a state, and the thread that does something with it.

    Made with the state that is to be copied, whose layout stays. Its memory is had and touched by
    the thread: the first copy into cold pages would cost the learner a hundred times the next.
    """

    def __init__(self, state: State) -> None:
        self._state, self._copy = state, state
        self._thread = threading.Thread()
        self._error: Exception | None = None
        self._hurry = threading.Event()
        # What is copied while rows are learned is of no edge, and never used.
        self.begin(self._prepare)

    def _prepare(self) -> None:
        self._copy = self._state.copy()

    @property
    def busy(self) -> bool:
        """Whether something is under way."""
        return self._thread.is_alive()

    def take(self) -> State:
        """The state as it is now, in memory that the thread may read. Nothing may be under way."""
        self._copy.take(self._state)
        return self._copy

    def begin(self, work: Callable[[], object]) -> None:
        """Have the thread do something. Nothing may be under way, nor its outcome unheard."""
        context = contextvars.copy_context()  # where notes are sent, and whether they are shown
        self._thread = threading.Thread(
            target=context.run, args=(self._tried, work), name="streamomd-commit", daemon=True
        )
        self._thread.start()

    def _tried(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # for the learner to raise, at its next edge
            self._error = error

    def each(self, parts: Iterator[T]) -> Iterator[T]:
        """Parts to be put by the thread; GivenUpError is raised between two in a hurry."""
        for part in parts:
            if self._hurry.is_set():
                raise GivenUpError
            yield part

    def outcome(self, *, hurry: bool = False) -> Exception | None:
        """Wait until nothing is under way; what it raised. hurry: no longer than for one part."""
        if hurry:
            self._hurry.set()
        if self.busy:
            self._thread.join()
        self._hurry.clear()
        found, self._error = self._error, None
        return found


def async_committer(state: State, spare: float) -> AsyncCommitter | None:
    """None where a copy of the state, which may itself not be in memory yet, is too much.

    spare: bytes that may be had, as far as the caller knows.
    """
    return AsyncCommitter(state) if 2 * state.nbytes <= min(spare, available_memory()) else None


def available_memory() -> float:
    """Bytes of memory available to this process; infinite where the system does not report it.

    >>> available_memory() > 0
    True
    """
    found = [math.inf]
    with suppress(OSError):  # not Linux
        words = Path("/proc/meminfo").read_text().split()
        found.append(1024.0 * int(words[words.index("MemAvailable:") + 1]))
    for limit in LIMITS:
        with suppress(OSError, ValueError):  # no such group, or "max"
            found.append(float(int(Path(limit).read_text()) - _resident()))
    return min(found)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
