"""Ranking, calibration, classes, MAE and R² from running sums: true within the error they state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import rows, run, write
from sklearn.metrics import (
    average_precision_score,
    mean_absolute_error,
    precision_recall_fscore_support,
    r2_score,
    roc_auc_score,
)

import streamomd
from streamomd.losses import Loss, all_losses, find_loss
from streamomd.training.metrics import Metrics
from streamomd.training.metrics.detail import NOTHING, Detail, detail_of, restored, saved
from streamomd.training.metrics.ranking import COARSE, FINE, binned, bins, half

FLAGS: dict[str, Any] = {"label": "y", "weight": "w", "numeric": ["n", "k"], "bits": 8}
BY_RANK = ("auc", "average_precision")


def drawn(seed: int, classes: int, count: int = 700) -> tuple[Any, Any, Any]:
    """Margins (rows, learners), y as a batch has it, and weights, some of them 0."""
    draw = np.random.default_rng(seed)
    weight = draw.choice([0.0, 0.3, 1.0, 2.5], count)
    if classes == 1:
        y = 1e6 + draw.normal(size=count)
        return (y + draw.normal(size=count) / 2)[:, None], y, weight
    code = draw.integers(0, classes, count)
    if classes == 2:
        y = 2.0 * code - 1.0
        return (draw.normal(size=count) * 1.5 + y)[:, None], y, weight
    margins = draw.normal(size=(count, classes))
    margins[np.arange(count), code] += 1.0
    return margins, code.astype(np.float64), weight


def counted(loss: Loss, classes: int, *pieces: tuple[Any, Any, Any]) -> Detail:
    detail = detail_of(classes)
    assert detail is not None
    for margins, y, weight in pieces:
        detail.add(loss, margins, y, weight)
    return detail


def figures(detail: Detail, loss: Loss, total: Any = (0.0, 0.0, 0.0)) -> dict[str, Any]:
    return {**NOTHING, **detail.figures(loss, np.array(total), "abcdefg")}


def near(told: dict[str, Any], name: str, truth: float) -> bool:
    """Whether the truth lies within the error that is told; of rounding a little more."""
    assert told[f"{name}_error"] < 0.05
    return bool(abs(told[name] - truth) <= told[f"{name}_error"] + 1e-12)


def kinds() -> list[Any]:
    """Every loss with every number of classes it may meet."""
    losses = all_losses().values()
    several = [(loss, classes) for loss in losses if loss.classifies for classes in (2, 3)]
    one = [(loss, 1) for loss in losses if not loss.classifies]
    return [pytest.param(*pair, id=f"{pair[0].name}-{pair[1]}") for pair in several + one]


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
@settings(max_examples=300, deadline=None)
def test_bins_ascend(a: float, b: float) -> None:
    """A higher score is never in a lower bin; 0 and below are in the lower half; NaN is last."""
    for digits in (FINE, COARSE):
        low, high, nan = binned(np.array([min(a, b), max(a, b), np.nan]), digits)
        assert low <= high < nan == bins(digits) - 1
        if abs(a) > 1e-300:
            assert (binned(np.array([a]), digits)[0] >= half(digits)) == (a > 0.0)
        assert binned(np.array([0.0, -0.0]), digits).tolist() == [half(digits) - 1] * 2


@pytest.mark.parametrize(("loss", "classes"), kinds())
def test_cuts_leave_no_trace(loss: Loss, classes: int) -> None:
    """Rows in one piece, one by one, or in pieces of 7: the same sums, to the bit."""
    margins, y, weight = drawn(1, classes, 60)
    margins = np.column_stack([-margins, margins]) if loss.coupled and classes == 2 else margins

    def cut(size: int) -> list[tuple[Any, Any, Any]]:
        starts = range(0, len(y), size)
        return [tuple(one[at : at + size] for one in (margins, y, weight)) for at in starts]  # type: ignore[misc]

    found = [saved(counted(loss, classes, *cut(size))) for size in (60, 1, 7)]
    for other in found[1:]:
        assert {k: v.tobytes() for k, v in other.items()} == {
            k: v.tobytes() for k, v in found[0].items()
        }


@pytest.mark.parametrize("classes", [1, 2, 3])
def test_what_is_saved_comes_back(classes: int) -> None:
    """A checkpoint's arrays, and a copy, are the same sums; a copy is apart from its origin."""
    loss = find_loss("logistic" if classes > 1 else "square")
    detail = counted(loss, classes, drawn(2, classes))
    back, metrics = restored(saved(detail)), Metrics(classifies=classes > 1, detail=detail)
    twin = metrics.copy().detail
    detail.add(loss, *drawn(3, classes))
    again = counted(loss, classes, drawn(2, classes))
    for one in (back, twin):
        assert {k: v.tobytes() for k, v in saved(one).items()} == {
            k: v.tobytes() for k, v in saved(again).items()
        }
    assert restored({}) is None


