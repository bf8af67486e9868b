"""Projected quasi-Newton: the minimum of a smooth function over a convex set.

Schmidt, van den Berg, Friedlander & Murphy 2009, "Optimizing costly functions with simple
constraints". Each step minimizes the L-BFGS model of the function over the set by spectral
projected gradients, which cost no evaluation, and searches the line to that point. The function is
costly (a pass over the rows), the projection cheap.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from streamomd.core.batch import Floats

Objective = Callable[[Floats], tuple[float, Floats]]
Projection = Callable[[Floats], Floats]

MEMORY = 12  # steps in the model
INNER = 60  # projected gradient steps on the model
SHORTENINGS = 25  # of a step, before the line search ends
DECREASE = 1e-4  # share of the predicted decrease that a step must reach
FLAT = 1e-14  # a predicted decrease below this share of the value is rounding


@dataclass
class HessianModel:
    """B of the model <g, s> + <s, B s> / 2, from the last steps and gradient changes."""

    steps: deque[Floats] = field(default_factory=lambda: deque(maxlen=MEMORY))
    changes: deque[Floats] = field(default_factory=lambda: deque(maxlen=MEMORY))
    sigma: float = 1.0
    wide: Floats | None = None
    middle: Floats | None = None

    def update(self, step: Floats, change: Floats) -> None:
        """Add a step to the model, unless the function has no curvature along it."""
        along = float(step @ change)
        if not along > 1e-12 * float(np.linalg.norm(step) * np.linalg.norm(change)):
            return
        self.steps.append(step)
        self.changes.append(change)
        self.sigma = float(change @ change) / along
        S, Y = np.array(self.steps), np.array(self.changes)
        inner = S @ Y.T
        lower = np.tril(inner, -1)
        diagonal = np.diag(np.diag(inner))
        self.wide = np.concatenate([self.sigma * S, Y])
        self.middle = np.linalg.pinv(
            np.block([[self.sigma * (S @ S.T), lower], [lower.T, -diagonal]])
        )

    def times(self, v: Floats) -> Floats:
        """B v."""
        if self.wide is None or self.middle is None:
            return self.sigma * v
        product: Floats = self.sigma * v - self.wide.T @ (self.middle @ (self.wide @ v))
        return product


def minimize(
    objective: Objective,
    nearest: Projection,
    start: Floats,
    *,
    passes: int,
    enough: Callable[[], bool] = lambda: False,
) -> Floats:
    """The point reached after at most ``passes`` evaluations; its value never exceeds the start's.

    objective: z -> value, gradient; points whose value is not finite are avoided. nearest: the
    projection onto the set. enough: called after each step; True ends the search.
    """
    z = nearest(start)
    value, gradient = objective(z)
    if not math.isfinite(value) or not np.isfinite(gradient).all():
        return z
    model, left = HessianModel(), passes - 1
    model.sigma = max(float(np.linalg.norm(gradient)), 1e-300)
    while left > 0 and not enough():
        towards = _model_minimum(model, z, gradient, nearest)
        along = towards - z
        slope = float(gradient @ along)
        if not slope < -FLAT * max(abs(value), 1e-300):
            break
        share = 1.0
        for _ in range(SHORTENINGS):
            reached = z + share * along
            left -= 1
            next_value, there = objective(reached)
            fine = math.isfinite(next_value) and bool(np.isfinite(there).all())
            if (fine and next_value <= value + DECREASE * share * slope) or left <= 0:
                break
            share *= _shorter(value, next_value, share * slope) if fine else 0.1
        if not fine or next_value > value:
            break
        model.update(reached - z, there - gradient)
        z, value, gradient = reached, next_value, there
    return z


def _shorter(value: float, found: float, slope: float) -> float:
    """The minimum of the parabola through both values, as a share of the step."""
    bend = found - value - slope
    return min(max(-0.5 * slope / bend, 0.1), 0.5) if bend > 0.0 else 0.5


def _model_minimum(model: HessianModel, z: Floats, gradient: Floats, nearest: Projection) -> Floats:
    """An approximate minimum over the set of the model around z."""
    point, slope, pace = z, gradient, 1.0 / model.sigma
    for _ in range(INNER):
        along = nearest(point - pace * slope) - point
        fall = float(slope @ along)
        if not fall < 0.0:
            break
        bent = model.times(along)
        bend = float(along @ bent)
        share = min(1.0, -fall / bend) if bend > 0.0 else 1.0
        point, slope = point + share * along, slope + share * bent
        pace = float(along @ along) / bend if bend > 0.0 else 1.0 / model.sigma
        if -share * fall < 1e-10 * abs(float(gradient @ (point - z))):
            break
    return point
