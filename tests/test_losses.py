"""Losses: slope is the derivative of value; finite in both tails; mean inverts the link."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from streamomd.errors import UsageError
from streamomd.losses import all_losses, find_loss

numbers = st.floats(-50.0, 50.0)


@pytest.mark.parametrize("name", list(all_losses()))
@given(margin=numbers, y=numbers, positive=st.booleans())
def test_slope_is_the_derivative(name, margin, y, positive) -> None:
    """Off kinks, slope is the central difference of value."""
    loss = find_loss(name)
    if loss.classifies:
        y = 1.0 if positive else -1.0
    assume(name != "hinge" or abs(1.0 - y * margin) > 1e-3)
    assume(name != "absolute" or abs(y - margin) > 1e-3)
    step = 1e-5
    difference = (loss.value(margin + step, y) - loss.value(margin - step, y)) / (2.0 * step)
    assert loss.slope(margin, y) == pytest.approx(difference, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("name", list(all_losses()))
@given(margin=st.floats(-700.0, 700.0), positive=st.booleans())
def test_finite_and_bounded(name, margin, positive) -> None:
    """Value and slope are finite, value is not negative, slope keeps to its Lipschitz constant."""
    loss = find_loss(name)
    y = 1.0 if positive else -1.0
    assert 0.0 <= loss.value(margin, y) < math.inf
    assert abs(loss.slope(margin, y)) <= (loss.lipschitz or math.inf)


@pytest.mark.parametrize("margin", [-1e308, -800.0, -745.2, 0.0, 745.2, 800.0, 1e308])
def test_logistic_has_no_overflow(margin) -> None:
    """Both tails of the logistic loss are exact: 0 on one side, the margin on the other."""
    loss = find_loss("logistic")
    assert loss.value(margin, 1.0) == pytest.approx(max(0.0, -margin), rel=1e-12, abs=1.0)
    assert loss.slope(margin, 1.0) == pytest.approx(-1.0 if margin < 0 else -0.0, abs=0.51)
    assert 0.0 <= loss.mean(margin) <= 1.0


@pytest.mark.parametrize("name", list(all_losses()))
def test_nan_stays_nan(name) -> None:
    """No loss hides a NaN margin behind a number."""
    loss = find_loss(name)
    assert math.isnan(loss.value(math.nan, 1.0))


def test_slopes_at_kinks_are_zero() -> None:
    """At its kink a loss's slope is the subgradient nearest 0."""
    assert find_loss("hinge").slope(1.0, 1.0) == 0.0
    assert find_loss("absolute").slope(2.5, 2.5) == 0.0


def test_a_name_nearly_right_is_suggested() -> None:
    """A mistyped loss names the nearest."""
    with pytest.raises(UsageError, match="did you mean 'logistic'"):
        find_loss("logisitc")