@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e9])
@pytest.mark.parametrize("seed", range(5))
def test_two_classes_rank_as_sklearn_says(seed: int, scale: float) -> None:
    """AUC and average precision hold the exact ones in their bounds, on any scale of margins."""
    margins, y, weight = drawn(seed, 2)
    margins = np.round(margins, 1) * scale if seed % 2 else margins * scale
    told = figures(counted(find_loss("hinge"), 2, (margins, y, weight)), find_loss("hinge"))
    score = margins[:, 0]
    assert near(told, "auc", roc_auc_score(y, score, sample_weight=weight))
    assert near(told, "average_precision", average_precision_score(y, score, sample_weight=weight))
    assert told["calibration"] is None
    assert told["mae"] is told["r2"] is None
    other = told["per_class"][0]
    assert near(
        other, "average_precision", average_precision_score(-y, -score, sample_weight=weight)
    )


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
@pytest.mark.parametrize("seed", range(3))
def test_several_classes_rank_as_sklearn_says(seed: int, loss: str) -> None:
    """Each class against all others: by its margin, or with softmax by its probability."""
    margins, y, weight = drawn(seed, 4)
    told = figures(counted(find_loss(loss), 4, (margins, y, weight)), find_loss(loss))
    odds = np.exp(margins)
    scores = odds / odds.sum(axis=1, keepdims=True) if loss == "softmax" else margins
    for k, one in enumerate(told["per_class"]):
        assert near(one, "auc", roc_auc_score(y == k, scores[:, k], sample_weight=weight))
        exact = average_precision_score(y == k, scores[:, k], sample_weight=weight)
        assert near(one, "average_precision", exact)
    for name in BY_RANK:
        assert told[name] == pytest.approx(np.mean([one[name] for one in told["per_class"]]))


@pytest.mark.parametrize("classes", [2, 4])
def test_classes_are_counted(classes: int) -> None:
    """Confusion, precision and recall are those of the predicted classes, by weight."""
    margins, y, weight = drawn(7, classes)
    found = margins.argmax(axis=1) if classes > 2 else np.where(margins[:, 0] > 0.0, 1.0, -1.0)
    loss = find_loss("logistic")
    told = figures(counted(loss, classes, (margins, y, weight)), loss)
    precision, recall, _, _ = precision_recall_fscore_support(y, found, sample_weight=weight)
    names = np.unique(y)
    expected = [[weight[(y == a) & (found == b)].sum() for b in names] for a in names]
    assert np.allclose(told["confusion"], expected)
    assert [one["class"] for one in told["per_class"]] == [*"abcd"[:classes]]
    assert np.allclose([one["precision"] for one in told["per_class"]], precision)
    assert np.allclose([one["recall"] for one in told["per_class"]], recall)
    assert np.allclose([one["weight"] for one in told["per_class"]], np.sum(expected, axis=1))


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_calibration_by_levels(loss: str) -> None:
    """A level's predicted and observed shares are the weighted means of its rows."""
    draw = np.random.default_rng(3)
    level = draw.integers(0, 20, 2000)
    p = (level + draw.uniform(0.2, 0.8, 2000)) / 20  # the bins at levels' edges hold no row
    y, weight = np.where(draw.random(2000) < p**1.5, 1.0, -1.0), draw.choice([0.5, 1.0], 2000)
    margin = np.log(p / (1.0 - p))[:, None]
    margins = np.column_stack([-margin / 2, margin / 2]) if loss == "softmax" else margin
    kind = find_loss(loss)
    told = figures(counted(kind, 2, (margins, y, weight)), kind)["calibration"]
    assert [one["low"] for one in told] == [at / 20 for at in range(20)]
    for at, one in enumerate(told):
        here = level == at
        assert one["weight"] == pytest.approx(weight[here].sum())
        assert one["observed"] == pytest.approx(np.average(y[here] > 0, weights=weight[here]))
        assert abs(one["predicted"] - np.average(p[here], weights=weight[here])) < 0.002


