"""Sampled rows: which they are, what they count for, and that sums over rows are unbiased."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import run
from sweeping import plain
from uneven_rows import learn, uneven, uneven_data

import streamomd
from streamomd.config.spec import Spec
from streamomd.core.batch import SAMPLED, DenseBatch, Skipped
from streamomd.training.class_weights import drawn_shares, sampled_rows
from streamomd.training.holdout import held_out, number_of

__all__ = ["uneven_data"]  # the fixture
COUNT = 400


class Planned:
    """What ``sampled_rows`` needs of a plan."""

    classes = (0, 1)


def table_of(seed: int, **more: Any) -> Any:
    given = {"sample": {"0": 0.1}, "seed": seed, **more}
    return Spec.parse({"data": given}).data


def batch() -> DenseBatch:
    draw = np.random.default_rng(5)
    values = draw.normal(size=(COUNT, 3))
    y = np.where(np.arange(COUNT) % 8 == 0, 1.0, -1.0)
    return DenseBatch(values, y, draw.choice([0.5, 1.0, 3.0], COUNT))


def gradient(rows: DenseBatch) -> np.ndarray:
    """Of the log loss at the weights (1, -1, 0.5), summed by weight."""
    margins = rows.values @ [1.0, -1.0, 0.5]
    slope = -rows.y / (1.0 + np.exp(rows.y * margins))
    return (rows.weight * slope) @ rows.values


def test_sums_over_rows_are_unbiased_over_seeds() -> None:
    """The mean over seeds of the weight of each class, and of the gradient, is that of all rows:
    within 4 standard errors of it."""
    rows, found = batch(), []
    for seed in range(300):
        some = sampled_rows(table_of(seed), Planned(), 7, range(COUNT), rows)
        weights = [float(some.weight[some.y == side].sum()) for side in (-1.0, 1.0)]
        found.append([*weights, len(some), *gradient(some)])
    sums = np.array(found)
    frequent = int((rows.y < 0.0).sum())
    expected = [
        rows.weight[rows.y < 0.0].sum(),
        rows.weight[rows.y > 0.0].sum(),
        COUNT - frequent + frequent / 10,
        *gradient(rows),
    ]
    error = sums.std(axis=0) / np.sqrt(len(sums))
    assert (np.abs(sums.mean(axis=0) - expected) <= 4.0 * error + 1e-9).all()
    assert (sums[:, 1] == expected[1]).all()  # of a class that is not sampled, all rows


def test_a_row_is_drawn_by_its_identity() -> None:
    """Its shard, its number and the seed: not by the batch that it comes in, nor by the rows that
    were skipped before it."""
    rows, data = batch(), table_of(3)
    whole = sampled_rows(data, Planned(), 7, range(1000, 1000 + COUNT), rows)
    parts = [
        sampled_rows(data, Planned(), 7, range(1000 + low, 1000 + high), rows.rows(low, high))
        for low, high in ((0, 50), (50, 51), (51, COUNT))
    ]
    assert np.concatenate([part.values for part in parts]).tobytes() == whole.values.tobytes()
    assert np.concatenate([part.weight for part in parts]).tobytes() == whole.weight.tobytes()
    assert whole.passed == COUNT
    bad = np.array([2, 9, 300])
    good = np.delete(np.arange(COUNT), bad)
    less = DenseBatch(
        rows.values[good], rows.y[good], rows.weight[good], Skipped(bad, np.zeros(3, np.int8))
    )
    fewer = sampled_rows(data, Planned(), 7, range(1000, 1000 + COUNT), less)
    there = np.delete(np.arange(COUNT), whole.skipped.places)
    assert fewer.values.tobytes() == rows.values[[at for at in there if at not in bad]].tobytes()
    assert fewer.passed == COUNT
    assert fewer.skipped.counts(0, COUNT)[SAMPLED] == len(fewer.skipped) - 3
    assert (np.diff(fewer.skipped.places) > 0).all()


def test_held_out_rows_are_all_there() -> None:
    """With their own weights; which they are does not depend on what is sampled."""
    rows, data = batch(), table_of(3, holdout=5)
    some = sampled_rows(data, Planned(), 7, range(COUNT), rows)
    held = held_out(5, 3, 7, np.arange(COUNT))
    there = np.delete(np.arange(COUNT), some.skipped.places)
    assert {*np.flatnonzero(held)} <= {*there}
    own = held[there] | (rows.y[there] > 0.0)
    assert (some.weight[own] == rows.weight[there][own]).all()
    assert (some.weight[~own] == rows.weight[there][~own] / 0.1).all()


def test_what_is_drawn_is_uniform() -> None:
    """And other rows are drawn than those held out."""
    drawn = drawn_shares(0, 1, np.arange(20_000))
    assert abs(drawn.mean() - 0.5) < 0.01
    assert 0.0 <= drawn.min() < drawn.max() < 1.0
    assert abs(np.corrcoef(drawn < 0.1, held_out(10, 0, 1, np.arange(20_000)))[0, 1]) < 0.03


@pytest.mark.parametrize("mode", ["exact", "sharded"])
def test_the_rows_of_a_run(mode: str, uneven_data: Path) -> None:
    """They are those of the shards' names, in each mode; the others are counted as sampled out."""
    made = learn(uneven_data / "data", sample={"0": 0.25}, mode=mode)
    rows, weight = 0, 0.0
    for shard, name in enumerate("ab"):
        table = uneven(shard)
        y, w = np.array(table["y"]), np.array(table["w"])
        drawn = drawn_shares(0, number_of(f"{name}.parquet"), np.arange(len(y)))
        there = (y == 1) | (drawn < 0.25)
        rows, weight = (
            rows + int(there.sum()),
            weight + float((w / np.where(y, 1, 0.25))[there].sum()),
        )
    result = made.result()
    assert (result["rows"], result["sampled_out"]) == (rows, 240 - rows)
    assert result["skipped"] == {}
    assert made.metrics.total[0] == pytest.approx(weight)
    assert learn(uneven_data / "data", mode=mode).result()["sampled_out"] is None


def test_update_and_resume_draw_the_same_rows(uneven_data: Path) -> None:
    """Of a run that learns the second shard later, after the first one."""
    whole = learn(uneven_data / "data", sample={"0": 0.25})
    later = uneven_data / "data" / "b.parquet"
    elsewhere = later.rename(uneven_data / "b.parquet")
    learn(uneven_data / "data", sample={"0": 0.25}, checkpoint=str(uneven_data / "run"))
    elsewhere.rename(later)
    with plain():
        found = run("update", uneven_data / "run", "--settle", "0s", "--json")
    assert found.code == 0, found.err
    again = streamomd.load(str(uneven_data / "run"))
    assert again.state.cells.tobytes() == whole.state.cells.tobytes()
    assert again.metrics.sampled_out == whole.metrics.sampled_out
