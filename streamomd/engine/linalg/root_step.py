"""The step of a rule that divides by a root: AdaGrad in full, in either of its updates."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamomd.engine.linalg.matrix_root import divide, divide_shares, root

TOLERANCE, SWEEPS = 1e-14, 5000  # of coordinate descent


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
    whole = h.every == 1.0
    if dual:
        divide(matrix, k, h.eta * theta, h.delta + more, whole, out)
        return
    if fresh:
        divide_shares(matrix, k, shares, h.delta + more, out)
    else:
        divide(matrix, k, z, h.delta + more, whole, out)
    step = h.eta * factor
    if more > 0.0:
        shrunk = np.zeros(size)
        divide(matrix, k, w, h.delta + more, whole, shrunk)
        for j in range(size):
            out[j] = w[j] - more * shrunk[j] - step * out[j]
    else:
        for j in range(size):
            out[j] = w[j] - step * out[j]
