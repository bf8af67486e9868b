"""Averaged mode has the metrics of exact mode: ranking, calibration, hold-out, early stopping."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clustered import PARTS, QUIET, ROWS, job, sized, spread
from distributed import Client, LocalCluster
from running import write

import streamomd
from streamomd.training.holdout import held_out, number_of
from streamomd.training.metrics.detail import NOTHING

pytestmark = pytest.mark.filterwarnings("ignore")
ONE_PART = {"parts": 1, "rounds_per_epoch": 1}


def averaged(url: Path, data: Path, client: Client, **more: Any) -> Any:
    sets = more.pop("sets", {})
    table = spread(data, url, more.pop("train", {}), **more)
    return streamomd.train(table, sets=sets, client=client, quiet=True)


@pytest.mark.parametrize("holdout", [0, 5])
@pytest.mark.sample(2)
def test_one_part_has_the_figures_of_exact_mode(
    holdout: int, data: Path, client: Client, tmp_path: Path
) -> None:
    """All of them: the metrics of a merge of one are those of the run of one process."""
    sets = {"data.holdout": holdout}
    alone = streamomd.train(job(data), sets=sets, **QUIET)
    model = averaged(tmp_path / "run", data, client, train=ONE_PART, sets=sets)
    assert model.state_sha256 == alone.state_sha256
    found, expected = model.result(), alone.result()
    keys = ["rows", "loss", "error", "epochs", "skipped", "holdout", *NOTHING]
    # Sums of an epoch are added to 0 as one number: the same bits.
    assert {key: found.get(key) for key in keys} == {key: expected.get(key) for key in keys}
    assert found["auc"] is not None
    assert bool(found["holdout"]) == bool(holdout)


def test_parts_have_the_metrics_of_their_rows(data: Path, client: Client, tmp_path: Path) -> None:
    """Every row is counted once, in the bins and in the hold-out, which has exact mode's rows."""
    model = averaged(tmp_path / "run", data, client, sets={"data.holdout": 5})
    shards = sorted(data.iterdir())
    held = sum(int(held_out(5, 0, number_of(path.name), np.arange(ROWS)).sum()) for path in shards)
    assert model.metrics.held.rows == [held] * 2
    assert model.metrics.rows == [4 * ROWS - held] * 2
    assert model.metrics.detail.rows == 2 * (4 * ROWS - held)
    assert model.metrics.held.detail.rows == held
    weights = [float(model.metrics.detail.weights.sum()), float(model.metrics.total[0])]
    assert weights[0] == pytest.approx(weights[1], rel=1e-12)
    result = model.result()
    assert result["auc"] > 0.5
    assert result["calibration"]
    assert [one["rows"] for one in result["holdout"]["epochs"]] == [held] * 2
    assert all(one["auc"] > 0.5 for one in result["holdout"]["epochs"])


@pytest.mark.slow  # test_averaged has the bits of the state in the quick run
@pytest.mark.parametrize("count", [1, 3])
def test_the_number_of_workers_changes_no_figure(
    count: int, data: Path, workers: LocalCluster, client: Client, tmp_path: Path
) -> None:
    sets = {"data.holdout": 5}
    expected = averaged(tmp_path / "run", data, client, sets=sets).result()
    sized(workers, count)
    with Client(workers, set_as_default=False) as other:
        found = averaged(tmp_path / "other", data, other, sets=sets).result()
    sized(workers, 2)
    for key in ("loss", "error", "epochs", "holdout", *NOTHING):
        assert found[key] == expected[key]


@pytest.mark.slow
def test_a_run_stops_early_and_resumes(data: Path, client: Client, tmp_path: Path) -> None:
    """By the held-out loss of all parts. Resumed, it says the same and learns nothing."""
    sets = {"data.holdout": 5, "train.patience": 1}
    train = {"epochs": 30, "parts": PARTS}
    model = averaged(tmp_path / "run", data, client, train=train, sets=sets)
    result = model.result()
    done = len(result["epochs"])
    assert 1 < done < 30
    assert result["stopped_early"]
    losses = [one["loss"] for one in result["holdout"]["epochs"]]
    assert losses[-1] >= min(losses[:-1])
    assert losses[:-1] == sorted(losses[:-1], reverse=True)
    again = streamomd.resume(str(tmp_path / "run"), client=client, quiet=True)
    assert again.state_sha256 == model.state_sha256
    assert again.result()["holdout"] == result["holdout"]


def test_no_detail_where_none_is_wanted(data: Path, client: Client, tmp_path: Path) -> None:
    model = averaged(tmp_path / "run", data, client, train=ONE_PART, sets={"train.detail": False})
    assert model.metrics.detail is None
    assert model.result()["auc"] is None


@pytest.mark.slow
@pytest.mark.parametrize("train", [ONE_PART, {}])
def test_figures_by_time(train: dict[str, int], data: Path, client: Client, tmp_path: Path) -> None:
    """The rows of each period are those of exact mode, of hold-out rows too, and the losses sum to
    that of all rows; of one part the loss is that of exact mode, to 1e-12."""
    for path in sorted(data.glob("*.parquet")):
        table = pq.read_table(path, partitioning=None)
        seconds = np.arange(len(table)) * 3000 + 1_767_225_600
        write(tmp_path / "timed" / path.name, table.append_column("ts", pa.array(seconds)))
    sets = {"data.holdout": 5, "data.time": "ts"}
    timed = tmp_path / "timed"
    alone = streamomd.train(job(timed), sets=sets, **QUIET)
    model = averaged(tmp_path / "run", timed, client, train=train, sets=sets)
    again = streamomd.load(str(tmp_path / "run"))
    assert again.result()["by_time"] == model.result()["by_time"]
    for found, expected in (
        (model.result(), alone.result()), (model.result()["holdout"], alone.result()["holdout"])
    ):  # fmt: skip
        for by in ("hour", "day"):
            names = [[one[key] for key in ("period", "rows")] for one in found["by_time"][by]]
            assert names == [
                [one[key] for key in ("period", "rows")] for one in expected["by_time"][by]
            ]
        if train:
            both = ([one["loss"] for one in timed["by_time"]["day"]] for timed in (found, expected))
            np.testing.assert_allclose(*both, rtol=1e-12)
    sums = model.metrics.by_time.days.sums.sum(axis=0)
    np.testing.assert_allclose(sums, model.metrics.total, rtol=1e-9)
