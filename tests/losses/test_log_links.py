"""Losses with a logarithmic link: the mean of what they predict is that of the targets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

import streamomd
from streamomd.core.errors import DataError, UsageError

ROWS = 20_000
Draw = Callable[[np.random.Generator, np.ndarray], np.ndarray]


def claims(draw: np.random.Generator, mean: np.ndarray) -> np.ndarray:
    """Sums of a Poisson number of gamma amounts: a third of them are 0."""
    count = draw.poisson(1.1, len(mean))
    return np.where(count > 0, draw.gamma(np.maximum(count, 1) * 2.0), 0.0) * mean / 2.2


DRAWS: dict[str, Draw] = {
    "poisson": lambda draw, mean: draw.poisson(mean).astype(float),
    "gamma": lambda draw, mean: np.maximum(draw.gamma(2.0, mean / 2.0), 1e-9),
    "tweedie": claims,
    "log_square": lambda draw, mean: mean * np.exp(draw.normal(0.0, 0.5, len(mean))),
}


def table(loss: str, seed: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    x, z = draw.normal(size=(2, ROWS))
    mean = np.exp(0.5 + 0.6 * x - 0.4 * z)
    return pa.table({"x": x, "z": z, "y": DRAWS[loss](draw, mean)})


@pytest.mark.parametrize("loss", DRAWS)
def test_the_mean_is_calibrated(loss: str) -> None:
    """Of rows that were not learned the mean of the targets is that of the predictions, for
    log_square their median, up to 6 %; in each tenth of the predictions up to 12 %."""
    options = {"label": "y", "loss": loss, "rule": "nag", "checkpoint": "none", "quiet": True}
    model = streamomd.train(table(loss, 1), sets={"train.epochs": 5}, **options)
    new = table(loss, 2)
    predicted, y = np.asarray(model.predict(new)), new["y"].to_numpy()
    assert predicted.min() > 0.0

    def share(at: np.ndarray) -> float:
        """Of the prediction that the targets are."""
        if loss == "log_square":
            return float(np.median(y[at] / predicted[at]))
        return float(np.mean(y[at]) / np.mean(predicted[at]))

    order = np.argsort(predicted)
    assert share(order) == pytest.approx(1.0, abs=0.06)
    for tenth in np.array_split(order, 10):
        assert share(tenth) == pytest.approx(1.0, abs=0.12)


@pytest.mark.parametrize("loss", ["gamma", "log_square"])
def test_a_target_that_is_not_positive_is_refused(loss: str) -> None:
    """By row, with what is legal; Tweedie takes 0."""
    rows = pa.table({"x": [1.0, 2.0, 3.0], "y": [1.0, 0.0, 2.0]})
    options = {"label": "y", "checkpoint": "none", "quiet": True}
    with pytest.raises(DataError, match=r"row 1.*label 0.*above 0, as the loss requires"):
        streamomd.train(rows, loss=loss, **options)
    assert streamomd.train(rows, loss="tweedie", **options).metrics.total_rows == 3


@pytest.mark.parametrize("loss", ["gamma", "log_square"])
def test_classes_are_refused(loss: str) -> None:
    """A class is −1 or 1 to a loss."""
    rows = pa.table({"x": [1.0, 2.0], "y": ["a", "b"]})
    options = {"label": "y", "loss": loss, "checkpoint": "none", "quiet": True}
    with pytest.raises(UsageError, match="numbers above 0, and the labels are classes"):
        streamomd.train(rows, task="classify", **options)
