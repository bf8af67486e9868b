"""Clusters whose scheduler and workers are processes of their own, begun from the command line."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DASK = [sys.executable, "-m", "dask"]


def scheduler_words(at: Path, host: str = "127.0.0.1", protocol: str = "tcp") -> list[str]:
    """A scheduler's command; it tells its address in a file."""
    words = ["--protocol", protocol, "--host", host, "--port", "0", "--no-dashboard"]
    return [*DASK, "scheduler", "--scheduler-file", str(at), *words]


def worker_words(at: Path, folder: Path, *more: str) -> list[str]:
    """A worker's, of one thread; no nanny begins another in its place."""
    words = ["--nthreads", "1", "--no-dashboard", "--no-nanny"]
    words += ["--local-directory", str(folder)]
    return [*DASK, "worker", "--scheduler-file", str(at), *words, *more]


def address_in(path: Path) -> str:
    """The scheduler's, of its file, once that is there."""
    wait_for(path)
    address: str = json.loads(path.read_text())["address"]
    return address


def wait_for(path: Path, seconds: float = 200.0) -> None:
    """Until a file is there, and something in it."""
    deadline = time.monotonic() + seconds
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < deadline, path
        time.sleep(0.01)


@contextlib.contextmanager
def elsewhere(folder: Path, count: int) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address of a scheduler of so many workers, and its process."""
    at, quiet = folder / "scheduler.json", {"stderr": subprocess.DEVNULL}
    started = [subprocess.Popen(scheduler_words(at), **quiet)]
    try:
        address = address_in(at)
        words = worker_words(at, folder / "worker")
        started += [subprocess.Popen(words, **quiet) for _ in range(count)]
        yield address, started[0]
    finally:
        for process in started:
            process.kill()
            process.wait()


def newest(url: Path) -> int:
    """The number of the newest commit; -1 if there is none."""
    found = [path.stem for path in url.glob("commits/*.json")]
    return max((int(name) for name in found if name.isdigit()), default=-1)


def commits(url: Path) -> list[dict[str, Any]]:
    """What each commit's manifest says, in order."""
    names = sorted(url.glob("commits/*.json"))
    return [json.loads(path.read_text().splitlines()[0]) for path in names]
