"""Exact implicit steps: s = -h l'(m + chi s) to rounding, over every loss and magnitude."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from decimal import Decimal, localcontext

import numba
import numpy as np
import pytest
from auto import curvatures, one_hot, softmax, solve_softmax
from scipy.optimize import brentq

from streamomd.engine import compile as fuse
from streamomd.losses import all_losses, find_loss
from streamomd.losses.contract import make_solve, smoothed

EPS = 2.0**-52
PLAIN = {name: loss for name, loss in all_losses().items() if not loss.coupled}
EVERY = {
    **PLAIN,
    **{f"{name}, generic": replace(one, solve=None) for name, one in PLAIN.items() if one.solve},
}
MARGINS = (-700.0, -37.5, -1.0, -1e-3, 0.0, 1e-8, 0.7, 1.0, 3.3, 30.0, 700.0)
CHIS = (0.0, 1e-300, 1e-12, 1e-3, 0.3, 1.0, 40.0, 1e6, 1e15, 1e300)
WEIGHTS = (1e-6, 0.2, 1.0, 1e6)


def targets(loss):
    if loss.classifies:
        return (-1.0, 1.0)
    return (-3e3, -1.0, 0.0, 2.5) if loss.least is None else (loss.least, 1.0, 2.5, 1e4)


def parameters(loss):
    return loss.numbers(loss.parse_params({}))


def solver(loss):
    """solve(m, chi, y, h, p): with the slope at m, as the loops call it."""
    solve = make_solve(loss)
    return lambda m, chi, y, h, p: solve(m, chi, y, h, p, loss.slope(m, y, p))


def compiled(function):
    """The function as a loop of the engine calls it."""
    for reached in fuse._reached(function):
        fuse._register(reached, False)
    return numba.njit(error_model="numpy")(function)


@pytest.mark.parametrize("name", EVERY)
def test_the_step_solves_its_equation(name) -> None:
    """s lies between the values of -h l' at margins a few roundings below and above m + chi s."""
    loss = EVERY[name]
    p, solve = parameters(loss), solver(loss)
    for m, chi, y, h in itertools.product(MARGINS, CHIS, targets(loss), WEIGHTS):
        s, a = solve(m, chi, y, h, p)
        if chi == 0.0 and math.isinf(h * loss.slope(m, y, p)):
            continue  # there is no step that is finite
        after, wide = m + chi * s, 4.0 * EPS * (abs(m) + abs(chi * s))
        least, most = -h * loss.slope(after + wide, y, p), -h * loss.slope(after - wide, y, p)
        slack = 8.0 * EPS * abs(s) + 1e-300
        assert least - slack <= s <= most + slack, (m, chi, y, h)
        assert 0.0 <= a < math.inf


@pytest.mark.parametrize("name", EVERY)
def test_the_step_is_that_of_brentq(name) -> None:
    """At moderate sizes scipy's root of s + h l'(m + chi s) is the same."""
    loss, rng = EVERY[name], np.random.default_rng(1)
    p, solve = parameters(loss), solver(loss)
    for y in targets(loss)[:3]:
        for m, chi, h in zip(
            3.0 * rng.standard_normal(40), 10.0 ** rng.uniform(-3, 2, 40),
            10.0 ** rng.uniform(-2, 2, 40), strict=True,
        ):  # fmt: skip
            s, _ = solve(m, chi, y, h, p)
            end = -h * loss.slope(m, y, p)
            if end == 0.0:
                assert s == 0.0
                continue
            # Bound as defaults: the loop's variables change.
            residual = lambda s, m=m, chi=chi, y=y, h=h: s + h * loss.slope(m + chi * s, y, p)  # noqa: E731
            if residual(end) * end <= 0.0:  # constant up to there
                assert s == pytest.approx(end, rel=1e-15)
                continue
            exact = brentq(residual, 0.0, end, xtol=1e-300, rtol=8.9e-16, maxiter=1000)
            # A margin's rounding moves a kink.
            assert s == pytest.approx(exact, rel=4e-14, abs=8.0 * EPS * abs(m - y) / chi), (m, chi)


