"""Oracles of AdaGrad (regularized, or in a ball), projected NAG and the scale-invariant rules.

As ``oracles``: literal, dense, slow. P0 is Orabona, Crammer & Cesa-Bianchi 2015, P1 Ross, Mineiro
& Langford 2013, P4 Duchi, Hazan & Singer 2011. Every round is done to every coordinate at once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from oracles import NAG, NG, SNAG, Floats, Learner, Seen, ratio


def prox(v: Floats, h: Floats, k: float, l1: float, l2: float, box: float) -> Floats:
    """argmin of h (w - v)^2 / 2 + k (l1 |w| + l2 w^2 / 2), |w| <= box; 0 where h = 0."""
    w = np.sign(v) * np.maximum(np.abs(v) - ratio(k * l1 * np.ones_like(h), h), 0.0)
    w = w / (1.0 + ratio(k * l2 * np.ones_like(h), h))
    return np.where(h > 0.0, np.clip(w, -box, box) if box else w, 0.0)


def nearest_l1(v: Floats, H: Floats, s: Floats, C: float) -> Floats:
    """argmin of sum H_i (w_i - v_i)^2 over sum s_i |w_i| <= C: by sorting."""
    if math.fsum(s * np.abs(v)) <= C:
        return v
    at = np.flatnonzero(H * s > 0.0)
    a, weigh, scale = np.abs(v[at]), H[at], s[at]
    fall = np.argsort(-(weigh * a / scale))
    rho = (weigh * a / scale)[fall]
    mu = (np.cumsum((scale * a)[fall]) - C) / np.cumsum((scale**2 / weigh)[fall])
    w = np.zeros_like(v)
    w[at] = np.sign(v[at]) * np.maximum(a - mu[np.flatnonzero(rho > mu)[-1]] * scale / weigh, 0.0)
    return w


def nearest_l2(v: Floats, H: Floats, s: Floats, C: float) -> Floats:
    """argmin of sum H_i (w_i - v_i)^2 over sum (s_i w_i)^2 <= C^2: mu by halving."""
    if math.fsum((s * v) ** 2) <= C**2:
        return v

    def at(mu: float) -> Floats:
        return v * ratio(H, H + mu * s**2)

    low, high = 0.0, 1.0
    while math.fsum((s * at(high)) ** 2) > C**2:
        low, high = high, 2.0 * high
    for _ in range(200):
        middle = (low + high) / 2.0
        if middle in (low, high):  # no number lies between
            break
        if math.fsum((s * at(middle)) ** 2) > C**2:
            low = middle
        else:
            high = middle
    return at(high)


NEAREST = {"l1": nearest_l1, "l2": nearest_l2}


def nearest_lq(v: Floats, H: Floats, s: Floats, C: float, q: float) -> Floats:
    """argmin of sum H_i (w_i - v_i)^2 over sum (s_i |w_i|)^q <= C^q: by the multiplier of the
    constraint, and of each coordinate H (|v| - w) = mu s^q w^(q - 1), both by cutting intervals."""
    if math.fsum(s * np.abs(v)) == 0.0 or np.linalg.norm(s * v, q) <= C:
        return v

    def at(mu: Floats) -> Floats:
        """The nearest for each multiplier, in a row of its own."""
        low, high = np.zeros((len(mu), len(v))), np.tile(np.abs(v), (len(mu), 1))
        force = mu[:, None] * s
        for _ in range(200):
            middle = (low + high) / 2.0
            if np.all((middle == low) | (middle == high)):  # no number lies between
                break
            over = H * (np.abs(v) - middle) < force * (s * middle) ** (q - 1.0)
            low, high = np.where(over, low, middle), np.where(over, middle, high)
        return np.sign(v) * high

    def outside(mu: Floats) -> Any:
        return np.linalg.norm(s * at(mu), q, axis=1) > C

    low, high = 0.0, 1.0
    while outside(np.array([high]))[0]:
        low, high = high, 2.0 * high
    for _ in range(11):  # 32 ** 11 is 2 ** 55
        edges = np.linspace(low, high, 33)
        last = np.count_nonzero(outside(edges[1:-1]))
        low, high = edges[last], edges[last + 1]
    return at(np.array([high]))[0]


class AdaGrad(Learner):
    """P4 eq. 6, on all coordinates every round: G_i += (g x_i)^2, H = delta + sqrt(G),
    w <- argmin of eta g <x, w> + sum H_i (w_i - w_{t,i})^2 / 2 + eta phi(w).

    ``seen`` is the last round that changed G, ``w`` the weight as of then, or as last projected.
    """

    own = ("w", "G", "seen")

    def __init__(
        self,
        d: int,
        eta: float = 0.5,
        delta: float = 0.0,
        l1: float = 0.0,
        l2: float = 0.0,
        box: float = 0.0,
        ball: str = "none",
        radius: float = 0.0,
        project_every: int = 1,
        implicit: bool = False,
    ) -> None:
        super().__init__(d, eta=eta, delta=delta)
        self.phi, self.ball, self.radius = (l1, l2, box), ball, radius
        self.every, self.seen, self.now = project_every, np.zeros(d), np.zeros(d)

    def weights(self, t: int) -> Floats:
        return self.now

    def learn(self, seen: Seen) -> None:
        z = seen.g * seen.x
        self.G = self.G + z**2
        H = self.delta + np.sqrt(self.G)
        w = prox(self.now - self.eta * ratio(z, H), H, self.eta, *self.phi)
        if self.ball != "none" and seen.t % self.every == 0:
            w = NEAREST[self.ball](w, H, np.ones_like(w), self.radius)
        moved = z != 0.0
        self.seen = np.where(moved, float(seen.t), self.seen)
        self.w = np.where(moved | (self.ball != "none"), w, self.w)
        self.now = w


class AdaGradDA(Learner):
    """P4 eq. 5: w = argmin of -eta <theta, w> + sum H_i w_i^2 / 2 + eta T phi(w).

    H_i = delta + sqrt(G_i), or L max h |x_i| + sqrt(G_i) with this row's where delta = 0.
    """

    shared, own, weighted_scale = ("b",), ("theta", "G"), True

    def __init__(
        self,
        d: int,
        eta: float = 0.5,
        delta: float = 0.0,
        L: float = 0.0,
        l1: float = 0.0,
        l2: float = 0.0,
        box: float = 0.0,
        ball: str = "none",
        radius: float = 0.0,
        project_every: int = 1,
        implicit: bool = False,
    ) -> None:
        super().__init__(d, eta=eta, delta=delta)
        self.L, self.phi, self.ball, self.radius = L, (l1, l2, box), ball, radius
        self.b = np.zeros(d)

    def observe(self, t: int, x: Floats) -> None:
        self.b = np.maximum(self.b, np.abs(x))

    def weights(self, t: int) -> Floats:
        H = (self.delta if self.delta else self.L * self.b) + np.sqrt(self.G)
        free = self.eta * ratio(self.theta, H)
        if self.ball != "none":
            return NEAREST[self.ball](free, H, np.ones_like(free), self.radius)
        return prox(free, H, self.eta * (t - 1), *self.phi)

    def learn(self, seen: Seen) -> None:
        self.theta = self.theta - seen.g * seen.x
        self.G = self.G + (seen.g * seen.x) ** 2


class NAGProjected(Learner):
    """P1 theorem 2: A_i = sqrt(G_i) s_i / (C sqrt 2), w <- the nearest in A to w - g x / A."""

    shared, own = ("s",), ("w", "G")

    def __init__(
        self, d: int, C: float = 1.0, passes: int = 1, norm: str = "l1", clip: bool = False,
        project_every: int = 1, p: float = 4.0,
    ) -> None:  # fmt: skip
        super().__init__(d, C=C)
        self.norm, self.clip, self.every, self.q = norm, clip, project_every, p / (p - 1.0)

    def predict(self, t: int, x: Floats) -> tuple[float, float]:
        p, scale = super().predict(t, x)
        return (min(max(p, -self.C), self.C) if self.clip else p), scale

    def observe(self, t: int, x: Floats) -> None:
        self.s = np.maximum(self.s, np.abs(x))

    def learn(self, seen: Seen) -> None:
        self.G = self.G + (seen.g * seen.x) ** 2
        A = np.sqrt(self.G) * self.s / (self.C * math.sqrt(2.0))
        v = self.w - ratio(seen.g * seen.x, A)
        if seen.t % self.every != 0:
            self.w = v
        elif self.norm == "lq":
            self.w = nearest_lq(v, A, self.s, self.C, self.q)
        else:
            self.w = NEAREST[self.norm](v, A, self.s, self.C)


class SIPNorm(Learner):
    """P0 eq. 12; w is the gradient of its conjugate, eq. 14 without the factor 1 / (p - 1)."""

    shared, own, totals = ("b",), ("theta",), ("m", "B")

    def __init__(self, d: int, eta: float = 1.0, L: float = 0.0) -> None:
        super().__init__(d, eta=eta)
        self.L, self.b, self.m, self.p, self.B, self.beta = L, np.zeros(d), 0.0, 2.0, 0.0, 0.0

    def observe(self, t: int, x: Floats) -> None:
        self.b = np.maximum(self.b, np.abs(x))
        self.m = max(self.m, float(np.count_nonzero(x)))
        self.p = max(2.0, 2.0 * math.log(max(self.m, 1.0)))
        self.beta = math.sqrt(math.e * self.L**2 * (self.p - 1.0) + self.B)

    def weights(self, t: int) -> Floats:
        r = ratio(np.abs(self.theta), self.b)
        top = float(r.max())
        if top == 0.0:
            return np.zeros_like(r)
        powers = math.fsum((r / top) ** self.p) ** (2.0 / self.p - 1.0)
        w = np.sign(self.theta) * (r / top) ** (self.p - 1.0) * top * powers
        return ratio(w, self.beta * self.b)

    def learn(self, seen: Seen) -> None:
        z = np.abs(ratio(seen.g * seen.x, self.b))
        top = float(z.max())
        if top > 0.0:
            norm = top * math.fsum((z / top) ** self.p) ** (1.0 / self.p)
            self.B += (self.p - 1.0) * norm**2
        self.theta = self.theta - self.eta * seen.g * seen.x


class SIAdaGrad(Learner):
    """P0 eq. 13 and 15."""

    shared, own = ("b",), ("theta", "Q")

    def __init__(self, d: int, eta: float = 1.0, L: float = 0.0) -> None:
        super().__init__(d, eta=eta)
        self.d, self.L, self.b, self.Q = d, L, np.zeros(d), np.zeros(d)

    def observe(self, t: int, x: Floats) -> None:
        self.b = np.maximum(self.b, np.abs(x))

    def weights(self, t: int) -> Floats:
        pace = math.sqrt(self.d) * np.sqrt(self.L**2 + self.Q)
        return ratio(ratio(self.theta, self.b), self.b * pace)

    def learn(self, seen: Seen) -> None:
        self.Q = self.Q + ratio(seen.g * seen.x, self.b) ** 2
        self.theta = self.theta - self.eta * seen.g * seen.x


def explicit(base: type[Learner]) -> Any:
    """The oracle of P1 without implicit steps, which have tests of their own."""

    def make(d: int, implicit: bool = False, eta: float = 0.5, **more: Any) -> Learner:
        return base(d, eta=eta, **more)

    return make


LEARNERS: dict[str, Any] = {
    "ng": explicit(NG), "nag": explicit(NAG), "snag": explicit(SNAG),
    "adagrad": AdaGrad, "adagrad_da": AdaGradDA, "nag_projected": NAGProjected,
    "si_pnorm": SIPNorm, "si_adagrad": SIAdaGrad,
}  # fmt: skip
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "adagrad": [
        {},
        {"eta": 0.3, "delta": 0.7},
        {"l1": 0.003},
        {"l2": 0.05},
        {"l1": 0.002, "l2": 0.05, "box": 0.3},
        {"box": 0.2, "delta": 0.1},
        {"ball": "l1", "radius": 0.8},
        {"ball": "l2", "radius": 0.5},
        {"ball": "l1", "radius": 0.8, "project_every": 3},
    ],
    "adagrad_da": [
        {},
        {"eta": 0.3, "delta": 0.7},
        {"l1": 0.01},
        {"l2": 0.05},
        {"l1": 0.01, "l2": 0.05, "box": 0.3},
        {"ball": "l1", "radius": 0.8, "delta": 0.5},
        {"ball": "l2", "radius": 0.5, "delta": 0.5},
    ],
    "nag_projected": [
        {},
        {"C": 4.0},
        {"norm": "l2"},
        {"norm": "lq", "C": 0.5, "p": 3.0},
        {"C": 0.5, "clip": True},
        {"project_every": 3},
    ],
    "si_pnorm": [{}, {"eta": 3.0}, {"L": 2.0}],
    "si_adagrad": [{}, {"eta": 5.0}, {"L": 2.0}],
}
DERIVED = {
    "adagrad": ("size",),
    "adagrad_da": ("size", "mu"),
    "nag_projected": ("size",),
    "si_pnorm": ("ahead", "rp", "sum", "scale", "p", "p_of_rp", "beta", "paid", "steepest"),
    "si_adagrad": ("root", "steepest"),
}
