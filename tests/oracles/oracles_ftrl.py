"""Oracles of adaptive FTRL without AdaGrad: OGD in a set, dual averaging, RDA, composite OMD, FTRL.

As ``oracles``: literal, dense, slow. P0 is Orabona, Crammer & Cesa-Bianchi 2015; P3 Qian's notes.
T = t - 1 rows are finished when row t is predicted; theta is minus the sum of their gradients.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import oracles
from oracles import Floats, Learner, Seen, rate


def shrink(u: Floats, k: float) -> Floats:
    """sign(u) [|u| - k]_+."""
    return np.sign(u) * np.maximum(np.abs(u) - k, 0.0)


def minimizer(theta: Floats, h: Floats, k: float, l1: float, l2: float, box: float) -> Floats:
    """argmin of sum_i h_i w_i^2 / 2 - theta_i w_i + k (l1 |w_i| + l2 w_i^2 / 2), |w_i| <= box."""
    w = oracles.ratio(shrink(theta, k * l1), h + k * l2)
    return np.clip(w, -box, box) if box else w


def nearest_in_l1(v: Floats, radius: float) -> Floats:
    """The point of the L1 ball nearest to v: by sorting."""
    if math.fsum(np.abs(v)) <= radius:
        return v
    falling = np.sort(np.abs(v))[::-1]
    mu = (np.cumsum(falling) - radius) / np.arange(1, len(v) + 1)
    return shrink(v, mu[np.flatnonzero(falling > mu)[-1]])


class OGD(Learner):
    """w <- P(w - eta_t g x), P the nearest point in the box, the L2 or the L1 ball. Adaptive (P3,
    section 5): eta_t = eta / sqrt(sum of |g x|^2 up to this row).

    The rule stores w = c v, c the product of the factors by which the L2 ball shrank w, and
    multiplies c out now and then: with that ball predictions alone are compared.
    """

    own, totals = ("v",), ("c", "N")

    def __init__(
        self,
        d: int,
        eta: float = 0.1,
        schedule: str = "sqrt",
        ball: str = "none",
        radius: float = 0.0,
        project_every: int = 1,
        implicit: bool = False,
    ) -> None:
        super().__init__(d, eta=eta, schedule=schedule)
        self.ball, self.radius, self.project_every = ball, radius, project_every
        self.c = 1.0
        if ball == "l2":
            self.own, self.totals = (), ("N",)

    @property
    def v(self) -> Floats:
        return self.w

    def learn(self, seen: Seen) -> None:
        z = seen.g * seen.x
        self.N = self.N + z @ z
        if self.schedule == "adaptive":
            pace = self.eta / math.sqrt(self.N) if self.N else 0.0
        else:
            pace = rate(self.eta, self.schedule, seen.t)
        w = self.w - pace * z
        if self.ball == "box":
            w = np.clip(w, -self.radius, self.radius)
        if self.ball == "l2" and np.linalg.norm(w) > self.radius:
            factor = self.radius / float(np.linalg.norm(w))
            self.c, w = self.c * factor, factor * w
        if self.ball == "l1" and seen.t % self.project_every == 0:
            w = nearest_in_l1(w, self.radius)
        self.w = w


def nearest_in_l2(v: Floats, h: Floats, radius: float) -> Floats:
    """argmin of sum h_i (w_i - v_i)^2 over |w| <= radius: mu by halving."""
    if np.linalg.norm(v) <= radius:
        return v

    def at(mu: float) -> Floats:
        return v * oracles.ratio(h, h + mu)

    low, high = 0.0, 1.0
    while np.linalg.norm(at(high)) > radius:
        low, high = high, 2.0 * high
    for _ in range(200):
        middle = (low + high) / 2.0
        outside = np.linalg.norm(at(middle)) > radius
        low, high = (middle, high) if outside else (low, middle)
    return at(high)


class DA(Learner):
    """Dual averaging: w = eta_T theta; in P3's recursive form it reads
    w <- (eta_T / eta_{T-1}) w - eta_T g x, which is how it is done here. r_0 is 0, or infinite
    outside |w| <= radius: w minimizes -<theta, w> + |w|^2 / (2 eta_T) there.
    """

    own = ("theta",)

    def __init__(
        self,
        d: int,
        eta: float = 0.1,
        schedule: str = "sqrt",
        ball: str = "none",
        radius: float = 0.0,
        implicit: bool = False,
    ) -> None:
        super().__init__(d, eta=eta, schedule=schedule)
        self.ball, self.radius = ball, radius

    def weights(self, t: int) -> Floats:
        if self.ball == "l2":
            return nearest_in_l2(self.w, np.ones_like(self.w), self.radius)
        return self.w

    def learn(self, seen: Seen) -> None:
        now = rate(self.eta, self.schedule, seen.t)
        before = rate(self.eta, self.schedule, max(1, seen.t - 1))
        self.w = now / before * self.w - now * seen.g * seen.x
        self.theta = self.theta - seen.g * seen.x


class Regularized(Learner):
    """phi(w) = sum_i l1 |w_i| + l2 w_i^2 / 2, |w_i| <= box (0: any)."""

    own = ("theta",)

    def __init__(self, d: int, l1: float = 0.0, l2: float = 0.0, box: float = 0.0) -> None:
        super().__init__(d)
        self.d, self.l1, self.l2, self.box = d, l1, l2, box

    def lead(self, theta: Floats, h: Floats | float, k: float) -> Floats:
        """The minimizer of h w^2 / 2 - theta w + k phi(w)."""
        return minimizer(theta, h * np.ones(self.d), k, self.l1, self.l2, self.box)

    def times(self, t: int) -> float:
        """How often phi is charged in row t."""
        return float(t - 1)

    def learn(self, seen: Seen) -> None:
        self.theta = self.theta - seen.g * seen.x

    def dual(self) -> Floats:
        """What the soft threshold acts on."""
        return self.theta

    def kink(self, loss: str, seen: Seen) -> float:
        """Near its threshold a weight is a small difference of large numbers."""
        theta = np.abs(self.dual()[seen.x != 0.0])
        gap = np.abs(theta - self.times(seen.t) * self.l1)[theta > 0.0] / theta[theta > 0.0]
        near = float(gap.min(initial=math.inf)) if self.l1 else math.inf
        return min(near / 10.0, oracles.slope_kink(loss, seen))


class RDA(Regularized):
    """P3 section 4: w minimizes T phi(w) + beta_T |w|^2 / 2 - <theta, w>, beta_T = gamma sqrt T."""

    def __init__(self, d: int, gamma: float = 10.0, **phi: float) -> None:
        super().__init__(d, **phi)
        self.gamma = gamma

    def weights(self, t: int) -> Floats:
        return self.lead(self.theta, self.gamma * math.sqrt(max(1, t - 1)), self.times(t))


class Composite(Regularized):
    """P0 corollary 1: w = grad f_t*(theta), f_t = c_t |w|^2 / 2 + eta t phi, theta += -eta g x.

    c_t = 1, sqrt(t), or 0 with eta = 1.
    """

    def __init__(self, d: int, schedule: str = "sqrt", eta: float = 0.1, **phi: float) -> None:
        super().__init__(d, **phi)
        self.schedule, self.eta = schedule, 1.0 if schedule == "strong" else eta

    def times(self, t: int) -> float:
        return self.eta * t

    def weights(self, t: int) -> Floats:
        c = {"constant": 1.0, "sqrt": math.sqrt(t), "strong": 0.0}[self.schedule]
        return self.lead(self.theta, c, self.times(t))

    def learn(self, seen: Seen) -> None:
        self.theta = self.theta - self.eta * seen.g * seen.x


class FTRLProximal(Regularized):
    """P3 theorem 7: w minimizes <sum g x, w> + k phi(w) + sum_s sigma_s (w - w_s)^2 / 2.

    sigma_s is the growth of h = (beta + sqrt G) / alpha, or of 1 / eta = sqrt G / (sqrt 2 radius);
    expanding the squares, z = sum g x - sum sigma_s w_s meets w linearly. With a ball w minimizes
    that over |w| <= radius.
    """

    own = ("z", "G")

    def __init__(
        self,
        d: int,
        alpha: float = 0.1,
        beta: float = 1.0,
        radius: float = 0.0,
        charge: str = "every",
        ball: str = "none",
        **phi: float,
    ) -> None:
        super().__init__(d, **phi)
        self.alpha, self.beta, self.radius, self.charge = alpha, beta, radius, charge
        self.ball = ball
        self.z = np.zeros(d)

    def h(self, G: Floats) -> Floats:
        """1 / eta_i; 0 where nothing was learned."""
        if self.radius:
            return np.sqrt(G) / (math.sqrt(2.0) * self.radius)
        return np.where(G > 0.0, (self.beta + np.sqrt(G)) / self.alpha, 0.0)

    def times(self, t: int) -> float:
        return float(t - 1) if self.charge == "every" else 1.0

    def dual(self) -> Floats:
        return self.z

    def weights(self, t: int) -> Floats:
        h = self.h(self.G)
        w = np.where(self.G > 0.0, self.lead(-self.z, h, self.times(t)), 0.0)
        return nearest_in_l2(w, h, self.radius) if self.ball == "l2" else w

    def learn(self, seen: Seen) -> None:
        w, before = self.weights(seen.t), self.h(self.G)
        self.G = self.G + (seen.g * seen.x) ** 2
        self.z = self.z + seen.g * seen.x - (self.h(self.G) - before) * w


class FTRLCentered(Regularized):
    """P3 section 5, end: eta_i = R / sqrt(G_max^2 + G), G_max = L max h |x_i|, this row's too."""

    shared, own, weighted_scale = ("M",), ("theta", "G"), True

    def __init__(self, d: int, radius: float = 1.0, L: float = 1.0, **phi: float) -> None:
        super().__init__(d, **phi)
        self.radius, self.L, self.M = radius, L or 1.0, np.zeros(d)

    def observe(self, t: int, x: Floats) -> None:
        self.M = np.maximum(self.M, np.abs(x))

    def weights(self, t: int) -> Floats:
        eta = oracles.ratio(np.full(self.d, self.radius), np.sqrt((self.L * self.M) ** 2 + self.G))
        return self.lead(self.theta, oracles.ratio(np.ones(self.d), eta), self.times(t))

    def learn(self, seen: Seen) -> None:
        self.theta = self.theta - seen.g * seen.x
        self.G = self.G + (seen.g * seen.x) ** 2


