"""A CPU profile of a run: seconds by stage, over all threads.

A stage is recorded once per unit of rows, never once per row, so that profiling does not change the
run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

STAGES = {
    "read": "bytes from the store",
    "decompress": "pages of column chunks",
    "decode": "pages to columns",
    "filter": "rows that data.where drops",
    "cache": "rows from a cache, checked, or written to it",
    "labels": "labels and weights, checked",
    "numbers": "numeric columns and vectors, checked",
    "hash": "categories, crosses, dates to coordinates",
    "texts": "words, counted and hashed",
    "lists": "pairs of lists, checked",
    "gather": "columns joined to rows",
    "learn": "predict, then learn",
    "metrics": "metrics other than the loss",
    "commit": "checkpoints",
    "compile": "loops, compiled or loaded",
}
"""Stages and their meaning, in the order in which a row passes them."""
_ELSE = "all else"
_END: Any = object()


@dataclass(eq=False)
class Profile:
    """CPU seconds by stage, and how long the learner waited for rows.

    wall, cpu: wall-clock and CPU seconds of the whole. rows: learned.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    waited: float = 0.0
    wall: float = 0.0
    cpu: float = 0.0
    rows: int = 0
    excluded: float = 0.0
    shares: Mapping[str, float] = field(default_factory=dict)
    columns: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, stage: str, seconds: float) -> None:
        """Called from any thread."""
        with self._lock:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def split(self, columns: int, find: Callable[[], Mapping[str, float]]) -> None:
        """Measure the shares of reading, where most columns are read; the cost is not counted."""
        if columns > self.columns:
            self.columns = columns
            began = time.thread_time()
            self.shares = find()
            self.excluded += time.thread_time() - began

    def stages(self) -> dict[str, float]:
        """Seconds of each recorded stage, in the order of ``STAGES``, and of everything else."""
        found = dict(self.seconds)
        if self.shares and "decode" in found:
            reading = found.pop("decode")
            found |= {stage: share * reading for stage, share in self.shares.items()}
        found[_ELSE] = max(0.0, self.cpu - self.excluded - sum(found.values()))
        return {name: found[name] for name in (*STAGES, _ELSE) if name in found}

    def to_json(self) -> dict[str, Any]:
        """seconds by stage, and of wall, cpu, waited."""
        whole = {"wall": self.wall, "cpu": self.cpu - self.excluded, "waited": self.waited}
        return {"stages": self.stages(), **whole, "rows": self.rows}

    def __str__(self) -> str:
        """A table: ns per row, share and meaning of each stage."""
        stages = self.stages()
        whole, rows = sum(stages.values()) or 1.0, max(1, self.rows)
        lines = [f"{'':12}{'ns per row':>10}{'share':>7}"]
        for name, seconds in stages.items():
            line = f"{name:12}{1e9 * seconds / rows:>10,.0f}{seconds / whole:>7.1%}"
            lines.append(f"{line}  {STAGES.get(name, 'start-up, waking threads, this report')}")
        wall = self.wall or 1.0
        limit = "reading" if self.waited > 0.1 * wall else "learning"
        return "\n".join(
            [
                f"where the processors' time went: {self.rows:,} rows, {whole:.2f} s in {wall:.2f} "
                "s wall time",
                *lines,
                f"the learner waited {self.waited:.2f} s for rows ({self.waited / wall:.0%} of the "
                f"time): {limit} is the limit here",
            ]
        )


_current: ContextVar[Profile | None] = ContextVar("profile", default=None)
_open = threading.local()


def current() -> Profile | None:
    """The active profile, if any. A thread has its creator's if it runs in a copy of its
    context."""
    return _current.get()


@contextmanager
def profiled() -> Iterator[Profile]:
    """Profile the code inside this context: ``print`` the result, or use its ``to_json()``.

    CPU seconds of this process only, by stage (``STAGES``), and how long the learner waited for
    rows. The workers of a cluster are not included.

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
    """Counts the time inside this context for a stage; nested stages count for the inner one
    only."""

    __slots__ = ("_began", "_name", "_outer", "_profile", "_within")

    def __init__(self, name: str) -> None:
        self._name, self._profile = name, _current.get()

    def __enter__(self) -> None:
        if self._profile is not None:
            self._outer: Stage | None = getattr(_open, "stage", None)
            _open.stage, self._within = self, 0.0
            self._began = time.thread_time()

    def __exit__(self, *_: object) -> None:
        if self._profile is not None:
            passed = time.thread_time() - self._began
            _open.stage = self._outer
            if self._outer is not None:
                self._outer._within += passed
            self._profile.add(self._name, passed - self._within)


def staged(name: str, items: Iterable[T]) -> Iterator[T]:
    """The items; the time to produce them counts for the stage."""
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
    """Counts the wall-clock time inside this context as waiting for rows."""
    profile, began = _current.get(), time.perf_counter()
    yield
    if profile is not None:
        profile.waited += time.perf_counter() - began
