"""A worker whose cable is cut goes on computing: it costs time, never a bit, and commits nothing.

With -rP it tells how soon each cut was noticed.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster_faults import hits
from elsewhere import address_in, commits, scheduler_words, wait_for, worker_words
from mode_runs import table
from netns import Network, why_not
from places import PLACES, drawn

import streamomd
from streamomd.distributed.star import LINGER_SECONDS

# Dask's own warnings of workers that die are what is provoked here.
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "there are namespaces"),
]

NOTICED_SECONDS = 5.0
ASLEEP_SECONDS = 12.0  # for another learner to have taken over
AWAKE_SECONDS = 6.0  # for who was cut off to find its way back, and to try what it was about
CASES = [
    (mode, where, seed)
    for mode, places in PLACES.items()
    for where, seed in itertools.product(places, range(2))
]


class Machines(Network):
    """A scheduler, a driver, two workers, and a third one that comes when it is called."""

    def begin(self, folder: Path) -> str:
        """Scheduler and two workers; its address."""
        self.folder, self.file = folder, folder / "scheduler.json"
        host = self.join("scheduler")
        for name in ("driver", "a", "b", "c"):
            self.join(name)
        self.run("scheduler", scheduler_words(self.file, host), folder / "scheduler.log")
        address = address_in(self.file)
        for name in ("a", "b"):
            self.work(name)
        return address

    def work(self, name: str) -> None:
        """A worker on that machine."""
        own = self.folder / f"worker-{name}"
        words = worker_words(self.file, own, "--host", self.address(name))
        self.run(name, words, self.folder / f"{name}.log")


@pytest.mark.parametrize("mode, where, seed", CASES)
def test_a_cut(
    data: Path,
    bits: Callable[[str], str],
    tmp_path: Path,
    record_property: Callable[[str, Any], None],
    mode: str,
    where: str,
    seed: int,
) -> None:
    """Another worker takes its place (seed 0), or it comes back (seed 1): the same bits."""
    sha256, url, marks = bits(mode), tmp_path / "run", tmp_path / "marks"
    marks.mkdir()
    name, nth = drawn(mode, where, "cut", seed)
    with Machines() as net:
        told = {
            "scheduler": net.begin(tmp_path),
            "workers": 2,
            "job": table(mode, data, url),
            "name": name,
            "nth": nth,
            # Nobody cuts its disk: it would learn the rest before anybody misses it.
            "asleep": ASLEEP_SECONDS if mode == "learner" else 0.0,
            "marks": str(marks),
            "out": str(tmp_path / "out.json"),
            "waits": {} if mode == "sharded" else {"silent": 3.0, "look": 0.5},
        }
        (tmp_path / "told.json").write_text(json.dumps(told))
        script = [
            sys.executable,
            Path(__file__).parents[1] / "support" / "drive.py",
            tmp_path / "told.json",
        ]
        driver = net.run("driver", script, tmp_path / "driver.log")
        pid, struck = struck_one(marks)
        off = net.at(struck) if struck != "driver" else random.Random(seed).choice("ab")
        cut_at = time.monotonic()
        net.cut(off)
        (marks / "cut").touch()
        if seed == 0:
            net.work("c")
        else:
            time.sleep(2 * NOTICED_SECONDS)
            net.mend(off)
        assert driver.wait(timeout=400) == 0, (tmp_path / "driver.log").read_text()[-4000:]
        done = json.loads((tmp_path / "out.json").read_text())
        there = [one["nonce"] for one in commits(url)]
        net.mend(off)
        time.sleep(AWAKE_SECONDS)
        assert [one["nonce"] for one in commits(url)] == there, "a commit from the cut-off side"
    assert done["sha256"] == sha256 == streamomd.load(str(url)).state_sha256
    check_writers(url, done["pid"], pid if mode == "learner" else 0)
    noticed = [at - cut_at for at, text in done["notes"] if "silent" in text or "was lost" in text]
    noticed = [seconds for seconds in noticed if seconds > 0.0]
    record_property("noticed after s", noticed[:1])
    print(f"{mode}, {where}, seed {seed}: noticed {noticed[:1]} s after the cut")
    if mode == "sharded":
        assert noticed[0] <= NOTICED_SECONDS


def test_both_sides_of_a_cut_lose_each_other(tmp_path: Path) -> None:
    """Of two owners that exchange; and neither waits for the other to take what it said last."""
    with Network() as net:
        at = [net.join(name) for name in ("a", "b")]
        script = Path(__file__).parents[1] / "support" / "exchanging.py"
        for owner, name in enumerate(("a", "b")):
            words = [sys.executable, script, owner, at[owner], tmp_path]
            net.run(name, words, tmp_path / f"{name}.log")
        for owner in (0, 1):
            wait_for(tmp_path / f"exchanging-{owner}")
        cut_at = time.monotonic()
        net.cut("b")
        for owner in (0, 1):
            wait_for(tmp_path / f"lost-{owner}")
            peer, lost, closing = json.loads((tmp_path / f"lost-{owner}").read_text())
            print(f"owner {owner}: after {lost - cut_at:.2f} s, closed {closing:.2f} s later")
            assert peer == 1 - owner
            assert lost - cut_at <= NOTICED_SECONDS
            assert closing < LINGER_SECONDS


def struck_one(marks: Path) -> tuple[int, str]:
    """Process and address of who has reached the place, once it has."""
    deadline = time.monotonic() + 300
    while not hits(marks):
        assert time.monotonic() < deadline, "the place was not reached"
        time.sleep(0.005)
    return hits(marks)[0]


def check_writers(url: Path, driver: int, cut_off: int) -> None:
    """The driver makes all commits. Where the learner is a task, so does it, once the driver has
    made the first: the one that is cut off only until another has taken over, as it does here."""
    pids = [one["writer"]["pid"] for one in commits(url)]
    writers = [pid for pid, _ in itertools.groupby(pids)]
    if not cut_off:
        assert writers == [driver]
        return
    assert writers[0] == driver
    assert len(writers) == len(set(writers)), "somebody came back after another had taken over"
    assert writers[-1] not in (driver, cut_off)
    assert set(writers) - {driver, cut_off} == {writers[-1]}
