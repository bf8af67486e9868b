"""The step of a rule that divides by a root: AdaGrad in full, in either of its updates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from streamomd.engine.linalg.matrix_root import divide, divide_shares, root

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
