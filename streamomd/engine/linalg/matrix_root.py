"""The root of a sum of z z', as it is stored: taking in, dividing by it, and AdaGrad's step in
full.

Row j of a learner's matrix holds, in its first half, a row of B, whose rows are orthogonal and
whose sum of b b' is that of z z', so that S = sum of b b' / abs(b) is its symmetric square root;
in its second half a row of a triangular matrix, what has come since and is not in B yet.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from streamomd.engine.linalg.factorisations import keep_largest, orthogonalise, product

NOISE = 1e-13  # a result this small relative to its operands is rounding


def pend(matrix: Any, k: int, z: Any, parts: Any) -> None:
    """Take z z' into the triangular half; z, used up, is ``parts`` times its rows, written."""
    size = len(z)
    scale = np.abs(z)
    left = 1.0
    for j in range(size):
        parts[j] = 0.0
    for j in range(size):
        # What rotations have left of this coordinate is rounding.
        if abs(z[j]) <= NOISE * scale[j]:
            continue
        row = matrix[k, j, size:]
        # A free row of the triangle takes what is left.
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
    # More directions than coordinates would be rounding.
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
    # Outside of B's rows S is 0, so only ``more`` divides.
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


TOLERANCE, SWEEPS = 1e-14, 5000  # of coordinate descent
STEPS = 100  # of Newton, far more than are ever needed


def descend(H: Any, c: Any, k1: float, k2: float, box: float, w: Any) -> None:
    """w <- argmin of w'Hw / 2 - c'w + k1 |w|_1 + k2 |w|^2 / 2, abs(w_i) <= box unless that is 0.

    Coordinate by coordinate, until none moves by more than ``TOLERANCE`` of what its equation adds
    up, or ``SWEEPS`` sweeps.
    """
    size = len(w)
    for _ in range(SWEEPS):
        still = True
        for j in range(size):
            curvature = H[j, j] + k2
            if curvature <= 0.0:
                continue
            pull = c[j]
            scale = abs(pull) + k1
            for i in range(size):
                if i != j:
                    pull -= H[j, i] * w[i]
                    scale += abs(H[j, i] * w[i])
            # Soft thresholding: the exact minimum along one coordinate.
            v = max(abs(pull) - k1, 0.0) / curvature
            if box > 0.0:
                v = min(v, box)
            v = v if pull > 0.0 else -v
            still = still and abs(v - w[j]) * curvature <= TOLERANCE * scale
            w[j] = v
        if still:
            break


def spectrum(matrix: Any, k: int, v: Any, delta: float, parts: Any, curvatures: Any) -> Any:
    """What is left of v without its parts along B's rows. parts, curvatures: (d + 1,), written.

    Part j is along row j, where H = delta I + S has curvature j; the last is the length left over.
    """
    size = len(v)
    rest = v.copy()
    for j in range(size):
        square = part = 0.0
        for i in range(size):
            square += matrix[k, j, i] * matrix[k, j, i]
            part += matrix[k, j, i] * v[i]
        curvatures[j] = parts[j] = 0.0
        if square > 0.0:
            curvatures[j] = delta + math.sqrt(square)
            parts[j] = part / math.sqrt(square)
            for i in range(size):
                rest[i] -= part / square * matrix[k, j, i]
    left = 0.0
    for i in range(size):
        left += rest[i] * rest[i]
    parts[size], curvatures[size] = math.sqrt(left), delta
    return rest


def multiplier(parts: Any, curvatures: Any, radius: float) -> float:
    """The mu at which (H + mu I)^-1 H v has length ``radius``, which is below that of v.

    The inverse of its length is a concave function of mu: Newton's steps rise to the root.
    """
    mu = 0.0
    for _ in range(STEPS):
        total = fall = 0.0
        for j in range(len(parts)):
            if curvatures[j] > 0.0:
                u = parts[j] * curvatures[j] / (curvatures[j] + mu)
                total += u * u
                fall += u * u / (curvatures[j] + mu)
        gap = math.sqrt(total) / radius - 1.0
        if not gap > 1e-15 or not fall > 0.0:
            break
        after = mu + gap * total / fall
        if not mu < after < 1e300:
            break
        mu = after
    return mu


def contract(matrix: Any, k: int, v: Any, delta: float, radius: float) -> None:
    """v <- argmin of (u - v)' H (u - v), H = delta I + S, over abs(u) <= radius."""
    size = len(v)
    squared = 0.0
    for i in range(size):
        squared += v[i] * v[i]
    if squared <= radius * radius:
        return
    parts, curvatures = np.zeros(size + 1), np.zeros(size + 1)
    rest = spectrum(matrix, k, v, delta, parts, curvatures)
    mu = multiplier(parts, curvatures, radius)
    for i in range(size):
        v[i] = rest[i] * delta / (delta + mu) if delta > 0.0 else 0.0
    for j in range(size):
        if curvatures[j] > 0.0:
            u = parts[j] * curvatures[j] / (curvatures[j] + mu)
            for i in range(size):
                v[i] += u / (curvatures[j] - delta) * matrix[k, j, i]


def move_weights(
    matrix: Any,
    k: int,
    w: Any,
    theta: Any,
    z: Any,
    factor: float,
    shares: Any,
    fresh: bool,
    clock: float,
    h: Any,
    H: Any,
    out: Any,
) -> None:
    """out = the weights of the next row, by ``factor`` times z; theta holds that already.

    fresh: z is ``shares`` times B's rows.
    """
    size = len(w)
    dual, curved = h.update != 0.0, h.l1 > 0.0 or h.box > 0.0
    times = h.eta * clock if dual else h.eta
    if curved:
        root(matrix, k, h.delta, H)
        c = h.eta * theta if dual else -h.eta * factor * z
        for j in range(size):
            out[j] = w[j]
            if not dual:
                for i in range(size):
                    c[j] += H[j, i] * w[i]
        descend(H, c, times * h.l1, times * h.l2, h.box, out)
        return
    more = times * h.l2
    if dual:
        divide(matrix, k, h.eta * theta, h.delta + more, h.every == 1.0, out)
    else:
        mirror(matrix, k, w, z, h.eta * factor, shares, fresh, more, h, out)
    if h.ball != 0.0:
        contract(matrix, k, out, h.delta, h.radius)


def mirror(
    matrix: Any,
    k: int,
    w: Any,
    z: Any,
    step: float,
    shares: Any,
    fresh: bool,
    more: float,
    h: Any,
    out: Any,
) -> None:
    """out = w - (H + more I)^-1 (more w + step z)."""
    size, whole = len(w), h.every == 1.0
    if fresh:
        divide_shares(matrix, k, shares, h.delta + more, out)
    else:
        divide(matrix, k, z, h.delta + more, whole, out)
    if more > 0.0:
        shrunk = np.zeros(size)
        divide(matrix, k, w, h.delta + more, whole, shrunk)
        for j in range(size):
            out[j] = w[j] - more * shrunk[j] - step * out[j]
    else:
        for j in range(size):
            out[j] = w[j] - step * out[j]
