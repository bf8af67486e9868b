"""Certificates of laplace and auto: ridge's identity, what they are worth, where there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import load_diabetes
from standardized import Floats, Rows, made

import streamomd
from streamomd.analysis.certify import certify
from streamomd.analysis.certify.claims import arrays_of
from streamomd.analysis.plugin_checks.learner import Learner
from streamomd.config.spec import Spec
from streamomd.core.errors import UsageError
from streamomd.rules import find_rule
from streamomd.rules.certificates.certificate import Run
from streamomd.rules.certificates.matrix_bounds import ridge_claims

CERTIFIED = {"model.certificate": True}


def learned(rule: str, rows: Rows, *, compiled: bool = False, **params: Any) -> Learner:
    """The form with accounts, after the rows."""
    accounted: Any = find_rule(rule).certificate.accounted
    learner = Learner(
        accounted, "square", rows.X.shape[1] + rows.S.shape[1], params=params, compiled=compiled,
        numeric=rows.X.shape[1],
    )  # fmt: skip
    learner.learn(rows.batch())
    return learner


def raw(rows: Rows) -> Floats:
    return np.hstack([np.ones((len(rows.y), 1)), rows.X, rows.S])


def run(learner: Learner, rows: Rows, u: Floats) -> Run:
    """What a certificate gets, with the comparator u, its bias first."""
    state, rule = learner.state, learner.state.layout.rule
    error = (rows.h * (rows.y - raw(rows) @ u) ** 2).sum()
    names = [slot.name for slot in rule.total_slots]
    return Run(
        own={}, shared={slot.name: state.slot(slot.name) for slot in rule.shared_slots},
        totals=dict(zip(names, state.totals[0].tolist(), strict=True)), w=None,
        h=rule.hyper_of(learner.engine.params), rows=len(rows.y), loss=float(learner.sums[1]),
        mistakes=np.nan, u=u, loss_u=0.5 * error, hinge_u=lambda gamma: np.nan, square_u=error,
        lipschitz=np.nan, extra=arrays_of(state, 0),
    )  # fmt: skip


def best(rows: Rows) -> Floats:
    """Least squares, in units of the columns' deviations."""
    X = raw(rows)
    c, s = X.mean(axis=0), X.std(axis=0)
    s[s == 0.0] = 1.0
    Z = (X - c) / s
    Z[:, 0] = 1.0
    root = np.sqrt(rows.h)
    v = np.linalg.lstsq(Z * root[:, None], rows.y * root, rcond=1e-12)[0]
    u = v / s
    u[0] = v[0] - (u[1:] * c[1:]).sum()
    return u


def distance(learner: Learner, u: Floats) -> float:
    """(u - w)'(A + prior)(u - w) / 2 in the last reference."""
    state = learner.state
    extra, totals = state.extra, dict(zip(
        [slot.name for slot in state.layout.rule.total_slots], state.totals[0], strict=True
    ))  # fmt: skip
    size = state.used_places
    c, s, at = extra["reference"][2, :size], extra["reference"][3, :size], extra["places"][:size]
    v = u[at] * s
    v[0] = u[0] + u[at][1:] @ c[1:] - totals["c_y"]
    off = v - extra["vectors"][0, 0, :size]
    prior = np.full(size, totals["lam"])
    prior[0] = totals["lam_bias"]
    A = np.triu(extra["A"][0, :size, :size])
    A = A + np.triu(A, 1).T
    return float(0.5 * (off @ A @ off + (prior * off * off).sum()))


