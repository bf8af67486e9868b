"""The oracle of ``auto`` has the properties that the recipe claims, each shown without its code."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from auto import Auto, Floats, merge, sigmoid, softmax, solve_logistic, solve_softmax
from standardized import Rows, made

expit = np.vectorize(sigmoid)
LOSSES = {"square": 1, "logistic": 1, "softmax": 3}
EPS = np.finfo(float).eps


def trained(loss: str, rows: Rows, **given: Any) -> Auto:
    return run(Auto(loss, rows.X.shape[1], LOSSES[loss], **given), rows)


def run(oracle: Auto, rows: Rows) -> Auto:
    for x, sparse, y, h in rows:
        oracle.learn(x, sparse, y, h)
    return oracle


def predictions(oracle: Auto, rows: Rows) -> Floats:
    linear = oracle.export()
    return np.array([linear.margins(x, sparse) for x, sparse, _, _ in rows])


def means(oracle: Auto, rows: Rows) -> Floats:
    """Predictions, of classification as probabilities."""
    link = {"square": np.array, "logistic": expit, "softmax": softmax}[oracle.loss]
    return np.array([link(m) for m in predictions(oracle, rows)])


def design(oracle: Auto, rows: Rows) -> Floats:
    """Rows as the matrix's z, in the oracle's reference."""
    raw = np.zeros((len(rows.y), oracle.D))
    raw[:, 0], raw[:, 1 : 1 + oracle.p] = 1.0, rows.X
    for i, j in oracle.slot.items():
        raw[:, j] = rows.S[:, i]
    return np.divide(raw - oracle.c, oracle.s, out=np.zeros_like(raw), where=oracle.s > 0.0)


@pytest.mark.parametrize("n", [1, 2, 15, 21, 60, 300])
def test_square_loss_is_weighted_ridge(n: int) -> None:
    """w = (Z'HZ + prior)^-1 Z'H(y - c_y) in the current reference, after any number of rows."""
    rows = made("square", 300).some(slice(n))
    oracle = trained("square", rows, prefer="whole")
    Z = design(oracle, rows)
    A = Z.T @ (rows.h[:, np.newaxis] * Z)
    b = Z.T @ (rows.h * (rows.y - oracle.c_y))
    w = np.linalg.solve(A + np.diag(oracle.prior(oracle.lam_now)), b)
    np.testing.assert_allclose(oracle.A[0], A, rtol=0, atol=1e-10 * max(1.0, np.abs(A).max()))
    error = np.abs(predictions(oracle, rows)[:, 0] - Z @ w - oracle.c_y).max()
    assert error <= 1e-10 * max(1.0, float(np.std(rows.y)))


def test_the_diagonal_alone_is_adaptive_least_squares() -> None:
    """K = 0 and one sparse coordinate with x = 1: w is the sum of y over (3 lamS + rows), centred
    on the bias's own part of the prediction."""
    oracle = Auto("square", 0, K=0, prefer="whole", lam0=1e300)
    oracle.learn(np.zeros(0), {}, 0.0)  # c_y = 0
    oracle.next = 99  # no REBASE: c_y and the bias stay
    for y in (3.0, 5.0, 1.0):
        oracle.learn(np.zeros(0), {7: 1.0}, y)
    assert float(oracle.w_i[7][0]) == pytest.approx(9.0 / (3.0 + 3.0), rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_rebase_leaves_predictions_unchanged(loss: str) -> None:
    """Under a prior that is negligible: to the new reference; under any: to the same one again."""
    rows = made(loss, 99)
    weak = trained(loss, rows.some(slice(95)), prefer="whole", lam=1e-12, lam0=1e-12)
    weak = run_without_rebase(weak, rows.some(slice(95, 99)))
    before, reference = predictions(weak, rows), weak.c.copy()
    weak.rebase()
    assert np.abs(weak.c - reference).max() > 1e-3
    np.testing.assert_allclose(predictions(weak, rows), before, rtol=1e-6, atol=1e-6)
    strong = trained(loss, rows)
    strong.rebase()
    before = predictions(strong, rows)
    strong.rebase()
    np.testing.assert_allclose(predictions(strong, rows), before, rtol=1e-11, atol=1e-11)


def test_the_reference_of_adagrad() -> None:
    """Where scales shrink, its predictions stay, and H with them in raw units; where they grow,
    the slopes shrink instead and the prediction at the old centre stays."""
    rows = made("square", 99)
    for factor in (0.5, 2.0):
        oracle = trained("square", rows)
        oracle.lead = oracle.LEAD  # G alone
        before, raw = oracle.export(), oracle.H[:, 1:5] * oracle.s[1:5] ** 2
        centre = oracle.c[1:5].copy()
        c, s = oracle.c + np.r_[0.0, oracle.s[1:5], np.zeros(6)], oracle.s.copy()
        s[1:5] *= factor
        oracle.change_reference_of_G(c, s, oracle.c_y - 90.0)
        oracle.c, oracle.s, oracle.c_y = c, s, 90.0
        after = oracle.export()
        np.testing.assert_allclose(after.dense, before.dense / max(1.0, factor), rtol=1e-9)
        np.testing.assert_allclose(after.margins(centre), before.margins(centre), rtol=1e-9)
        np.testing.assert_allclose(oracle.H[:, 1:5] * s[1:5] ** 2, raw, rtol=1e-9)


def run_without_rebase(oracle: Auto, rows: Rows) -> Auto:
    oracle.next = 10**9
    return run(oracle, rows)


@pytest.mark.parametrize("prefer", ["recent", "whole"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.sample(4)
def test_predictions_are_invariant_under_affine_changes(loss: str, prefer: str, seed: int) -> None:
    """x_j -> alpha_j x_j + beta_j, shifts to 10^3 standard deviations, scales 10^-6 … 10^6 of
    either sign; and for the square loss y -> 7 y - 1000: from the second row on."""
    rows = made(loss, 250, seed=seed)
    rng = np.random.default_rng(seed)
    alpha = 10.0 ** rng.uniform(-6, 6, 4) * rng.choice([-1.0, 1.0], 4)
    beta = alpha * rows.X.std(axis=0) * rng.uniform(-1e3, 1e3, 4)
    gain, offset = (7.0, -1000.0) if loss == "square" else (1.0, 0.0)
    moved = Rows(rows.X * alpha + beta, rows.S, rows.y * gain + offset, rows.h)
    one, other = (Auto(loss, 4, LOSSES[loss], prefer=prefer, K=8) for _ in range(2))
    plain = np.array([one.learn(*row) for row in rows])[1:]
    changed = np.array([other.learn(*row) for row in moved])[1:]
    scale = gain * float(rows.y.std()) if loss == "square" else 1.0
    limit = 1e-10 if loss == "square" else 1e-8
    assert np.abs(changed - (gain * plain + offset)).max() <= limit * scale


def test_importances_are_copies_in_every_statistic() -> None:
    """With copies of a row one after another the statistics are equal; of the square loss, so is
    the information in raw units."""
    rows = made("square", 120)
    h = np.random.default_rng(1).integers(1, 4, 120)
    weighted = trained("square", replace(rows, h=h.astype(float)), prefer="whole")
    copies = replace(rows, h=np.ones(120)).some(np.repeat(np.arange(120), h))
    repeated = trained("square", copies, prefer="whole")
    for name in ("n", "mu", "M2", "ybar", "M2y", "n_y", "ymin", "ymax"):
        np.testing.assert_allclose(getattr(weighted, name), getattr(repeated, name), rtol=1e-9)
    for name in ("n_i", "q"):
        assert getattr(weighted, name) == pytest.approx(getattr(repeated, name), rel=1e-12)
    A, b = weighted.information(0, repeated.c, repeated.s, repeated.c_y)
    np.testing.assert_allclose(A, repeated.A[0], rtol=1e-9, atol=1e-9)
    there = repeated.information(0, repeated.c, repeated.s, repeated.c_y)[1]
    np.testing.assert_allclose(b, there, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.sample(3)
def test_weight_two_is_the_row_twice(loss: str) -> None:
    """Up to the order effect: their models are far closer to each other than to the unweighted."""
    rows = made(loss, 400)
    heavy = rows.X[:, 0] > np.median(rows.X[:, 0])
    y = np.where(heavy, rows.y, rows.y[::-1])  # another concept in the light rows
    rows = replace(rows, y=y, h=np.where(heavy, 2.0, 1.0))
    ones = replace(rows, h=np.ones(400))
    copies = ones.some(np.repeat(np.arange(400), rows.h.astype(int)))
    weighted, twice, plain = (
        means(trained(loss, given, prefer="whole"), rows) for given in (rows, copies, ones)
    )
    assert np.linalg.norm(weighted - twice) < 0.25 * np.linalg.norm(weighted - plain)


@pytest.mark.parametrize("prefer", ["recent", "whole", "first"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.sample(3)
def test_a_constant_factor_of_importances_changes_nothing(loss: str, prefer: str) -> None:
    """B's recalibration and the mixture included; P is a part of it."""
    rows = made(loss, 99)
    one = trained(loss, rows, prefer=prefer, K=8)
    more = trained(loss, replace(rows, h=400.0 * rows.h), prefer=prefer, K=8)
    assert loss == "square" or (one.rho < 1.0).all()
    np.testing.assert_allclose(predictions(more, rows), predictions(one, rows), rtol=1e-7)
    np.testing.assert_allclose(400.0 * more.P, one.P, rtol=1e-6, atol=1e-9)
    assert math.isclose(more.lead, one.lead, rel_tol=1e-6)


@pytest.mark.parametrize("prefer", ["recent", "whole"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_row_of_importance_zero_changes_nothing(loss: str, prefer: str) -> None:
    oracle = trained(loss, made(loss, 30), prefer=prefer)
    before = copy.deepcopy(vars(oracle))
    x, _, y, _ = next(iter(made(loss, 1, seed=9)))
    shown = oracle.learn(x, {99: 1.0}, y, 0.0)
    assert np.isfinite(shown).all()
    assert vars(oracle).keys() == before.keys()
    for name, value in before.items():
        np.testing.assert_equal(vars(oracle)[name], value)


@pytest.mark.parametrize("K", [7, 64])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.sample(3)
def test_P_is_the_inverse(loss: str, K: int) -> None:
    """|P (A + prior) - I| <= 64 D eps cond(A + prior), whether or not all coordinates have slots,
    and P is positive."""
    rows = made(loss, 250)
    oracle = run_without_rebase(trained(loss, rows, K=K), made(loss, 150, seed=1))
    for A, P in zip(oracle.A, oracle.P, strict=True):
        whole = A + np.diag(oracle.prior(oracle.lam_now))
        error = np.abs(P @ whole - np.eye(oracle.D)).max()
        assert error <= 64 * oracle.D * EPS * np.linalg.cond(whole)
        assert np.linalg.eigvalsh((P + P.T) / 2.0).min() > 0.0


def split(rows: Rows, start: Auto, count: int) -> list[Auto]:
    return [run(start.part(), rows.some(slice(k, None, count))) for k in range(count)]


def test_merged_parts_are_one_run_for_square_loss() -> None:
    """To 1e-4, and A and the moments to rounding; from a common start that has the slots."""
    rows = made("square", 1000)
    start = trained("square", rows.some(slice(100)), prefer="whole")
    rest = rows.some(slice(100, 1000))
    whole = merge(start, split(rest, start, 4))
    one = run(start.part(), rest)
    one.rebase()
    for name in ("n", "mu", "M2", "ybar", "M2y", "ymin", "ymax", "c", "s", "A"):
        np.testing.assert_allclose(getattr(whole, name), getattr(one, name), rtol=1e-9, atol=1e-9)
    scale = float(rows.y.std())
    assert np.abs(predictions(whole, rows) - predictions(one, rows)).max() < 1e-4 * scale


@pytest.mark.parametrize("prefer", ["recent", "whole"])
@pytest.mark.parametrize("loss", LOSSES)
def test_one_merged_part_is_itself(loss: str, prefer: str) -> None:
    """Up to its own REBASE: predictions of a part that has just moved its reference."""
    rows = made(loss, 300)
    start = trained(loss, rows.some(slice(120)), prefer=prefer, K=8)
    part = run(start.part(), rows.some(slice(120, 300)))
    part.change_reference(part.ybar, part.s_y, part.lam_now, part.lam0 * part.mean_h())
    whole = merge(start, [part])
    if loss == "square":
        whole.lam_now = part.lam_now
    np.testing.assert_allclose(predictions(whole, rows), predictions(part, rows), rtol=1e-3)


def log_loss(oracle: Auto, rows: Rows) -> float:
    losses = [oracle.row_loss(m, y) for m, y in zip(predictions(oracle, rows), rows.y, strict=True)]
    return sum(losses) / len(losses)


@pytest.mark.parametrize("prefer", ["recent", "whole"])
@pytest.mark.parametrize("loss", ["logistic", "softmax"])
@pytest.mark.sample(2)
def test_merging_in_rounds_loses_little(loss: str, prefer: str) -> None:
    """Two rounds of three parts: held-out log loss within 2 % of one run's, P positive.

    Of one that does not solve its first rows again after row 100, as parts do not.
    """
    rows, held = made(loss, 800).some(slice(600)), made(loss, 800).some(slice(600, 800))
    one = trained(loss, rows.some(slice(100)), prefer=prefer, K=8)
    one.first = None
    one = run(one, rows.some(slice(100, 600)))
    whole = trained(loss, rows.some(slice(100)), prefer=prefer, K=8)
    for low, high in ((100, 300), (300, 600)):
        whole = merge(whole, split(rows.some(slice(low, high)), whole, 3))
        assert all(np.linalg.eigvalsh(A + np.diag(whole.prior(0.0))).min() > 0 for A in whole.A)
    assert log_loss(whole, held) < 1.02 * log_loss(one, held)


@pytest.mark.parametrize("prefer", ["recent", "whole"])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_exported_model_is_the_learner(loss: str, prefer: str) -> None:
    """Between REBASEs, rows are predicted by the export of the state before them."""
    rows = made(loss, 330)
    oracle = trained(loss, rows.some(slice(300)), prefer=prefer, K=8)
    oracle.next = 10**9
    for x, sparse, y, h in rows.some(slice(300, 330)):
        expected = oracle.shown(oracle.export().margins(x, sparse))
        np.testing.assert_allclose(oracle.learn(x, sparse, y, h), expected, rtol=1e-9, atol=1e-9)


def test_one_pass_reaches_the_optimum_of_logistic_loss() -> None:
    """B's held-out log loss is within 1 % of that of the batch optimum, found by Newton."""
    rows = replace(made("logistic", 3000), h=np.ones(3000))
    oracle = trained("logistic", rows.some(slice(2000)), prefer="whole")
    Z = design(oracle, rows)
    w = np.zeros(oracle.D)
    for _ in range(30):
        p, target = expit(Z[:2000] @ w), (rows.y[:2000] + 1.0) / 2.0
        hessian = Z[:2000].T @ (Z[:2000] * (p * (1.0 - p))[:, np.newaxis]) + 0.1 * np.eye(len(w))
        w = w + np.linalg.solve(hessian, Z[:2000].T @ (target - p) - 0.1 * w)
    held = np.logaddexp(0.0, -rows.y[2000:] * (Z[2000:] @ w)).mean()
    assert log_loss(oracle, rows.some(slice(2000, 3000))) < 1.01 * held


def test_drift_moves_the_mixture_to_adagrad() -> None:
    """After the concept is reversed, "recent" is better than "whole" on the new one.

    400 rows after: B, solved for all of its rows, is better than G for the first 200.
    """
    rows = made("logistic", 1500)
    rows = replace(rows, y=np.where(np.arange(1500) < 800, rows.y, -rows.y))
    old, new = rows.some(slice(1200)), rows.some(slice(1200, 1500))
    recent, whole = (trained("logistic", old, prefer=prefer) for prefer in ("recent", "whole"))
    assert recent.share_of_B() < 0.5
    assert log_loss(recent, new) < 0.8 * log_loss(whole, new)


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_are_bounded_whatever_the_row(loss: str) -> None:
    """Confident errors cost ln(C (t + 2)) at most; predictions stay within [ymin - R, ymax + R]."""
    rows = made(loss, 60)
    oracle = trained(loss, rows)
    huge = oracle.learn(1e6 * rows.X[0], {0: 1e9}, rows.y[0])
    if loss == "square":
        seen = rows.y.min(), rows.y.max()
        R = seen[1] - seen[0]
        assert seen[0] - R <= huge[0] <= seen[1] + R
    else:
        C = {"logistic": 2, "softmax": 3}[loss]
        worst = max(oracle.row_loss(huge, y) for y in ([-1, 1] if C == 2 else range(3)))
        assert worst <= math.log(C * (oracle.t + 2.0)) + 1e-12
        assert sum(oracle.probabilities(huge)) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_extreme_columns_stay_finite(loss: str) -> None:
    """Values to 1e150, constant, late, duplicate and collinear columns."""
    rows = made(loss, 200, p=4)
    X = np.c_[rows.X, rows.X[:, 0], np.full(200, 7.0), np.where(np.arange(200) < 150, 0.0, 1e150)]
    X = np.c_[X, rows.X[:, 1] * (1.0 + 1e-10 * rows.X[:, 0]), 1e150 * rows.X[:, 2]]
    rows = replace(rows, X=X, S=np.c_[rows.S, 1e120 * rows.S[:, 0]])
    oracle = trained(loss, rows, K=13)
    assert np.isfinite(predictions(oracle, rows)).all()
    assert math.isfinite(oracle.loss_sum)


@pytest.mark.parametrize("margin", [-700.0, -3.0, 0.0, 2.0, 40.0, 700.0])
@pytest.mark.parametrize("X", [0.0, 1e-12, 1e-3, 1.0, 1e6])
def test_the_logistic_step(margin: float, X: float) -> None:
    """q solves its equation, and a is the recipe's secant where that has digits."""
    q, a = solve_logistic(margin, X)
    E = sigmoid(-margin)
    assert q == pytest.approx(sigmoid(-(margin + X * q)), rel=1e-12, abs=0.0)
    if X == 0.0:
        assert a == pytest.approx(E * (1.0 - E), rel=1e-12)
    elif E - q > 1e-6 * E:
        assert a == pytest.approx((E - q) / (X * q), rel=1e-8)


@pytest.mark.parametrize("seed", range(8))
def test_the_softmax_step(seed: int) -> None:
    """s solves its equation for all classes, from tiny to huge chi."""
    rng = np.random.default_rng(seed)
    m, chi = 10.0 * rng.normal(size=5), 10.0 ** rng.uniform(-6, 6, 5)
    s = solve_softmax(m, chi, 2, 1.5)
    p = softmax(m + chi * s)
    np.testing.assert_allclose(s, 1.5 * (np.eye(5)[2] - p), rtol=1e-9, atol=1e-12)
