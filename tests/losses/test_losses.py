"""Losses beyond ``check_loss``: exact tails, slopes at kinks, softmax, implicit steps, names."""

from __future__ import annotations

import numpy as np
import pytest

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
