"""Oracles of first-order learners with a fixed regularizer: P2, sections 4, 5; P0, 4 and 6.1.

Links as printed, with the largest exponent taken out; all n coordinates count in every sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from oracles import Floats, Learner, Seen, slope_kink


def length(x: Floats, p: float) -> float:
    """The p-norm, of entries divided by the largest."""
    top = float(np.abs(x).max(initial=0.0))
    return top * math.fsum((np.abs(x) / top) ** p) ** (1.0 / p) if top > 0.0 else 0.0


def pnorm_link(theta: Floats, p: float) -> Floats:
    """||theta||_p sign(theta_i) (|theta_i| / ||theta||_p)^(p-1)."""
    whole = length(theta, p)
    if whole == 0.0:
        return np.zeros_like(theta)
    return whole * np.sign(theta) * (np.abs(theta) / whole) ** (p - 1.0)


def winnow_link(theta: Floats) -> Floats:
    """e^theta_i / sum_j e^theta_j."""
    raised = np.exp(theta - theta.max())
    return raised / math.fsum(raised)


def eg_link(theta: Floats, U: float) -> Floats:
    """U (e^theta_i - e^-theta_i) / sum_j (e^theta_j + e^-theta_j)."""
    top = np.abs(theta).max()
    up, down = np.exp(theta - top), np.exp(-theta - top)
    small = np.abs(theta) < 0.1
    gap = np.where(small, 2.0 * math.exp(-top) * np.sinh(np.where(small, theta, 0.0)), up - down)
    return U * gap / math.fsum(up + down)


class Linked(Learner):
    """Weights by a link of theta."""

    own = ("theta",)

    def __init__(self, d: int, **params: Any) -> None:
        super().__init__(d)
        self.params = {"link": "l2", "U": 10.0, "p": 4.0, "C": 1.0, "gamma": 1.0, **params}
        self.p, self.C, self.U = self.params["p"], self.params["C"], self.params["U"]
        self.n, self.seen_length = float(d), 0.0
        self.steps = self.heaviest = self.gain = self.rises = self.mistakes = self.hardest = 0.0
        self.X = self.Y2 = self.e = self.c = self.errors = self.targets = self.excess = 0.0

    def linked(self) -> Floats:
        match self.params["link"]:
            case "l2":
                return self.theta
            case "winnow":
                return winnow_link(self.theta)
            case "eg":
                return eg_link(self.theta, self.U)
        return pnorm_link(self.theta, self.p)

    def weights(self, t: int) -> Floats:
        return self.linked()

    def to_zero(self, seen: Seen) -> float:
        """Distance to the sign's flip."""
        return abs(seen.p) / seen.scale if seen.scale > 0.0 else math.inf


class OnMistakes(Linked):
    """theta <- theta + C y x where y p <= 0 (P2 eq. 16)."""

    def learn(self, seen: Seen) -> None:
        if seen.y * seen.p <= 0.0 and seen.h > 0.0:
            self.theta = self.theta + seen.h * self.C * seen.y * seen.x
            self.steps += seen.h * self.C
            self.heaviest = max(self.heaviest, seen.h)

    def kink(self, loss: str, seen: Seen) -> float:
        return self.to_zero(seen)


class PNorm(OnMistakes):
    totals = ("steps",)

    def __init__(self, d: int, **params: Any) -> None:
        super().__init__(d, **{**params, "link": "pnorm"})


class Multiplicative(OnMistakes):
    """C on mistakes, or where C = 0 theta <- theta - eta g x."""

    totals = ("n", "steps", "heaviest", "gain")

    def learn(self, seen: Seen) -> None:
        if self.C > 0.0:
            super().learn(seen)
        else:
            self.theta = self.theta - self.params["eta"] * seen.g * seen.x
            self.gain += seen.g * seen.p

    def kink(self, loss: str, seen: Seen) -> float:
        return self.to_zero(seen) if self.C > 0.0 else slope_kink(loss, seen)


class Winnow(Multiplicative):
    def __init__(self, d: int, **params: Any) -> None:
        super().__init__(d, **{**params, "link": "winnow"})


class EG(Multiplicative):
    def __init__(self, d: int, **params: Any) -> None:
        super().__init__(d, **{**params, "link": "eg"})


class DualStep(Linked):
    """P2 eq. 28 over the curvature: a = min(l / kappa, C), l = [gamma - y p]_+."""

    totals = ("n", "steps", "rises", "mistakes", "hardest")

    def curvature(self, x: Floats) -> float:
        match self.params["link"]:
            case "l2":
                return math.fsum(x**2)
            case "winnow":
                return float(np.abs(x).max(initial=0.0)) ** 2
            case "eg":
                return self.U * float(np.abs(x).max(initial=0.0)) ** 2
        return (self.p - 1.0) * length(x, self.p) ** 2

    def learn(self, seen: Seen) -> None:
        gamma, cap = self.params["gamma"], seen.h * self.C
        loss, kappa = max(0.0, gamma - seen.y * seen.p), self.curvature(seen.x)
        if loss == 0.0 or cap == 0.0:
            return
        a = min(loss / kappa, cap) if kappa > 0.0 else cap
        self.theta = self.theta + a * seen.y * seen.x
        self.steps += a
        self.rises += a * loss - kappa * a**2 / 2.0
        if seen.y * seen.p <= 0.0:
            rise = gamma * cap - kappa * cap**2 / 2.0
            if kappa * cap > gamma:
                rise = gamma**2 / (2.0 * kappa)
            self.mistakes += seen.h
            self.hardest = max(self.hardest, seen.h / rise)

    def kink(self, loss: str, seen: Seen) -> float:
        return self.to_zero(seen)


