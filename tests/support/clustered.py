"""Rows, a job and faults that the tests of clusters share."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import LocalCluster

from streamomd.distributed import decode

ROWS = 5_000
PARTS, ROUNDS = 4, 2
QUIET = {"checkpoint": "none", "quiet": True}
REMOTE = {"decode": "remote"}


def long(*values: Any) -> list[Any]:
    """Cases of the long run; a tuple is one of several parameters."""
    cases = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*case, marks=pytest.mark.slow) for case in cases]


def job(data: Path, **tables: Any) -> dict[str, Any]:
    """Every kind of column, two epochs of nag."""
    pair = {"indices": "i", "values": "v", "size": 100}
    columns = {"numeric": ["n", "k"], "hashed": ["h", "c"], "sparse": pair}
    described = {"shards": [str(data)], "label": "y", "weight": "w", "bits": 8, **columns}
    model = {"rule": "nag", **tables.pop("model", {})}
    return {"data": described, "model": model, "train": {"epochs": 2}, **tables}


def spread(data: Path, url: Path, train: dict[str, Any] | None = None, **tables: Any) -> Any:
    """The job in averaged mode: two epochs of two rounds of four parts."""
    mode = {"mode": "averaged", "parts": PARTS, "rounds_per_epoch": ROUNDS, "epochs": 2}
    table = job(data, checkpoint={"url": str(url)}, **tables)
    return {**table, "train": {**mode, **(train or {})}}


def sized(workers: LocalCluster, count: int) -> None:
    """As many workers as that, running."""
    workers.scale(count)
    deadline = time.monotonic() + 300
    while len(workers.scheduler.workers) != count:
        assert time.monotonic() < deadline
        # One that was silent for too long was given up and has left: no other comes in its place.
        gone = [name for name, one in workers.workers.items() if one.status.name == "closed"]
        if gone:
            workers.sync(workers.scale_down, gone)
            workers.scale(count)
        time.sleep(0.05)


def waits(monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
    """Settings of how long to wait, in this process."""
    for name, value in seconds.items():
        monkeypatch.setitem(dask.config.config["streamomd"], f"{name}-seconds", value)


def at_task(monkeypatch: pytest.MonkeyPatch, number: int, happens: Callable[[], None]) -> list[int]:
    """Have something happen just before a task's result is waited for; [number] once it has."""
    taken, seen, done = decode.Decoders._wait_for, [0], []

    def counting(self: Any, sent: Any) -> Any:
        seen[0] += 1
        if seen[0] == number:
            done.append(number)
            happens()
        return taken(self, sent)

    monkeypatch.setattr(decode.Decoders, "_wait_for", counting)
    return done


def under_way(monkeypatch: pytest.MonkeyPatch, home: type, begin: str, take: str) -> list[int]:
    """[the most calls of ``begin`` so far that ``take`` had not answered], of a class's methods."""
    begun, taken, most = [0], [0], [0]
    beginning, taking = getattr(home, begin), getattr(home, take)

    def counted_begin(self: Any, *given: Any) -> Any:
        begun[0] += 1
        most[0] = max(most[0], begun[0] - taken[0])
        return beginning(self, *given)

    def counted_take(self: Any, *given: Any) -> Any:
        found = taking(self, *given)
        taken[0] += 1
        return found

    monkeypatch.setattr(home, begin, counted_begin)
    monkeypatch.setattr(home, take, counted_take)
    return most
