"""CPU time of a run by stage, reported by the code that does the work, in any thread.

A stage is reported once per unit of rows, never once per row, so profiling does not slow a run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")

STAGES = {
    "read": "bytes from the store",
    "decompress": "pages of column chunks",
    "decode": "pages to columns",
    "cache": "rows from a cache, checked, or written to it",
    "labels": "labels and weights, checked",
    "numbers": "numeric columns and vectors, checked",
    "hash": "categories, crosses, dates to coordinates",
    "texts": "words, counted and hashed",
    "lists": "pairs of lists, checked",
    "gather": "columns put together as rows",
    "learn": "predict, then learn",
    "metrics": "figures beyond the loss",
    "commit": "checkpoints",
    "compile": "loops, compiled or loaded",
}
"""What is told apart, and what it is, in the order of a row's way."""
_ELSE = "all else"
_END: Any = object()


@dataclass(eq=False)
class Profile:
    """Processor seconds by stage, and how long the learner waited for rows.

    wall, cpu: seconds of the clock and of all processors, of the whole. rows: learned.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    waited: float = 0.0
    wall: float = 0.0
    cpu: float = 0.0
    rows: int = 0
    aside: float = 0.0
    shares: Mapping[str, float] = field(default_factory=dict)
    columns: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, stage: str, seconds: float) -> None:
        """Add the seconds of a stage; any thread may call it."""
        with self._lock:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def split(self, columns: int, find: Callable[[], Mapping[str, float]]) -> None:
        """Have the shares of reading found, where most columns are read; what that costs is no part
        of the run.
        """
        if columns > self.columns:
            self.columns = columns
            began = time.thread_time()
            self.shares = find()
            self.aside += time.thread_time() - began

    def stages(self) -> dict[str, float]:
        """Seconds of each stage there was, in the order of ``STAGES``, and of all else."""
        found = dict(self.seconds)
        if self.shares and "decode" in found:
            reading = found.pop("decode")
            found |= {stage: share * reading for stage, share in self.shares.items()}
        found[_ELSE] = max(0.0, self.cpu - self.aside - sum(found.values()))
        return {name: found[name] for name in (*STAGES, _ELSE) if name in found}

    def to_json(self) -> dict[str, Any]:
        """seconds by stage, and of wall, cpu, waited."""
        whole = {"wall": self.wall, "cpu": self.cpu - self.aside, "waited": self.waited}
        return {"stages": self.stages(), **whole, "rows": self.rows}

    def __str__(self) -> str:
        """A table: of each stage ns a row, its share, and what it is."""
        stages = self.stages()
        whole, rows = sum(stages.values()) or 1.0, max(1, self.rows)
        lines = [f"{'':12}{'ns a row':>10}{'share':>7}"]
        for name, seconds in stages.items():
            told = f"{name:12}{1e9 * seconds / rows:>10,.0f}{seconds / whole:>7.1%}"
            lines.append(f"{told}  {STAGES.get(name, 'start-up, waking threads, this report')}")
        wall = self.wall or 1.0
        limit = "reading" if self.waited > 0.1 * wall else "learning"
        return "\n".join(
            [
                f"where the processors' time went: {self.rows:,} rows, {whole:.2f} s in {wall:.2f} "
                "s on the clock",
                *lines,
                f"the learner waited {self.waited:.2f} s for rows ({self.waited / wall:.0%} of the "
                f"time): {limit} is the limit here",
            ]
        )


_current: ContextVar[Profile | None] = ContextVar("profile", default=None)
_open = threading.local()


def current() -> Profile | None:
    """The active profile, if any. A thread has that of the thread that started it if it runs in a
    copy of its context."""
    return _current.get()


@contextmanager
def profiled() -> Iterator[Profile]:
    """Keep a profile of what is done within: ``print`` it, or take its ``to_json()``.

    Processor seconds of this process alone, of each stage of a row's way (``STAGES``), and how long
    the learner waited for rows. What workers of a cluster do is not in it.

    >>> with profiled() as profile:
    ...     with Stage("learn"):
    ...         _ = sum(range(100_000))
    >>> list(profile.stages())[0]
    'learn'
    """
    profile = Profile()
    token = _current.set(profile)
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        yield profile
    finally:
        _current.reset(token)
        profile.wall = time.perf_counter() - wall
        profile.cpu = time.process_time() - cpu


class Stage:
    """What is done within is that stage's; of a stage within a stage, the inner one's alone."""

    __slots__ = ("_began", "_name", "_outer", "_profile", "_within")

    def __init__(self, name: str) -> None:
        self._name, self._profile = name, _current.get()

    def __enter__(self) -> None:
        if self._profile is not None:
            self._outer: Stage | None = getattr(_open, "stage", None)
            _open.stage, self._within = self, 0.0
            self._began = time.thread_time()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._profile is not None:
            passed = time.thread_time() - self._began
            _open.stage = self._outer
            if self._outer is not None:
                self._outer._within += passed
            self._profile.add(self._name, passed - self._within)


def staged(name: str, items: Iterable[T]) -> Iterator[T]:
    """The items; making them is that stage's."""
    source = iter(items)
    while True:
        with Stage(name):
            found = next(source, _END)
        if found is _END:
            return
        yield found
        del found


@contextmanager
def waiting() -> Iterator[None]:
    """The learner waits for rows within: on the clock, for it takes no processor."""
    profile, began = _current.get(), time.perf_counter()
    yield
    if profile is not None:
        profile.waited += time.perf_counter() - began
