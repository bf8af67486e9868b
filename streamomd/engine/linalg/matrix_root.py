"""The root of a sum of z z', as it is stored: taking in, and dividing by it.

Row j of a learner's matrix holds, in its first half, a row of B, whose rows are orthogonal and
whose sum of b b' is that of z z', so that S = sum of b b' / abs(b) is its symmetric square root;
in its second half a row of a triangular matrix, what has come since and is not in B yet.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from streamomd.engine.linalg.jacobi import keep_largest, orthogonalise, product

NOISE = 1e-13  # a result this small relative to its operands is rounding


def pend(matrix: Any, k: int, z: Any, parts: Any) -> None:
    """Take z z' into the triangular half; z, used up, is ``parts`` times its rows, written."""
    size = len(z)
    scale = np.abs(z)
    left = 1.0
    for j in range(size):
        parts[j] = 0.0
    for j in range(size):
        if abs(z[j]) <= NOISE * scale[j]:
            continue
        row = matrix[k, j, size:]
        if row[j] == 0.0:
            for i in range(j, size):
                row[i] = z[i]
            parts[j] = left
            return
        length = math.hypot(row[j], z[j])
        cosine, sine = row[j] / length, z[j] / length
        parts[j] = left * sine
        left *= cosine
        for i in range(j, size):
            a, b = row[i], z[i]
            scale[i] = max(scale[i], abs(a))
            row[i] = cosine * a + sine * b
            z[i] = cosine * b - sine * a


def absorb(matrix: Any, k: int, rows: Any, squares: Any, parts: Any, shares: Any) -> bool:
    """Take what is pending into B; whether there was anything.

    shares: what is ``parts`` times the pending rows, in terms of B's, written.
    """
    size = matrix.shape[1]
    count = 0
    for j in range(size):
        square = 0.0
        for i in range(size):
            rows[count, i] = matrix[k, j, i]
            square += rows[count, i] * rows[count, i]
        if square > 0.0:
            squares[count], shares[count] = square, 0.0
            count += 1
    rank = known = count
    for j in range(size):
        if matrix[k, j, size + j] != 0.0:
            for i in range(size):
                rows[count, i] = matrix[k, j, size + i]
                matrix[k, j, size + i] = 0.0
            shares[count] = parts[j]
            if sticks_out(rows, known, squares, count):
                rank += 1
            count += 1
    if count == known:
        return False
    orthogonalise(rows, count, squares, shares)
    rank = min(rank, size)
    keep_largest(rows, count, squares, shares, rank)
    for j in range(size):
        shares[j] = shares[j] if j < rank else 0.0
        for i in range(size):
            matrix[k, j, i] = rows[j, i] if j < rank else 0.0
    return True


def sticks_out(rows: Any, known: int, squares: Any, at: int) -> bool:
    """Whether row ``at`` is more than a combination of the orthogonal rows before ``known``."""
    size = rows.shape[1]
    rest, scale = rows[at].copy(), np.abs(rows[at])
    for j in range(known):
        share = product(rows, j, at) / squares[j]
        for i in range(size):
            rest[i] -= share * rows[j, i]
            scale[i] += abs(share * rows[j, i])
    out = False
    for i in range(size):
        out = out or abs(rest[i]) > NOISE * scale[i]
    return out


def divide(matrix: Any, k: int, r: Any, more: float, whole: bool, out: Any) -> None:
    """out = (S + more I)^-1 r. whole: r is a combination of B's rows, and nothing is left of it.

    What r has of a row may be its rounding alone, and the row as short: that is taken for 0.
    """
    size = len(r)
    rest = r.copy()
    rank = 0
    length = 0.0
    for i in range(size):
        length += r[i] * r[i]
    length = math.sqrt(length)
    for i in range(size):
        out[i] = 0.0
    for j in range(size):
        square = part = 0.0
        for i in range(size):
            square += matrix[k, j, i] * matrix[k, j, i]
            part += matrix[k, j, i] * r[i]
        if square == 0.0:
            continue
        rank += 1
        if abs(part) <= NOISE * math.sqrt(square) * length:
            continue
        share = part / square
        divided = share / (more + math.sqrt(square))
        for i in range(size):
            out[i] += divided * matrix[k, j, i]
            rest[i] -= share * matrix[k, j, i]
    if rank < size and more > 0.0 and not whole:
        for i in range(size):
            out[i] += rest[i] / more


def divide_shares(matrix: Any, k: int, shares: Any, more: float, out: Any) -> None:
    """out = (S + more I)^-1 of ``shares`` times B's rows: stable for the shortest of them."""
    size = matrix.shape[1]
    for i in range(size):
        out[i] = 0.0
    for j in range(size):
        square = 0.0
        for i in range(size):
            square += matrix[k, j, i] * matrix[k, j, i]
        if square > 0.0:
            divided = shares[j] / (more + math.sqrt(square))
            for i in range(size):
                out[i] += divided * matrix[k, j, i]


def root(matrix: Any, k: int, delta: float, H: Any) -> None:
    """H = delta I + S, written."""
    size = matrix.shape[1]
    H[:] = 0.0
    for j in range(size):
        H[j, j] += delta
        square = 0.0
        for i in range(size):
            square += matrix[k, j, i] * matrix[k, j, i]
        if square > 0.0:
            length = math.sqrt(square)
            for i in range(size):
                part = matrix[k, j, i] / length
                for l in range(size):
                    H[i, l] += part * matrix[k, j, l]
