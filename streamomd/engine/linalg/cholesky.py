"""Cholesky's factor of a symmetric positive definite matrix, and its inverse.

Inner loops add a multiple of one contiguous row to another: numba vectorises them without a change
of the order of any sum, so compiled and uncompiled results are bit-identical. Rows are not sliced:
at 64 coordinates the slices would take longer than the sums.
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
