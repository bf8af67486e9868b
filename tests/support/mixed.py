"""Clusters some of whose workers cannot import streamomd, each a process of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distributed import Client
from elsewhere import address_in, scheduler_words, worker_words

BARE = "import sys\nsys.modules['s3fs'] = None\n"
LACKING = "raise ImportError('blocked: no streamomd here')\n"
METADATA = "Metadata-Version: 2.1\nName: streamomd\nVersion: 0.0.1\n"


def lacking(folder: Path) -> dict[str, str]:
    """An environment in which streamomd cannot be imported."""
    home = folder / "lacking"
    (home / "streamomd").mkdir(parents=True, exist_ok=True)
    (home / "streamomd" / "__init__.py").write_text(LACKING)
    # Without the second, ``python -m`` looks in the current directory first.
    return {**os.environ, "PYTHONPATH": str(home), "PYTHONSAFEPATH": "1"}


def older(folder: Path) -> dict[str, str]:
    """An environment with another version of streamomd."""
    home = folder / "older"
    (home / "streamomd-0.0.1.dist-info").mkdir(parents=True, exist_ok=True)
    (home / "streamomd-0.0.1.dist-info" / "METADATA").write_text(METADATA)
    return {**lacking(home), "PYTHONPATH": f"{home}:{home / 'lacking'}"}


def bare(folder: Path) -> dict[str, str]:
    """An environment without s3fs."""
    home = folder / "bare"
    home.mkdir(parents=True, exist_ok=True)
    (home / "sitecustomize.py").write_text(BARE)
    return {**os.environ, "PYTHONPATH": str(home)}


class Mixed:
    """A cluster, its scheduler of a kind too. Workers are named; no nanny restarts one."""

    def __init__(self, folder: Path, scheduler: str) -> None:
        self.folder, self.file = folder, folder / "scheduler.json"
        self.kinds = {
            "fit": dict(os.environ),
            "bare": bare(folder),
            "lacking": lacking(folder),
            "older": older(folder),
        }
        self.started: dict[str, subprocess.Popen[bytes]] = {}
        self.begin("scheduler", scheduler_words(self.file), self.kinds[scheduler])
        self.address = address_in(self.file)

    def begin(self, name: str, words: list[str], environment: dict[str, str]) -> None:
        """A process; what it logs is in a file."""
        with (self.folder / f"{name}.log").open("wb") as log:
            self.started[name] = subprocess.Popen(words, env=environment, stderr=log, stdout=log)

    def add(self, name: str, *more: str, nanny: bool = False) -> None:
        """A worker; its name begins with its kind. more: words of its command."""
        words = worker_words(self.file, self.folder / "scratch", "--name", name, *more)
        words = [word for word in words if word != "--no-nanny"] if nanny else words
        self.begin(name, words, self.kinds[name.split("-")[0]])

    def alive(self) -> dict[str, bool]:
        """Which of the processes run."""
        return {name: process.poll() is None for name, process in self.started.items()}


@contextlib.contextmanager
def mixed(folder: Path, *names: str, scheduler: str = "fit") -> Iterator[tuple[Mixed, Client]]:
    """A cluster of these workers, and another person's client of it."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = Mixed(folder, scheduler)
    try:
        for name in names:
            cluster.add(name)
        with Client(cluster.address, set_as_default=False) as other:
            if names:
                other.wait_for_workers(len(names), timeout=120)
            yield cluster, other
    finally:
        for process in cluster.started.values():
            process.kill()
            process.wait()


def addresses(client: Client) -> dict[str, str]:
    """Of workers by name."""
    found: dict[str, Any] = client.scheduler_info(n_workers=-1)["workers"]
    return {worker["name"]: address for address, worker in found.items()}
