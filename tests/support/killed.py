"""Whole runs whose process is killed, once to five times, and resumed until they are done."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elsewhere import newest

import streamomd

PATIENCE = 300.0
"""Seconds after which a process hangs; nothing else is timed."""
_fork = multiprocessing.get_context("forkserver")  # a child begins with all imported, and no thread
_fork.set_forkserver_preload(["streamomd", "streamomd.distributed.averaged"])


@dataclass(frozen=True)
class Outcome:
    """Of one run: how often its process was killed before the end, and what it gave."""

    mode: str
    seed: int
    kills: int
    state_sha256: str


def drive(job: dict[str, Any], address: str) -> None:
    """In a process of its own: begin the run, or go on with it."""
    url, sets = job["checkpoint"]["url"], {"cluster.scheduler": address}
    if (Path(url) / "commits").exists() and newest(Path(url)) >= 0:
        streamomd.resume(url, sets=sets, quiet=True)
    else:
        streamomd.train(job, sets=sets, quiet=True)


def killed(job: dict[str, Any], address: str, seed: int) -> Outcome:
    """One run. An instant: some commits on, then some tens of milliseconds."""
    draw, url = random.Random(seed), Path(job["checkpoint"]["url"])
    left, kills = draw.randint(1, 5), 0
    while True:
        process = _fork.Process(target=drive, args=(job, address), daemon=True)
        process.start()
        if left:
            left -= 1
            base, ahead = newest(url), draw.randint(1, 4)
            while process.is_alive() and newest(url) < base + ahead:
                time.sleep(0.002)
            process.join(draw.uniform(0.0, 0.2))
            if process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
                kills += 1
        process.join(PATIENCE)
        if process.is_alive():
            process.kill()
            raise TimeoutError(f"a resumption of seed {seed} does not end")
        if process.exitcode == 0:
            mode = job["train"].get("mode", "exact")
            return Outcome(mode, seed, kills, streamomd.load(str(url)).state_sha256)
        if process.exitcode != -signal.SIGKILL:
            raise AssertionError(f"seed {seed}: a resumption ended with {process.exitcode}")


def counted(outcomes: list[Outcome], expected: dict[str, str]) -> list[str]:
    """A line a mode: runs, kills, and how many did not end with the bits of the undisturbed one."""
    lines = []
    for mode, sha256 in expected.items():
        of = [one for one in outcomes if one.mode == mode]
        wrong = sorted(one.seed for one in of if one.state_sha256 != sha256)
        spread = Counter(one.kills for one in of)
        times = ", ".join(f"{spread[n]} × {n}" for n in sorted(spread))
        lines.append(f"{mode:9} {len(of):4} runs killed {times} times; other bits: {wrong or 0}")
    return lines
