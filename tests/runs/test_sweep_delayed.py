"""Delayed labels in a sweep: each learner is the one that is trained alone, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sweeping import plain
from timed import COUNT, FLAGS, slots, timed_shards, train

import streamomd
from streamomd.core.errors import StoppedError, UnsupportedError

GRID = {"eta": [0.1, 1.0], "rule": ["nag", "ogd"]}
MORE = {"data.holdout": 7, "model.class_weight": "balanced", "model.calibrate": "sigmoid",
        "data.sample": {"0": 0.5}}  # fmt: skip
CASES = [
    pytest.param("30h", MORE, id="all keys"),
    *(
        pytest.param(delay, sets, marks=pytest.mark.slow, id=f"{delay} {bool(sets)}")
        for delay in ("1s", "24h", "9d")
        for sets in ({}, MORE)
    ),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four days of rows, some of them late."""
    return timed_shards(tmp_path_factory.mktemp("days") / "data", late=True, days=4)


def sweep(data: Path, grid: dict[str, Any], **more: Any) -> Any:
    given = {**FLAGS, "time": "ts", "grid": grid, **more}
    del given["rule"]
    return streamomd.sweep(shards=[str(data)], **given)


def check(models: Any, data: Path, delay: str, sets: dict[str, Any]) -> None:
    """Each learner is the one of a run of its own."""
    for model in models:
        job = model.spec.model
        alone = train(data, rule=job.rule, eta=job.params["eta"], delay=delay, sets=sets)
        assert slots(model) == slots(alone)
        assert model.metrics.current.tobytes() == alone.metrics.current.tobytes()
        found, expected = model.result(), alone.result()
        keys = ("delay", "by_time", "rows", "loss", "sampled_out")
        assert {key: found[key] for key in keys} == {key: expected[key] for key in keys}
        assert model.calibration == alone.calibration
        if sets:
            assert found["holdout"]["loss"] == expected["holdout"]["loss"]


@pytest.mark.parametrize("delay, sets", CASES)
def test_each_learner_is_the_one_alone(delay: str, sets: dict[str, Any], data: Path) -> None:
    """State, figures, calibration and held-out loss of each learner, in any number of threads."""
    with plain():
        found = sweep(data, GRID, delay=delay, sets={**sets, "train.threads": 2})
        assert len(found) == 4
        check(found, data, delay, sets)


def test_a_sweep_continues(data: Path, tmp_path: Path) -> None:
    """After a stop within a shard, and after half of the learners were dropped, the others are
    those of an undisturbed sweep."""
    url, sets = str(tmp_path / "sweep"), {"checkpoint.every_rows": 40}
    with plain():
        whole = sweep(data, GRID, delay="30h", halve=100)

        def stop(self: Any, *given: Any, **more: Any) -> None:
            after_rows(self, *given, **more)
            if self.sweep.rows >= 130:
                raise StoppedError("enough", signal=15)

        from streamomd.runs.sweep.loop import SweepLoop

        after_rows = SweepLoop._after_rows
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SweepLoop, "_after_rows", stop)
            with pytest.raises(StoppedError):
                sweep(data, GRID, delay="30h", halve=100, checkpoint=url, sets=sets)
        found = streamomd.resume_sweep(url, quiet=True)
        for model, expected in zip(found, whole, strict=True):
            assert slots(model) == slots(expected)
            assert model.result()["delay"] == expected.result()["delay"]
        assert [one.dropped for one in found.learners] == [one.dropped for one in whole.learners]
        best = streamomd.load(f"{url}/best")
        assert slots(best) == slots(whole.best)
        assert best.result()["delay"]["waiting"] > 0
        assert best.metrics.total_rows == 4 * COUNT


def test_a_learner_that_diverges_is_dropped(data: Path) -> None:
    """The message names rows; the other learner is that of a run alone."""
    with plain():
        found = sweep(data, {"eta": [1e308, 0.1], "rule": ["ogd"]}, delay="24h")
        assert [bool(one.diverged) for one in found.learners] == [True, False]
        assert found.learners[0].diverged.count(" after row") == 1
        check([found[1]], data, "24h", {})


def test_a_cluster_has_no_delay(data: Path, tmp_path: Path) -> None:
    """It is refused by name, before a cluster is asked."""
    with pytest.raises(UnsupportedError, match="without --scheduler and --cluster"):
        sweep(data, GRID, delay="24h", checkpoint=str(tmp_path), scheduler="tcp://127.0.0.1:9")
