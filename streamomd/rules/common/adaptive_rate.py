"""The scalar adaptive step of P3, section 5: eta / sqrt(sum of ||g x||^2), this row's included."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

from streamomd.rules.certificates.accounts import with_accounts
from streamomd.rules.common.schedule import CONSTANT
from streamomd.rules.contract import Row, Rule, Sum, fields
from streamomd.rules.params import Choice

Schedule = Annotated[float, Choice(("constant", "sqrt", "inverse", "adaptive"))]
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
