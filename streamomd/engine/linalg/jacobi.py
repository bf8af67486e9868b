"""Rows made orthogonal by plane rotations (one-sided Jacobi), and what follows from them.

The sum of b b' over the rows b of a matrix does not change when two rows are rotated into each
other. Once all are orthogonal, their directions are that sum's eigenvectors and their lengths the
square roots of its eigenvalues: a symmetric root without squares, small eigenvalues included. The
order of rotations is fixed, so the result is the same everywhere.
"""

from __future__ import annotations

import math
from typing import Any

SWEEPS = 40  # far more than are ever needed: convergence is quadratic


def product(rows: Any, p: int, q: int) -> float:
    """The inner product of two rows. Four sums side by side, for speed."""
    size = rows.shape[1]
    a = b = c = d = 0.0
    whole = size - size % 4
    for i in range(0, whole, 4):
        a += rows[p, i] * rows[q, i]
        b += rows[p, i + 1] * rows[q, i + 1]
        c += rows[p, i + 2] * rows[q, i + 2]
        d += rows[p, i + 3] * rows[q, i + 3]
    for i in range(whole, size):
        a += rows[p, i] * rows[q, i]
    return (a + b) + (c + d)


def orthogonalise(rows: Any, count: int, squares: Any, shares: Any) -> None:
    """Rotate the first ``count`` rows until they are orthogonal; their squared lengths, written.

    shares: a combination of the rows; turned with them, it stays the same vector.
    """
    bound = 4.5e-16 * (4.0 + rows.shape[1])
    for p in range(count):
        squares[p] = product(rows, p, p)
    for _ in range(SWEEPS):
        turned = False
        for p in range(count - 1):
            for q in range(p + 1, count):
                if squares[p] == 0.0 or squares[q] == 0.0:
                    continue
                common = product(rows, p, q)
                if abs(common) <= bound * math.sqrt(squares[p]) * math.sqrt(squares[q]):
                    continue
                zeta = (squares[q] - squares[p]) / (2.0 * common)
                if abs(zeta) > 1e150:
                    tangent = 0.5 / zeta
                else:
                    tangent = 1.0 / (abs(zeta) + math.sqrt(1.0 + zeta * zeta))
                    tangent = tangent if zeta > 0.0 else -tangent
                if tangent == 0.0:
                    continue
                turned = True
                cosine = 1.0 / math.sqrt(1.0 + tangent * tangent)
                sine = cosine * tangent
                for i in range(rows.shape[1]):
                    a, b = rows[p, i], rows[q, i]
                    rows[p, i] = cosine * a - sine * b
                    rows[q, i] = sine * a + cosine * b
                a, b = shares[p], shares[q]
                shares[p], shares[q] = cosine * a - sine * b, sine * a + cosine * b
                squares[p], squares[q] = product(rows, p, p), product(rows, q, q)
        if not turned:
            break


def keep_largest(rows: Any, count: int, squares: Any, shares: Any, rank: int) -> None:
    """Bring the ``rank`` longest of the first ``count`` rows to the front, in falling order."""
    for j in range(min(rank, count)):
        best = j
        for l in range(j + 1, count):
            if squares[l] > squares[best]:
                best = l
        if best != j:
            squares[j], squares[best] = squares[best], squares[j]
            shares[j], shares[best] = shares[best], shares[j]
            for i in range(rows.shape[1]):
                rows[j, i], rows[best, i] = rows[best, i], rows[j, i]
