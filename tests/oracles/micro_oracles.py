"""Oracles of sharded mode: micro-batches over partitions, as docs/decisions/010 words them.

Literal, dense, slow; only numpy and math. Per micro-batch: all rows are observed; a margin is the
sum over the partitions, in order, of each one's own products; then all steps, then all updates. A
step is late: it knows nothing of the rows of its micro-batch before it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def slope(loss: str, p: float, y: float) -> float:
    """The derivative of the loss by the margin."""
    if loss == "square":
        return p - y
    return -y / (1.0 + math.exp(y * p))


def over_partitions(terms: Floats, parts: int) -> float:
    """The sum of each partition's sum, partition by partition."""
    size, total = len(terms), 0.0
    for k in range(parts):
        own = 0.0
        for i in range(k * size // parts, (k + 1) * size // parts):
            own += terms[i]
        total += own
    return total


class Sharded(ABC):
    """A learner; t counts rows from 1."""

    def __init__(self, d: int, loss: str, parts: int, **params: Any) -> None:
        self.d, self.loss, self.parts, self.params = d, loss, parts, params
        self.t = 0

    def observe(self, x: Floats) -> None:  # noqa: B027
        """Before anything of the micro-batch is predicted."""

    @abstractmethod
    def weights(self, t: int) -> Floats:
        """Those row t is predicted with."""

    @abstractmethod
    def learn(self, t: int, x: Floats, g: float) -> None:
        """Row t, once predicted, its gradient g x."""

    def run(self, X: Floats, y: Floats, h: Floats, batch_rows: int) -> Floats:
        """The margins of all rows."""
        margins = np.zeros(len(X))
        for low in range(0, len(X), batch_rows):
            rows = range(low, min(low + batch_rows, len(X)))
            self.begin(rows)
            for i in rows:
                self.observe(X[i])
            for i in rows:
                margins[i] = over_partitions(self.weights(i + 1) * X[i], self.parts)
            for i in rows:
                self.learn(i + 1, X[i], h[i] * slope(self.loss, margins[i], y[i]))
        return margins

    def begin(self, rows: range) -> None:  # noqa: B027
        """A micro-batch."""


class Nag(Sharded):
    """Ross, Mineiro & Langford 2013, algorithm 2."""

    def __init__(self, d: int, loss: str, parts: int, eta: float) -> None:
        super().__init__(d, loss, parts)
        self.s, self.w, self.G = np.zeros(d), np.zeros(d), np.zeros(d)
        self.N, self.eta, self.grown = 0.0, eta, []

    def begin(self, rows: range) -> None:
        self.grown, self.first = [], rows[0] + 1

    def observe(self, x: Floats) -> None:
        squares = np.zeros(self.d)
        for i in np.flatnonzero(x):
            if abs(x[i]) > self.s[i]:
                self.w[i] *= self.s[i] / abs(x[i])
                self.s[i] = abs(x[i])
            squares[i] = x[i] ** 2 / self.s[i] ** 2
        self.grown.append(over_partitions(squares, self.parts))

    def weights(self, t: int) -> Floats:
        return self.w

    def learn(self, t: int, x: Floats, g: float) -> None:
        self.N += self.grown[t - self.first]
        for i in np.flatnonzero(g * x):
            self.G[i] += (g * x[i]) ** 2
            pace = self.eta * math.sqrt(t / self.N)
            self.w[i] -= pace * g * x[i] / (self.s[i] * math.sqrt(self.G[i]))


class Ogd(Sharded):
    """w <- w - eta / sqrt(t) g x."""

    def __init__(self, d: int, loss: str, parts: int, eta: float) -> None:
        super().__init__(d, loss, parts)
        self.v, self.eta = np.zeros(d), eta

    def weights(self, t: int) -> Floats:
        return self.v

    def learn(self, t: int, x: Floats, g: float) -> None:
        self.v = self.v - self.eta / math.sqrt(t) * g * x


class AdaGrad(Sharded):
    """G_i += (g x_i)^2, w_i <- w_i - eta g x_i / sqrt(G_i)."""

    def __init__(self, d: int, loss: str, parts: int, eta: float) -> None:
        super().__init__(d, loss, parts)
        self.w, self.G, self.eta = np.zeros(d), np.zeros(d), eta

    def weights(self, t: int) -> Floats:
        return self.w

    def learn(self, t: int, x: Floats, g: float) -> None:
        self.G = self.G + (g * x) ** 2
        for i in np.flatnonzero(self.G):
            self.w[i] -= self.eta * g * x[i] / math.sqrt(self.G[i])


class DualAveraging(Sharded):
    """w = eta / sqrt(T) theta after T rows, theta <- theta - g x."""

    def __init__(self, d: int, loss: str, parts: int, eta: float) -> None:
        super().__init__(d, loss, parts)
        self.theta, self.eta = np.zeros(d), eta

    def weights(self, t: int) -> Floats:
        return self.eta / math.sqrt(max(t - 1, 1)) * self.theta

    def learn(self, t: int, x: Floats, g: float) -> None:
        self.theta = self.theta - g * x


LEARNERS = {"nag": Nag, "ogd": Ogd, "adagrad": AdaGrad, "da": DualAveraging}
SLOTS = {"nag": ("s", "w", "G"), "ogd": ("v",), "adagrad": ("w", "G"), "da": ("theta",)}
