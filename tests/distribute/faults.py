"""Faults that strike a worker from within, at a place that is known to have been reached."""

from __future__ import annotations

import contextlib
import os
import pkgutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from clustered import sized
from distributed import Client, LocalCluster, get_worker

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


def strike(name: str, nth: int, how: str, folder: str) -> None:
    """On a worker: the ``nth`` call of a function, among all workers, leaves a mark, then kills or
    stops its process; or, to be retired meanwhile, takes a second."""
    parent, _, attribute = name.rpartition(".")
    home = pkgutil.resolve_name(parent)
    function = getattr(home, attribute)

    def stricken(*given: Any, **named: Any) -> Any:
        if _calls(folder) == nth:
            mark = Path(folder) / f"hit-{os.getpid()}"
            mark.write_text(get_worker().address)
            if how in SIGNALS:
                os.kill(os.getpid(), SIGNALS[how])
            time.sleep(1.0)
        return function(*given, **named)

    setattr(home, attribute, stricken)


def _calls(folder: str) -> int:
    """This call's number; a file for each, made by one process alone."""
    for number in range(10_000):
        with contextlib.suppress(FileExistsError):
            (Path(folder) / f"call-{number}").touch(exist_ok=False)
            return number
    raise AssertionError("more calls than any test makes")


def armed(client: Client, name: str, nth: int, how: str, folder: Path) -> None:
    """Have all workers strike there."""
    client.run(strike, name, nth, how, str(folder))


def hits(folder: Path) -> list[tuple[int, str]]:
    """Process and address of each worker that was struck."""
    return [(int(mark.name[4:]), mark.read_text()) for mark in folder.glob("hit-*")]


def retired(workers: LocalCluster, folder: Path) -> None:
    """Retire the worker that is struck."""
    while not hits(folder):
        time.sleep(0.01)
    with Client(workers, set_as_default=False) as other:
        other.retire_workers([hits(folder)[0][1]], close_workers=True)


@contextlib.contextmanager
def struck(
    workers: LocalCluster, client: Client, name: str, nth: int, how: str, folder: Path
) -> Iterator[None]:
    """One worker is struck while inside; afterwards there are two that nothing is armed in."""
    folder.mkdir()
    armed(client, name, nth, how, folder)
    if how == "retire":
        threading.Thread(target=retired, args=(workers, folder), daemon=True).start()
    try:
        yield
        assert len(hits(folder)) == 1, "the run ended before the fault"
    finally:
        buried(folder)
        fresh(workers)


def fresh(workers: LocalCluster) -> None:
    """Two workers, begun anew."""
    sized(workers, 0)
    sized(workers, 2)


def buried(folder: Path) -> None:
    """End what was stopped, so that its nanny begins another."""
    for pid, _ in hits(folder):
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_STOPPED:
                process.kill()