@pytest.mark.parametrize(
    "name, m, y, kink",
    [
        ("hinge", -1.5, 1.0, 1.0),
        ("gamma_hinge", 2.5, -1.0, -1.0),
        ("absolute", 7.0, 2.5, 2.5),
        ("pinball", -3.0, 2.5, 2.5),
        ("epsilon_insensitive", 7.0, 2.5, 2.6),
        ("hinge", 1.0 - 2e-16, 1.0, 1.0),
        ("absolute", 1e150, 2.5, 2.5),
    ],
)
def test_the_margin_stops_at_a_kink(name, m, y, kink) -> None:
    """A long step ends at the kink; a short one has the whole slope; neither has curvature."""
    loss = find_loss(name)
    p, solve = parameters(loss), solver(loss)
    for chi, h in itertools.product((0.5, 1e3, 1e200), (1e4, 1e6)):
        s, a = solve(m, chi, y, h, p)
        if h * chi * abs(loss.slope(m, y, p)) > abs(m - kink):
            assert m + chi * s == pytest.approx(kink, rel=1e-15, abs=2 * EPS * abs(m))
            assert s == pytest.approx((kink - m) / chi, rel=1e-15, abs=2 * EPS * abs(m) / chi)
        else:
            assert s == -h * loss.slope(m, y, p)
        assert a == 0.0
    gap = abs(m - kink)
    assert solve(m, 1.0, y, 0.25 * gap, p)[0] == -0.25 * gap * loss.slope(m, y, p)


def sigmoid(z: Decimal) -> Decimal:
    return 1 / (1 + (-z).exp())


@pytest.mark.parametrize(
    "m",
    [
        *(-700.0, -1.0, 0.0, 37.0, 300.0),
        *(pytest.param(m, marks=pytest.mark.slow) for m in (-130.0, -20.0, 0.3, 5.0)),
    ],
)
@pytest.mark.sample(2)
def test_the_logistic_step_and_its_secant_have_all_digits(m) -> None:
    """s and a are those of 700 decimal digits: a by its definition, which cancels most of them."""
    solve = solver(find_loss("logistic"))
    for chi, h, y in itertools.product((1e-250, 1e-9, 0.02, 1.0, 9e2, 1e250), (0.5, 1e3), (-1, 1)):
        s, a = solve(y * m, chi, float(y), h, ())
        with localcontext() as context:
            context.prec = 700
            z, X = Decimal(m), Decimal(h) * Decimal(chi)
            q = abs(Decimal(s)) / Decimal(h)
            d = X * q
            for _ in range(4):  # Newton's steps, from a root that is right to 1e-13
                e = (z + d).exp()
                d -= (d * (1 + e) - X) / (1 + e + d * e)
            q, E = d / X, sigmoid(-z)
            exact_s, exact_a = y * Decimal(h) * q, Decimal(h) * (E - q) / d
        assert s == pytest.approx(float(exact_s), rel=1e-13), (chi, h, y)
        assert a == pytest.approx(float(exact_a), rel=3e-13), (chi, h, y)


def test_without_movement_the_curvature_is_that_of_the_loss() -> None:
    """Where chi s is 0, a = h l''(m): h p (1 - p), or h."""
    for m in MARGINS:
        s, a = solver(find_loss("logistic"))(m, 0.0, 1.0, 3.0, ())
        p = math.exp(-abs(m)) / (1.0 + math.exp(-abs(m)))
        assert a == pytest.approx(3.0 * p * (1.0 - p), rel=1e-14)
        assert s == pytest.approx(-3.0 * find_loss("logistic").slope(m, 1.0, ()), rel=1e-14)
        assert solver(find_loss("square"))(m, 0.0, 2.0, 3.0, ()) == (-3.0 * (m - 2.0), 3.0)


def joint(m, chi, y, h):
    """s and a of ``solve_all``, called for the second of two rows."""
    C = len(m)
    s, a, work = np.full((3, C), np.nan)
    solve_all = find_loss("softmax").solve_all
    solve_all(np.array([np.zeros(C), m]), 1, np.array(chi), y, h, s, a, work)
    return s, a


def test_the_softmax_step_is_the_oracle_s() -> None:
    """At moderate sizes Newton's method in s, the oracle's, has the same numbers."""
    rng = np.random.default_rng(2)
    for _ in range(60):
        C = int(rng.choice([2, 3, 7, 20]))
        m, chi, y = (
            3.0 * rng.standard_normal(C),
            10.0 ** rng.uniform(-3, 1, C),
            int(rng.integers(C)),
        )
        h = float(rng.choice([0.1, 1.0, 5.0]))
        s, a = joint(m, chi, y, h)
        exact = solve_softmax(m, chi, y, h)
        before, after = softmax(m), softmax(m + chi * exact)
        np.testing.assert_allclose(s, exact, rtol=0, atol=2e-14 * h)
        secant = h * (curvatures(before) + curvatures(after)) / 2.0
        np.testing.assert_allclose(a, secant, rtol=0, atol=2e-14 * h)


