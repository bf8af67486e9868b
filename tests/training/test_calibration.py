"""Calibrated probabilities: what they are fitted by, where they are saved and where they appear."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import run
from scipy.optimize import minimize
from sklearn.isotonic import IsotonicRegression
from sweeping import plain
from uneven_rows import learn, uneven, uneven_data

import streamomd
from streamomd.core.errors import DataError, UnsupportedError, UsageError
from streamomd.training.metrics.ranking import (
    FINE,
    binned,
    centres,
    fit_calibration,
    fit_sigmoid,
    isotonic,
)
from streamomd.training.scoring.link import Calibration, Link
from streamomd.training.scoring.scorer import Scorer

__all__ = ["uneven_data"]  # the fixture
KINDS = ["sigmoid", "isotonic"]


def histogram(seed: int, count: int, rows: int = 400) -> tuple[np.ndarray, ...]:
    """The weight of either class at ascending scores."""
    draw = np.random.default_rng(seed)
    scores = np.sort(draw.normal(size=count) * 3.0)
    at = draw.integers(0, count, rows)
    positive = draw.random(rows) < 1.0 / (1.0 + np.exp(-0.6 * scores[at] + 0.8))
    weight = draw.choice([0.5, 1.0, 2.0], rows)
    return (*(np.bincount(at[p], weight[p], count) for p in (~positive, positive)), scores)


def platt(negatives: np.ndarray, positives: np.ndarray, scores: np.ndarray) -> Any:
    """The minimum of Platt's log loss, by a general optimizer."""
    less, more = negatives.sum(), positives.sum()
    high, low = (more + 1.0) / (more + 2.0), 1.0 / (less + 2.0)

    def loss(at: np.ndarray) -> float:
        z = at[0] * scores + at[1]
        wins, losses = np.logaddexp(0.0, -z), np.logaddexp(0.0, z)
        of_high = positives @ (high * wins + (1.0 - high) * losses)
        return float(of_high + negatives @ (low * wins + (1.0 - low) * losses))

    return minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-9})


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e200])
def test_the_sigmoid_is_platts(scale: float) -> None:
    """For margins of any scale."""
    negatives, positives, scores = histogram(1, 60)
    a, b = fit_sigmoid(negatives, positives, scores * scale)
    best = platt(negatives, positives, scores)
    assert [a * scale, b] == pytest.approx(best.x.tolist(), abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_without_rows_and_of_one_class(kind: str) -> None:
    """No rows: 0.5. Rows of one class alone: at most Platt's target for them; never 0 or 1."""
    assert fit_calibration(kind, None)(3.0) == 0.5
    weights = np.zeros((2, len(centres(FINE)) + 1))
    weights[0, binned(np.array([-2.0, 1.0]), FINE)] = 4.0
    found = fit_calibration(kind, weights)
    assert found(0.0) == pytest.approx(0.1, rel=1e-6)


@given(st.integers(0, 10_000), st.integers(1, 40))
@settings(max_examples=25, deadline=None)
def test_isotonic_is_scikit_learns(seed: int, count: int) -> None:
    """At the scores, between and beyond them, but for probabilities of 0 and 1."""
    negatives, positives, scores = histogram(seed, count, 30)
    used = (negatives + positives) > 0.0
    made = isotonic(negatives[used], positives[used], scores[used])
    x, y = np.repeat(scores, 2), np.tile([0.0, 1.0], count)
    weight = np.column_stack([negatives, positives]).reshape(-1)
    oracle = IsotonicRegression(out_of_bounds="clip").fit(x, y, sample_weight=weight)
    at = np.concatenate([scores[used], (scores[used][1:] + scores[used][:-1]) / 2.0, [-99.0, 99.0]])
    least = 1.0 / (weight.sum() + 2.0)
    p = np.clip(oracle.predict(scores[used]), least, 1.0 - least)
    expected = np.interp(at, scores[used], p)
    assert [made(one) for one in at.tolist()] == pytest.approx(expected.tolist(), abs=1e-9)
    assert list(made.p) == sorted(made.p)


@pytest.mark.parametrize(("kind", "mode"), [("sigmoid", "exact"), ("isotonic", "sharded")])
def test_only_probabilities_change(kind: str, mode: str, uneven_data: Path) -> None:
    """Not the state, the loss, the score or the prediction; probabilities are those of the margins
    that rows had before they were learned."""
    plainly = learn(uneven_data / "data", mode=mode)
    made = learn(uneven_data / "data", mode=mode, calibrate=kind, epochs=1)
    assert made.state.cells.tobytes() == plainly.state.cells.tobytes()
    assert made.result()["loss"] == plainly.result()["loss"]
    detail = made.metrics.detail.weights
    assert made.metrics.margins.tobytes() == detail.tobytes()
    rows = uneven(0).select(["n", "k", "h"])
    with plain():
        scores = made.decision_function(rows)
        assert scores.tobytes() == plainly.decision_function(rows).tobytes()
        likely = made.predict_proba(rows)[:, 1]
        assert (made.predict(rows) == plainly.predict(rows)).all()
    own = fit_calibration(kind, detail)
    assert likely.tolist() == [own(one) for one in scores.tolist()]
    assert made.result()["calibration"] == plainly.result()["calibration"]
    after = made.result()["calibrated"]
    assert after["calibration_error"] < made.result()["calibration_error"]
    assert plainly.result()["calibrated"] is None


def test_the_first_epoch_counts(uneven_data: Path) -> None:
    """Later epochs predict rows that were learned; hold-out rows are not counted, but reported."""
    once = learn(uneven_data / "data", calibrate="sigmoid", holdout=4)
    twice = learn(uneven_data / "data", calibrate="sigmoid", holdout=4, epochs=2)
    assert once.metrics.margins.tobytes() == twice.metrics.margins.tobytes()
    assert once.metrics.margins.sum() == once.metrics.total[0]
    assert twice.result()["holdout"]["calibrated"]["log_loss"] > 0.0


def test_a_hinge_loss_has_calibrated_probabilities(uneven_data: Path, tmp_path: Path) -> None:
    """In memory, of the scorer, and in files; without calibration it has none."""
    made = learn(uneven_data / "data", loss="hinge", calibrate="sigmoid")
    rows = uneven(0).select(["n", "k", "h"])
    with plain():
        likely = made.predict_proba(rows)[:, 1]
        [path] = made.predict(str(uneven_data / "data" / "a.parquet"), to=str(tmp_path / "out"))
        scorer = made.scorer()
        assert pq.read_table(path)["probability"].to_pylist() == likely.tolist()
        assert scorer.many(rows.to_pylist())[2].tolist() == likely.tolist()
        assert scorer.proba(rows.to_pylist()[3]) == likely[3]
        scorer.save(tmp_path / "scorer")
        assert Scorer.load(tmp_path / "scorer").proba(rows.to_pylist()[3]) == likely[3]
        with pytest.raises(UsageError, match="no probabilities"):
            learn(uneven_data / "data", loss="hinge").predict_proba(rows)


def test_softmax_of_two_classes(uneven_data: Path) -> None:
    """Calibrated by the difference of both margins; two probabilities sum to 1."""
    made = learn(uneven_data / "data", loss="softmax", calibrate="isotonic")
    rows = uneven(0).select(["n", "k", "h"])
    with plain():
        margins, likely = made.decision_function(rows), made.predict_proba(rows)
    own = made.calibration
    assert likely[:, 1].tolist() == [own(float(b - a)) for a, b in margins]
    assert (likely.sum(axis=1) == 1.0).all()


def test_a_commit_has_its_histogram(uneven_data: Path) -> None:
    """Loaded, resumed by an update, and as the start of another run."""
    first = uneven_data / "data" / "b.parquet"
    aside = first.rename(uneven_data / "b.parquet")
    url = str(uneven_data / "run")
    learn(uneven_data / "data", calibrate="isotonic", checkpoint=url, epochs=2)
    half = streamomd.load(url)
    aside.rename(first)
    with plain():
        assert run("update", url, "--settle", "0s").code == 0
    both = streamomd.load(url)
    assert both.metrics.margins.sum() > half.metrics.margins.sum()
    again = streamomd.load(url)
    assert again.calibration == both.calibration
    started = learn(uneven_data / "data", calibrate="isotonic", start=url)
    assert started.metrics.margins.sum() == both.metrics.margins.sum() + started.metrics.total[0]


def test_refused(uneven_data: Path, tmp_path: Path) -> None:
    """A regression, three classes, and exports that have no place for it."""
    with pytest.raises(UsageError, match="a regression has no probabilities"):
        learn(uneven_data / "data", loss="square", calibrate="sigmoid")
    with pytest.raises(UnsupportedError, match="is for two classes, and the label has 3"):
        learn(uneven_data / "data", calibrate="sigmoid", sets={"model.classes": [0, 1, 2]})
    made = learn(uneven_data / "data", calibrate="sigmoid")
    with pytest.raises(UnsupportedError, match="sklearn has no calibration"):
        streamomd.to_sklearn(made)


SAVED = [
    {"kind": "isotonic", "x": [0.0, 0.0], "p": [0.1, 0.2]},
    {"kind": "isotonic", "x": [0.0, 1.0], "p": [0.3, 0.2]},
    {"kind": "isotonic", "x": [], "p": []},
    {"kind": "isotonic", "x": [0.0], "p": [1.5]},
    {"kind": "sigmoid", "x": [0.0], "p": []},
    {"kind": "sigmoid", "x": [0.0, float("nan")], "p": []},
    {"kind": "other", "x": [0.0, 1.0], "p": []},
]


@pytest.mark.parametrize("saved", SAVED)
def test_a_saved_calibration_is_checked(saved: dict[str, Any]) -> None:
    """A scorer's file may be anybody's."""
    link = Link((0, 1), (0, 1), "hinge", False, False, mean="margin").to_json()
    link |= {"mean": "calibrated", "of": "margin", "calibrated": saved}
    with pytest.raises(DataError, match=re.escape("the calibration of kind")):
        Link.from_json(link)


def test_a_saved_link_comes_back() -> None:
    """With and without a calibration, as JSON."""
    for one in (None, Calibration("isotonic", (0.0, 2.0), (0.25, 0.75))):
        link = Link((0, 1), (0, 1), "hinge", False, False, mean="margin", calibration=one)
        assert Link.from_json({**link.to_json(), "classes": [0, 1], "labels": [0, 1]}) == link
