"""What the learners with a full matrix share: their limit, and what their bounds need of A.

The engine stores A^-1 as U D U' (see ``engine.loops.matrix``): a quadratic form of A is a
triangular solve, its determinant a product.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import numpy as np

from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.contract import MATRIX, Max, Mean, Sum
from streamomd.rules.params import Between

Limit = Annotated[float, Between(1.0, 1_000_000.0, whole=True)]
"""The most coordinates: a matrix of 4,096 is 128 MiB for each learner, and read whole each row."""
LIMIT = float(MATRIX)
EPSILON = float(np.finfo(np.float64).eps)


class Own(NamedTuple):
    """Slots of learners in mean form: mu = A^-1 theta."""

    mu: Mean = 0.0


class Updates(NamedTuple):
    """What ``margin_claims`` needs."""

    updates: Sum = 0.0  # of h, where it learned
    lift: Sum = 0.0  # of what each update subtracts from the bound
    heaviest: Max = 0.0  # h that it learned with


class Move(NamedTuple):
    """mu <- mu + s A^-1 x, A <- A + c x x'."""

    s: float
    c: float


def weight(own: Own, shared: object, totals: object, clock: float, h: Any) -> float:
    return own.mu


def update(own: Own, shared: object, v: float, move: Move, clock: float, h: Any) -> Own:
    return Own(own.mu + move.s * v)


def largest(params: Mapping[str, Any]) -> int:
    return int(params["limit"])


def gain(s: float, c: float, m: float, chi: float) -> float:
    """The step along A^-1 x of theta += s x with A += c x x': mu = A^-1 theta moves by it."""
    return (s - c * m) / (1.0 + c * chi)


def form(run: Run, u: Any, start: float) -> float:
    """u'A u, where A started as ``start`` times the identity."""
    from scipy.linalg import solve_triangular  # not needed to learn: a start is faster without

    upper, diagonal = _factors(run)
    z = solve_triangular(upper, u, unit_diagonal=True, check_finite=False)
    return float(start * np.sum(z * z / diagonal))


def log_volume(run: Run) -> float:
    """ln det(A / start), and what it may have lost by rounding.

    A row of which g^2 <x, A^-1 x> is below 1e-16 leaves A as it is: were that not added, bounds
    that multiply the volume with the length of a long u would be below what is measured.
    """
    diagonal = _factors(run)[1]
    rounding = 4.0 * EPSILON * len(diagonal) * (run.rows + 1.0)
    return float(-np.log(diagonal).sum()) + rounding


def _factors(run: Run) -> tuple[Any, Any]:
    stored = np.asarray(run.extra["matrix"])
    return np.tril(stored, -1).T + np.eye(len(stored)), np.diagonal(stored)


def margin_claims(run: Run, r: float, unit: float, power: float) -> list[Claim]:
    """Bounds on the updates, by weight, of learners that add unit y x to theta and x x'/r to A.

    P0's proof, with importances: an update of importance h adds h unit y x, and h x x'/r where
    ``power`` is 1, x x'/r where it is 2. The first bound is its last step before any
    simplification, <u, theta> <= |u|_A |theta|_(A^-1).
    """
    source = "Orabona, Crammer & Cesa-Bianchi 2015, section 6.2"
    hinge, totals = run.hinge_u(1.0), run.totals
    primal = form(run, run.u, 1.0)
    dual = max(form(run, np.asarray(run.own["mu"]), 1.0), 0.0)
    volume = totals["heaviest"] ** power * log_volume(run)
    spread = np.sqrt(max(volume + totals["lift"], 0.0))
    name, updates = "updates, the mistakes among them", totals["updates"]
    return [
        Claim(name, updates, float(hinge + np.sqrt(primal * dual) / unit), source),
        Claim(
            f"{name}; by the volume", updates, float(hinge + np.sqrt(r * primal) * spread), source
        ),
    ]
