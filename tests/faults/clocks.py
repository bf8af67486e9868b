"""Clocks that jump: a commit's number and bits depend on no clock."""

from __future__ import annotations

import datetime
import itertools
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from checkpoint_helpers import begin, load_all, numbers
from kinds import Cases, Verdict, kind
from standing import stands

from streamomd.checkpoint import Writer, list_commits, open_store
from streamomd.checkpoint import commit_writer as writer

DAY = 86_400
NOW = 1_795_000_000
YEARS = {"1970": 0, "2038": 2**31 - 1, "after 2038": 2**31 + 5, "2106": 2**32, "9999": 253402300799}
TIMES = (*YEARS.values(), *(NOW + jump for jump in (-DAY, 0, DAY, -1, 1, -365 * DAY)))


class Clock(datetime.datetime):
    """datetime, whose ``now`` is what the case says."""

    seconds = NOW

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return datetime.datetime.fromtimestamp(cls.seconds, tz)


@kind("clock-jumps", quick=60)
@contextmanager
def clock_jumps(folder: Path) -> Iterator[Cases]:
    """the clock jumps between commits: ±1 day, backwards, 1970, 2038 and later"""
    pairs = list(itertools.product(TIMES, repeat=2))
    fake = type("datetime", (), {"datetime": Clock, "UTC": datetime.UTC})

    def run(seed: int) -> Verdict:
        draw = random.Random(seed)
        times = [*pairs[seed % len(pairs)], *(draw.choice(TIMES) for _ in range(4))]
        store = open_store(str(folder / str(seed)))

        def jump(at: int) -> None:
            Clock.seconds = times[at]
            for path in (folder / str(seed)).rglob("*"):
                os.utime(path, (times[at], times[-1 - at]))

        with (
            patch.object(writer, "datetime", fake),
            patch.object(time, "time", lambda: float(Clock.seconds)),
        ):
            jump(0)
            run_ = begin(store, keep=2)
            for at in (1, 2, 3):
                jump(at)
                run_.commit({"rows": 10 * at}, numbers(at))
            jump(4)
            run_ = Writer.take_over(store, load_all(store)[0], keep=2)
            jump(5)
            run_.commit({"rows": 40}, numbers(4))
        there = [one["rows"] for one in list_commits(store)]
        return stands(store, {4}) if there == [30, 30, 40] else Verdict.LOST

    yield Cases(range(5 * len(pairs)), run)
