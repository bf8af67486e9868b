"""Laws of the learners on standardised inputs: closed forms, units, importances, hard columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from auto import Auto, Floats
from lazy_loops import LAZY
from standardized import LOSSES, Rows, Run, labelled, made

from streamomd.rules.common.standardized import mixed, of_predictions

EPS = float(np.finfo(float).eps)


def trained(loss: str, rows: Rows, rule: str = "auto", **given: Any) -> Run:
    run = Run(rule, loss, rows.X.shape[1], rows.S.shape[1], **given)
    run.learn(rows)
    return run


def extended(array: Any) -> Any:
    return np.asarray(array, dtype=np.longdouble)


def inverse(A: Any) -> Any:
    """Of a positive definite matrix, in extended precision, by Cholesky."""
    n, L = len(A), np.zeros_like(A)
    for i in range(n):
        for j in range(i + 1):
            rest = A[i, j] - L[i, :j] @ L[j, :j]
            L[i, j] = np.sqrt(rest) if i == j else rest / L[j, j]
    N = np.zeros_like(A)
    for i in range(n):
        N[i] = (np.arange(n) == i) - L[i, :i] @ N[:i]
        N[i] /= L[i, i]
    return N.T @ N


def prior_of(run: Run) -> Floats:
    """(lam_bias, lam, lam, …)."""
    return np.r_[run.total("lam_bias")[0], np.full(run.size - 1, run.total("lam")[0])]


def ridge(run: Run, rows: Rows) -> Floats:
    """Predictions of weighted ridge regression in the run's reference, in extended precision."""
    raw = np.c_[np.ones(len(rows.y)), rows.X, rows.S]
    at = run.state.extra["places"][: run.size]
    c, s = run.state.extra["reference"][2:, : run.size]
    raw, c, s = extended(raw[:, at]), extended(c), extended(s)
    Z = np.where(s > 0.0, (raw - c) / np.where(s > 0.0, s, 1.0), 0.0)
    h, c_y = extended(rows.h), run.total("c_y")[0]
    A = Z.T @ (h[:, np.newaxis] * Z) + np.diag(extended(prior_of(run)))
    return np.asarray(Z @ (inverse(A) @ (Z.T @ (h * (rows.y - c_y)))) + c_y, dtype=np.float64)


@pytest.mark.parametrize("n", [1, 2, 15, 21, 60, 300, 1023])
def test_square_loss_is_ridge_in_closed_form(n: int) -> None:
    """Before rows may be light, with importances: to 1e-10 of the target's standard deviation."""
    rows = made("square", 5000, seed=1).some(slice(n))
    run = trained("square", rows, prefer="whole", compiled=LAZY)
    error = np.abs(run.predict(rows)[:, 0] - ridge(run, rows)).max()
    assert error <= 1e-10 * max(1.0, float(np.std(rows.y)))


