"""``streamomd.testing.check_loss``: every loss of the package passes, and mutants do not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from streamomd.losses import Loss, all_losses, find_loss
from streamomd.testing import check_loss

pytestmark = pytest.mark.smoke


@pytest.mark.parametrize("name", all_losses())
def test_every_loss_passes(name: str) -> None:
    """With its defaults, and each parameter at other values."""
    check_loss(all_losses()[name])


def changed(name: str, **functions: Any) -> Loss:
    return replace(find_loss(name), **functions)


def half_couple(margins: Any, i: int, y: int, slopes: Any) -> float:
    couple = find_loss("softmax").couple
    assert couple is not None
    value = couple(margins, i, y, slopes)
    slopes *= 0.5
    return value


def overflowing(margins: Any, i: int, y: int, slopes: Any) -> float:
    least = margins[i].min()
    raised = [math.exp(p - least) for p in margins[i]]
    slopes[:] = [one / math.fsum(raised) for one in raised]
    slopes[y] -= 1.0
    return math.log(math.fsum(raised)) + least - margins[i, y]


logistic = find_loss("logistic")
MUTANTS: dict[str, tuple[Callable[[], Loss], str]] = {
    "slope of half the value": (
        lambda: changed("square", slope=lambda m, y, p: 0.5 * (m - y)), "but the derivative is"
    ),
    "slope off at a kink": (
        lambda: changed("absolute", slope=lambda m, y, p: 3.0 if m == y else float(m > y) * 2 - 1),
        r"slope\(margin",
    ),
    "overflow in a tail": (
        lambda: changed("logistic", value=lambda m, y, p: math.log1p(math.exp(-2 * y * m) ** 0.5)),
        "no large exponents in exp",
    ),
    "a NaN hidden": (
        lambda: changed("hinge", value=lambda m, y, p: 1.0 - y * m if y * m < 1.0 else 0.0),
        "a diverged model would look healthy",
    ),
    "not convex": (
        lambda: changed(
            "absolute", value=lambda m, y, p: math.atan(abs(m - y)),
            slope=lambda m, y, p: math.copysign(1.0 / (1.0 + (m - y) ** 2), m - y),
        ),
        "not convex",
    ),
    "lipschitz too small": (
        lambda: changed("huber", lipschitz=lambda p: 0.5), "beyond lipschitz"
    ),
    "link not inverted": (
        lambda: changed("poisson", mean=lambda m: m), "mean does not invert the link"
    ),
    "mean beyond 1": (
        lambda: changed("logistic", mean=lambda m: 1.1 * logistic.mean(m)), "mean"
    ),
    "along beyond the flow": (
        lambda: changed("square", along=lambda m, y, change, p: 1.0), "not the flow"
    ),
    "degree of another loss": (lambda: changed("square", degree=1), "wrong degree or lengths"),
    "a length left out": (lambda: changed("huber", lengths=()), "wrong degree or lengths"),
    "coupled slopes halved": (lambda: changed("softmax", couple=half_couple), "for class 0 of 2"),
    "coupled overflow": (lambda: changed("softmax", couple=overflowing), "at a margin of 700"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_is_found(name: str) -> None:
    """The message says which law is broken, at which margin and target."""
    make, message = MUTANTS[name]
    with pytest.raises(AssertionError, match=message):
        check_loss(make())
