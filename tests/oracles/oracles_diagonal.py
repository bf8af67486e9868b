"""Oracles of the diagonal second-order learners.

As ``oracles``: literal, dense, slow. P0 is Orabona, Crammer & Cesa-Bianchi 2015, section 6.3; AROW
and CW as their papers print them for a diagonal covariance. D starts as the identity; S is what it
has grown by since (for CW the inverse variance, which starts at 1 / a).
"""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from statistics import NormalDist
from typing import Any

import numpy as np
from oracles import Floats, Learner, Seen, slope_kink

RUNAWAY = 1e100  # a slope of e^p that has no sense any more: such a stream is drawn again


class Theta(Learner):
    """Dual form: D' = D + x^2 / r, yhat = sum theta_i x_i / D'_i; on ``due`` D <- D + h x^2 / r,
    and theta <- theta + h y x / c. A margin of 0 is a mistake.
    """

    own, totals = ("theta", "S"), ("updates", "margins", "largest")
    counted = True  # h in D

    def __init__(self, d: int, r: float = 1.0, scale: str = "unit") -> None:
        super().__init__(d)
        self.r, self.c = r, 1.0 if scale == "unit" else r
        self.S = np.zeros(d)
        self.updates = self.margins = self.largest = 0.0

    def ahead(self, x: Floats) -> Floats:
        """D with the row in it."""
        return 1.0 + self.S + x**2 / self.r

    def weights(self, t: int) -> Floats:
        return self.theta / (1.0 + self.S)

    def predict(self, t: int, x: Floats) -> tuple[float, float]:
        products = self.theta * x / self.ahead(x)
        return math.fsum(products), math.fsum(np.abs(products))

    def size(self, h: float) -> float:
        """How far from 1 the importance is, as a factor."""
        return max(h, 1.0 / h)

    def due(self, seen: Seen) -> bool:
        """Whether the row teaches: its margin falls short."""
        return seen.y * seen.p < 1.0

    def learn(self, seen: Seen) -> None:
        if seen.h > 0.0 and self.due(seen):
            self.reach = self.reach + seen.h * np.abs(seen.x)
            self.theta = self.theta + seen.h * seen.y * seen.x / self.c
            self.S = self.S + (seen.h if self.counted else 1.0) * seen.x**2 / self.r
            self.updates += seen.h
            self.margins += seen.h * (seen.y * seen.p > 0.0)
            self.largest = max(self.largest, self.size(seen.h))

    def kink(self, loss: str, seen: Seen) -> float:
        """At the margin 1, and at the sign, by which ``margins`` counts.

        The sign of the margin has no unit: relative to all that was ever added into it.
        """
        if seen.scale == 0.0:
            return math.inf
        reach = math.fsum(self.reach * np.abs(seen.x) / self.ahead(seen.x)) / self.c
        return min(abs(seen.p) / reach, slope_kink("hinge", seen))


class SecondOrderPerceptron(Theta):
    """On mistakes only, D <- D' whatever h."""

    counted = False

    def __init__(self, d: int, r: float = 1.0) -> None:
        super().__init__(d, r)

    def size(self, h: float) -> float:
        return h

    def due(self, seen: Seen) -> bool:
        return seen.y * seen.p <= 0.0


class Mean(Learner):
    """Mean form: mu and the variances, Sigma_i <- 1 / (1 / Sigma_i + c x_i^2)."""

    own = ("mu", "S")

    def __init__(self, d: int, a: float = 1.0) -> None:
        super().__init__(d)
        self.mu, self.S, self.sigma = np.zeros(d), np.zeros(d), np.full(d, a)

    def weights(self, t: int) -> Floats:
        return self.mu

    def move(self, step: float, c: float, x: Floats) -> None:
        """mu <- mu + step Sigma x, then the variances."""
        self.reach = self.reach + np.abs(step * self.sigma * x)
        self.mu = self.mu + step * self.sigma * x
        self.sigma = 1.0 / (1.0 / self.sigma + c * x**2)
        self.S = self.S + c * x**2

    def cancelled(self, seen: Seen) -> bool:
        """Whether the weights met are what rounding left of larger ones."""
        return seen.scale < 1e-9 * math.fsum(self.reach * np.abs(seen.x))


