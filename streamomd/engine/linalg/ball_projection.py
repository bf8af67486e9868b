"""The nearest point of an L2 ball in the norm of a matrix that is stored as its inverse."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

STEPS = 100  # far more than are ever needed


def contract_into_ball(matrix: Any, k: int, w: Any, scale: float, radius: float) -> bool:
    """w <- argmin over abs(u) <= radius of (u - w)' P^-1 (u - w); whether it was outside.

    P = scale * U D U' of learner k, stored as in ``loops.matrix``. It is (I + mu P)^-1 w, whose
    inverse length is a concave function of mu: Newton's steps from mu = 0 rise to the root and
    never pass it. O(d^3) a step.
    """
    if product(w, w) <= radius * radius:
        return False
    size = len(w)
    P, lower, u, z = expand(matrix, k, scale), np.zeros((size, size)), w.copy(), np.zeros(size)
    mu = 0.0
    for _ in range(STEPS):
        factor(P, mu, lower)
        solve(lower, w, u)
        length = math.sqrt(product(u, u))
        solve(lower, u, z)
        fall = 0.0  # of the length, squared, over 2
        for i in range(size):
            fall += u[i] * product(P[i], z)
        gap = length / radius - 1.0
        if not gap > 1e-15 or not fall > 0.0:
            break
        after = mu + gap * length * length / fall
        if not mu < after < 1e300:
            break
        mu = after
    for i in range(size):
        w[i] = u[i]
    return True


def product(a: Any, b: Any) -> float:
    """The inner product."""
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


def expand(matrix: Any, k: int, scale: float) -> Any:
    """scale * U D U' as a full matrix."""
    size = matrix.shape[1]
    P, column = np.zeros((size, size)), np.zeros(size)
    for j in range(size):
        D = scale * matrix[k, j, j]
        for i in range(j):
            column[i] = matrix[k, j, i]
        column[j] = 1.0
        for i in range(j + 1):
            for l in range(j + 1):
                P[i, l] += column[i] * D * column[l]
    return P


def factor(P: Any, mu: float, lower: Any) -> None:
    """The Cholesky factor of I + mu P, written."""
    for i in range(len(P)):
        for j in range(i + 1):
            total = mu * P[i, j]
            for l in range(j):
                total -= lower[i, l] * lower[j, l]
            if i == j:
                lower[i, i] = math.sqrt(1.0 + total)
            else:
                lower[i, j] = total / lower[j, j]


def solve(lower: Any, b: Any, x: Any) -> None:
    """x with L L' x = b, written."""
    size = len(b)
    for i in range(size):
        total = b[i]
        for j in range(i):
            total -= lower[i, j] * x[j]
        x[i] = total / lower[i, i]
    for i in range(size - 1, -1, -1):
        total = x[i]
        for j in range(i + 1, size):
            total -= lower[j, i] * x[j]
        x[i] = total / lower[i, i]
