"""Moments of columns, and matrices of second order, of states that are merged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamomd.engine.state import State

Floats = NDArray[np.float64]


class Moments(NamedTuple):
    """Weight, mean and summed squared deviations of a sample (Chan, Golub & LeVeque 1983)."""

    n: float
    mean: Any
    squares: Any

    def plus(self, other: Moments) -> Moments:
        """Returns the moments of both samples together."""
        n = self.n + other.n
        if n <= 0.0:
            return self
        d, of_other = other.mean - self.mean, other.n / n
        return Moments(
            n, self.mean + d * of_other, self.squares + other.squares + self.n * of_other * d * d
        )

    def minus(self, start: Moments) -> Moments:
        """Returns the moments of what was added to a sample."""
        n = self.n - start.n
        if n <= 0.0:
            return Moments(0.0, self.mean, 0.0 * self.squares)
        d = (self.mean - start.mean) * (self.n / n)
        squares = self.squares - start.squares - (start.n * n / self.n) * d * d
        return Moments(n, start.mean + d, np.maximum(squares, 0.0))


class _Cells:
    """The slots of some coordinates as float64, (coordinates, 1 or learners)."""

    def __init__(self, state: State) -> None:
        self.state = state

    def __getitem__(self, name: str) -> Floats:
        found = np.asarray(self.state.slot(name), dtype=np.float64)
        return found.reshape(self.state.layout.size, -1)


def inverse(A: Floats, prior: Floats) -> Floats:
    """(A + prior)^-1, for A positive semi-definite but for its rounding.

    As ``loops.rebase.resolve``: where it is not, the diagonal grows. Sums are taken in one order:
    a BLAS would make the bits depend on its threads.
    """
    d, more = len(A), 0.0
    while True:
        L = _factor(A + np.diag(prior + more * np.diagonal(A)))
        if L is not None:
            break
        if more > 1.0:
            raise ArithmeticError("the information of merged states is not a number")
        more = 1e-15 if more == 0.0 else 10.0 * more
    N = np.eye(d)  # L^-1
    for i in range(d):
        N[i] /= L[i, i]
        # Forward substitution, a column at a time.
        N[i + 1 :] -= L[i + 1 :, i, None] * N[i]
    P = np.zeros((d, d))
    for row in N:
        # P = N'N, summed row after row.
        P += row[:, None] * row
    return P


def _factor(A: Floats) -> Floats | None:
    """Cholesky's lower factor; None if a pivot is not positive or not finite."""
    L = A.copy()
    for i in range(len(L)):
        if not 0.0 < L[i, i] < math.inf:
            return None
        L[i:, i] /= math.sqrt(L[i, i])
        L[i + 1 :, i + 1 :] -= L[i + 1 :, i, None] * L[i + 1 :, i]
    return L


def _joined(samples: Sequence[Moments]) -> Moments:
    """Returns the moments of the start, the first, and of what each other one has added to it."""
    whole = start = samples[0]
    for part in samples[1:]:
        whole = whole.plus(part.minus(start))
    return whole


def _ratio(a: Any, b: Any, where_zero: Any = 0.0) -> Floats:
    """a / b; ``where_zero`` where b is 0."""
    divides = b != 0.0
    found: Floats = np.where(divides, a / np.where(divides, b, 1.0), where_zero)
    return found