@pytest.mark.parametrize("loss", [one for one in all_losses().values() if not one.classifies])
def test_numbers_are_off_as_sklearn_says(loss: Loss) -> None:
    """MAE and R² of labels far from 0, by what is predicted; weights count."""
    margins, y, weight = drawn(5, 1)
    if loss.mean(1.0) != 1.0:  # a count's expectation is predicted by its logarithm
        margins, y = np.log(margins - 1e6 + 20.0), y - 1e6 + 20.0
    predicted = np.array([loss.mean(margin) for margin in margins[:, 0].tolist()])
    total = weight.sum(), 0.0, float(weight @ (y - predicted) ** 2)
    told = figures(counted(loss, 1, (margins, y, weight)), loss, total)
    assert told["mae"] == pytest.approx(mean_absolute_error(y, predicted, sample_weight=weight))
    assert told["r2"] == pytest.approx(r2_score(y, predicted, sample_weight=weight), abs=1e-9)
    assert told["auc"] is told["per_class"] is None


def test_nothing_to_say_is_null() -> None:
    """No row, one class alone, NaN, no weight, labels that are all alike: null, never a number."""
    loss, square = find_loss("logistic"), find_loss("square")
    one = np.ones(3)
    alone = figures(counted(loss, 2, (one[:, None], one, one)), loss)
    assert alone["auc"] is alone["average_precision"] is None
    assert alone["confusion"] == [[0.0, 0.0], [0.0, 3.0]]
    lost = figures(counted(loss, 2, (np.array([[np.nan], [1.0], [2.0]]), one, one)), loss)
    assert lost["auc"] is lost["per_class"] is lost["calibration"] is None
    assert figures(counted(loss, 3), loss)["auc"] is None
    for total in ((0.0, 0.0, 0.0), (3.0, 0.0, np.inf)):
        numbers = figures(counted(square, 1, (one[:, None], one, one)), square, total)
        assert numbers["mae"] is numbers["r2"] is None
    assert figures(counted(square, 1, (one[:, None], one, one)), square, (3.0, 0, 0))["r2"] is None
    assert detail_of(101) is None
    assert Metrics(classifies=True).detailed(loss, "ab") == NOTHING


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two shards of 300 rows; y of two classes, z of three, n a number."""
    for place, name in enumerate("ab"):
        table = rows(300, first=place)
        three = np.digitize(table["n"].to_numpy(), [-300.0, 400.0])
        write(tmp_path / "data" / f"{name}.parquet", table.append_column("z", pa.array(three)))
    return tmp_path


def learned(data: Path, **more: Any) -> streamomd.Model:
    given = {"checkpoint": "none", "quiet": True, **FLAGS, **more}
    return streamomd.train(str(data / "data"), **given)


TASKS: dict[str, dict[str, Any]] = {
    "two": {},
    "three": {"label": "z", "sets": {"data.ignore": ["y"]}},
    "number": {"label": "n", "numeric": ["k"], "loss": "square", "rule": "adagrad"},
}


@pytest.mark.parametrize(
    "task",
    # Loops of three classes take four seconds to compile.
    [pytest.param(task, marks=pytest.mark.slow if task == "three" else ()) for task in TASKS],
)
def test_a_resumed_run_tells_the_same(task: str, data: Path) -> None:
    """What a run says of all its rows is the same, to the bit, if it was read back in between."""
    kept, more = str(data / "kept"), {**TASKS[task], "epochs": 2}
    whole = learned(data, **more)
    learned(data, **{**more, "epochs": 1}, checkpoint=kept)
    again = streamomd.resume(kept, sets={"train.epochs": 2}, quiet=True)
    for name in NOTHING:
        assert again.result()[name] == whole.result()[name]
        assert streamomd.load(kept).result()[name] == whole.result()[name]
    assert again.state_sha256 == whole.state_sha256
    silent = {**more.get("sets", {}), "train.detail": False}
    off = learned(data, **{**more, "sets": silent})
    assert off.state_sha256 == whole.state_sha256
    assert {name: off.result()[name] for name in NOTHING} == NOTHING


def test_a_detail_of_some_rows_is_not_told_of_all(data: Path) -> None:
    """A run whose first rows were learned without one says nothing, after more epochs too."""
    kept = str(data / "kept")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Metrics, "examine", lambda *_: None)  # as it was before there was one
        assert learned(data, checkpoint=kept).metrics.detail is None
    again = streamomd.resume(kept, sets={"train.epochs": 2}, quiet=True)
    assert again.metrics.detail is not None
    assert {name: again.result()[name] for name in NOTHING} == NOTHING


def test_evaluate_tells_of_the_rows_that_predict_writes(data: Path) -> None:
    """The command's figures hold, in their bounds, what the written scores give; weights count."""
    kept, shards = str(data / "kept"), data / "data"
    learned(data, checkpoint=kept)
    told = run("evaluate", kept, shards, "--json").result
    model = streamomd.load(kept)
    written = model.predict(str(shards), str(data / "out"), keep=["y", "w"])
    out = pa.concat_tables([pq.read_table(path) for path in written])
    y, w, score = (out[name].to_numpy() for name in ("y", "w", "score"))
    assert near(told, "auc", roc_auc_score(y, score, sample_weight=w))
    assert near(told, "average_precision", average_precision_score(y, score, sample_weight=w))
    assert sum(one["weight"] for one in told["calibration"]) == pytest.approx(w.sum())
    assert [one["class"] for one in told["per_class"]] == [0, 1]
    assert "auc 0." in run("evaluate", kept, shards).out


