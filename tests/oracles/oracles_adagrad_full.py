"""Oracle of AdaGrad in full, P4 (Duchi, Hazan & Singer 2011): roots of all gradients so far."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from oracles import Floats, Learner, Seen


class AdaGradFull(Learner):
    """P4 sections 1.1 and 4: S = (sum g g')^(1/2) by singular values of all gradients so far,
    H = delta I + S, phi = l1 |w|_1 + l2 |w|^2 / 2 in a box; no inverse where H is singular. With a
    ball, the argmin over |w| <= radius instead (section 1.2: radius sqrt d).
    """

    own = ("theta",)
    totals = ("longest",)
    longest = longest_w = 0.0

    def __init__(
        self,
        d: int,
        update: str = "mirror",
        eta: float = 0.5,
        delta: float = 0.0,
        l1: float = 0.0,
        l2: float = 0.0,
        box: float = 0.0,
        ball: str = "none",
        radius: float = 0.0,
        every: int = 1,
        implicit: bool = False,
        limit: int = 1024,
    ) -> None:
        super().__init__(d, eta=eta, delta=delta)
        self.dual, self.l1, self.l2, self.box, self.every = update == "dual", l1, l2, box, every
        self.ball, self.radius = ball, radius
        self.gradients: list[Floats] = []
        self.H = delta * np.eye(d)

    def predict(self, t: int, x: Floats) -> tuple[float, float]:
        """The yardstick is |w| |x|, the largest w so far: a root mixes all coordinates."""
        self.longest_w = max(self.longest_w, float(np.linalg.norm(self.w)))
        return math.fsum(self.w * x), self.longest_w * float(np.linalg.norm(x))

    def learn(self, seen: Seen) -> None:
        z = seen.g * seen.x
        self.gradients.append(z)
        self.theta = self.theta - z
        self.longest = max(self.longest, float(z @ z))
        if (seen.t - 1) % self.every == 0:
            _, s, V = np.linalg.svd(np.array(self.gradients), full_matrices=False)
            kept = s > 1e-13 * s.max(initial=0.0)
            self.H = self.delta * np.eye(len(z)) + (V[kept].T * s[kept]) @ V[kept]
        k = self.eta * seen.t if self.dual else self.eta
        c = self.eta * self.theta if self.dual else self.H @ self.w - self.eta * z
        if self.l1 or self.box:
            self.w = least(self.H + k * self.l2 * np.eye(len(z)), c, k * self.l1, self.box, self.w)
        else:
            A = self.H + k * self.l2 * np.eye(len(z))
            change = c if self.dual else -self.eta * z - k * self.l2 * self.w
            step = np.linalg.pinv(A, rcond=1e-13, hermitian=True) @ change
            self.w = step if self.dual else self.w + step
        if self.ball == "l2" and np.linalg.norm(self.w) > self.radius:
            self.w = nearest(self.w, self.H, self.radius)


def least(H: Floats, c: Floats, k: float, box: float, w: Floats) -> Floats:
    """argmin of w'Hw / 2 - c'w + k |w|_1, |w_i| <= box (0: any): which weights are free is found
    by coordinate descent, their values by a linear system.
    """
    w = w.copy()
    for _ in range(300):
        before = w.copy()
        for j in np.flatnonzero(np.diagonal(H) > 0.0):
            pull = c[j] - H[j] @ w + H[j, j] * w[j]
            v = np.sign(pull) * max(abs(pull) - k, 0.0) / H[j, j]
            w[j] = np.clip(v, -box, box) if box else v
        if np.array_equal(w, before):  # so is each sweep from here on
            break
    free = (w != 0.0) & ((np.abs(w) < box) if box else True)
    held = np.where(free, 0.0, w)
    right = (c - k * np.sign(w) - H @ held)[free]
    w[free] = np.linalg.pinv(H[np.ix_(free, free)], rcond=1e-13, hermitian=True) @ right
    return w


def nearest(v: Floats, H: Floats, radius: float) -> Floats:
    """argmin of (w - v)'H(w - v) over |w| <= radius: (H + mu I) w = H v, mu by halving."""
    s, U = np.linalg.eigh(H)
    c = U.T @ v

    def at(mu: float) -> Floats:
        return c * s / (s + mu)

    low, high = 0.0, 1.0
    while np.linalg.norm(at(high)) > radius:
        low, high = high, 2.0 * high
    for _ in range(200):
        middle = (low + high) / 2.0
        if middle in (low, high):  # no number lies between
            break
        outside = np.linalg.norm(at(middle)) > radius
        low, high = (middle, high) if outside else (low, middle)
    return U @ at(high)


LEARNERS = {"adagrad_full": AdaGradFull}
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "adagrad_full": [
        # With delta = 0, scales of 1e-12 and 1e12 need more digits: see test_second_order.
        {"delta": 1.0},
        {"delta": 0.001},
        {"update": "dual", "eta": 0.3, "delta": 1.0},
        {"delta": 0.5, "l2": 0.1, "every": 3},
        {"update": "dual", "delta": 0.01, "l2": 0.01},
        {"delta": 0.5, "l1": 0.05, "l2": 0.05, "box": 0.3},
        {"update": "dual", "delta": 0.5, "l1": 0.02},
        {"delta": 0.5, "ball": "l2", "radius": 0.3},
        {"update": "dual", "delta": 1.0, "ball": "l2", "radius": 0.3},
    ],
}
DERIVED: dict[str, tuple[str, ...]] = {"adagrad_full": ("w",)}