def hard(seed: int, n: int = 150) -> Rows:
    """Columns almost the same, in any units, far from 0, late, constant; jumps; weights."""
    rng = np.random.default_rng(seed)
    rows = made("square", n, p=5, d=6, seed=seed)
    X = rows.X.copy()
    X[:, 1] = X[:, 0] + 1e-5 * rng.normal(size=n) * X[:, 0].std()
    X[:, 2] = 7.0 if seed % 2 else np.where(np.arange(n) < n // 2, 3.0, X[:, 2])
    X = X * 10.0 ** rng.uniform(-6.0, 6.0, 5) + rng.choice([0.0, 1e3, 1e6], 5)
    if seed % 3 == 0:
        X[n // 3, 3] *= 1e9
    y = rows.y * 10.0 ** rng.uniform(-6.0, 6.0) + rng.choice([0.0, 1e4])
    if seed % 5 == 0:
        y[n // 4] += 1e3 * np.ptp(y)
    h = rows.h if seed % 2 else np.where(rng.random(n) < 0.2, 0.0, 1.0)
    return replace(rows, X=X, y=y, h=h)


def tried(rows: Rows, seed: int) -> list[Floats]:
    """The best weights, none, and others around both."""
    rng = np.random.default_rng([seed, 7])
    u = best(rows)
    random = rng.normal(size=len(u)) / np.maximum(np.abs(raw(rows)).max(axis=0), 1e-12)
    scale = np.abs(rows.y).max()
    return [u, 0.0 * u, 10.0 * u, u * rng.normal(size=len(u)), random * scale, random * 1e3 * scale]


def hold(rule: str, seed: int) -> None:
    rows = hard(seed)
    params = {"prior": 0.01 if seed % 4 == 0 else 1.0}
    if rule == "auto" and seed % 3 == 1:
        params["prefer"] = "whole"  # type: ignore[assignment]
    learner = learned(rule, rows, **params)
    for u in tried(rows, seed):
        given = run(learner, rows, u)
        for claim in ridge_claims(given):
            rounding = 1e-9 * (abs(claim.bound) + given.loss + given.loss_u)
            assert claim.measured <= claim.bound + rounding, (seed, claim)


@pytest.mark.parametrize("seed", range(14))
@pytest.mark.parametrize("rule", ["laplace", "auto"])
@pytest.mark.sample(2)
def test_bounds_hold_on_hard_columns(rule: str, seed: int) -> None:
    """Of the best weights and of random ones."""
    hold(rule, seed)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["laplace", "auto"])
def test_bounds_hold_on_hard_columns_long(rule: str) -> None:
    """On 400 more streams."""
    for seed in range(14, 414):
        hold(rule, seed)


@pytest.mark.parametrize("rule", ["laplace", "auto"])
def test_the_bound_exceeds_regret_by_the_distance_from_w(rule: str) -> None:
    """So nothing is given away: columns with offsets, sparse coordinates, weights, 20 changes."""
    for seed in range(4):
        rows = made("square", 150, seed=seed)
        learner = learned(rule, rows)
        for u in tried(rows, seed):
            given = run(learner, rows, u)
            claim = ridge_claims(given)[0]
            off = distance(learner, u)
            expected = claim.measured + off
            near = 1e-9 * (given.loss + given.loss_u + off)
            assert claim.bound == pytest.approx(expected, abs=near)
            assert off >= 0.0


def test_units_do_not_matter() -> None:
    """Of columns, with any offset, and of the target: bounds are in its unit squared."""
    rows, a = made("square", 120, seed=5), 250.0
    u = best(rows)
    factor, offset = np.array([1e-6, 3.0, 1e6, -2.0]), np.array([1e3, 0.0, -5.0, 1.0])
    other = replace(rows, X=rows.X * factor + offset, y=a * rows.y)
    v = a * u
    v[1:5] /= factor
    v[0] -= v[1:5] @ offset
    here = ridge_claims(run(learned("laplace", rows), rows, u))
    there = ridge_claims(run(learned("laplace", other), other, v))
    for one, two in zip(here, there, strict=True):
        assert two.bound == pytest.approx(a * a * one.bound, rel=1e-6)
        assert two.measured == pytest.approx(a * a * one.measured, rel=1e-6)


@pytest.mark.parametrize("rule", ["laplace", "auto"])
@pytest.mark.sample(2)
def test_accounts_change_nothing_else(rule: str) -> None:
    """Margins and state are those of the rule without; compiled accounts have the same bits."""
    rows = made("square", 100, seed=3)
    learner = learned(rule, rows)
    plain = Learner(rule, "square", 10, compiled=False, numeric=4)
    plain.learn(rows.batch())
    count = plain.state.totals.shape[1]
    assert learner.state.totals[:, :count].tobytes() == plain.state.totals.tobytes()
    assert learner.state.extra["vectors"].tobytes() == plain.state.extra["vectors"].tobytes()
    if rule == "laplace":
        assert learned(rule, rows, compiled=True).bits() == learner.bits()


def shard(path: Path, X: Floats, y: Floats) -> str:
    columns = {f"x{j}": X[:, j] for j in range(X.shape[1])}
    pq.write_table(pa.table({**columns, "y": y}), path / "rows.parquet", row_group_size=100)
    return str(path / "rows.parquet")


def synthetic(n: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(n, 10))
    y = Z @ rng.normal(size=10) + rng.normal(size=n)
    return Z * 10.0 ** rng.uniform(-3, 3, 10) + rng.normal(size=10) * 100.0, y


@pytest.mark.parametrize(
    "data, most, by_volume", [("diabetes", 1.002, 5.0), ("synthetic", 1.001, 6.0)]
)
@pytest.mark.slow
def test_what_bounds_are_worth(data: str, most: float, by_volume: float, tmp_path: Path) -> None:
    """Multiples of the regret of the best weights; neither is trivial."""
    X, y = load_diabetes(return_X_y=True) if data == "diabetes" else synthetic(5000)
    rows, url = shard(tmp_path, X, y), str(tmp_path / "run")
    given: dict[str, Any] = {"label": "y", "rule": "laplace", "loss": "square", "quiet": True}
    sets = CERTIFIED | {"checkpoint.every_rows": 100}
    streamomd.train(rows, checkpoint=url, sets=sets, **given)
    (row,) = certify(streamomd.load(url), rows)
    assert row["reason"] is None
    (first, second) = row["claims"]
    assert first["measured"] == second["measured"] > 0.0
    assert 1.0 <= first["ratio"] < most
    assert 1.0 <= second["ratio"] < by_volume
    assert not first["trivial"]
    assert not second["trivial"]


@pytest.mark.parametrize(
    "sets, words",
    [
        ({"model.loss": "logistic", "model.certificate": False}, "ridge regression's"),
        pytest.param(
            {"model.rule": "auto", "model.loss": "absolute", "model.certificate": False},
            "learned by AdaGrad",
            marks=pytest.mark.slow,
        ),
        ({"model.params": {"block": 2}, "data.hashed": ["job"]}, "coordinates are outside"),
        ({"train.epochs": 2}, "learned in 2 epochs"),
        pytest.param({"model.dtype": "float32"}, "float32", marks=pytest.mark.slow),
        ({"model.certificate": False}, "train with model.certificate = true"),
        ({"data.vectors": ["wide"]}, "learned in groups"),
        pytest.param({"model.task": "classify"}, "one for each class", marks=pytest.mark.slow),
    ],
)
def test_no_theorem(sets: dict[str, Any], words: str, tmp_path: Path) -> None:
    """The reason is in the row, and there is no claim."""
    rng = np.random.default_rng(0)
    wide = pa.FixedSizeListArray.from_arrays(pa.array(rng.normal(size=260 * 60)), 260)
    columns = {"x": rng.normal(size=60), "job": rng.choice(["a", "b"], 60), "wide": wide}
    y = rng.normal(size=60)
    if sets.get("model.loss") == "logistic" or "model.task" in sets:
        y = rng.integers(0, 3 if "model.task" in sets else 2, 60)
    pq.write_table(pa.table({**columns, "y": y}), tmp_path / "rows.parquet")
    rows = str(tmp_path / "rows.parquet")
    used = {"data.ignore": [] if "data.vectors" in sets else ["wide"], "data.numeric": ["x"]}
    used["data.ignore"] += [] if "data.hashed" in sets else ["job"]
    given = {"model.rule": "laplace", "model.loss": "square"} | CERTIFIED | used | sets
    model = streamomd.train(rows, label="y", bits=4, checkpoint="none", quiet=True, sets=given)
    row = certify(model, rows)[0]
    assert words in row["reason"]
    assert row["claims"] is None


@pytest.mark.parametrize("rule, loss", [("laplace", "logistic"), ("auto", "hinge")])
def test_other_losses_are_refused(rule: str, loss: str) -> None:
    """A job that asks for the accounts of a certificate that there is not."""
    with pytest.raises(UsageError, match=f"no certificate with loss '{loss}': its theorem"):
        Spec.parse({"model": {"rule": rule, "loss": loss, "certificate": True}})
