"""Oracle of what a saved ``auto`` predicts with: the mixture chosen by frozen predictions.

Weights of B and G are copied at rows fixed by the rows alone, and later rows are predicted by the
newest copy; of the square loss by the copy before it. On these predictions a chain of scalars is
fitted, and the saved model is one linear model made of it. Literal and slow; ``Auto`` is the oracle
of the learner.

Log losses: th scales B's block and the rest of B, w mixes in G, u the frequencies of the classes.
The square loss has w alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from auto import NONE, Auto, Floats, Linear, Sparse, one_hot, ratio, sigmoid, softmax


class Copy(NamedTuple):
    """B's block, B outside of it, and G, in raw units; the bounds of predicted numbers."""

    block: Linear
    outside: Linear
    G: Linear
    low: float
    high: float


def parts(model: Auto) -> tuple[Linear, Linear, Linear]:
    """The three linear models whose sums with coefficients are predictions; c_y is in the first
    and the third."""
    inverse = ratio(np.ones(model.D), model.s)
    W, V = model.w * inverse, model.g * inverse
    p = slice(1, 1 + model.p)
    block = {i: W[:, at] for i, at in model.slot.items()}
    bias_B = model.c_y + W[:, 0] - W[:, 1:] @ model.c[1:]
    bias_G = model.c_y + V[:, 0] - V[:, p] @ model.c[p]
    zero = np.zeros_like(bias_B)
    return (
        Linear(bias_B, W[:, p], block),
        Linear(zero, 0.0 * W[:, p], dict(model.w_i)),
        Linear(bias_G, V[:, p], dict(model.g_i)),
    )


class Newton:
    """Scalars by online Newton steps; what was scored last weighs most, in proportion to the mass.

    A and b are multiples of (mass + 10): A / (mass + 10) is the weighted sum of curvature.
    """

    def __init__(self, count: int, prior: float, most: float) -> None:
        self.prior, self.most, self.start = prior, most, np.ones(count)
        self.value = np.ones(count)
        self.A, self.b = np.zeros((count, count)), np.zeros(count)

    def step(self, g: Floats, R: Floats, m: float, M: float) -> None:
        """g, R: gradient of -loss and curvature at the value of now; m: of M, this row's mass."""
        self.A = self.A + m * (M + 10.0) * R
        self.b = self.b + m * (M + 10.0) * (g + R @ self.value)
        A = self.A / (M + 10.0) + self.prior * np.eye(len(g))
        b = self.b / (M + 10.0) + self.prior * self.start
        self.value = np.clip(np.linalg.solve(A, b), 0.0, self.most)