class AROW(Mean):
    """When y m < 1: mu <- mu + omega [1 - y m] y Sigma x, omega = 1 / (chi + r / h); c = h / r."""

    def __init__(self, d: int, r: float = 1.0) -> None:
        super().__init__(d)
        self.r = r

    def learn(self, seen: Seen) -> None:
        if seen.h > 0.0 and seen.y * seen.p < 1.0:
            omega = 1.0 / (math.fsum(self.sigma * seen.x**2) + self.r / seen.h)
            self.move(omega * (1.0 - seen.y * seen.p) * seen.y, seen.h / self.r, seen.x)

    def kink(self, loss: str, seen: Seen) -> float:
        return 0.0 if self.cancelled(seen) else slope_kink("hinge", seen)


class CW(Mean):
    """Confidence-weighted: the nearest Gaussian that has the row right with this confidence."""

    totals = ("phi",)

    def __init__(
        self, d: int, confidence: float = 0.65, a: float = 1.0, form: str = "stdev"
    ) -> None:
        super().__init__(d, a)
        self.phi, self.form = NormalDist().inv_cdf(confidence), form

    def lack(self, seen: Seen) -> tuple[float, float, float]:
        """M, V and how far M falls short."""
        M, V = seen.y * seen.p, math.fsum(self.sigma * seen.x**2)
        return M, V, self.phi * (math.sqrt(V) if self.form == "stdev" else V) - M

    def learn(self, seen: Seen) -> None:
        (M, V, lack), phi = self.lack(seen), self.phi
        if seen.h == 0.0 or V == 0.0 or lack <= 0.0:
            return
        alpha, c = printed(self.form, Decimal(M), Decimal(V), Decimal(phi))
        self.move(alpha * seen.y, c, seen.x)

    def kink(self, loss: str, seen: Seen) -> float:
        """Nowhere: the step falls to 0; but where M falls little short, few digits say how far.

        Where it is rounding alone, the row is the last one again, and the step does not matter.
        """
        _, _, lack = self.lack(seen)
        blurred = 1e-9 * seen.scale < lack < 1e-6 * seen.scale
        return 0.0 if blurred or self.cancelled(seen) else math.inf


def printed(form: str, M: Decimal, V: Decimal, phi: Decimal) -> tuple[float, float]:
    """alpha and c by the papers' formulas; in 60 digits, for they cancel."""
    with localcontext(Context(prec=60, Emax=9999, Emin=-9999)):
        if form == "stdev":
            psi, zeta = 1 + phi**2 / 2, 1 + phi**2
            alpha = (-M * psi + (M**2 * phi**4 / 4 + V * phi**2 * zeta).sqrt()) / (V * zeta)
            rho = (-alpha * V * phi + (alpha**2 * V**2 * phi**2 + 4 * V).sqrt()) / 2
            return float(alpha), float(alpha * phi / rho)
        b = 1 + 2 * phi * M
        alpha = (-b + (b**2 - 8 * phi * (M - phi * V)).sqrt()) / (4 * phi * V)
        return float(alpha), float(2 * alpha * phi)


