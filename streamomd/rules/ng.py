r"""NG: normalized gradient descent (P1, algorithm 1).

Scale s_i = max abs(x_i) so far. Before the prediction a coordinate with a larger value is
squashed, w_i <- w_i (s_i / x_i)^2, and N += sum x_i^2 / s_i^2. After it, with g the loss's slope,

    w_i <- w_i - eta_t (t / N) g x_i / s_i^2.

Predictions do not change when any feature is multiplied by any constant. NAG, which also adapts
the step of each coordinate, usually learns faster. No regret bound is proven for this form.

Set eta. The mean of (t / N) sum x_i^2 / s_i^2 is 1, so a step moves the prediction by some eta_t g.
With the square loss eta = 2 is the largest that does not move it away from the label on the first
row; 8 diverges on some data. With the logistic and hinge losses, whose slopes are at most 1 in
size, take 4 to 16. No default fits: with the Poisson loss, whose slopes have no bound, already 1
may diverge. On separable rows of 12 Gaussian features NG makes 22 % errors, with eta = 4 8 %.

Cost: O(nnz).

>>> from streamomd.training.demo import score
>>> score("ng"), score("ng", "square"), score("ng", implicit=True)
(0.113, 0.645, 0.113)
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from streamomd.rules.common.schedules import SQRT, Schedule, rate
from streamomd.rules.contract import (
    Certificate,
    Max,
    Mean,
    Observe,
    Row,
    RowHooks,
    Rule,
    Slots,
    Sum,
)
from streamomd.rules.params import Positive, YesNo
from streamomd.rules.ranges import RATIOS


class Hyper(NamedTuple):
    eta: Annotated[Positive, "4 to 16 with logistic or hinge loss; up to 2 with square"] = 0.5
    schedule: Schedule = SQRT
    implicit: YesNo = 0.0


class Shared(NamedTuple):
    s: Max = 0.0


class Own(NamedTuple):
    w: Mean = 0.0


class Totals(NamedTuple):
    N: Sum = 0.0


class Move(NamedTuple):
    step: float


def observe(shared: Shared, x: float, clock: float, h: Hyper) -> tuple[Shared, tuple[float]]:
    s = max(shared.s, abs(x))
    r = x / s
    return Shared(s), (r * r,)


def align(own: Own, old: Shared, new: Shared, totals: Totals, clock: float, h: Hyper) -> Own:
    ratio = old.s / new.s
    return Own(own.w * (ratio * ratio))


def weight(own: Own, shared: Shared, totals: Totals, clock: float, h: Hyper) -> float:
    return own.w


def step(row: Row, totals: Totals, clock: float, h: Hyper) -> tuple[bool, Move, Totals]:
    N = totals.N + row.q[0]
    pace = rate(h.eta, h.schedule, clock) * (clock / N) if N > 0.0 else 0.0
    step = pace * row.importance * row.slope
    return step != 0.0, Move(step), Totals(N)


def stretch(move: Move, factor: float) -> Move:
    return Move(move.step * factor)


def update(own: Own, shared: Shared, x: float, move: Move, clock: float, h: Hyper) -> Own:
    return Own(own.w - move.step * (x / shared.s) / shared.s)


RULE = Rule(
    name="ng",
    title="normalized gradient: raw units, one step size for all coordinates",
    source="Ross, Mineiro & Langford 2013, algorithm 1",
    hyper=Hyper,
    state=Slots(move=Move, own=Own, shared=Shared, totals=Totals, weight="w", degrees=(("s", 1),)),
    observe=Observe(observe, sums=1),
    align=align,
    weight=weight,
    step=step,
    update=update,
    row=RowHooks(range=RATIOS, stretch=stretch, implicit="implicit"),
    certificate=Certificate(
        reason="Ross et al. prove a bound for the projected form only: see nag_projected"
    ),
)
