"""The report draws the curve of each number with hats, the one that varies most first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import run, write

import streamomd
from streamomd.analysis.report.feature_weights import scales_of_shards, weigh
from streamomd.training.column_importance import effects_of
from streamomd.training.model import Model


def trained(folder: Path, classes: int = 0, rule: str = "nag") -> Model:
    """A target that is curved in b, and in a less."""
    draw = np.random.default_rng(0)
    a, b = draw.normal(size=(2, 500))
    y = b**2 + 0.1 * a
    if classes:
        y = np.searchsorted(np.quantile(y, np.arange(1, classes) / classes), y)
    shard = write(folder / "0.parquet", {"a": a, "b": b, "c": np.ones(500), "y": y})
    job = {"label": "y", "shapes": "columns", "quiet": True, "task": "classify"}
    return streamomd.train(
        str(shard), checkpoint=str(folder / "run"), rule=rule,
        **(job if classes else {**job, "task": "regress"}),
    )  # fmt: skip


def test_effects_are_what_the_model_adds(tmp_path: Path) -> None:
    """The difference of two predictions that differ in one column is that of its effect."""
    model = trained(tmp_path)
    effects = effects_of(model)
    assert [effect.name for effect in effects] == ["b", "a"]
    assert effects[0].spread > effects[1].spread > 0.0
    for effect in effects:
        rows = {"a": np.zeros(len(effect.x)), "b": np.zeros(len(effect.x)), effect.name: effect.x}
        found = model.decision_function(pa.table({**rows, "c": np.ones(len(effect.x))}))
        np.testing.assert_allclose(np.diff(found), np.diff(effect.y[:, 0]), atol=1e-9)


@pytest.mark.parametrize("classes", [0, 2, 5])
def test_the_page_has_a_chart_of_each(classes: int, tmp_path: Path) -> None:
    """Of classes at most three are drawn; a model without curves has none."""
    trained(tmp_path, classes)
    page = tmp_path / "r.html"
    assert run("report", tmp_path / "run", "-o", page).code == 0
    text = page.read_text()
    assert "<h3>Curves</h3>" in text
    assert text.index("<figcaption>b</figcaption>") < text.index("<figcaption>a</figcaption>")
    assert "<figcaption>c</figcaption>" not in text
    scales = text[text.index("<h3>Scale of each column</h3>") :]
    assert "<td>b</td>" in scales
    assert "<td>b[" not in scales


def test_importances_are_of_whole_columns(tmp_path: Path) -> None:
    """Nearly the standard deviation of what a curved column adds: values count as knots."""
    model = trained(tmp_path)
    shards = str(tmp_path / "0.parquet")
    found = weigh(model, scales_of_shards(model.plan, shards)).importances
    rows = pq.read_table(shards)
    for name in "ab":
        others = {other: np.zeros(500) for other in "abc" if other != name}
        score = model.decision_function(pa.table({**others, name: rows[name]}))
        assert found[name] == pytest.approx(score.std(), rel=0.25)


@pytest.mark.parametrize("rule", ["nag", "auto"])
def test_bands_and_density(rule: str, tmp_path: Path) -> None:
    """Rules with a covariance have a band, those that store means the density of the rows, as rows
    that are given have."""
    model = trained(tmp_path, rule=rule)
    for more in ([], [str(tmp_path / "0.parquet")]):
        page = tmp_path / f"{len(more)}.html"
        assert run("report", tmp_path / "run", *more, "-o", page, "--no-certificate").code == 0
        text = page.read_text()
        assert text.count('class="band') == 2 * (rule == "auto")
        knots = sum(len(curve.knots) for curve in model.plan.curves)
        assert text.count('class="rug"') == knots
        assert ("Grey: the knots." in text) == (rule == "nag" and not more)
    values = pq.read_table(tmp_path / "0.parquet", columns=["a", "b"])
    for effect in effects_of(model):
        if rule == "nag":
            assert effect.errors is effect.shares is None
            continue
        knots = effect.x[effect.is_knot]
        hats = [np.interp(values[effect.name], knots, row).mean() for row in np.eye(len(knots))]
        np.testing.assert_allclose(effect.shares, hats, rtol=1e-9)
        assert (effect.errors > 0.0).all()


def test_errors_of_effects(tmp_path: Path) -> None:
    """An effect that is a line lies within four errors at each knot, which are of the same size."""
    _, a = effects_of(trained(tmp_path, rule="auto"))
    x, y, errors = (one[a.is_knot] for one in (a.x, a.y[:, 0], a.errors[:, 0]))
    off = np.abs(y - 0.1 * (x - x.mean()))
    assert (off < 4.0 * errors).all()
    assert errors.max() < 3.0 * off.max()


@pytest.mark.parametrize("classes", [0, 3])
def test_inspect_has_tables(classes: int, tmp_path: Path) -> None:
    """Of each curve, in the order of the report, as JSON and as text."""
    model = trained(tmp_path, classes, rule="auto")
    found = run("inspect", tmp_path / "run", "--json").result["curves"]
    assert [one["column"] for one in found] == ["b", "a"]
    for one, effect in zip(found, effects_of(model), strict=True):
        for name, array in (("effect", effect.y), ("error", effect.errors)):
            assert one[name] == array[effect.is_knot].tolist()
        assert len(one["knots"]) == len(one["share"]) == len(one["effect"])
    text = run("inspect", tmp_path / "run").out
    heads = "effect on 0" if classes else "effect"
    assert "knot of b" in text
    assert heads in text
    assert "knot of a" not in run("inspect", tmp_path / "run", "--top", "1").out
