"""Oracles of the learners with a full matrix: Vovk-Azoury-Warmuth, RLS, second-order Perceptron,
its aggressive form, AROW, CW, online Newton step.

As ``oracles``: literal, dense, slow. Whole matrices, in decimals of so many digits that their
inverses may be kept by Woodbury's formula, or lose 48 digits to the features' scales, without harm.
P0 is Orabona, Crammer & Cesa-Bianchi 2015.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from statistics import NormalDist
from typing import Any

import numpy as np
from oracles import Floats, Learner, Seen, slope_kink

DIGITS = 100


def exact(x: Any) -> Any:
    """The same numbers as decimals."""
    if np.ndim(x) == 0:
        return Decimal(float(x))
    return np.array([Decimal(float(value)) for value in x], dtype=object)


def rounded(x: Any) -> Floats:
    """Decimals as floats."""
    return np.array([float(value) for value in x])


def solved(A: Any, b: Any) -> Any:
    """A^-1 b of a positive matrix, by elimination."""
    A, b = A.copy(), b.copy()
    for i in range(len(b)):
        share = A[i + 1 :, i] / A[i, i]
        b[i + 1 :] = b[i + 1 :] - share * b[i]
        A[i + 1 :] = A[i + 1 :] - np.outer(share, A[i])
    for i in reversed(range(len(b))):
        b[i] = (b[i] - A[i, i + 1 :] @ b[i + 1 :]) / A[i, i]
    return b


class Full(Learner):
    """theta, and B = A^-1; A_0 = a I. A subclass says what is predicted and what is added."""

    own = ("mu",)
    digits = DIGITS

    def __init__(self, d: int, a: float = 1.0, limit: int = 4096) -> None:
        super().__init__(d)
        self.start = exact(a)
        self.theta, self.reach = exact(np.zeros(d)), exact(np.zeros(d))
        self.B = np.full((d, d), Decimal(0))
        with localcontext(prec=self.digits):
            self.B[np.arange(d), np.arange(d)] = 1 / self.start
        self.updates = self.lift = self.heaviest = 0.0

    @property
    def mu(self) -> Floats:
        with localcontext(prec=self.digits):
            return rounded(self.B @ self.theta)

    def weights(self, t: int) -> Floats:
        return self.mu

    def add(self, c: Any, x: Any) -> None:
        """A += c x x'."""
        v = self.B @ x
        self.B = self.B - np.outer(v, v) * (c / (1 + c * (x @ v)))

    def predict(self, t: int, x: Floats) -> tuple[float, float]:
        with localcontext(prec=self.digits):
            z = exact(x)
            mu = self.B @ self.theta
            share = self.share(z)
            return float(mu @ z * share), self.terms(mu, z) * float(share)

    def terms(self, mu: Any, x: Any) -> float:
        """sum_i |mu_i x_i|, mu_i its largest so far: what rounding in a running sum goes by."""
        self.reach = np.maximum(self.reach, np.abs(mu))
        return float(self.reach @ np.abs(x))

    def share(self, x: Any) -> Any:
        """What the prediction is times <mu, x>: 1, or <theta, A_t^-1 x> / <theta, A_(t-1)^-1 x>."""
        return Decimal(1)

    def learn(self, seen: Seen) -> None:
        with localcontext(prec=self.digits):
            x, y, h = exact(seen.x), exact(seen.y), exact(seen.h)
            self.absorb(x, y, h, x @ self.B @ self.theta, x @ self.B @ x, seen)

    def absorb(self, x: Any, y: Any, h: Any, m: Any, chi: Any, seen: Seen) -> None:
        raise NotImplementedError


class VAW(Full):
    """P0 section 4: A_t = A_(t-1) + x x' before predicting, yhat = <theta, A_t^-1 x>; A keeps h
    times that.
    """

    totals = ("cost", "Y", "extra")
    cost = Y = extra = 0.0

    def share(self, x: Any) -> Any:
        return 1 / (1 + x @ self.B @ x)

    def absorb(self, x: Any, y: Any, h: Any, m: Any, chi: Any, seen: Seen) -> None:
        plain, best = m / (1 + chi), m / (1 + h * chi)
        self.extra += float(h * ((y - plain) ** 2 - (y - best) ** 2) / 2)
        self.add(h, x)
        self.theta = self.theta + h * y * x
        self.cost += float(h * h * y * y * (x @ self.B @ x))
        self.Y = max(self.Y, float(h * y * y))

    def kink(self, loss: str, seen: Seen) -> float:
        return math.inf