class Frozen:
    """size: coordinates of the model, the bias included: large models are first copied later."""

    SETTLED, DECIDED, UNUSED, WORSE = 65_536, 40.0, 0.1, 1.01

    def __init__(self, model: Auto, size: int) -> None:
        self.model = model
        self.due = 2 ** math.ceil(math.log2(max(256, size / 1024)))
        self.copy: Copy | None = None
        self.newest: Copy | None = None
        self.M = self.v = 0.0
        self.th, self.w, self.u = Newton(2, 10.0, 3.0), Newton(1, 30.0, 1.0), Newton(1, 30.0, 1.0)
        self.counts = np.zeros(max(model.C, 2))
        self.loss_sum = self.weight_sum = 0.0

    @property
    def saved_loss(self) -> float | None:
        """Mean loss of frozen predictions; None before the first."""
        return self.loss_sum / self.weight_sum if self.weight_sum > 0.0 else None

    def before(self, x: Floats, sparse: Sparse, y: float, h: float = 1.0) -> None:
        """Before the model learns the row. Rows of later passes are not scored."""
        model = self.model
        if h == 0.0 or model.horizon > 0.0:
            return
        t = model.t
        if t == self.due:
            low, high = -math.inf, math.inf
            if model.loss == "square":
                R = model.ymax - model.ymin
                low, high = model.ymin - R, model.ymax + R
            made = Copy(*parts(model), low, high)
            if model.loss == "square":
                self.copy, self.newest = self.newest, made
            else:
                self.copy = made
            self.due = t + 2 ** math.floor(math.log2(t)) // 8
            model.rests = self.unused()
        r = t + 1
        stages = (16_384, 65_536, 131_072, 262_144)
        period = 2 ** sum(r > stage for stage in stages)
        if self.copy is not None and (r * 2_654_435_761 % 2**32) * period < 2**32:
            f = [part.margins(x, sparse) for part in self.copy[:3]]
            mean = (model.n + h) / (t + 1)
            self.score(f, y, 2.0 * h / (h + mean) * period, period * h, 1.0 / (t + 3.0))
        if model.loss != "square":
            self.counts[int(y > 0.0) if model.loss == "logistic" else int(y)] += h

    def frequencies(self) -> Floats:
        """Log-odds, or logs of shares: counts and half a mean row each."""
        half = 0.5 * self.model.mean_h() if self.model.t > 0 else 0.5
        n = self.counts + half
        if self.model.loss == "logistic":
            return np.array([math.log(n[1] / n[0])])
        return np.log(n / n.sum())

    def score(self, f: list[Floats], y: float, m: float, weight: float, e: float) -> None:
        self.M += m
        B, G = f[0] + f[1], f[2]
        w = self.w.value[0]
        if self.model.loss == "square":
            self.score_number(float(B[0]), float(G[0]), y, m, weight)
            return
        S = self.th.value[0] * f[0] + self.th.value[1] * f[1]
        r = self.frequencies()
        X = w * S + (1.0 - w) * G
        U = self.u.value[0] * X + (1.0 - self.u.value[0]) * r
        self.loss_sum += weight * self.log_loss(U, y, e)
        self.weight_sum += weight
        self.u.step(*self.slopes([X - r], U, y), m, self.M)
        self.w.step(*self.slopes([S - G], X, y), m, self.M)
        self.th.step(*self.slopes([f[0], f[1]], S, y), m, self.M)

    def score_number(self, B: float, G: float, y: float, m: float, weight: float) -> None:
        assert self.copy is not None
        w = self.w.value[0]
        of_B, of_G, off = (
            y - min(max(one, self.copy.low), self.copy.high)
            for one in (B, G, w * B + (1.0 - w) * G)
        )
        self.loss_sum += weight * off * off / 2.0
        self.weight_sum += weight
        self.v += (min(of_B * of_B, of_G * of_G) - self.v) * m / self.M
        if self.v > 0.0:
            d = B - G
            self.w.step(np.array([off * d / self.v]), np.array([[d * d / self.v]]), m, self.M)

    def slopes(self, directions: list[Floats], margins: Floats, y: float) -> tuple[Floats, Floats]:
        """Of -log loss at these margins, along the directions: gradient and curvature."""
        D = np.array(directions)
        if self.model.loss == "logistic":
            q = sigmoid(-y * margins[0])
            return y * q * D[:, 0], q * (1.0 - q) * np.outer(D[:, 0], D[:, 0])
        q = softmax(margins)
        mean = D @ q
        g = D @ one_hot(y, len(q)) - mean
        return g, (D * q) @ D.T - np.outer(mean, mean)

    def log_loss(self, margins: Floats, y: float, e: float) -> float:
        if self.model.loss == "logistic":
            return -math.log((1.0 - e) * sigmoid(y * margins[0]) + e / 2.0)
        return -math.log((1.0 - e) * softmax(margins)[int(y)] + e / len(margins))

    def coefficients(self) -> tuple[float, float, float, float]:
        """Of B's block, of the rest of B, of G and of the frequencies."""
        if self.M < 128.0 or self.model.horizon > 0.0:
            wB = 1.0 / (1.0 + math.exp(self.model.lead))
            return wB, wB, 1.0 - wB, 0.0
        w = float(self.w.value[0])
        if self.model.loss == "square":
            return w, w, 1.0 - w, 0.0
        # Choice: a copy of t rows needs 1 - c / t, rows weigh as t: 1 - 2 c / T is fitted at row T
        u, th = float(self.u.value[0]), (1.0 + self.th.value) / 2.0
        return u * w * th[0], u * w * th[1], u * (1.0 - w), 1.0 - u

    def unused(self) -> str:
        """With a log loss and many rows, the predictor that the next row's prediction does not use,
        and the saved model little: it rests until the next copy."""
        if self.M < 128.0 or self.model.t < self.SETTLED or self.model.loss == "square":
            return ""
        block, outside, G, _ = self.coefficients()
        model, of_B, of_G = self.model, self.model.mse, self.model.v
        rests = model.lead >= self.DECIDED and of_B > self.WORSE * of_G
        if rests and max(block, outside) < self.UNUSED:
            return "B"
        rests = model.lead <= -self.DECIDED and of_G > self.WORSE * of_B and G < self.UNUSED
        return "G" if rests else ""

    def saved(self) -> Linear:
        """The model that is saved, in raw units."""
        *shares, of_r = self.coefficients()
        found = parts(self.model)
        bias = sum(a * part.bias for a, part in zip(shares, found, strict=True))
        if of_r > 0.0:
            bias = bias + of_r * self.frequencies()
        dense = sum(a * part.dense for a, part in zip(shares, found, strict=True))
        sparse = {
            i: sum(a * part.sparse.get(i, 0.0) for a, part in zip(shares, found, strict=True))
            for part in found
            for i in part.sparse
        }
        return Linear(bias, dense, sparse)


def learn(model: Auto, frozen: Frozen, x: Floats, sparse: Sparse = NONE, y: float = 0.0,
          h: float = 1.0) -> Floats:  # fmt: skip
    """A row's progressive prediction, as ``Auto.learn``."""
    frozen.before(x, sparse, y, h)
    return model.learn(x, sparse, y, h)
