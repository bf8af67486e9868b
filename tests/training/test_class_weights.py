"""Weights by class: what a row counts for in learning, which no metric has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import Impatient, run, with_column, write
from sweeping import plain
from uneven_rows import FLAGS, learn, uneven, uneven_data

import streamomd
from streamomd.config.spec import Spec
from streamomd.core.batch import DenseBatch
from streamomd.core.errors import UnsupportedError, UsageError
from streamomd.training.class_weights import ClassWeights
from streamomd.training.metrics import Metrics
from streamomd.training.metrics.ranking import FINE, centres

__all__ = ["uneven_data"]  # the fixture
FACTORS = {"0": 0.5, "1": 4.0}


def balanced(places: list[int], weights: list[float], classes: int) -> list[float]:
    """n / (K n_k) of each row, as docs/metrics.md has it."""
    found = []
    for t in range(len(places)):
        n = sum(weights[: t + 1])
        own = sum(
            h for k, h in zip(places[: t + 1], weights[: t + 1], strict=True) if k == places[t]
        )
        found.append(n / (classes * own) if own > 0.0 else 1.0)
    return found


def batch(places: list[int], weights: list[float], classes: int) -> DenseBatch:
    place = np.array(places, np.float64)
    y = np.where(place > 0, 1.0, -1.0) if classes == 2 else place
    return DenseBatch(np.zeros((len(y), 1)), y, np.array(weights))


@given(st.integers(2, 4), st.data())
@settings(max_examples=30, deadline=None)
def test_balanced_weights_are_their_formula_for_any_split(classes: int, data: Any) -> None:
    """However the rows are cut into batches, their weights are the same bits; scikit-learn's
    "balanced" is that of the last row of each class, of rows that all have weight 1."""
    count = data.draw(st.integers(0, 30))
    places = data.draw(st.lists(st.integers(0, classes - 1), min_size=count, max_size=count))
    weight = st.sampled_from([0.0, 0.1, 1.0, 2.5])
    weights = data.draw(st.lists(weight, min_size=count, max_size=count))
    whole = ClassWeights(classes, None).of(Metrics(True), batch(places, weights, classes))
    assert whole.tolist() == pytest.approx(balanced(places, weights, classes), rel=1e-12)
    metrics, cut = Metrics(True), data.draw(st.integers(0, count))
    pieces = [
        ClassWeights(classes, None).of(metrics, batch(places[some], weights[some], classes))
        for some in (slice(0, cut), slice(cut, None))
    ]
    assert np.concatenate(pieces).tobytes() == whole.tobytes()


def test_rows_before_count() -> None:
    """A part of averaged mode balances its rows with those before the round."""
    places, weights = [0, 1, 1, 0, 1], [1.0, 2.0, 1.0, 1.0, 0.5]
    metrics = Metrics(True)
    ClassWeights(2, None).of(metrics, batch(places[:3], weights[:3], 2))
    later = ClassWeights(2, None, metrics.classes)
    found = later.of(part := Metrics(True), batch(places[3:], weights[3:], 2))
    assert found.tolist() == pytest.approx(balanced(places, weights, 2)[3:])
    assert (metrics.classes + part.classes).tolist() == [2.0, 3.5, 5.5]


@pytest.mark.parametrize("mode", ["exact", "sharded"])
@pytest.mark.parametrize("wanted", [FACTORS, "balanced"])
def test_it_is_a_factor_of_the_weight_in_learning_alone(
    wanted: Any, mode: str, uneven_data: Path
) -> None:
    """The state is that of rows with multiplied weights; the loss is that of the rows' own."""
    made = learn(uneven_data / "data", class_weight=wanted, mode=mode)
    counts = Metrics(True)
    weighing = ClassWeights(2, None if wanted == "balanced" else np.array([0.5, 4.0]))
    for shard, name in enumerate("ab"):
        table = uneven(shard)
        y, w = np.array(table["y"]), np.array(table["w"])
        factor = weighing.of(counts, batch(y.tolist(), w.tolist(), 2))
        write(uneven_data / "heavy" / f"{name}.parquet", with_column(table, "w", w * factor))
    other = learn(uneven_data / "heavy", mode=mode)
    assert made.state.cells.tobytes() == other.state.cells.tobytes()
    assert made.metrics.total[0] == sum(float(np.array(uneven(k)["w"]).sum()) for k in (0, 1))
    assert made.result()["loss"] != other.result()["loss"]
    detail = made.result()
    assert sum(map(sum, detail["confusion"])) == pytest.approx(made.metrics.total[0])
    wrong = detail["confusion"][0][1] + detail["confusion"][1][0]
    assert detail["error"] == pytest.approx(wrong / made.metrics.total[0])


@pytest.mark.parametrize("rule", ["nag", "laplace"])
def test_weights_of_one_change_no_bit(rule: str, uneven_data: Path) -> None:
    """Neither of the state nor of the loss, of a rule with a smoothed log loss too."""
    more: dict[str, Any] = {"hashed": [], "ignore": ["h"]}
    one = learn(uneven_data / "data", rule=rule, class_weight={"0": 1.0}, **more)
    none = learn(uneven_data / "data", rule=rule, **more)
    assert one.state_sha256 == none.state_sha256


