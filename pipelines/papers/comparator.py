"""Fixed predictors to compare with: the best in hindsight, found with scipy and no streamomd."""

from __future__ import annotations

from typing import Any

import numpy as np
from common import Rows, csr
from scipy.optimize import minimize
from scipy.special import expit


def logistic_loss(x: Any, y: np.ndarray, u: np.ndarray) -> float:
    """Sum of the log loss of u."""
    return float(np.logaddexp(0.0, -y * (x @ u)).sum())


def hinge_loss(x: Any, y: np.ndarray, u: np.ndarray, gamma: float = 1.0) -> float:
    """Sum of the hinge loss of u."""
    return float(np.maximum(0.0, gamma - y * (x @ u)).sum())


def best_logistic(
    rows: Rows, *, box: float = 0.0, ridge: np.ndarray | float = 0.0, steps: int = 500
) -> np.ndarray:
    """The u of least log loss + sum ridge u^2 / 2, inside the box abs(u) <= box if it is not 0."""
    x, y = csr(rows), rows.y

    def value(u: np.ndarray) -> tuple[float, np.ndarray]:
        p = x @ u
        slope = -y * expit(-y * p)
        loss = float(np.logaddexp(0.0, -y * p).sum() + 0.5 * (ridge * u * u).sum())
        return loss, x.T @ slope + ridge * u

    bounds = [(-box, box)] * x.shape[1] if box else None
    found = minimize(
        value,
        np.zeros(x.shape[1]),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": steps, "maxfun": 2 * steps},
    )
    return np.asarray(found.x)


def best_hinge(rows: Rows, C: float, passes: int = 20) -> np.ndarray:
    """A u near the least ||u||^2 / 2 + C sum of hinge losses: dual coordinate ascent."""
    x, y = csr(rows), rows.y
    indptr, indices, values = x.indptr, x.indices, x.data
    norms = np.asarray(x.multiply(x).sum(axis=1)).ravel()
    u, alpha = np.zeros(x.shape[1]), np.zeros(len(y))
    order = np.random.default_rng(0)
    for _ in range(passes):
        for at in order.permutation(len(y)):
            some = slice(indptr[at], indptr[at + 1])
            places, part = indices[some], values[some]
            if norms[at] == 0.0:
                continue
            gap = 1.0 - y[at] * float(u[places] @ part)
            raised = min(C, max(0.0, alpha[at] + gap / norms[at]))
            if raised != alpha[at]:
                u[places] += (raised - alpha[at]) * y[at] * part
                alpha[at] = raised
    return u