@pytest.mark.parametrize("C", [2, 3, 20, 100])
@pytest.mark.parametrize("kind", ["moderate", "tails", "ties", "huge", "some zero", "zero"])
def test_the_softmax_step_solves_its_equation(C, kind) -> None:
    """Each s_k = h (1[k = y] - p_k(m + chi s)), relative to its own size, in extended precision."""
    rng = np.random.default_rng(C)
    for h in (1e-6, 1.0, 1e6):
        for y in {0, C // 2, C - 1}:
            m = 2.0 * rng.standard_normal(C)
            chi = 10.0 ** rng.uniform(-4, 4, C)
            if kind == "tails":
                m = rng.choice([-700.0, 0.0, 700.0], C)
            elif kind == "ties":
                m, chi = np.zeros(C), np.full(C, chi[0])
            elif kind == "huge":
                chi = 10.0 ** rng.uniform(-300, 300, C)
            elif kind == "some zero":
                chi[rng.random(C) < 0.5] = 0.0
            elif kind == "zero":
                chi[:] = 0.0
            s, a = joint(m, chi, y, h)
            after = np.longdouble(m) + np.longdouble(chi) * np.longdouble(s)
            size = 1.0 + float(max(np.abs(m).max(), np.abs(after).max()))
            p = np.exp(after - after.max())
            others = p * (1 - np.longdouble(one_hot(y, C)))
            expected = h * np.where(one_hot(y, C) > 0, others.sum(), -others) / p.sum()
            np.testing.assert_allclose(
                s, expected.astype(float), rtol=32.0 * EPS * size, atol=1e-290
            )
            before = softmax(m)
            p = (p / p.sum()).astype(float)
            secant = h * (curvatures(before) + curvatures(p)) / 2.0
            np.testing.assert_allclose(a, secant, rtol=1e-9, atol=32.0 * EPS * size * h)


def test_two_classes_of_softmax_are_logistic() -> None:
    """With the same chi, s of class 1 is the logistic step of m_1 - m_0 and 2 chi."""
    for m, chi, h in itertools.product(
        (-300.0, -2.0, 0.4, 40.0), (0.0, 1e-3, 5.0, 1e9), (0.3, 9.0)
    ):
        s, _ = joint(np.array([0.0, m]), np.array([chi, chi]), 1, h)
        binary, _ = solver(find_loss("logistic"))(m, 2.0 * chi, 1.0, h, ())
        assert s[1] == pytest.approx(binary, rel=2e-13)
        assert s[0] == pytest.approx(-binary, rel=2e-13)


def test_a_margin_that_is_not_a_number_stays_visible() -> None:
    """The steps of a diverged model end, and are not finite."""
    for name, loss in EVERY.items():
        s, _ = solver(loss)(math.nan, 1.0, 1.0, 1.0, parameters(loss))
        assert math.isnan(s) or "hinge" in name
    assert np.isnan(joint(np.array([math.nan, 0.0]), np.ones(2), 1, 1.0)[0]).any()


QUICK = ("hinge", "logistic", "poisson", "square")
"""Both forms of a solver, with and without a kink; each takes a second or two to compile."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow)
        for name in (*EVERY, "smooth_absolute")
    ],
)
@pytest.mark.sample(2)
def test_compiled_steps_are_bit_identical(name) -> None:
    """The same s and a, compiled and uncompiled."""
    loss = EVERY[name] if name in EVERY else smoothed(find_loss("absolute"))
    solve, p, rng = make_solve(loss), parameters(loss), np.random.default_rng(3)
    fast = compiled(solve)
    for _ in range(300):
        y = float(rng.choice(targets(loss)))
        m, chi, h = rng.normal() * 10.0 ** rng.uniform(-3, 2.5), 10.0 ** rng.uniform(-8, 8), 0.7
        start = loss.slope(m, y, p)
        assert fast(m, chi, y, h, p, start) == solve(m, chi, y, h, p, start), (m, chi, y)


@pytest.mark.parametrize("C", [2, 7, 20])
@pytest.mark.slow
def test_compiled_joint_steps_are_bit_identical(C) -> None:
    """The same s and a of every class, compiled and uncompiled."""
    solve_all, rng = find_loss("softmax").solve_all, np.random.default_rng(C)
    fast = compiled(solve_all)
    for _ in range(60):
        margins, y = rng.normal(size=(1, C)) * 10.0 ** rng.uniform(-2, 2.5), int(rng.integers(C))
        chi, found = 10.0 ** rng.uniform(-8, 8, C), np.zeros((2, 3, C))
        for one, (s, a, work) in zip((solve_all, fast), found, strict=True):
            one(margins, 0, chi, y, 2.0, s, a, work)
        assert found[0].tobytes() == found[1].tobytes()