def test_a_stopped_run_resumes_with_its_counts(uneven_data: Path) -> None:
    """The counts are in the commit: the same state and figures as without a stop."""
    job = {"class_weight": "balanced", "sets": {"checkpoint.every_rows": 50}}
    whole = learn(uneven_data / "data", **job)
    url = uneven_data / "run"
    from streamomd.runs import modes

    original = modes.Reporting.watchers
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            modes.Reporting, "watchers", lambda *given: [*original(*given), Impatient(70)]
        )
        with pytest.raises(InterruptedError):
            learn(uneven_data / "data", checkpoint=str(url), **job)
    with plain():
        again = streamomd.resume(str(url), quiet=True)
    assert again.state_sha256 == whole.state_sha256
    assert again.metrics.classes.tolist() == whole.metrics.classes.tolist()
    loaded = streamomd.load(str(url))
    assert loaded.metrics.classes.tolist() == whole.metrics.classes.tolist()


def test_classes_by_name(uneven_data: Path) -> None:
    """As a flag writes them; texts, booleans and numbers."""
    flags = ["--label", "y", "--numeric", "n", "--rule", "nag", "--checkpoint", "none"]
    flags += ["--ignore", "w,k,h,c,i,v"]
    with plain():
        done = run("train", uneven_data / "data", *flags, "--class-weight", "1=4,0=0.5", "--json")
        unknown = run("train", uneven_data / "data", *flags, "--class-weight", "yes=4")
    assert done.code == 0, done.err
    assert unknown.code == 2
    assert "model.class_weight names 'yes', which is not a class of the label" in unknown.err


def test_classes_by_value() -> None:
    """As Python names them: 0 and False are classes, too."""
    tables = {"model": {"class_weight": {0: 0.5, 1: 4}}, "data": {"sample": {False: 0.5}}}
    spec = Spec.parse(tables)
    assert spec.model.class_weight == {"0": 0.5, "1": 4.0}
    assert spec.data.sample == {"false": 0.5}


WRONG = [
    ({"class_weight": "even"}, "expected 'balanced', or a number for each class"),
    ({"class_weight": {"1": 0.0}}, "class '1' has 0.0: expected a number above 0"),
    ({"class_weight": "balanced", "loss": "square"}, "model.class_weight is about classes"),
    ({"class_weight": "1=2,1=3"}, "a class is named twice"),
    ({"class_weight": {"1": True}}, "expected a number above 0"),
    ({"class_weight": {"1": 10**400}}, "expected a number above 0"),
    ({"class_weight": 3}, "model.class_weight = 3: expected 'balanced', or a number for each"),
    ({"sample": {"1": 1.5}}, "expected a share of its rows, above 0 and at most 1"),
    ({"sample": {"7": 0.5}}, "data.sample names '7', which is not a class"),
    ({"sample": {"1": 0.5}, "loss": "square"}, "data.sample is about classes"),
]


@pytest.mark.parametrize(("given", "message"), WRONG)
def test_wrong_values(given: dict[str, Any], message: str, uneven_data: Path) -> None:
    """Each says what was expected."""
    with pytest.raises(UsageError, match=re.escape(message)):
        learn(uneven_data / "data", **given)


@pytest.mark.parametrize("key", ["model.class_weight", "data.sample"])
def test_not_with_a_certificate(key: str) -> None:
    """The theorems are about the rows as they are."""
    table, name = key.split(".")
    tables: dict[str, Any] = {"model": {"rule": "adagrad", "certificate": True}, "data": {}}
    tables[table][name] = {"1": 0.5}
    with pytest.raises(UnsupportedError, match=f"{key} changes what rows count for"):
        Spec.parse(tables)


def test_learners_of_a_sweep_are_those_trained_alone(uneven_data: Path) -> None:
    """With weights, calibration, sampled and held-out rows."""
    sets = {"model.calibrate": "sigmoid", "data.sample": {"0": 0.5}, "data.holdout": 5}
    given = {"class_weight": "balanced", "checkpoint": "none", "quiet": True, "rule": "nag"}
    shards = str(uneven_data / "data")
    with plain():
        found = streamomd.sweep(
            grid={"eta": [0.5, 1.0]}, shards=shards, sets=sets, bits=6, **given, **FLAGS
        )
    for eta, learner in zip((0.5, 1.0), found.learners, strict=True):
        alone = learn(uneven_data / "data", class_weight="balanced", sets={**sets, "eta": eta})
        assert learner.model.state_sha256 == alone.state_sha256
        assert learner.model.calibration == alone.calibration


@pytest.mark.parametrize("wanted", [FACTORS, "balanced"])
def test_reported_probabilities_are_without_their_effect_on_the_odds(
    wanted: Any, uneven_data: Path
) -> None:
    """``calibrated`` has the log loss of odds divided by the weights' ratio; the learned loss is
    that of the odds as they are."""
    found = learn(uneven_data / "data", class_weight=wanted, rule="nag")
    negatives, positives = found.metrics.detail.weights[:, :-1]
    ratio = 8.0 if wanted is FACTORS else negatives.sum() / positives.sum()
    with np.errstate(all="ignore"):
        odds = np.exp(centres(FINE)) / ratio
        losses = np.stack([negatives * np.log1p(odds), positives * np.log1p(1.0 / odds)])
    expected = np.nansum(losses) / found.metrics.total[0]
    result = found.result()
    assert result["calibrated"]["log_loss"] == pytest.approx(expected, rel=1e-9)
    assert result["calibrated"]["log_loss"] < result["loss"]
    again = found.evaluate(str(uneven_data / "data"), quiet=True)
    assert 0.0 < again["calibrated"]["log_loss"] < again["loss"]
