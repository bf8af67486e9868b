"""Who decodes is found out on the first rows, and a cluster that fails is left."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from clustered import at_task, job
from distributed import Client, LocalCluster

import streamomd
from streamomd.distributed import decode
from streamomd.shards.reader import Piece

# Dask's own warnings of workers that die are what is provoked here.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("faster", ["this process", "the cluster"])
def test_the_faster_one_continues(
    data: Path,
    alone: Any,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    faster: str,
) -> None:
    """Both are tried, one is chosen and said, and no row is learned twice or left out."""
    monkeypatch.setattr(decode, "TRIAL_SECONDS", 1.0)
    monkeypatch.setattr(decode, "MIN_REMAINING_SECONDS", 0.0)
    slow = 99.0  # pieces may differ in length, by less than that
    clock = iter([0.0, 1.0, 0.0, slow] if faster == "this process" else [0.0, slow, 0.0, 1.0])
    monkeypatch.setattr(decode, "clock", lambda: next(clock))
    monkeypatch.setattr(decode, "UNIT_BYTES", 10_000)
    monkeypatch.setattr("streamomd.training.row_stream.UNIT_BYTES", 10_000)
    there = streamomd.train(job(data), client=client, checkpoint="none")
    assert there.state_sha256 == alone.state_sha256
    assert f"continuing with {faster}" in capsys.readouterr().err


@pytest.mark.slow
def test_in_auto_a_cluster_that_fails_is_left(
    data: Path, alone: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The scheduler dies while its workers decode: this process continues, no row twice."""
    monkeypatch.setattr(decode, "TASK_BYTES", 60_000)
    monkeypatch.setattr("streamomd.training.row_stream.UNIT_BYTES", 10_000)
    monkeypatch.setattr(decode, "TRIAL_SECONDS", 0.0)
    monkeypatch.setattr(decode, "MIN_REMAINING_SECONDS", 0.0)
    lost = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)
    client = Client(lost, set_as_default=False)
    done = at_task(monkeypatch, 2, lost.close)
    there = streamomd.train(job(data), client=client, checkpoint="none")
    client.close()
    assert done
    assert there.state_sha256 == alone.state_sha256
    assert "decodes alone from now on" in capsys.readouterr().err


@pytest.mark.parametrize("left, asked", [(149, 0), (151, 1)])
def test_what_is_soon_done_is_done_here(
    monkeypatch: pytest.MonkeyPatch, left: int, asked: int
) -> None:
    """Where less than half a minute is left at five rows a second, nothing is asked of the cluster;
    the rows are the same."""
    ticks, asks = itertools.count(0.0, decode.TRIAL_SECONDS), []
    monkeypatch.setattr(decode, "clock", lambda: next(ticks))

    def here(places: Any, start: tuple[int, int]) -> Any:
        yield from (Piece(0, row, 10, None) for row in range(start[1], 200, 10))

    def there(places: Any, start: tuple[int, int]) -> Any:
        asks.append(start)
        yield from here(places, start)

    source: Any = decode.FasterSource(here, there, lambda: True, lambda: left)
    assert [piece.row for piece in source.rows([0])] == list(range(0, 200, 10))
    assert len(asks) == asked
