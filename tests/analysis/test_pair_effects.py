"""Tables of pairs of columns are weights of their cells, by the names of their values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from running import write

import streamomd
from streamomd.features.hashed import coordinates_of, cross_name
from streamomd.training.column_importance import MISSING, MOST_VALUES, pair_effects

N = 2_000


@pytest.mark.parametrize("classes", [2, 3])
def test_cells_are_weights_by_name(classes: int, tmp_path: Path) -> None:
    """Less their mean; of several classes those of the one where they vary most. Names of columns
    and of values may have what stands between them."""
    draw = np.random.default_rng(classes)
    a, b = draw.normal(size=(2, N))
    h = draw.integers(0, 4, N)
    z = 2.0 * a * b + np.where(h == 0, 2.0, -2.0) * a + 0.3 * draw.normal(size=N)
    y = np.digitize(z, np.quantile(z, np.arange(1, classes) / classes))
    values = pa.array([("x^y", "back\\", "e=f", None)[k] for k in h])
    table = pa.table({"a=1^": a, "b": pa.array(b, mask=draw.random(N) < 0.1), "h": values, "y": y})
    job = {"label": "y", "shapes": "pairs", "nulls": "indicator", "checkpoint": "none"}
    model = streamomd.train(str(write(tmp_path / "0.parquet", table)), **job, quiet=True)
    found = {one.columns: one for one in pair_effects(model)}
    assert found.keys() == {*model.plan.pairs} >= {("a=1^", "b"), ("a=1^", "h")}
    assert found["a=1^", "h"].values[1] == ["back\\\\", "e=f", "x\\^y", MISSING]
    weights = model.engine.weights(model.state, 0, model.plan.size)
    for pair, one in found.items():
        texts = [[v.replace(MISSING, "\\N") for v in axis] for axis in one.values]
        names = [f"{cross_name(pair)}={v}^{w}" for v in texts[0] for w in texts[1]]
        cells = weights[coordinates_of(model.plan, names), one.learner].reshape(one.cells.shape)
        there = ~np.isnan(one.cells)
        expected = (cells - cells[there].mean())[there]
        np.testing.assert_allclose(one.cells[there], expected, atol=1e-12)
        assert one.spread == pytest.approx(cells[there].std())
    assert [*found] == sorted(found, key=lambda pair: -found[pair].spread)


def test_of_many_values_the_first_are_in_the_table(tmp_path: Path) -> None:
    """And a value that was never seen with another is empty."""
    draw = np.random.default_rng(0)
    a, h = draw.normal(size=N), draw.integers(0, 30, N)
    y = np.where(h < 15, 2.0, -2.0) * a + 0.3 * draw.normal(size=N) > 0.0
    table = pa.table({"a": a, "h": [f"v{k:02}" for k in h], "y": y})
    job = {"label": "y", "shapes": "pairs", "checkpoint": "none", "quiet": True}
    (one,) = pair_effects(streamomd.train(str(write(tmp_path / "0.parquet", table)), **job))
    assert one.values[1] == [f"v{k:02}" for k in range(MOST_VALUES)]
    assert one.cells.shape == (8, MOST_VALUES)
