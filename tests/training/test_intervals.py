"""Standard errors of weights and intervals of predictions: closed forms, coverage, and what has
none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from estimating import uncompiled
from lazy_loops import LAZY
from running import Ran, run, write
from standardized import Floats, Rows, Run, sigmoid

import streamomd
from streamomd.core.errors import UnsupportedError, UsageError
from streamomd.engine.loops.rebase import AT
from streamomd.engine.standard_errors import margin_errors, sum_errors, weight_errors

N = 300
FLAT: dict[str, Any] = {"prior": 1e-9, "prior_bias": 1e-9}
"""Priors that count for nothing: the estimate is that of least squares."""


@pytest.fixture(autouse=True)
def _plain(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.node.get_closest_marker("slow"):
        uncompiled(monkeypatch)


def columns(seed: int = 1) -> Floats:
    """Correlated columns with offsets and scales."""
    draw = np.random.default_rng(seed)
    return draw.normal(size=(N, 3)) @ draw.normal(size=(3, 3)) * [1.0, 50.0, 0.1] + [0.0, 300.0, 9]


def table(y: Any, X: Floats, **more: Any) -> pa.Table:
    return pa.table({"y": y, **{f"x{at}": x for at, x in enumerate(X.T)}, **more})


def labels(loss: str) -> Any:
    X, draw = columns(), np.random.default_rng(2)
    f = (X - X.mean(axis=0)) / X.std(axis=0) @ draw.normal(size=(3, 3))
    if loss == "square":
        return f[:, 0] + 0.5 * draw.normal(size=N) + 7.0
    if loss == "softmax":
        return np.argmax(f + draw.gumbel(size=f.shape), axis=1)
    return (draw.random(N) < sigmoid(f[:, 0])).astype(int)


def trained(folder: Path, loss: str, **more: Any) -> Any:
    """A model of the rows, which are in ``folder / data``."""
    X = columns()
    write(folder / "data" / "a.parquet", table(labels(loss), X), row_group_size=70)
    given: dict[str, Any] = {"label": "y", "numeric": ["x0", "x1", "x2"], "loss": loss, **more}
    given = {"checkpoint": str(folder / "run"), **given}
    return streamomd.train(str(folder / "data"), quiet=True, **given)


def intervals(model: Any, folder: Path, **more: Any) -> pa.Table:
    (file,) = model.predict(str(folder / "data"), str(folder / "out"), interval=True, **more)
    return pq.read_table(file)


@pytest.mark.parametrize("epochs", [1, 3])
def test_errors_of_least_squares(epochs: int, tmp_path: Path) -> None:
    """s^2 (X'X)^-1 of rows with a 1 for the bias, whatever the number of passes."""
    sets = {f"model.params.{name}": value for name, value in FLAT.items()}
    model = trained(tmp_path, "square", rule="auto", epochs=epochs, sets=sets)
    X1 = np.c_[np.ones(N), columns()]
    noise = float(model.state.totals[0, AT["mse"]])
    residuals = labels("square") - X1 @ np.linalg.lstsq(X1, labels("square"), rcond=None)[0]
    assert 0.95 < noise / (residuals @ residuals / (N - 4)) < 1.25  # early rows miss by more
    covariance = noise * np.linalg.inv(X1.T @ X1)
    found = weight_errors(model.engine, model.state, 0, 4)[:, 0]
    np.testing.assert_allclose(found, np.sqrt(np.diag(covariance)), rtol=1e-6)
    factors = np.array([[2.0, -1.0, 3.0], [0.0, 1.0, 1.0]])
    sums = sum_errors(model.engine, model.state, np.array([1, 2, 3]), factors)[:, 0]
    expected = np.einsum("si,ij,sj->s", factors, covariance[1:, 1:], factors)
    np.testing.assert_allclose(sums, np.sqrt(expected), rtol=1e-6)
    of_mean = np.sqrt(np.einsum("ij,jk,ik->i", X1, covariance, X1))
    shown = intervals(model, tmp_path)
    lower, upper = (shown[name].to_numpy() for name in ("lower", "upper"))
    np.testing.assert_allclose(upper - lower, 2 * 1.96 * of_mean, rtol=1e-6)
    np.testing.assert_allclose((lower + upper) / 2, shown["prediction"].to_numpy(), rtol=1e-9)


def test_errors_of_coordinates_outside_the_block() -> None:
    """s^2 / (3 q + sum of x^2), prior and data, each for itself; a slot's is that of the matrix."""
    draw = np.random.default_rng(3)
    S = np.where(draw.random((N, 4)) < 0.3, draw.choice([1.0, 2.0], (N, 4)), 0.0)
    rows = Rows(np.zeros((N, 0)), S, S @ [1.0, 2.0, 3.0, 0.0] + draw.normal(size=N), np.ones(N))
    S[:, 3] = 0.0
    run = Run("auto", "square", 0, 4, block=1)
    run.learn(rows)
    found = weight_errors(run.engine, run.state, 0, 5)[:, 0]
    squares, counts = (S**2).sum(axis=0), np.count_nonzero(S, axis=0)
    expected = 3.0 * squares[:3] / counts[:3] + squares[:3]
    np.testing.assert_allclose(found[1:4], np.sqrt(run.total("mse")[0] / expected), rtol=1e-9)
    assert np.isnan(found[4])
    assert found[0] == pytest.approx(np.sqrt(run.total("mse")[0] / N), rel=0.01)
    for low in range(5):
        one = weight_errors(run.engine, run.state, low, low + 1)[0, 0]
        assert one == found[low] or np.isnan(found[low])


def test_intervals_of_probabilities(tmp_path: Path) -> None:
    """Around the probability, within 0 and 1; of three classes and more, lists of them."""
    two = intervals(trained(tmp_path / "two", "logistic"), tmp_path / "two")
    lower, found, upper = (two[name].to_numpy() for name in ("lower", "probability", "upper"))
    assert (lower > 0.0).all()
    assert (lower < found).all()
    assert (found < upper).all()
    assert (upper < 1.0).all()
    three = intervals(trained(tmp_path / "three", "softmax"), tmp_path / "three")
    lists = [np.array(three[name].to_pylist()) for name in ("lower", "probability", "upper")]
    assert lists[0].shape == lists[1].shape == lists[2].shape == (N, 3)
    assert (lists[0] > 0.0).all()
    assert (lists[0] < lists[1]).all()
    assert (lists[1] < lists[2]).all()
    assert (lists[2] < 1.0).all()


def test_the_command_is_the_method(tmp_path: Path) -> None:
    """``--with interval`` adds two columns; without it there are none."""
    model = trained(tmp_path, "logistic")
    shown = intervals(model, tmp_path)
    for to, more in (("with", ["--with", "interval"]), ("without", [])):
        done = run("predict", tmp_path / "run", tmp_path / "data", "--to", tmp_path / to, *more)
        assert done.code == 0, done.err
    assert pq.read_table(tmp_path / "with" / "a.parquet") == shown
    plain = pq.read_table(tmp_path / "without" / "a.parquet")
    assert plain == shown.drop_columns(["lower", "upper"])


@pytest.mark.parametrize(
    "rule, loss", [("nag", "logistic"), ("auto", "hinge"), ("adagrad_standardized", "logistic")]
)
def test_rules_without_a_covariance_are_refused(rule: str, loss: str, tmp_path: Path) -> None:
    """Before a file is made; their weights have no errors, either."""
    model = trained(tmp_path, loss, rule=rule)
    with pytest.raises(UnsupportedError, match=f"rule '{rule}' with loss '{loss}' has no covar"):
        intervals(model, tmp_path)
    words = [tmp_path / "run", tmp_path / "data", "--to", tmp_path / "out", "--with", "interval"]
    done = run("predict", *words)
    assert done.code != 0
    assert "rules auto and laplace have, with loss logistic, square or softmax" in done.err
    assert not (tmp_path / "out").exists()
    assert not {"error", "z"} & set(inspected(tmp_path)["top"][0])


def test_columns_named_as_the_interval(tmp_path: Path) -> None:
    """``--keep lower`` clashes with an interval only."""
    model = trained(tmp_path, "logistic")
    rows = table(labels("logistic"), columns(), lower=np.arange(N))
    write(tmp_path / "data" / "a.parquet", rows)
    (file,) = model.predict(str(tmp_path / "data"), str(tmp_path / "plain"), keep=["lower"])
    assert pq.read_table(file)["lower"].to_pylist() == list(range(N))
    with pytest.raises(UsageError, match="--keep lower: the output already has a column"):
        intervals(model, tmp_path, keep=["lower"])


def inspected(folder: Path) -> dict[str, Any]:
    return run("inspect", folder / "run", "--json").result


def test_inspect_has_errors(tmp_path: Path) -> None:
    """error and z of each weight, as JSON and as text."""
    model = trained(tmp_path, "softmax")
    top = inspected(tmp_path)["top"]
    assert len(top) == 4
    for one in top:
        at = one["coordinate"]
        assert one["error"] == weight_errors(model.engine, model.state, at, at + 1)[0].tolist()
        pairs = zip(one["weight"], one["error"], one["z"], strict=True)
        assert all(z == weight / error for weight, error, z in pairs)
    text = run("inspect", tmp_path / "run").out
    assert {"error", "z"} <= set(text.split("\n\n")[1].split("\n")[0].split())


def test_unknown_errors_are_none(tmp_path: Path) -> None:
    """Targets that never miss: the noise is 0 so far, and z would be infinite."""
    write(tmp_path / "data" / "a.parquet", table(np.full(20, 5.0), columns()[:20]))
    flags = ["--label", "y", "--numeric", "x0,x1,x2", "--loss", "square"]
    done = run("train", tmp_path / "data", *flags, "--checkpoint", tmp_path / "run")
    assert done.code == 0, done.err
    (bias,) = inspected(tmp_path)["top"]
    assert bias["weight"] == [5.0]
    assert bias["error"] == bias["z"] == [None]
    assert " - " in run("inspect", tmp_path / "run").out


def test_the_mixture_is_shown(tmp_path: Path) -> None:
    """By inspect and in the report, of the rule with two predictors only."""
    trained(tmp_path / "auto", "logistic")
    text = inspected(tmp_path / "auto")["mixture"]
    assert text.startswith(("Laplace steps ", "AdaGrad, which follows recent rows, "))
    assert "%, since row " in text
    assert f"mixture: {text}" in run("inspect", tmp_path / "auto" / "run").out
    page = reported(tmp_path / "auto")
    assert ">Mixture: " in page
    assert text in page
    trained(tmp_path / "laplace", "logistic", rule="laplace")
    assert "mixture" not in inspected(tmp_path / "laplace")
    assert ">Mixture: " not in reported(tmp_path / "laplace")


def reported(folder: Path) -> str:
    done: Ran = run("report", folder / "run", "-o", folder / "page.html")
    assert done.code == 0, done.err
    return (folder / "page.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("loss", ["square", "logistic"])
def test_intervals_cover(loss: str, passes: int) -> None:
    """The true margin is within 1.96 errors for about 95 % of rows, over 60 samples."""
    inside = []
    for seed in range(60):
        draw = np.random.default_rng(seed)
        X = draw.normal(size=(1200, 4)) @ (np.eye(4) + 0.4) + 3.0
        f = (X - 3.0) @ draw.normal(size=4) * 0.5 + 0.3
        if loss == "square":
            y = f + draw.normal(size=len(f))
        else:
            y = np.where(draw.random(len(f)) < sigmoid(f), 1.0, -1.0)
        rows = Rows(X, np.zeros((len(f), 6)), y, np.ones(len(f)))
        run = Run("auto", loss, 4, 6, compiled=LAZY)
        for at in range(passes):
            if at:
                run.engine.begin_pass(run.state)
            run.learn(rows.some(slice(1000)))
        test = rows.some(slice(1000, None))
        errors, shifts = margin_errors(run.engine, run.state, test.batch())
        off = run.predict(test) + shifts - f[1000:, np.newaxis]
        inside.append(np.abs(off) < 1.96 * errors)
    assert 0.92 < np.mean(inside) < 0.98
