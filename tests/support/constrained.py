"""Convex losses over convex sets, solved by scipy in epigraph form: the answers to compare with."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.optimize
from helpers import sparse

from streamomd.analysis.comparator import Problem
from streamomd.losses import Loss, find_loss
from streamomd.rules.common.sets import L1, L2, Box, ComparatorSet, Lq, Simplex

Floats = np.ndarray
# A loss that is the largest of lines in the margin: (slope, level), of a target y.
LINES = {
    "hinge": lambda y: [(0.0, 0.0), (-y, 1.0)],
    "gamma_hinge": lambda y: [(0.0, 0.0), (-y, 1.0)],
    "absolute": lambda y: [(1.0, -y), (-1.0, y)],
    "pinball": lambda y: [(-0.5, 0.5 * y), (0.5, -0.5 * y)],
    "epsilon_insensitive": lambda y: [(0.0, 0.0), (1.0, -y - 0.1), (-1.0, y - 0.1)],
}


def sets_of(X: Floats, share: float) -> dict[str, ComparatorSet]:
    """Sets of every kind; ``share``: how much of what the columns allow."""
    size = 1.0 / np.sqrt(np.square(X).mean(axis=0))
    radius = share * float(np.median(size))
    return {
        "box": Box(radius),
        "l1": L1(1.0, 2.0 * radius),
        "l2": L2(1.0, radius),
        "weighted l1": L1(1.0 / size, 2.0 * share),
        "weighted l2": L2(1.0 / size, share),
        "simplex": Simplex(),
    }


def problem(X: Floats, y: Floats, name: str, h: Floats | None = None) -> Problem:
    loss, batch = find_loss(name), sparse(X, y, h)
    sides = 2 if loss.classifies else 1
    learners = 2 if loss.coupled else 1
    return Problem(
        lambda: [batch], loss, loss.parse_params({}), X.shape[1], sides, learners, bias=False
    )


def value(loss: Loss, X: Floats, y: Floats, h: Floats, u: Floats) -> float:
    told = loss.numbers({})
    return float(sum(w * loss.value(p, a, told) for w, p, a in zip(h, X @ u, y, strict=True)))


def violation(one: ComparatorSet, u: Floats) -> float:
    """By how much u is outside of a set, as a share of its size."""
    if isinstance(one, Box):
        return float((np.abs(u) / one.bound).max() - 1.0)
    if isinstance(one, L1):
        return float((one.weight * np.abs(u)).sum() / one.radius - 1.0)
    if isinstance(one, L2):
        return float(np.linalg.norm(one.weight * u) / one.radius - 1.0)
    if isinstance(one, Lq):
        return float(np.linalg.norm(one.weight * u, one.q) / one.radius - 1.0)
    assert isinstance(one, Simplex)
    return max(abs(float(u.sum()) - 1.0), -float(u.min()))


def least(name: str, one: ComparatorSet, X: Floats, y: Floats, h: Floats) -> float:
    """The least loss over the set, by a linear programme or by SLSQP."""
    if name in LINES and not isinstance(one, L2):
        return _programme(LINES[name], one, X, y, h)
    return _slsqp(name, one, X, y, h)


def _programme(lines: Any, one: ComparatorSet, X: Floats, y: Floats, h: Floats) -> float:
    n, d = X.shape  # u = a - b with a, b >= 0, and a bound t on each row's loss
    rows, levels = [], []
    for i in range(n):
        for slope, level in lines(float(y[i])):
            rows.append(np.concatenate([slope * X[i], -slope * X[i], -np.eye(n)[i]]))
            levels.append(-level)
    bounds: list[Any] = [(0.0, None)] * (2 * d) + [(None, None)] * n
    equal = {}
    if isinstance(one, Box):
        bounds[: 2 * d] = [(0.0, one.bound)] * (2 * d)
    elif isinstance(one, L1):
        a = np.broadcast_to(one.weight, d)
        rows.append(np.concatenate([a, a, np.zeros(n)]))
        levels.append(one.radius)
    else:
        bounds[d : 2 * d] = [(0.0, 0.0)] * d
        equal = {"A_eq": [np.concatenate([np.ones(d), np.zeros(d + n)])], "b_eq": [1.0]}
    cost = np.concatenate([np.zeros(2 * d), h])
    found = scipy.optimize.linprog(cost, A_ub=rows, b_ub=levels, bounds=bounds, **equal)
    assert found.status == 0, found.message
    return float(found.fun)


def _slsqp(name: str, one: ComparatorSet, X: Floats, y: Floats, h: Floats) -> float:
    loss = find_loss(name)
    told, (n, d) = loss.numbers({}), X.shape
    scale = 1.0 / np.sqrt(np.square(X).mean(axis=0))  # u = scale * z
    Z, kinked = X * scale, name in LINES

    def cost(v: Floats) -> tuple[float, Floats]:
        if kinked:
            return float(h @ v[d:]), np.concatenate([np.zeros(d), h])
        p = Z @ v
        pairs = list(zip(p, y, strict=True))
        values = np.array([loss.value(a, b, told) for a, b in pairs])
        slopes = np.array([loss.slope(a, b, told) for a, b in pairs])
        return float(h @ values), Z.T @ (h * slopes)

    limits: list[dict[str, Any]] = []
    bounds: list[Any] = [(None, None)] * d
    if isinstance(one, L2):
        a = one.weight * scale
        limits.append(
            {
                "type": "ineq",
                "fun": lambda v: one.radius**2 - float(np.square(a * v[:d]).sum()),
                "jac": lambda v: np.concatenate([-2 * a * a * v[:d], np.zeros(len(v) - d)]),
            }
        )
    elif isinstance(one, Box):
        bounds = [(-one.bound / s, one.bound / s) for s in scale]
    elif isinstance(one, Simplex):
        bounds = [(0.0, 1.0 / s) for s in scale]
        limits.append(
            {"type": "eq", "fun": lambda v: float(scale @ v) - 1.0, "jac": lambda v: scale}
        )
    elif isinstance(one, L1):  # its corners: every choice of signs
        a = np.broadcast_to(one.weight, d) * scale
        signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * d)).reshape(d, -1).T * a
        limits.append(
            {"type": "ineq", "fun": lambda v: one.radius - signs @ v, "jac": lambda v: -signs}
        )
    start = one.nearest(np.zeros(d)) / scale
    if kinked:
        bounds += [(None, None)] * n
        slack = [[(s * Z[i], l, i) for s, l in LINES[name](float(y[i]))] for i in range(n)]
        flat = [entry for entries in slack for entry in entries]
        A = np.array([np.concatenate([-row, np.eye(n)[i]]) for row, _, i in flat])
        b = np.array([level for _, level, _ in flat])
        limits.append({"type": "ineq", "fun": lambda v: A @ v - b, "jac": lambda v: A})
        tops = [max(float(row @ start) + level for row, level, _ in e) for e in slack]
        start = np.concatenate([start, tops])
    options = {"maxiter": 2000, "ftol": 1e-14}
    found = scipy.optimize.minimize(
        cost, start, jac=True, method="SLSQP", bounds=bounds, constraints=limits, options=options
    )
    return float(found.fun)