class ONS(Learner):
    """S <- S + (g x)^2, w <- w - g x / (gamma D), D = epsilon + S; then the point of the ball
    nearest to w in the norm of D.
    """

    own, totals = ("w", "S"), ("size",)

    def __init__(
        self,
        d: int,
        epsilon: float = 100.0,
        gamma: float = 0.1,
        ball: str = "none",
        radius: float = 0.0,
        project_every: int = 1,
        implicit: bool = False,
    ) -> None:
        super().__init__(d)
        self.epsilon, self.gamma, self.ball, self.radius = epsilon, gamma, ball, radius
        self.project_every = project_every
        self.S = np.zeros(d)

    def moved(self, seen: Seen) -> tuple[Floats, Floats, Floats]:
        """S, and the weights before they are drawn in and after."""
        if abs(seen.g) > RUNAWAY:
            return self.S, self.w, self.w
        S = self.S + (seen.g * seen.x) ** 2
        D = self.epsilon + S
        v = self.w - seen.g * seen.x / (self.gamma * D)
        if self.ball == "none" or seen.t % self.project_every:
            return S, v, v
        return S, v, (nearest_in_l1 if self.ball == "l1" else nearest_in_l2)(v, D, self.radius)

    def learn(self, seen: Seen) -> None:
        self.S, _, self.w = self.moved(seen)

    def kink(self, loss: str, seen: Seen) -> float:
        """Also where the L1 ball leaves little of a weight, and that little of its digits.

        mu has the rounding of the radius; a weight of small D bears more of it.
        """
        if abs(seen.g) > RUNAWAY:
            return 0.0
        S, v, w = self.moved(seen)
        if self.ball != "l1" or w is v:
            return slope_kink(loss, seen)
        kept = w != 0.0
        D = (self.epsilon + S)[kept]
        borne = self.radius / D / math.fsum(1.0 / D)
        left = np.abs(w[kept]) / np.maximum(np.abs(v[kept]), borne)
        return min(slope_kink(loss, seen), 1e-3 * float(left.min(initial=1.0)))

    @property
    def size(self) -> float:
        """The total that the engine compares with the radius."""
        return {"none": 0.0, "l1": math.fsum(abs(self.w)), "l2": math.fsum(self.w**2)}[self.ball]


def nearest_in_l1(v: Floats, D: Floats, radius: float) -> Floats:
    """argmin of sum_i D_i (w_i - v_i)^2 over sum |w_i| <= radius: by sorting D_i |v_i|."""
    if math.fsum(np.abs(v)) <= radius:
        return v
    order = np.argsort(D * np.abs(v))[::-1]
    mus = (np.cumsum(np.abs(v)[order]) - radius) / np.cumsum(1.0 / D[order])
    mu = mus[np.flatnonzero((D * np.abs(v))[order] > mus)[-1]]
    return np.sign(v) * np.maximum(np.abs(v) - mu / D, 0.0)


def nearest_in_l2(v: Floats, D: Floats, radius: float) -> Floats:
    """argmin of sum_i D_i (w_i - v_i)^2 over ||w||_2 <= radius: mu by Newton's steps on 1/||w||."""
    if np.linalg.norm(v) <= radius:
        return v
    mu = 0.0
    for _ in range(200):
        w = D * v / (D + mu)
        norm = float(np.linalg.norm(w))
        rise = math.fsum(w**2 / (D + mu)) / norm**3
        mu += (1.0 / radius - 1.0 / norm) / rise
    return D * v / (D + mu)


LEARNERS: dict[str, Any] = {
    "sop_diag": SecondOrderPerceptron,
    "aggressive_second_order_diag": Theta,
    "arow_diag": AROW,
    "cw_diag": CW,
    "ons_diag": ONS,
}
# Where a x^2 is far above 1, CW's variance form multiplies any rounding from row to row.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "sop_diag": [{}, {"r": 0.3}],
    "aggressive_second_order_diag": [{}, {"r": 0.3}, {"r": 3.0, "scale": "arow"}],
    "arow_diag": [{}, {"r": 0.3}],
    "cw_diag": [{}, {"confidence": 0.55, "a": 4.0}, {"form": "variance", "a": 1e-20}],
    "ons_diag": [
        {},
        {"epsilon": 0.3, "gamma": 0.5},
        {"ball": "l1", "radius": 0.7},
        {"ball": "l2", "radius": 0.7, "project_every": 3},
    ],
}
DERIVED: dict[str, tuple[str, ...]] = {"ons_diag": ("size",)}
