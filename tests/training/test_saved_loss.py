"""The loss of rows that come after a model was saved, in the result of a run and in a line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from running import write

import streamomd
from streamomd.training.model_figures import saved_note


def trained(folder: Path, n: int, *, drift: bool, **given: str) -> streamomd.Model:
    """A label whose level stays for 40 rows if there is a drift: the next row is easy, later ones
    are not."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(n, 3))
    level = np.repeat(rng.normal(size=n // 40), 40) * (5.0 if drift else 0.0)
    y = X @ np.array([1.0, -1.0, 0.5]) + level + 0.3 * rng.normal(size=n)
    columns = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y}
    file = write(folder / "rows.parquet", columns)
    return streamomd.train(str(file), label="y", checkpoint="none", quiet=True, **given)


@pytest.mark.parametrize("drift", [False, True])
def test_it_is_in_the_result_and_reported_where_it_is_larger(drift: bool, tmp_path: Path) -> None:
    model = trained(tmp_path, 4000, drift=drift)
    found = model.result()["saved_loss"]
    assert found > 0.0
    assert bool(saved_note(model)) == drift
    assert not drift or f"{found:.6f}" in saved_note(model)


def test_other_rules_have_none(tmp_path: Path) -> None:
    model = trained(tmp_path, 400, drift=False, rule="nag", loss="square")
    assert model.result()["saved_loss"] is None
    assert saved_note(model) == ""
