"""Losses beyond ``check_loss``: exact tails, slopes at kinks, softmax, implicit steps, names."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from streamomd.core.errors import UsageError
from streamomd.losses import all_losses, find_loss
from streamomd.losses.contract import identity

pytestmark = pytest.mark.smoke

PLAIN = [name for name, loss in all_losses().items() if not loss.coupled]


def drawn(name: str, y: float, positive: bool):
    """A loss, its parameters, and a target that it knows."""
    loss = find_loss(name)
    target = (
        (1.0 if positive else -1.0)
        if loss.classifies
        else max(y, -50.0 if loss.least is None else loss.least)
    )
    return loss, loss.numbers(loss.parse_params({})), target


@pytest.mark.parametrize("margin", [-1e308, -800.0, -745.2, 0.0, 745.2, 800.0, 1e308])
def test_logistic_has_no_overflow(margin) -> None:
    """Both tails of the logistic loss are exact: 0 on one side, the margin on the other."""
    loss = find_loss("logistic")
    assert loss.value(margin, 1.0, ()) == pytest.approx(max(0.0, -margin), rel=1e-12, abs=1.0)
    assert loss.slope(margin, 1.0, ()) == pytest.approx(-1.0 if margin < 0 else -0.0, abs=0.51)
    assert 0.0 <= loss.mean(margin) <= 1.0


@pytest.mark.parametrize("name", PLAIN)
def test_slopes_at_kinks_are_zero(name) -> None:
    """At its kink a loss's slope is the subgradient nearest 0."""
    kinks = {"hinge": 1.0, "gamma_hinge": 1.0, "absolute": 2.5, "pinball": 2.5}
    if name in kinks:
        loss, p, _ = drawn(name, 1.0, True)
        y = 1.0 if loss.classifies else 2.5
        assert loss.slope(kinks[name], y, p) == 0.0


@pytest.mark.parametrize("name", PLAIN)
def test_what_a_loss_says_of_its_slope_is_true(name) -> None:
    """kinked: it jumps between margins 2e-9 apart; quadratic: it rises by as much as the margin,
    which is the mean."""
    loss, params, y = drawn(name, 0.5, True)
    margins = np.linspace(-4.0, 4.0, 8001)
    slopes = np.array([[loss.slope(m + d, y, params) for d in (-1e-9, 1e-9)] for m in margins])
    assert loss.kinked == bool(np.any(np.abs(np.diff(slopes)) > 1e-3))
    rises = [loss.slope(m + 1.0, y, params) - loss.slope(m, y, params) for m in (-3.0, 0.1, 2.0)]
    assert loss.quadratic == bool(np.allclose(rises, 1.0, atol=1e-9) and loss.mean is identity)


@given(margins=st.lists(st.floats(-800, 800), min_size=2, max_size=7), data=st.data())
def test_softmax_is_stable_and_its_slopes_are_its_gradient(margins, data) -> None:
    """Softmax: ln Σ exp − margin of the class, without overflow; slopes sum to 0."""
    y = data.draw(st.integers(0, len(margins) - 1))
    given_, slopes = np.array([margins]), np.zeros(len(margins))
    loss = find_loss("softmax").couple(given_, 0, y, slopes)
    exact = np.logaddexp.reduce(margins) - margins[y]
    assert loss == pytest.approx(exact, rel=1e-12, abs=1e-12)
    expected = np.exp(np.array(margins) - np.logaddexp.reduce(margins)) - np.eye(len(margins))[y]
    np.testing.assert_allclose(slopes, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in PLAIN if find_loss(name).along])
@given(margin=st.floats(-20, 20), y=st.floats(-5, 5), positive=st.booleans(),
       rate=st.floats(1e-6, 1e4))  # fmt: skip
def test_along_is_the_flow(name, margin, y, positive, rate) -> None:
    """A shortened step ends where many tiny steps of the loss's flow end, and not beyond."""
    loss, p, y = drawn(name, y, positive)
    slope = loss.slope(margin, y, p)
    assume(abs(slope) > 1e-9)
    factor = loss.along(margin, y, -rate * slope, p)
    assert 0.0 <= factor <= 1.0
    halves = margin
    for _ in range(2):  # two implicit half steps are one: the flow knows no step size
        g = loss.slope(halves, y, p)
        if g != 0.0:
            halves += loss.along(halves, y, -0.5 * rate * g, p) * (-0.5 * rate * g)
    once = margin - factor * rate * slope
    assert once == pytest.approx(halves, rel=1e-6, abs=1e-6)
    exact = margin
    if rate < 10.0:
        for _ in range(4000):
            exact -= rate / 4000 * loss.slope(exact, y, p)
        assert once == pytest.approx(exact, rel=2e-2, abs=2e-2)


def test_parameters_are_made_legal() -> None:
    """A loss's parameters are named in errors, with what is expected."""
    assert find_loss("huber").parse_params({}) == {"threshold": 1.0}
    with pytest.raises(UsageError, match=r"model.loss_params.tau = 1: .* between 0 and 1"):
        find_loss("pinball").parse_params({"tau": 1})
    with pytest.raises(UsageError, match="has no parameter 'gamma'; it has: threshold"):
        find_loss("huber").parse_params({"gamma": 1})


def test_a_name_nearly_right_is_suggested() -> None:
    """A mistyped loss names the nearest."""
    with pytest.raises(UsageError, match="did you mean 'logistic'"):
        find_loss("logisitc")
