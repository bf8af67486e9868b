"""Step sizes: the schedules of gradient descent, its adaptive step, and curvatures of FTRL."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

from streamomd.rules.certificates.accounts import with_accounts
from streamomd.rules.contract import Row, Rule, Sum, fields
from streamomd.rules.params import Choice

Schedule = Annotated[float, Choice(("constant", "sqrt", "inverse"))]
CONSTANT, SQRT, INVERSE = 0.0, 1.0, 2.0


def rate(eta: float, schedule: float, t: float) -> float:
    """eta, eta / sqrt(t) or eta / t (t from 1).

    >>> rate(0.5, SQRT, 4.0)
    0.25
    """
    if schedule == CONSTANT:
        return eta
    if schedule == SQRT:
        return eta / math.sqrt(t)
    return eta / t


AdaptiveSchedule = Annotated[float, Choice(("constant", "sqrt", "inverse", "adaptive"))]
ADAPTIVE = 3.0
LEAST = 1e-300  # of a rate, where gradients have diverged: certificates divide by it


class Squares(NamedTuple):
    N: Sum = 0.0  # of ||g x||^2


def terms(own: Any, shared: object, x: float, totals: Any, clock: float, h: Any) -> tuple[float]:
    return (x * x,)


def squares(row: Row, totals: Any, active: bool, move: Any, clock: float, h: Any) -> Squares:
    g = row.importance * row.slope
    return Squares(totals.N + g * g * row.r[0])


def with_adaptive_rate(rule: Rule) -> Rule:
    """A rule whose parameters begin with eta and schedule, with the total N.

    Of an adaptive schedule each row's step is that of a constant eta / sqrt(N). Before the first
    gradient N is 0, and nothing moves.
    """
    made = with_accounts(rule, totals=Squares, step=squares, terms=terms, gathers=1)
    Base: Any = rule.state.totals
    Whole: Any = made.state.totals
    Hyper: Any = rule.hyper
    plain, n = rule.step, len(fields(Base))

    def step(row: Row, totals: Any, clock: float, h: Any) -> Any:
        total = squares(row, totals, False, (), clock, h)
        if h.schedule == ADAPTIVE:
            eta = max(h.eta / math.sqrt(total.N), LEAST) if total.N > 0.0 else h.eta
            h = Hyper(*((eta, CONSTANT) + h[2:]))  # noqa: RUF005
        active, move, after = plain(row, Base(*totals[:n]), clock, h)
        return active, move, Whole(*(after[:] + total[:]))

    return replace(made, step=step)


STRONG = 2.0
"""The third schedule of ``composite``, after constant and sqrt."""
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