class RLS(Full):
    """w = A^-1 theta; A += h x x', theta += h y x."""

    totals = ("error",)
    error = 0.0

    def absorb(self, x: Any, y: Any, h: Any, m: Any, chi: Any, seen: Seen) -> None:
        self.error += float(h * (y - m) ** 2 / (1 + h * chi))
        self.add(h, x)
        self.theta = self.theta + h * y * x

    def kink(self, loss: str, seen: Seen) -> float:
        return math.inf


class Aggressive(Full):
    """P0 section 6.2: yhat = <theta, (A + x x'/r)^-1 x>; where y yhat < 1, A += h x x'/r and
    theta += h y x, or h y x / r.
    """

    totals = ("updates", "lift", "heaviest")

    def __init__(self, d: int, r: float = 1.0, scale: str = "unit", limit: int = 4096) -> None:
        super().__init__(d)
        self.r, self.unit = exact(r), exact(1.0 if scale == "unit" else r)

    def share(self, x: Any) -> Any:
        return self.r / (self.r + x @ self.B @ x)

    def wanted(self, seen: Seen) -> bool:
        return seen.y * seen.p < 1.0

    def kept(self, h: Any) -> Any:
        """How many times A keeps x x'/r."""
        return h

    def absorb(self, x: Any, y: Any, h: Any, m: Any, chi: Any, seen: Seen) -> None:
        if not self.wanted(seen) or seen.h == 0.0:
            return
        n = m * self.unit / self.r
        more = self.kept(h)
        self.lift += float(self.r * n * (2 * h * y - more * n) / (self.r + more * chi))
        self.updates += seen.h
        self.heaviest = max(self.heaviest, seen.h)
        self.add(more / self.r, x)
        self.theta = self.theta + h * y * x / self.unit

    def kink(self, loss: str, seen: Seen) -> float:
        return abs(1.0 - seen.y * seen.p) / max(1.0, seen.scale)


class SOP(Aggressive):
    """The same for r = 1, after mistakes only: y yhat <= 0."""

    def __init__(self, d: int, limit: int = 4096) -> None:
        super().__init__(d)

    def wanted(self, seen: Seen) -> bool:
        return seen.y * seen.p <= 0.0

    def kept(self, h: Any) -> Any:
        return Decimal(1)

    def kink(self, loss: str, seen: Seen) -> float:
        return abs(seen.p) / seen.scale if seen.scale > 0.0 else math.inf


class AROW(Full):
    """Crammer et al. 2009: where y m < 1, mu += beta (1 - y m) y Sigma x and
    Sigma -= beta Sigma x x' Sigma, beta = 1 / (chi + r / h).
    """

    totals = ("updates", "lift", "heaviest")

    def __init__(self, d: int, r: float = 1.0, limit: int = 4096) -> None:
        super().__init__(d)
        self.r, self.mean = exact(r), exact(np.zeros(d))

    @property
    def mu(self) -> Floats:
        return rounded(self.mean)

    def predict(self, t: int, x: Floats) -> tuple[float, float]:
        with localcontext(prec=self.digits):
            z = exact(x)
            return float(self.mean @ z), self.terms(self.mean, z)

    def learn(self, seen: Seen) -> None:
        with localcontext(prec=self.digits):
            x, y, h = exact(seen.x), exact(seen.y), exact(seen.h)
            m, v = self.mean @ x, self.B @ x
            if y * m < 1 and h > 0:
                chi, r = x @ v, self.r / h
                beta = 1 / (chi + r)
                self.lift += float(h * r * h * m * (2 * y - m) / (h * r + h * chi))
                self.updates += seen.h
                self.heaviest = max(self.heaviest, seen.h)
                self.mean = self.mean + beta * (1 - y * m) * y * v
                self.B = self.B - np.outer(v, v) * beta

    def kink(self, loss: str, seen: Seen) -> float:
        return abs(1.0 - seen.y * seen.p) / max(1.0, seen.scale)


