"""Running a kind's cases, counting the verdicts, and telling how a bad one is repeated."""

from __future__ import annotations

import logging
import math
import random
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kinds import KEPT, Cases, Kind, Verdict

TOLD = 5


class HangError(BaseException):
    """The deadline of a case has passed."""


@dataclass
class Tally:
    """Verdicts of a kind's cases, and the first bad ones with how to repeat each."""

    kind: str
    counts: Counter[Verdict] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)
    seconds: float = 0.0
    of: int = 0

    @property
    def cases(self) -> int:
        return self.counts.total()

    @property
    def kept(self) -> bool:
        return self.cases > 0 and set(self.counts) <= set(KEPT)


def run_kind(
    kind: Kind,
    *,
    quick: bool = False,
    seeds: Sequence[int] = (),
    until_bad: bool = False,
    most: float = math.inf,
) -> Tally:
    """All cases of a kind, the quick ones, or these; it raises Unavailable as opening does.

    until_bad: in no order, and no further than the first that breaks the promise. most: seconds,
    after which no other case is begun; in no order, so that those run are spread over all.
    """
    tally, began = Tally(kind.name), time.monotonic()
    with (
        tempfile.TemporaryDirectory(dir=memory()) as folder,
        quiet(),
        kind.open(Path(folder)) as cases,
    ):
        tally.of = len(cases.seeds)
        wanted = seeds or (spread(cases.seeds, kind.quick) if quick else cases.seeds)
        mixed = until_bad or math.isfinite(most)
        for seed in random.Random(0).sample(wanted, len(wanted)) if mixed else wanted:
            if time.monotonic() - began > most:
                break
            verdict, why = judged(cases, seed)
            tally.counts[verdict] += 1
            if verdict not in KEPT and len(tally.bad) < TOLD:
                again = f"python -m tests.faults {kind.name} {seed}"
                tally.bad.append(f"{verdict}: repeat with `{again}`{why}")
            if until_bad and tally.bad:
                break
    tally.seconds = time.monotonic() - began
    return tally


def judged(cases: Cases, seed: int) -> tuple[Verdict, str]:
    """A case's verdict; what is no verdict of its own is a crash or a hang."""
    try:
        with deadline(cases.deadline):
            return cases.run(seed), ""
    except HangError:
        return Verdict.HANG, "\n" + traceback.format_exc()
    except Exception:
        return Verdict.CRASH, "\n" + traceback.format_exc()


def spread(seeds: Sequence[int], count: int) -> list[int]:
    """So many of them, evenly; the first and the last among them."""
    if count >= len(seeds):
        return list(seeds)
    step = (len(seeds) - 1) / max(count - 1, 1)
    return [seeds[round(at * step)] for at in range(count)]


def memory() -> str | None:
    """A folder in memory: what the disk does is faked, and a test must not wait for it."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """HangError after so many seconds; whoever else uses the timer (pytest-timeout) has it back."""

    def late(*_: Any) -> None:
        raise HangError

    before: Callable[..., Any] | int | None = signal.signal(signal.SIGALRM, late)
    left = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *left)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def quiet() -> Iterator[None]:
    """Warnings of faults that are wanted are not printed."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
