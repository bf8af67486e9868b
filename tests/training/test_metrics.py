"""Metrics: sums by epoch, honest means, and null where there is nothing to say."""

from __future__ import annotations

import numpy as np

from streamomd.training.metrics import Metrics


def counted(classifies: bool, *epochs: tuple[int, list[float]]) -> Metrics:
    """Metrics with these rows and sums an epoch."""
    metrics = Metrics(classifies)
    for epoch, (rows, sums) in enumerate(epochs):
        metrics.begin(epoch)
        metrics.count(rows)
        metrics.current[:] = sums
    return metrics


def test_means_are_weighted_by_importance() -> None:
    """loss, error and rmse divide by the summed importance, in all and by epoch."""
    result = counted(True, (4, [8.0, 2.0, 1.0]), (4, [2.0, 3.0, 1.0])).result()
    assert (result["rows"], result["loss"], result["error"], result["rmse"]) == (8, 0.5, 0.2, None)
    assert [epoch["loss"] for epoch in result["epochs"]] == [0.25, 1.5]
    regression = counted(False, (2, [2.0, 4.0, 8.0])).result()
    assert (regression["error"], regression["rmse"]) == (None, 2.0)


def test_nothing_to_say_is_null() -> None:
    """No row, no importance, NaN and infinity are null, never a number."""
    for metrics in (
        Metrics(True),
        counted(True, (3, [0.0, 0.0, 0.0])),
        counted(True, (3, [1.0, np.nan, np.nan])),
        counted(False, (3, [1.0, np.inf, np.inf])),
    ):
        result = metrics.result()
        assert (result["loss"], result["error"], result["rmse"]) == (None, None, None)


def test_arrays_are_the_metrics() -> None:
    """What a checkpoint keeps gives the same result."""
    metrics = counted(True, (4, [8.0, 2.0, 1.0]), (1, [1.0, 0.1, 0.0]))
    assert Metrics.from_arrays(metrics.arrays(), classifies=True).result() == metrics.result()


def test_going_on_with_an_epoch_begins_no_other() -> None:
    """``begin`` of an epoch under way changes nothing."""
    metrics = counted(True, (4, [8.0, 2.0, 1.0]))
    metrics.begin(0)
    assert metrics.rows == [4]