LEARNERS: dict[str, Any] = {
    "ogd": OGD,
    "da": DA,
    "rda": RDA,
    "composite": Composite,
    "ftrl_proximal": FTRLProximal,
    "ftrl_centered": FTRLCentered,
}
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "ogd": [
        {},
        {"schedule": "constant", "eta": 0.3, "ball": "box", "radius": 0.2},
        {"schedule": "inverse", "eta": 0.3, "ball": "l2", "radius": 0.3},
        {"eta": 1.0, "ball": "l2", "radius": 0.5},
        {"eta": 0.3, "ball": "l1", "radius": 0.5},
        {"eta": 0.3, "ball": "l1", "radius": 0.5, "project_every": 7},
        {"schedule": "adaptive", "eta": 0.3},
        {"schedule": "adaptive", "eta": 0.4 * math.sqrt(2.0), "ball": "l2", "radius": 0.4},
    ],
    "da": [
        {},
        {"schedule": "constant", "eta": 0.3},
        {"schedule": "inverse", "eta": 0.3},
        {"eta": 1.0, "ball": "l2", "radius": 0.4},
    ],
    "rda": [
        {},
        {"gamma": 0.5, "l1": 0.01},
        {"gamma": 0.5, "l1": 0.01, "l2": 0.1, "box": 0.2},
    ],
    "composite": [
        {},
        {"schedule": "constant", "l1": 0.01, "box": 0.2},
        {"schedule": "sqrt", "eta": 0.5, "l1": 0.01, "l2": 0.1},
        {"schedule": "strong", "l1": 0.01, "l2": 0.5},
    ],
    "ftrl_proximal": [
        {},
        {"alpha": 0.3, "beta": 0.0, "l1": 0.005},
        {"radius": 0.5, "box": 0.5},
        {"radius": 0.3, "l1": 1.0, "l2": 0.3, "box": 0.2, "charge": "once"},
        {"ball": "l2", "radius": 0.4},
    ],
    "ftrl_centered": [{}, {"radius": 0.3, "l1": 0.005, "l2": 0.1}, {"radius": 2.0, "L": 3.0}],
}
UNITS: dict[str, dict[str, tuple[str, int]]] = {
    "ogd": {"eta": ("square", -1)},
    "da": {"eta": ("square", -1)},
    "rda": {"gamma": ("square", 1)},
    "composite": {"eta": ("square", -1), "l2": ("square", 1)},
    "ftrl_proximal": {"alpha": ("total", -1), "radius": ("total", -1)},
    "ftrl_centered": {"radius": ("total", -1)},
}
"""Parameters in the units of the rows: by which power of the largest ||x||^2, or of the largest sum
of |x_i|, a parameter for rows of size 1 is to be multiplied.
"""
DERIVED: dict[str, tuple[str, ...]] = {
    "ogd": ("size", "fold"),
    "da": ("size",),
    "ftrl_proximal": ("size", "mu"),
}


def suited(rule: str, X: Floats, params: dict[str, Any]) -> dict[str, Any]:
    """Step sizes for rows of any units."""
    sizes = {"square": np.square(X).sum(axis=1).max(), "total": np.abs(X).sum(axis=1).max()}
    found = dict(params)
    for name, (size, power) in UNITS[rule].items():
        if name in found:
            found[name] *= float(sizes[size]) ** power
    return found
