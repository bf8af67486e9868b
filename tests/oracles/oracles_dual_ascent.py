"""Oracles of last-k dual ascent and the online SVM: P2, equation 31, with every row kept."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from oracles import Floats, Learner, Seen, walk
from oracles_first_order import eg_link, pnorm_link, winnow_link


class DualAscent(Learner):
    """D(alpha) = sum alpha - |sum alpha y x|^2 / 2, maximised over the last k multipliers.

    k = 2: the stationary point of the two if it is in the square, else the best of the four points
    with one multiplier at an end. Else: one multiplier after another, newest first, until none
    moves by more than tolerance C.
    """

    own, totals = (), ("D",)  # theta is a sum that cancels: the margins tell of it

    def __init__(self, d: int, k: float = 2, C: float = 1.0, tolerance: float = 1e-10, **_: Any):
        super().__init__(d)
        self.k, self.C, self.tolerance = int(k), C, tolerance
        self.z: list[Floats] = []  # y x of every row
        self.caps: list[float] = []
        self.alpha: list[float] = []
        self.D = 0.0

    def weights(self, t: int) -> Floats:
        return self.theta

    def predict(self, t: int, x: Floats) -> tuple[float, float]:
        """Measured against all that was ever added into the prediction."""
        return math.fsum(self.theta * x), math.fsum(self.reach * np.abs(x))

    def learn(self, seen: Seen) -> None:
        before = np.array([*self.alpha, 0.0])
        self.z.append(seen.y * seen.x)
        self.caps.append(self.C * seen.h)
        self.alpha.append(0.0)
        if seen.h == 0.0:
            return
        free = list(range(max(0, len(self.z) - self.k), len(self.z)))
        if len(free) == 2 and self.k == 2:
            self.pair(*free)
        else:
            self.sweeps(free[::-1])
        whole = np.array(self.alpha) @ np.array(self.z)
        self.theta = whole
        self.reach += np.abs(np.array(self.alpha) - before) @ np.abs(self.z)
        self.D = math.fsum(self.alpha) - whole @ whole / 2.0

    def sweeps(self, free: list[int]) -> None:
        """Coordinate ascent."""
        for _ in range(1000):
            moved = 0.0
            for j in free:
                z, cap = self.z[j], self.caps[j]
                gap = 1.0 - z @ (np.array(self.alpha) @ np.array(self.z))
                square = z @ z
                aim = self.alpha[j] + gap / square if square > 0.0 else math.copysign(math.inf, gap)
                new = min(max(aim, 0.0), cap)
                if new != self.alpha[j]:
                    moved = max(moved, abs(new - self.alpha[j]) / cap)
                self.alpha[j] = new
            if len(free) == 1 or moved <= self.tolerance:
                return

    def pair(self, i: int, j: int) -> None:
        """Exactly, for two."""
        others = np.array(self.alpha)
        others[[i, j]] = 0.0
        base = others @ np.array(self.z)
        Z = np.array([self.z[i], self.z[j]])
        K, b = Z @ Z.T, 1.0 - Z @ base
        caps = np.array([self.caps[i], self.caps[j]])

        def best(n: int, other: float) -> float:
            gap = b[n] - K[0, 1] * other
            if K[n, n] > 0.0:
                return float(min(max(gap / K[n, n], 0.0), caps[n]))
            return float(caps[n]) if gap > 0.0 else 0.0

        found = [np.array([a, best(1, a)]) for a in (0.0, caps[0])]
        found += [np.array([best(0, a), a]) for a in (0.0, caps[1])]
        if np.linalg.det(K) > 1e-12 * K[0, 0] * K[1, 1]:
            point = np.linalg.solve(K, b)
            if np.all((point >= 0.0) & (point <= caps)):
                found = [point]
        values = [point @ b - point @ K @ point / 2.0 for point in found]
        at = 0
        for n, value in enumerate(values):  # equal but for rounding: the first
            at = n if value > values[at] + 1e-12 * abs(values[at]) else at
        self.alpha[i], self.alpha[j] = found[at]

    def kink(self, loss: str, seen: Seen) -> float:
        return math.inf  # a clipped maximum moves continuously


def curvature(link: str, x: Floats, U: float, p: float) -> float:
    """A bound on <x, H x>, H the Hessian of f* anywhere (P2, section 4 and corollary 1)."""
    if link == "pnorm":
        return (p - 1.0) * float(np.linalg.norm(x, p)) ** 2
    return (U if link == "eg" else 1.0) * float(np.abs(x).max(initial=0.0)) ** 2


class LinkedAscent(DualAscent):
    """D(alpha) = sum alpha - f*(theta), w = grad f*(theta), for each other link: steps of the gap
    over a bound on the curvature, newest first, until none moves by more than tolerance C."""

    own, totals = (), ("alphas",)

    def __init__(
        self, d: int, k: float = 2, C: float = 1.0, tolerance: float = 1e-10, link: str = "l2",
        U: float = 10.0, p: float = 4.0,
    ) -> None:  # fmt: skip
        super().__init__(d, k, C, tolerance)
        self.link, self.U, self.p, self.alphas = link, U, p, 0.0

    def gradient(self, theta: Floats) -> Floats:
        match self.link:
            case "winnow":
                return winnow_link(theta)
            case "eg":
                return eg_link(theta, self.U)
        return pnorm_link(theta, self.p)

    def weights(self, t: int) -> Floats:
        return self.gradient(self.theta)

    def predict(self, t: int, x: Floats) -> tuple[float, float]:
        products = self.weights(t) * x
        return math.fsum(products), math.fsum(np.abs(products))

    def learn(self, seen: Seen) -> None:
        self.z.append(seen.y * seen.x)
        self.caps.append(self.C * seen.h)
        self.alpha.append(0.0)
        if seen.h == 0.0:
            return
        for _ in range(1000):
            moved = 0.0
            for j in range(len(self.z) - 1, max(0, len(self.z) - self.k) - 1, -1):
                z, kappa = self.z[j], curvature(self.link, self.z[j], self.U, self.p)
                gap = 1.0 - z @ self.gradient(self.theta)
                aim = self.alpha[j] + gap / kappa if kappa > 0.0 else math.copysign(math.inf, gap)
                new = min(max(aim, 0.0), self.caps[j])
                if new != self.alpha[j]:
                    moved = max(moved, abs(new - self.alpha[j]) / self.caps[j])
                self.alpha[j] = new
                self.theta = np.array(self.alpha) @ np.array(self.z)
            if moved <= self.tolerance:
                break
        self.alphas = math.fsum(self.alpha)


def dual_ascent(d: int, rows: Any, **params: Any) -> dict[str, Floats]:
    """Last-k dual ascent, with l2 exactly."""
    if params.get("link", "l2") == "l2":
        plain = {name: one for name, one in params.items() if name not in ("link", "U", "p")}
        return walk(DualAscent, d, rows, **plain)
    return walk(LinkedAscent, d, rows, **params)


class OnlineSVM(DualAscent):
    """All rows' multipliers, at every row."""

    def __init__(self, d: int, C: float = 1.0, tolerance: float = 1e-3, most: float = 20_000):
        super().__init__(d, most, C, tolerance)


LEARNERS = {"dual_ascent": DualAscent, "online_svm": OnlineSVM}
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "dual_ascent": [
        {},
        {"k": 1},
        {"k": 2, "C": 0.05},
        {"k": 5, "C": 0.2, "tolerance": 1e-4},
        {"link": "pnorm", "k": 1, "p": 3.0, "C": 0.5, "tolerance": 1e-4},
        {"link": "winnow", "k": 3, "C": 0.5, "tolerance": 1e-4},
        {"link": "eg", "k": 2, "C": 0.1, "U": 2.0, "tolerance": 1e-4},
    ],
    "online_svm": [{"C": 0.05, "tolerance": 0.05}],
}
LINKED = ("a", "b", "S", "ref", "n", "alphas", "D")  # of one form or the other
DERIVED = {"dual_ascent": ("theta", *LINKED), "online_svm": ("theta",)}
