"""Factorisations: Cholesky's of a symmetric positive definite matrix, and one-sided Jacobi
rotations.

Inner loops add a multiple of one contiguous row to another: numba vectorises them without a change
of the order of any sum, so compiled and uncompiled results are bit-identical. Rows are not sliced:
at 64 coordinates the slices would take longer than the sums.

The sum of b b' over the rows b of a matrix does not change when two rows are rotated into each
other. Once all are orthogonal, their directions are that sum's eigenvectors and their lengths the
square roots of its eigenvalues: a symmetric root without squares, small eigenvalues included. The
order of rotations is fixed, so the result is the same everywhere.
"""

from __future__ import annotations

import math
from typing import Any


def factor(A: Any, n: int, L: Any) -> bool:
    """Write L's lower triangle, L L' = A, for the leading n rows and columns of A.

    A and L: float64, (n, n) or larger; of A, the upper triangle is read. L's upper triangle becomes
    L', whose rows are contiguous. False, and L unfinished, if a pivot is not positive or not
    finite.
    """
    for i in range(n):
        row = L[i]
        for j in range(i, n):
            row[j] = A[i, j]
        for k in range(i):
            before = L[k]
            by = before[i]
            for j in range(i, n):
                row[j] -= by * before[j]
        if not 0.0 < row[i] < math.inf:
            return False
        root = math.sqrt(row[i])
        row[i] = root
        for j in range(i + 1, n):
            row[j] /= root
            # The lower triangle, which ``invert`` reads.
            L[j, i] = row[j]
    return True


def invert(A: Any, n: int, L: Any, P: Any) -> bool:
    """Write P = A^-1, exactly symmetric, for the leading n rows and columns of A.

    A, L and P: float64, (n, n) or larger, not the same array; L is scratch. False, and P as it was,
    if A is not positive definite in floating point.
    """
    if not factor(A, n, L):
        return False
    for i in range(n):  # N = L^-1 in P's lower triangle
        row = P[i]
        for j in range(i):
            row[j] = 0.0
        row[i] = 1.0
        for k in range(i):
            before, by = P[k], L[i, k]
            for j in range(k + 1):
                row[j] -= by * before[j]
        pivot = L[i, i]
        for j in range(i + 1):
            row[j] /= pivot
    for i in range(n):  # N' N in L's lower triangle
        row = L[i]
        for j in range(i + 1):
            row[j] = 0.0
        for k in range(i, n):
            after, by = P[k], P[k, i]
            for j in range(i + 1):
                row[j] += by * after[j]
    for i in range(n):
        for j in range(i + 1):
            P[i, j] = P[j, i] = L[i, j]
    return True


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
                # Its square would overflow; the root is abs(zeta) to all digits.
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
                # Computed again: updates by the rotation would drift.
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
