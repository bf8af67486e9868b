"""Step sizes and curvatures of the FTRL learners, which their certificates use, too."""

from __future__ import annotations

import math
from typing import Any

from streamomd.rules.common.schedule import rate

CONSTANT, SQRT, STRONG = 0.0, 1.0, 2.0
"""The schedules of ``composite``."""
EVERY, ONCE = 0.0, 1.0
"""How often ``ftrl_proximal`` charges phi."""


def averaging_rate(clock: float, h: Any) -> float:
    """eta_T of the T rows before this one; before the first row any value will do: theta is 0."""
    return rate(h.eta, h.schedule, max(clock - 1.0, 1.0))


def beta(clock: float, h: Any) -> float:
    """beta_T of the T rows before this one."""
    return float(h.gamma * math.sqrt(max(clock - 1.0, 1.0)))


def composite_rate(h: Any) -> float:
    """eta of ``composite``."""
    return 1.0 if h.schedule == STRONG else float(h.eta)


def composite_curvature(clock: float, h: Any) -> float:
    """c_t of ``composite``."""
    if h.schedule == SQRT:
        return math.sqrt(clock)
    return 1.0 if h.schedule == CONSTANT else 0.0


def pace(h: Any) -> float:
    """a of h_i = (b + sqrt(G_i)) / a."""
    return math.sqrt(2.0) * h.radius if h.radius > 0.0 else float(h.alpha)


def first(h: Any) -> float:
    """b of h_i = (b + sqrt(G_i)) / a."""
    return 0.0 if h.radius > 0.0 else float(h.beta)


def centered_curvature(M: float, G: float, h: Any) -> float:
    """h_i of ``ftrl_centered``."""
    bound = h.L * M
    return math.sqrt(bound * bound + G) / float(h.radius)


def delta_of(shared: Any, h: Any) -> float:
    """delta_i of ``adagrad_da``."""
    return float(h.delta if h.delta > 0.0 else h.L * shared.b)
