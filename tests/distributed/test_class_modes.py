"""Class weights, sampled rows and calibration on a cluster: the modes agree with one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clustered import QUIET, job, spread
from distributed import Client
from running import write

import streamomd

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
SETS: dict[str, Any] = {
    "model.class_weight": "balanced", "model.calibrate": "isotonic",
    "data.sample": {"0": 0.5}, "data.holdout": 5,
}  # fmt: skip
ONE_PART = {"parts": 1, "rounds_per_epoch": 1}
FIGURES = ("rows", "loss", "error", "calibrated", "holdout", "sampled_out", "epochs")


def test_averaged_mode_of_one_part_is_exact_mode(
    data: Path, client: Client, tmp_path: Path
) -> None:
    """The state, the counts, the calibration and the figures."""
    alone = streamomd.train(job(data), sets=SETS, **QUIET)
    table = spread(data, tmp_path / "run", ONE_PART)
    model = streamomd.train(table, sets=SETS, client=client, quiet=True)
    assert model.state_sha256 == alone.state_sha256
    assert model.metrics.classes.tolist() == alone.metrics.classes.tolist()
    assert model.calibration == alone.calibration
    found, expected = model.result(), alone.result()
    assert {key: found[key] for key in FIGURES} == {key: expected[key] for key in FIGURES}


def test_parts_count_every_row_once(data: Path, client: Client, tmp_path: Path) -> None:
    """Counts and histograms of parts are summed; each part starts from those before its round."""
    alone = streamomd.train(job(data), sets=SETS, **QUIET)
    table = spread(data, tmp_path / "run")
    model = streamomd.train(table, sets=SETS, client=client, quiet=True)
    np.testing.assert_allclose(model.metrics.classes, alone.metrics.classes, rtol=1e-12)
    assert model.metrics.margins.sum() == pytest.approx(alone.metrics.margins.sum())
    assert model.result()["sampled_out"] == alone.result()["sampled_out"]


def test_sharded_mode_on_workers_is_that_of_one_process(
    data: Path, client: Client, tmp_path: Path
) -> None:
    """Every owner weights and samples the rows alike."""
    sets = {key: value for key, value in SETS.items() if key != "data.holdout"}
    train = {"mode": "sharded", "parts": 4, "epochs": 2}
    alone = streamomd.train({**job(data), "train": train}, sets=sets, **QUIET)
    table = {**job(data, checkpoint={"url": str(tmp_path / "run")}), "train": train}
    streamomd.train(table, sets=sets, client=client, quiet=True)
    model = streamomd.load(str(tmp_path / "run"))
    assert model.state_sha256 == alone.state_sha256
    assert model.metrics.classes.tolist() == alone.metrics.classes.tolist()
    assert model.calibration == alone.calibration
    figures = [name for name in FIGURES if name != "holdout"]
    found, expected = model.result(), alone.result()
    assert {key: found[key] for key in figures} == {key: expected[key] for key in figures}


def test_the_leader_of_sharded_mode_has_the_figures_by_time(
    data: Path, client: Client, tmp_path: Path
) -> None:
    """They are those of one process, in the result and in the commit."""
    for path in sorted(data.glob("*.parquet")):
        table = pq.read_table(path, partitioning=None)
        seconds = np.arange(len(table)) * 3000 + 1_767_225_600
        write(tmp_path / "timed" / path.name, table.append_column("ts", pa.array(seconds)))
    train, sets = {"mode": "sharded", "parts": 4, "epochs": 2}, {"data.time": "ts"}
    timed = tmp_path / "timed"
    alone = streamomd.train({**job(timed), "train": train}, sets=sets, **QUIET)
    table = {**job(timed, checkpoint={"url": str(tmp_path / "run")}), "train": train}
    model = streamomd.train(table, sets=sets, client=client, quiet=True)
    saved = streamomd.load(str(tmp_path / "run"))
    for one in (model, saved):
        assert one.result()["by_time"] == alone.result()["by_time"]


NUMBERS: dict[str, Any] = {"model.loss": "square", "data.label": "n", "data.numeric": ["k"]}


@pytest.mark.parametrize("mode", ["averaged", "sharded"])
def test_residuals_of_parts_are_those_of_one_process(
    mode: str, data: Path, client: Client, tmp_path: Path
) -> None:
    """Of the first epoch: each row once; the leader of sharded mode has the same numbers, parts
    of averaged mode, which predict by other weights, intervals of about the same width."""
    train = {"mode": mode, "parts": 4, "epochs": 2}
    exact = {"epochs": 2} if mode == "averaged" else train
    alone = streamomd.train({**job(data), "train": exact}, sets=NUMBERS, **QUIET)
    table = {**job(data, checkpoint={"url": str(tmp_path / "run")}), "train": train}
    streamomd.train(table, sets=NUMBERS, client=client, quiet=True)
    found = streamomd.load(str(tmp_path / "run")).metrics.residuals
    expected = alone.metrics.residuals
    assert found is not None
    assert expected is not None
    assert found.rows == expected.rows
    widths = [np.diff(one.interval(0.9)) for one in (found, expected)]
    np.testing.assert_allclose(*widths, rtol=1e-9 if mode == "sharded" else 0.5)