class CW(AROW):
    """Where M < phi sqrt(V), or phi V: the closed forms as their papers print them."""

    totals = ("phi",)
    digits = 300

    def __init__(
        self,
        d: int,
        confidence: float = 0.65,
        a: float = 1.0,
        form: str = "stdev",
        limit: int = 4096,
    ) -> None:
        super().__init__(d)
        self.phi, self.form = NormalDist().inv_cdf(confidence), form
        self.B = self.B * exact(a)

    def learn(self, seen: Seen) -> None:
        with localcontext(prec=self.digits):
            x, y, phi = exact(seen.x), exact(seen.y), exact(self.phi)
            v = self.B @ x
            M, V = y * (self.mean @ x), x @ v
            if seen.h == 0.0 or V == 0:
                return
            if self.form == "stdev":
                if not phi * V.sqrt() > M:
                    return
                psi, zeta = 1 + phi**2 / 2, 1 + phi**2
                alpha = (-M * psi + (M**2 * phi**4 / 4 + V * phi**2 * zeta).sqrt()) / (V * zeta)
                rho = (-alpha * V * phi + (alpha**2 * V**2 * phi**2 + 4 * V).sqrt()) / 2
                c = alpha * phi / rho
            else:
                if not phi * V > M:
                    return
                b = 1 + 2 * phi * M
                alpha = (-b + (b**2 - 8 * phi * (M - phi * V)).sqrt()) / (4 * phi * V)
                c = 2 * alpha * phi
            self.mean = self.mean + alpha * y * v
            c = min(c, Decimal(10) ** 100)
            self.B = self.B - np.outer(v, v) * (c / (1 + c * V))

    def kink(self, loss: str, seen: Seen) -> float:
        """Where the condition holds with equality the step is 0."""
        return math.inf


class ONS(AROW):
    """A += (g x)(g x)', w -= A^-1 g x / gamma, then the nearest w of the ball in A's norm."""

    own, totals = (), ("cost", "steepest", "widest", "heaviest")
    cost = steepest = widest = 0.0

    def __init__(
        self,
        d: int,
        epsilon: float = 100.0,
        gamma: float = 0.1,
        ball: str = "none",
        radius: float = 0.0,
        implicit: bool = False,
        limit: int = 4096,
    ) -> None:
        super().__init__(d)
        self.gamma, self.radius = exact(gamma), exact(radius if ball == "l2" else math.inf)
        self.B = self.B / exact(epsilon)

    @property
    def w(self) -> Floats:
        return rounded(self.mean)

    @w.setter
    def w(self, value: Floats) -> None:
        """The base class starts it; the mean stands for it."""

    def learn(self, seen: Seen) -> None:
        if seen.h == 0.0:
            return
        with localcontext(prec=self.digits):
            x, g = exact(seen.x), exact(seen.g)
            self.add(g * g, x)
            v = self.B @ x
            self.mean = self.mean - g / self.gamma * v
            if self.mean @ self.mean > self.radius**2:
                self.mean = self.nearest()
            self.cost += float(g * g * (x @ v))
        self.steepest = max(self.steepest, seen.g**2 / seen.h)
        self.widest = max(self.widest, abs(seen.p))
        self.heaviest = max(self.heaviest, seen.h)

    def nearest(self) -> Any:
        """(I + mu B)^-1 w of length radius; mu by numpy's bisection, then Newton's steps."""
        values, vectors = np.linalg.eigh(self.B.astype(float))
        w, radius = vectors.T @ rounded(self.mean), float(self.radius)
        low, high = 0.0, 1.0
        while np.linalg.norm(w / (1.0 + high * values)) > radius:
            high *= 2.0
        for _ in range(60):
            mu = (low + high) / 2.0
            outside = np.linalg.norm(w / (1.0 + mu * values)) > radius
            low, high = (mu, high) if outside else (low, mu)
        mu, one = exact(low), np.diag(np.full(len(w), Decimal(1)))
        for _ in range(2):
            u = solved(one + mu * self.B, self.mean)
            v = solved(one + mu * self.B, self.B @ u)
            length = (u @ u).sqrt()
            mu = mu + (length / self.radius - 1) * length**2 / (u @ v)
        return solved(one + mu * self.B, self.mean)

    def kink(self, loss: str, seen: Seen) -> float:
        return slope_kink(loss, seen)


LEARNERS = {
    "vaw": VAW, "rls": RLS, "sop": SOP, "aggressive_second_order": Aggressive, "arow": AROW,
    "cw": CW, "ons": ONS,
}  # fmt: skip
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "vaw": [{}, {"a": 0.1}],
    "rls": [{}, {"a": 0.1}],
    "sop": [{}],
    "aggressive_second_order": [{}, {"r": 0.3, "scale": "arow"}],
    "arow": [{}, {"r": 0.3}],
    "cw": [{}, {"confidence": 0.8, "a": 0.3, "form": "variance"}],
    "ons": [{}, {"epsilon": 0.1, "gamma": 0.5, "ball": "l2", "radius": 0.7}],
}
DERIVED: dict[str, tuple[str, ...]] = {"ons": ("w",)}
