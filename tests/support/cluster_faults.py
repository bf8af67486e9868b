"""Faults that strike a worker from within, at a place that is known to have been reached."""

from __future__ import annotations

import contextlib
import itertools
import os
import pkgutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
from clustered import sized
from distributed import Client, LocalCluster

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
HERE = "here:"  # before the name of a function: of the process that drives the run
CUT_SECONDS = 60.0


def strike(
    name: str, nth: int, how: str, folder: str, asleep: float = 0.0, dask_worker: Any = None
) -> None:
    """On a worker: the ``nth`` call of a function, among all workers, leaves a mark, then kills or
    stops its process; or takes a second, to be retired meanwhile; or waits until a cable is cut,
    and then some seconds."""

    # A commit is put by a thread of which Dask does not know whose it is.
    at = dask_worker.address if dask_worker else "driver"

    def happens() -> None:
        (Path(folder) / f"hit-{os.getpid()}").write_text(at)
        if how in SIGNALS:
            os.kill(os.getpid(), SIGNALS[how])
        deadline = time.monotonic() + (CUT_SECONDS if how == "cut" else 1.0)
        while time.monotonic() < deadline and not (Path(folder) / "cut").exists():
            time.sleep(0.005)
        time.sleep(asleep)

    _armed.append(counted(name, lambda: call_of_all(folder), nth, happens))


_armed: list[Callable[[], None]] = []


def disarm() -> None:
    """On a worker: undo what ``strike`` did."""
    while _armed:
        _armed.pop()()


def counted(
    name: str, number: Callable[[], int], nth: int, happens: Callable[[], None]
) -> Callable[[], None]:
    """Have something happen before a function's nth call; how to undo it. number: of a call."""
    parent, _, attribute = name.rpartition(".")
    home = pkgutil.resolve_name(parent)
    function, before = getattr(home, attribute), vars(home)[attribute]

    def instead(*given: Any, **named: Any) -> Any:
        if number() == nth:
            happens()
        return function(*given, **named)

    setattr(home, attribute, instead)
    return lambda: setattr(home, attribute, before)


_seen: dict[str, int] = {}


def call_of_all(folder: str) -> int:
    """This call's number; a file for each, made by one process alone."""
    for number in itertools.count(_seen.get(folder, 0)):
        _seen[folder] = number + 1
        with contextlib.suppress(FileExistsError):
            (Path(folder) / f"call-{number}").touch(exist_ok=False)
            return number
    raise AssertionError


def hits(folder: Path) -> list[tuple[int, str]]:
    """Process and address of each worker that was struck."""
    found = [(int(mark.name[4:]), mark.read_text()) for mark in folder.glob("hit-*")]
    return [one for one in found if one[1]]


def retire(workers: LocalCluster, address: str) -> None:
    """Retire a worker."""
    with Client(workers, set_as_default=False) as other:
        other.retire_workers([address], close_workers=True)


def retired(workers: LocalCluster, folder: Path) -> None:
    """Retire the worker that is struck."""
    while not hits(folder):
        time.sleep(0.01)
    retire(workers, hits(folder)[0][1])


def struck_from_here(
    workers: LocalCluster, client: Client, name: str, nth: int, how: str, folder: Path
) -> Callable[[], None]:
    """Before this process' nth call of a function a worker is killed, stopped or retired."""
    pids = client.run(os.getpid)
    address = sorted(pids)[nth % len(pids)]

    def happens() -> None:
        (folder / f"hit-{pids[address]}").write_text(address)
        if how in SIGNALS:
            os.kill(pids[address], SIGNALS[how])
        else:
            retire(workers, address)

    return counted(name, itertools.count().__next__, nth, happens)


@contextlib.contextmanager
def struck(
    workers: LocalCluster, client: Client, name: str, nth: int, how: str, folder: Path
) -> Iterator[None]:
    """One worker is struck while inside; afterwards there are two that nothing is armed in."""
    folder.mkdir()
    undo = None
    if name.startswith(HERE):
        undo = struck_from_here(workers, client, name.removeprefix(HERE), nth, how, folder)
    else:
        client.run(strike, name, nth, how, str(folder))
        if how == "retire":
            threading.Thread(target=retired, args=(workers, folder), daemon=True).start()
    try:
        yield
        assert len(hits(folder)) == 1, "the run ended before the fault"
    finally:
        if undo:
            undo()
        buried(folder)
        if how == "kill":
            replaced(workers, folder)
            client.run(disarm)
        else:
            fresh(workers)


def replaced(workers: LocalCluster, folder: Path) -> None:
    """Wait for the worker that a nanny starts in place of a killed one."""
    killed = {pid for pid, _ in hits(folder)}
    deadline = time.monotonic() + 300
    while any(
        nanny.pid in killed or nanny.status.name != "running" for nanny in workers.workers.values()
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    sized(workers, 2)


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