class PA(Linked):
    """tau = l / ||x||^2."""

    def learn(self, seen: Seen) -> None:
        loss, square = max(0.0, 1.0 - seen.y * seen.p), math.fsum(seen.x**2)
        if seen.h > 0.0 and square > 0.0:
            self.theta = self.theta + loss / square * seen.y * seen.x

    def kink(self, loss: str, seen: Seen) -> float:
        return math.inf


class PA2(PA):
    """tau = l / (||x||^2 + 1 / (2 C))."""

    def learn(self, seen: Seen) -> None:
        loss, square = max(0.0, 1.0 - seen.y * seen.p), math.fsum(seen.x**2)
        if seen.h > 0.0:
            damped = square + 1.0 / (2.0 * seen.h * self.C)
            self.theta = self.theta + loss / damped * seen.y * seen.x


class Aggressive(Linked):
    """P0 corollary 2: eta_t = clip((X_t^2 - b y p) / ||x||^2, 0, 1), z = eta_t y x."""

    totals = ("X", "Y2", "mistakes", "e", "c")

    def __init__(self, d: int, **params: Any) -> None:
        super().__init__(d, **{"p": 2.0, **params, "link": "pnorm"})

    def learn(self, seen: Seen) -> None:
        m, square, b = seen.y * seen.p, length(seen.x, self.p) ** 2, 1.0 / (self.p - 1.0)
        self.X = max(self.X, math.sqrt(square))
        self.Y2 = max(self.Y2, seen.h * square)
        eta = 0.0
        if m < 1.0:
            eta = float(np.clip((self.X**2 - b * m) / square, 0.0, 1.0)) if square > 0.0 else 1.0
        self.theta = self.theta + seen.h * eta * seen.y * seen.x
        if m <= 0.0:
            self.mistakes += seen.h
        elif seen.h > 0.0:
            self.e += seen.h * eta
            self.c += seen.h * eta * (seen.h * eta * square + 2.0 * b * m) / self.Y2

    def kink(self, loss: str, seen: Seen) -> float:
        gap = abs(1.0 - seen.y * seen.p) / max(1.0, seen.scale)
        return min(self.to_zero(seen), gap if seen.scale > 0.0 else math.inf)


class PNormLMS(Linked):
    """P0 section 4: w = (q - 1) link(theta) / X_t^2, theta <- theta + (y - p) x."""

    totals = ("X", "errors", "targets", "excess")

    def __init__(self, d: int, **params: Any) -> None:
        super().__init__(d, **{**params, "link": "pnorm"})

    def observe(self, t: int, x: Floats) -> None:
        self.X = max(self.X, length(x, self.p))

    def weights(self, t: int) -> Floats:
        q = self.p / (self.p - 1.0)
        return (q - 1.0) * self.linked() / self.X**2 if self.X > 0.0 else np.zeros_like(self.theta)

    def learn(self, seen: Seen) -> None:
        r = seen.y - seen.p
        self.theta = self.theta + seen.h * r * seen.x
        ratio = (length(seen.x, self.p) / self.X) ** 2 if self.X > 0.0 else 0.0
        self.errors += seen.h * r**2
        self.targets += seen.h * r * seen.y
        self.excess += (seen.h * r) ** 2 * ratio - seen.h * r**2

    def kink(self, loss: str, seen: Seen) -> float:
        return math.inf


LEARNERS: dict[str, Callable[..., Learner]] = {
    "winnow": Winnow, "eg": EG, "pnorm": PNorm, "dual_step": DualStep, "pa": PA, "pa2": PA2,
    "aggressive": Aggressive, "pnorm_lms": PNormLMS,
}  # fmt: skip
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "winnow": [{}, {"eta": 0.5}, {"C": 0.5}],
    "eg": [{}, {"eta": 0.5, "U": 3.0}, {"C": 0.5}],
    "pnorm": [{}, {"p": 2.0}, {"p": 3.7, "C": 0.2}, {"p": 9.0}],
    "dual_step": [
        {}, {"link": "winnow"}, {"link": "eg"}, {"link": "pnorm"},
        {"C": 0.05, "gamma": 0.5}, {"link": "winnow", "C": 0.05, "gamma": 0.5},
        {"link": "eg", "C": 0.05, "U": 2.0}, {"link": "pnorm", "p": 2.5, "gamma": 2.0},
    ],
    "pa": [{}],
    "pa2": [{}, {"C": 0.05}],
    "aggressive": [{}, {"p": 4.0}, {"p": 2.5}],
    "pnorm_lms": [{}, {"p": 2.0}, {"p": 5.5}],
}  # fmt: skip
REFERENCE = ("S", "ref", "scale", "at")
DERIVED: dict[str, tuple[str, ...]] = {
    "winnow": (*REFERENCE, "e"),
    "eg": (*REFERENCE, "a", "b"),
    "pnorm": (*REFERENCE, "a"),
    "dual_step": (*REFERENCE, "a", "b"),
    "aggressive": (*REFERENCE, "a"),
    "pnorm_lms": (*REFERENCE, "a"),
    "perceptron": ("dual", "mistakes", "longest"),
    "pa1": ("dual", "mistakes", "hardest"),
}