@pytest.mark.parametrize("classes", [1, 2, 4])
@pytest.mark.parametrize("cuts", [(350,), (0, 700), (1, 2, 699)])
def test_parts_join_to_the_whole(classes: int, cuts: tuple[int, ...]) -> None:
    """Bins and counts of parts add up to those of all rows; sums of labels up to rounding."""
    loss = find_loss("square" if classes == 1 else "logistic")
    margins, y, weight = drawn(classes, classes)
    whole = Metrics(classes > 1, held=Metrics(classes > 1))
    whole.begin(0)
    pieces = np.split(np.arange(len(y)), cuts)
    for at in pieces:
        part = Metrics(classes > 1, held=Metrics(classes > 1))
        part.begin(0)
        assert part.held is not None
        for metrics in (part, part.held):
            metrics.count(len(at))
            metrics.current[...] += [weight[at].sum(), 0.0, 0.0]
            metrics.examine(loss, classes, margins[at], y[at], weight[at])
        whole.add(Metrics.from_arrays(part.arrays(), classifies=classes > 1))
    expected = counted(loss, classes, (margins, y, weight))
    total = (weight.sum(), 0.0, 1.0)
    assert whole.held is not None
    for found in (whole.detail, whole.held.detail):
        assert found is not None
        assert found.rows == len(y)
        assert found.classes == expected.classes
        names = figures(found, loss, total), figures(expected, loss, total)
        for key, value in names[1].items():
            if isinstance(value, float):
                assert names[0][key] == pytest.approx(value, rel=1e-9)
        if classes > 1:
            assert np.allclose(names[0]["confusion"], names[1]["confusion"], rtol=1e-12)
    assert whole.rows == [len(y)]


def test_the_first_joined_part_may_be_empty() -> None:
    """A part whose rows are all bad has no detail, and changes nothing."""
    whole, part = Metrics(False), Metrics(False)
    for metrics in (whole, part):
        metrics.begin(0)
    whole.add(part)
    assert whole.detail is None
    part.examine(find_loss("square"), 1, np.zeros((1, 1)), np.array([3.0]), np.ones(1))
    whole.add(part)
    assert whole.detail is not None
    assert whole.detail.rows == 1
