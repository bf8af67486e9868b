"""Sharded mode in one process: commits between micro-batches, and bits that no cut changes."""

from __future__ import annotations

import itertools
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from running import rows, write

import streamomd
from streamomd.core.errors import StoppedError, UnsupportedError
from streamomd.rules import all_rules
from streamomd.runs.modes import Sharded

ROWS = 900


def job(data: Path, url: Any = "none", **tables: Any) -> dict[str, Any]:
    """Every kind of column, two epochs; P = 16, B = 64."""
    pair = {"indices": "i", "values": "v", "size": 100}
    columns = {"numeric": ["n", "k"], "hashed": ["h", "c"], "sparse": pair}
    described = {"shards": [str(data)], "label": "y", "weight": "w", "bits": 8, **columns}
    train = {"epochs": 2, "mode": "sharded", "batch_rows": 64, **tables.pop("train", {})}
    kept = {"url": str(url), **tables.pop("checkpoint", {})}
    model = {"rule": "nag", **tables.pop("model", {})}
    return {"data": described, "model": model, "train": train, "checkpoint": kept, **tables}


def shards(folder: Path, edges: tuple[int, ...] = (0, ROWS), group: int = 100) -> Path:
    """The same rows in shards cut at ``edges``."""
    table: pa.Table = rows(ROWS)
    for n, (low, high) in enumerate(itertools.pairwise(edges)):
        path = folder / f"{n:02d}.parquet"
        write(path, table.slice(low, high - low), row_group_size=group)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shards(tmp_path_factory.mktemp("rows") / "data")


@pytest.fixture(scope="module")
def whole(data: Path) -> Any:
    """The run that nothing interrupts."""
    return streamomd.train(job(data), quiet=True)


def test_one_row_and_one_partition_are_exact_mode(data: Path) -> None:
    """B = 1, P = 1: the bits and figures of exact mode."""
    exact = streamomd.train(job(data, train={"mode": "exact"}), quiet=True)
    one = streamomd.train(job(data, train={"batch_rows": 1, "parts": 1}), quiet=True)
    assert one.state_sha256 == exact.state_sha256
    assert one.result()["epochs"] == exact.result()["epochs"]
    assert one.names.to_json() == exact.names.to_json()


def test_a_late_step_is_another_run(data: Path, whole: Any) -> None:
    """B matters to the bits, and is no disaster."""
    exact = streamomd.train(job(data, train={"mode": "exact"}), quiet=True)
    assert whole.state_sha256 != exact.state_sha256
    assert abs(whole.result()["loss"] - exact.result()["loss"]) < 0.2 * exact.result()["loss"]


@pytest.mark.parametrize("edges, group", [((0, 1, 70, 70, 693, ROWS), 7), ((0, 128, ROWS), 1000)])
def test_shards_cut_elsewhere_change_no_bit(
    whole: Any, tmp_path: Path, edges: tuple[int, ...], group: int
) -> None:
    """Micro-batches are counted from the epoch's first row, across shards."""
    cut = streamomd.train(job(shards(tmp_path / "cut", edges, group)), quiet=True)
    assert cut.state_sha256 == whole.state_sha256
    assert cut.result()["epochs"] == whole.result()["epochs"]


@pytest.mark.parametrize("rows", [1, 64, 100, 900, 1000])
@pytest.mark.sample(2)
def test_interruptions_change_no_bit(
    data: Path, whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Stopped as soon as so many rows are learned, then resumed: commits are between two."""
    tell = Sharded._report

    def signalled(self: Any, rounds: int) -> None:
        tell(self, rounds)
        if self.model.metrics.total_rows >= rows:
            self.stop.signal = signal.SIGTERM

    monkeypatch.setattr(Sharded, "_report", signalled)
    url = tmp_path / "kept"
    with pytest.raises(StoppedError, match="resume with"):
        streamomd.train(job(data, url), quiet=True)
    kept = streamomd.load(str(url))
    learned = kept.metrics.rows
    assert learned[-1] % 64 == 0 or learned[-1] == ROWS
    monkeypatch.undo()
    more = streamomd.resume(str(url), quiet=True)
    assert more.state_sha256 == whole.state_sha256
    assert more.result()["epochs"] == whole.result()["epochs"]


def test_commits_by_rows_are_made_between_micro_batches(data: Path, tmp_path: Path) -> None:
    """checkpoint.every_rows: at the first edge after so many."""
    url = tmp_path / "kept"
    done = streamomd.train(
        job(data, url, checkpoint={"every_rows": 100, "keep": 99}, train={"epochs": 1}), quiet=True
    )
    found = []
    for sequence in range(done.sequence):
        found.append(streamomd.load(str(url), at=sequence).metrics.total_rows)
    assert found == [0, 128, 256, 320, 448, 512, 640, 704, 832, 900]


@pytest.mark.parametrize("rule", [r.name for r in all_rules().values() if "sharded" not in r.modes])
def test_other_rules_refuse_by_name(rule: str) -> None:
    """Before any shard is looked for."""
    with pytest.raises(UnsupportedError, match=f"'{rule}'.*not sharded"):
        streamomd.train(job(Path("nowhere"), model={"rule": rule}), quiet=True)


def test_implicit_steps_refuse(data: Path) -> None:
    """They would need a second sum."""
    table = job(data, model={"rule": "nag", "loss": "square", "params": {"implicit": True}})
    with pytest.raises(UnsupportedError, match="not sharded"):
        streamomd.train(table, quiet=True)
