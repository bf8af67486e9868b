"""Calls divided over threads: results and errors in the order of the calls."""

from __future__ import annotations

import os
import threading

import pytest

from streamomd.core.platform_calls import usable_cores
from streamomd.core.profiling import profiled
from streamomd.engine.divided import Threads


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_results_are_in_order(count: int) -> None:
    """However many threads and calls."""
    with Threads(count) as threads:
        for calls in (0, 1, 2, 5, 40):
            found = threads.run([lambda at=at: at * at for at in range(calls)])
            assert found == [at * at for at in range(calls)]


def test_calls_run_at_the_same_time() -> None:
    """Three calls that wait for one another end, one of them in the caller's thread."""
    barrier = threading.Barrier(3, timeout=20)

    def call() -> int:
        barrier.wait()
        return threading.get_ident()

    with Threads(3) as threads:
        assert threading.get_ident() in threads.run([call] * 3)
        everywhere = threads.run([threading.get_ident] * 3, worth=False)
    assert everywhere == [threading.get_ident()] * 3
    assert not [one for one in threading.enumerate() if one.name.startswith("streamomd-threads")]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_first_error_in_order_is_raised(count: int) -> None:
    """Whichever call fails first; with several threads the others have ended."""
    ended = []

    def call(at: int) -> None:
        if at in (1, 2):
            raise ValueError(f"call {at}")
        ended.append(at)

    with Threads(count) as threads:
        with pytest.raises(ValueError, match="call 1"):
            threads.run([lambda at=at: call(at) for at in range(4)])
        assert ended == ([0] if count == 1 else [0, 3])
        assert threads.run([lambda: 1, lambda: 2]) == [1, 2]


def test_a_profile_counts_other_threads() -> None:
    """The time of calls in other threads counts for the stage."""
    barrier = threading.Barrier(2, timeout=20)

    def call() -> int:
        barrier.wait()
        return sum(range(200_000))

    with profiled() as profile, Threads(2, "learn") as threads:
        threads.run([call, call])
    assert profile.seconds["learn"] > 0.0


def test_usable_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the process's affinity; without one, the machine's."""
    if hasattr(os, "sched_getaffinity"):
        assert usable_cores() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert usable_cores() == os.cpu_count()
