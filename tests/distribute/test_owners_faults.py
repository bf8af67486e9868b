"""Owners that are killed or stopped, at any instant: the same bits, and never a hang."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from clustered import long, sized, waits
from distributed import Client, LocalCluster
from faults import struck
from gangs import owned, told

import streamomd

# Dask's own warnings of workers that die are what is provoked here.
pytestmark = pytest.mark.filterwarnings("ignore")

ROWS = 16  # so that a run has some thousand rounds


@pytest.fixture(scope="module")
def one(data: Path) -> Any:
    """The run of one process."""
    return streamomd.train(told(data, "none", ROWS), quiet=True)


def rendezvous(url: Path, draw: random.Random) -> bool:
    """Owners have been sent: they start, meet, load and compile for a second or two."""
    time.sleep(draw.uniform(0.0, 1.5))
    return True


def in_a_round(url: Path, draw: random.Random) -> bool:
    """After some commit: between it and the next, most likely."""
    if newest(url) < draw.choice([2, 3, 5]):
        return False
    time.sleep(draw.uniform(0.0, 0.3))
    return True


def in_a_commit(url: Path, draw: random.Random) -> bool:
    """A part has been put whose commit is not made yet."""
    folders = {int(path.name[:12]) for path in url.glob("data/*") if any(path.iterdir())}
    return max(folders, default=-1) > max(newest(url), 2)


def newest(url: Path) -> int:
    """The number of the newest commit; -1 if there is none."""
    found = [path.stem for path in url.glob("commits/*.json")]
    return max((int(name) for name in found if name.isdigit()), default=-1)


CASES = [
    (instant, how, seed)
    for instant in (rendezvous, in_a_round, in_a_commit)
    for how in (signal.SIGKILL, signal.SIGSTOP)
    for seed in range(4)
]
QUICK = [(in_a_round, signal.SIGKILL, 0), (in_a_commit, signal.SIGSTOP, 0)]


@pytest.mark.parametrize(
    "instant, how, seed",
    [
        pytest.param(
            *case,
            id=f"{case[0].__name__}-{case[1].name}-{case[2]}",
            marks=() if case in QUICK else pytest.mark.slow,
        )
        for case in CASES
    ],
)
def test_an_owner_that_is_lost_costs_what_was_not_committed(
    data: Path,
    one: Any,
    client: Client,
    workers: LocalCluster,
    tmp_path: Path,
    instant: Any,
    how: signal.Signals,
    seed: int,
) -> None:
    """kill -9 or SIGSTOP of an owner's worker; another gang begins from the last commit."""
    sized(workers, 2 + seed % 2)
    url, draw, hit = tmp_path / "kept", random.Random(seed), []
    pids = client.run(os.getpid)

    def strike() -> None:
        while not owned(workers) or not instant(url, draw):
            time.sleep(0.001)
        address = draw.choice(sorted(owned(workers)) or sorted(pids))
        os.kill(pids[address], how)
        hit.append((address, time.monotonic()))

    thread = threading.Thread(target=strike, daemon=True)
    thread.start()
    try:
        there = streamomd.train(told(data, url, ROWS, every_rows=4000), client=client, quiet=True)
        thread.join(timeout=5)
        assert hit
        assert there.state_sha256 == one.state_sha256
        assert there.result()["epochs"] == one.result()["epochs"]
        assert streamomd.load(str(url)).state_sha256 == one.state_sha256
    finally:
        for address, _ in hit:
            with suppress(ProcessLookupError):
                os.kill(pids[address], signal.SIGKILL)
        sized(workers, 0)
        sized(workers, 2)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "stop", "retire"])
@pytest.mark.slow
def test_the_only_owner_is_lost(
    data: Path,
    one: Any,
    client: Client,
    workers: LocalCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    """P = 1: no other owner notices it, the driver does."""
    waits(monkeypatch, silent=2.0, look=0.3)
    table = told(data, tmp_path / "kept", 128, every_rows=4000)
    table["train"]["parts"] = 1
    alone = {**told(data, "none"), "train": table["train"]}
    with struck(workers, client, "streamomd.rounds.Rounds._learn", 150, how, tmp_path / "marks"):
        there = streamomd.train(table, client=client, quiet=True)
    assert there.state_sha256 == streamomd.train(alone, quiet=True).state_sha256


@pytest.mark.parametrize("seed", [0, *long(1)])
@pytest.mark.slow
def test_a_stop_is_a_commit_and_another_gang_goes_on(
    data: Path, one: Any, client: Client, workers: LocalCluster, tmp_path: Path, seed: int
) -> None:
    """A signal: the owners commit and leave; resumed by another number of workers, then by none."""
    from streamomd.distribute.sharded import Owners
    from streamomd.errors import StoppedError

    sized(workers, 2)
    look, url = Owners._look, tmp_path / "kept"

    def signalled(self: Any) -> Any:
        if self.model.metrics.total_rows > 1000:
            self.stop.signal = signal.SIGTERM
        return look(self)

    patch = pytest.MonkeyPatch()
    patch.setattr(Owners, "_look", signalled)
    table = told(data, url, 1)
    try:
        with pytest.raises(StoppedError, match="stopped after row") as caught:
            streamomd.train(table, client=client, quiet=True)
    finally:
        patch.undo()
    assert caught.value.exit_code == 143
    assert 0 < streamomd.load(str(url)).metrics.total_rows < 10_000
    sized(workers, 1 + 2 * seed)
    alone = streamomd.train(told(data, "none", 1), quiet=True)
    done = streamomd.resume(str(url), client=client, quiet=True)
    assert done.state_sha256 == alone.state_sha256
    sized(workers, 2)
