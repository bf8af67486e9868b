"""A scheduler that dies ends its cluster: the run resumes on another one."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from clustered import sized
from distributed import Client, LocalCluster
from elsewhere import elsewhere, newest
from mode_runs import MODES, table

import streamomd
from streamomd.core.errors import ClusterError

# Dask's own warnings of workers that die are what is provoked here.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", MODES)
def test_another_cluster_of_another_size_continues(
    data: Path,
    bits: Callable[[str], str],
    workers: LocalCluster,
    tmp_path: Path,
    mode: str,
    seed: int,
) -> None:
    """kill -9 after some commit; two workers before, one or three after."""
    url, after = tmp_path / "run", random.Random(f"{mode}-{seed}").randrange(1, 3)

    def strike(scheduler: object) -> None:
        while newest(url) < after:
            time.sleep(0.001)
        scheduler.kill()  # type: ignore[attr-defined]

    with elsewhere(tmp_path, 2) as (address, scheduler):
        with Client(address, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
            threading.Thread(target=strike, args=(scheduler,), daemon=True).start()
            with pytest.raises(ClusterError, match=r"was lost|has not answered"):
                streamomd.train(table(mode, data, url), client=client, quiet=True)
        assert scheduler.wait(timeout=60) == -9
    assert not streamomd.load(str(url)).finished
    sized(workers, 1 + 2 * (seed % 2))
    with Client(workers, set_as_default=False) as client:
        found = streamomd.resume(str(url), client=client, quiet=True)
    assert found.state_sha256 == bits(mode)
    sized(workers, 2)