@pytest.mark.parametrize("n", [5000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_pooled_steps_are_ridge_within_its_noise(n: int) -> None:
    """Predictions are off by a tenth of their own standard error at most, as a root of the mean
    square over the rows, with the pool that is left."""
    rows = made("square", n, seed=1)
    run = trained("square", rows, prefer="whole", compiled=LAZY)
    exact, h = ridge(run, rows).astype(float), rows.h / rows.h.mean()
    off = np.sqrt(np.mean(h * (run.predict(rows)[:, 0] - exact) ** 2))
    noise = np.sqrt(np.mean(h * (rows.y - exact) ** 2) * run.size / n)
    assert off <= 0.1 * noise


def assert_invariant(loss: str, n: int, seed: int, **given: Any) -> None:
    """x_j -> alpha_j x_j + beta_j: shifts to 10^3 standard deviations, scales 10^-6 … 10^6 of
    either sign; and for the square loss y -> 7 y - 1000. From the second row on."""
    rows = made(loss, n, seed=seed)
    rng = np.random.default_rng(seed)
    alpha = 10.0 ** rng.uniform(-6, 6, 4) * rng.choice([-1.0, 1.0], 4)
    beta = alpha * rows.X.std(axis=0) * rng.uniform(-1e3, 1e3, 4)
    gain, offset = (7.0, -1000.0) if loss == "square" else (1.0, 0.0)
    moved = replace(rows, X=rows.X * alpha + beta, y=rows.y * gain + offset)
    one, other = (Run("auto", loss, 4, 6, block=8, **given) for _ in range(2))
    plain, changed = one.learn(rows)[1:], other.learn(moved)[1:]
    limit = 1e-10 * gain * float(rows.y.std()) if loss == "square" else 1e-8
    assert np.abs(changed - (gain * plain + offset)).max() <= limit
    final = np.abs(other.predict(moved) - (gain * one.predict(rows) + offset)).max()
    assert final <= limit


@pytest.mark.parametrize("prefer", ["recent", "whole"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("loss", ["square", "logistic"])
def test_units_do_not_matter(loss: str, seed: int, prefer: str) -> None:
    """Over 5,000 rows."""
    assert_invariant(loss, 5000, seed, prefer=prefer, compiled=LAZY)


@pytest.mark.parametrize("loss", ["softmax", "hinge", "absolute"])
def test_units_do_not_matter_to_other_losses(loss: str) -> None:
    """Over 200 rows, in plain Python."""
    if loss == "softmax":
        assert_invariant(loss, 200, 1)
    else:
        run, changed = (Run("adagrad_standardized", loss, 4, 6) for _ in range(2))
        rows = made("square" if loss == "absolute" else "logistic", 200, seed=1)
        moved = replace(rows, X=rows.X * [1e6, -1e-6, 3.0, -1.0] + [1e6, 1e-6, 0.0, 1e3])
        assert np.abs(run.learn(rows) - changed.learn(moved)).max() <= 1e-8 * rows.y.std()


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_units_do_not_matter_on_a_hundred_streams(loss: str) -> None:
    """Over 5,000 rows each."""
    for seed in range(100):
        assert_invariant(loss, 5000, seed, prefer=["recent", "whole"][seed % 2], compiled=LAZY)


@pytest.mark.parametrize("rule", ["auto", "laplace", "adagrad_standardized"])
@pytest.mark.parametrize("loss", LOSSES)
def test_rows_of_importance_zero_change_nothing(rule: str, loss: str) -> None:
    """Among the rows, in front of them and after them, new coordinates in them included."""
    rows = made(loss, 60, seed=2)
    among = replace(rows, h=np.where(np.arange(60) % 3 == 0, 0.0, rows.h))
    strange = replace(among, X=np.where(among.h[:, np.newaxis] > 0.0, rows.X, 1e100))
    with_zeros, without = (Run(rule, loss, 4, 6) for _ in range(2))
    with_zeros.learn(strange)
    without.learn(rows.some(among.h > 0.0))
    with_zeros.state.clock = without.state.clock
    assert with_zeros.bits() == without.bits()


@pytest.mark.parametrize("rule", ["auto", "laplace", "adagrad_standardized"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.sample(4)
def test_a_constant_factor_of_importances_changes_nothing(rule: str, loss: str) -> None:
    """Of uneven importances: progressive and later predictions, to 1e-9 of their spread; passes
    after the first and coordinates outside the block included; a power of two to the bit."""
    assert_factors_change_nothing(rule, loss, made(loss, 90), (2.0**-20, 1e-6, 1e6))


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["auto", "laplace", "adagrad_standardized"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_constant_factor_of_importances_on_many_streams(rule: str, loss: str) -> None:
    """Over 2,000 rows each."""
    for seed in range(20):
        rows, draw = made(loss, 2000, seed=seed), np.random.default_rng(seed)
        factors = (2.0**20, *10.0 ** draw.uniform(-6, 6, 2))
        assert_factors_change_nothing(rule, loss, rows, factors, compiled=LAZY)


def assert_factors_change_nothing(
    rule: str, loss: str, rows: Rows, factors: tuple[float, ...], **more: Any
) -> None:
    """The first factor is a power of two."""
    uneven = np.random.default_rng(len(rows.y)).lognormal(0.0, 1.5, len(rows.y))
    found = []
    for factor in (1.0, *factors):
        block = {} if rule == "adagrad_standardized" else {"block": 8.0}
        run = Run(rule, loss, 4, 6, **block, **more)
        given = replace(rows, h=factor * uneven)
        progressive = run.learn(given)
        run.engine.begin_pass(run.state)
        found.append(np.r_[progressive, run.learn(given), run.predict(rows)])
    first, exact, *others = found
    assert np.array_equal(first, exact)
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-9, atol=1e-9 * first.std())


@pytest.mark.parametrize("squared", [False, True])
def test_heavy_rows_do_not_decide_the_mixture(squared: bool) -> None:
    """A row moves the lead twice as far at most as one of mean importance, however heavy it is."""
    t, losses = 1000.0, (0.9, 0.4)

    def moved(h: float) -> float:
        n = (t - 1.0) + h
        start = mixed(0.0, 0.7, 0.5, *losses, squared, 1.0, t, t, 1.0)[0]
        after = mixed(0.0, 0.7, 0.5, *losses, squared, h, n, t, 1.0)[0]
        return after / start

    assert moved(1.0) == 1.0
    assert 0.0 < moved(1e-3) < 0.01
    assert 1.5 < moved(10.0) < moved(1e3) < moved(1e9) <= 2.0


def test_sums_that_overflowed_leave_the_prior_outside_the_block() -> None:
    """Else one row would make every later weight NaN; before row 1,000 nothing moves it."""
    infinite = float("inf")
    for g, R in ((infinite, infinite), (-infinite, 1.0), (float("nan"), 1.0), (1.0, infinite)):
        assert of_predictions(3.0, g, R, 5000.0) == 3.0
    assert of_predictions(1.0, 100.0, 1.0, 999.0) == 1.0
    assert of_predictions(1.0, 100.0, 1.0, 1000.0) == pytest.approx(4.0)


def test_importances_are_copies_in_every_statistic() -> None:
    """Of the columns, the sparse coordinates and the target."""
    rows = made("square", 120)
    h = np.random.default_rng(1).integers(1, 4, 120)
    weighted = trained("square", replace(rows, h=h.astype(float)))
    copies = replace(rows, h=np.ones(120)).some(np.repeat(np.arange(120), h))
    repeated = trained("square", copies)
    for name in ("n", "labels", "y_mean", "y_M2", "y_min", "y_max", "all_n"):
        np.testing.assert_allclose(weighted.total(name), repeated.total(name), rtol=1e-9)
    for name in ("n", "q"):
        np.testing.assert_allclose(weighted.state.slot(name), repeated.state.slot(name), rtol=1e-12)
    for row in (0, 1):  # mu and M2
        one, other = (run.state.extra["reference"][row] for run in (weighted, repeated))
        np.testing.assert_allclose(one, other, rtol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.slow
def test_importance_two_is_the_row_twice(loss: str) -> None:
    """Up to the order effect: a copy is learned from the state that the other copy has left. Both
    models are far closer to each other than to the one without importances."""
    rows = made(loss, 400)
    heavy = rows.X[:, 0] > np.median(rows.X[:, 0])
    y = np.where(heavy, rows.y, rows.y[::-1])  # another concept in the light rows
    rows = replace(rows, y=y, h=np.where(heavy, 2.0, 1.0))
    ones = replace(rows, h=np.ones(400))
    copies = ones.some(np.repeat(np.arange(400), rows.h.astype(int)))
    weighted, twice, plain = (
        trained(loss, given, prefer="whole").predict(rows) for given in (rows, copies, ones)
    )
    if loss == "softmax":  # margins up to a constant
        weighted, twice, plain = (
            m - m.mean(axis=1)[:, np.newaxis] for m in (weighted, twice, plain)
        )
    assert np.linalg.norm(weighted - twice) < 0.25 * np.linalg.norm(weighted - plain)


def columns(kind: str, n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """(X, f): four hard columns, and scores for labels."""
    Z = rng.normal(size=(n, 4))
    X = Z.copy()
    if kind == "huge":
        X = Z * [1e149, 1e-149, 1e100, 1.0]
    elif kind == "constant":
        X[:, 1:] = [7.0, 0.0, 1e150]
    elif kind == "late":
        X[: n // 2, 1], X[: n - 5, 2], X[: n - 1, 3] = 0.0, 3.0, 1e150
    elif kind == "duplicates":
        X[:, 1], X[:, 3] = X[:, 0], 1e6 * X[:, 2] + 5.0
    elif kind == "collinear":  # rho = 1 - 1e-10
        X[:, 1] = X[:, 0] + np.sqrt(2e-10) * X[:, 1]
    elif kind == "collinear, with offsets":
        X[:, 1] = X[:, 0] + np.sqrt(2e-10) * X[:, 1]
        X = X * [1.0, 1e3, 1.0, 1.0] + [1e2, 1e5, 1e3, 0.0]
    elif kind == "outliers":
        X[:, 0] *= np.where(rng.random(n) < 0.01, 1e12, 1.0)
        X[:, 1] = np.exp(8.0 * X[:, 1])
    elif kind == "jumps":
        X[:, 0] += np.where(np.arange(n) > 0.6 * n, 1e8, 0.0)
        X[int(0.8 * n), 1] = 1e140
        X[:, 2] += np.where(np.arange(n) > 0.7 * n, 1e5, 0.0)
    elif kind == "growth":
        X = X * np.exp(np.linspace(0.0, 50.0, n))[:, np.newaxis] ** [1.0, -1.0, 0.5, 0.0]
    elif kind == "zeros":
        X[:] = 0.0
    return X, Z @ rng.normal(size=(4, 3))


HARD = (
    "plain", "huge", "constant", "late", "duplicates", "collinear", "collinear, with offsets",
    "outliers", "jumps", "growth", "zeros",
)  # fmt: skip


def hard(kind: str, loss: str, n: int) -> Rows:
    rng = np.random.default_rng([n, HARD.index(kind)])
    X, f = columns(kind, n, rng)
    S = np.where(rng.random((n, 6)) < 0.3, rng.choice([1.0, 2.0], (n, 6)), 0.0)
    return Rows(X, S, labelled(f + S @ rng.normal(size=(6, 3)), loss, rng), np.ones(n))


def assert_inverse(run: Run) -> None:
    """abs(P (A + prior) - I) <= 64 D eps cond(A + prior), and P is positive, once it is computed
    from A."""
    run.settle()
    for A, P in zip(run.blocks("A"), run.blocks("P"), strict=True):
        whole = A + np.diag(prior_of(run))
        error = np.abs(P @ whole - np.eye(run.size)).max()
        assert error <= 64 * run.size * EPS * np.linalg.cond(whole)
        unit = np.sqrt(np.diag(whole))  # eigenvalues of very different sizes have no digits
        assert np.linalg.eigvalsh(unit[:, np.newaxis] * P * unit).min() > 0.0


class Extended(Auto):
    """The oracle in extended precision."""

    def __init__(self, loss: str, p: int, classes: int = 1, **given: Any) -> None:
        super().__init__(loss, p, classes, **given)
        for name in ("mu", "M2", "c", "s", "w", "A", "P", "g", "H"):
            setattr(self, name, extended(getattr(self, name)))

    def inverse(self, A: Floats) -> Floats:
        return inverse(A)


@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("loss", ["square", "logistic"])
def test_hard_columns(loss: str, kind: str) -> None:
    """Finite; P is the inverse of A + prior."""
    rows = hard(kind, loss, 6000)
    run = Run("auto", loss, 4, 6, compiled=LAZY)
    assert np.isfinite(run.learn(rows)).all()
    assert np.isfinite(run.sums).all()
    assert run.state.problem() == ""
    assert_inverse(run)


@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("loss", ["square", "logistic"])
@pytest.mark.sample(5)
def test_hard_columns_in_extended_precision(loss: str, kind: str) -> None:
    """Progressive predictions are those of the oracle in extended precision, to 1e-6."""
    rows = hard(kind, loss, 400)
    run = Run("auto", loss, 4, 6, compiled=LAZY)
    oracle = Extended(loss, 4)
    expected = np.array([oracle.learn(*row) for row in rows], dtype=np.float64)
    scale = float(rows.y.std()) if loss == "square" else 1.0
    assert np.abs(run.learn(rows) - expected).max() <= 1e-6 * scale


@pytest.mark.slow
@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("loss", ["square", "logistic"])
def test_hard_columns_in_extended_precision_over_many_rows(loss: str, kind: str) -> None:
    """Over 12,000 rows, which see P inverted between two changes of the reference."""
    rows = hard(kind, loss, 12_000)
    run = Run("auto", loss, 4, 6, compiled=LAZY)
    oracle = Extended(loss, 4)
    expected = np.array([oracle.learn(*row) for row in rows], dtype=np.float64)
    scale = float(rows.y.std()) if loss == "square" else 1.0
    assert np.abs(run.learn(rows) - expected).max() <= 1e-6 * scale


@pytest.mark.slow
@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("loss", LOSSES)
def test_hard_columns_over_a_million_rows(loss: str, kind: str) -> None:
    """P is the inverse still; for the square loss predictions are those of ridge regression in
    extended precision, to a fifth of their standard error as a root of the mean square.

    Where columns change by orders of magnitude, few rows count, and A has a part of them: ten
    standard errors. The progressive loss of exact steps is .02 % lower on "jumps", and a fifth
    higher on "growth".
    """
    rows = hard(kind, loss, 1_000_000)
    run = Run("auto", loss, 4, 6, compiled=LAZY, prefer="whole")
    for low in range(0, 1_000_000, 50_000):
        run.learn(rows.some(slice(low, low + 50_000)))
    assert run.state.problem() == ""
    assert_inverse(run)
    if loss == "square":
        exact = ridge(run, rows).astype(float)
        noise = np.sqrt(np.mean((rows.y - exact) ** 2) * run.size / len(exact))
        off = run.predict(rows.some(slice(None, None, 100)))[:, 0] - exact[::100]
        most = 10.0 if kind in ("jumps", "growth") else 0.2
        assert np.sqrt(np.mean(off**2)) <= most * noise


@pytest.mark.parametrize("loss", ["huber", "absolute"])
def test_huge_labels_do_not_ruin_a_robust_loss(loss: str) -> None:
    """Three labels of 10^6 standard deviations: within 1 % of the same rows without them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 5))
    y = X @ np.array([1.0, -1.0, 2.0, 0.5, 0.0]) + rng.normal(size=6000) + 5.0
    huge = y.copy()
    huge[[100, 1000, 4000]] += 1e6 * y.std()
    errors = []
    for labels in (y, huge):
        run = Run("adagrad_standardized", loss, 5, 0, compiled=True)  # auto, with such a loss
        rows = Rows(X, np.zeros((6000, 0)), labels, np.ones(6000))
        run.learn(rows.some(slice(5000)))
        found = run.predict(rows.some(slice(5000, 6000)))[:, 0]
        errors.append(float(np.sqrt(np.mean((found - y[5000:]) ** 2))))
    assert errors[1] < 1.01 * errors[0] < 1.2


def test_labels_may_be_equal_at_first() -> None:
    """A hundred zeros, then labels with a scale: they are learned."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 3))
    y = np.where(np.arange(3000) < 100, 0.0, 100.0 + 10.0 * X[:, 0] + rng.normal(size=3000))
    run = Run("adagrad_standardized", "huber", 3, 0, compiled=LAZY)
    margins = run.learn(Rows(X, np.zeros((3000, 0)), y, np.ones(3000)))[:, 0]
    assert run.total("s_y")[0] > 1.0
    assert np.abs(margins[2000:] - y[2000:]).mean() < 3.0
