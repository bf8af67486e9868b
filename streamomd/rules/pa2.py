r"""PA-II: the passive-aggressive update, damped (P2, section 5; Crammer et al. 2006).

f(w) = ||w||^2 / 2, w = grad f*(theta) = theta. When the hinge loss l is positive,

    a = l / (||x||^2 + 1 / (2 C)),    theta <- theta + a y x,

with the row's importance multiplying C. O(nnz) a row. No certificate: it ascends the dual of the
squared hinge loss, which the papers prove nothing for.

Choose it like `pa1`: small C for noisy labels. Its steps grow with the loss, without a limit.

>>> from streamomd.training.demo import score
>>> score("pa2"), score("pa2", C=0.01)
(0.269, 0.207)
"""

from __future__ import annotations

from typing import NamedTuple

from streamomd.rules.contract import Certificate, Losses, Observe, Row, RowHooks, Rule, Slots
from streamomd.rules.params import Positive
from streamomd.rules.perceptron import Move, Own, observe, update, weight
from streamomd.rules.ranges import NORMS


class Hyper(NamedTuple):
    C: Positive = 1.0


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[bool, Move, object]:
    twice = 2.0 * row.importance * h.C
    a = row.loss * twice / (1.0 + twice * row.q[0]) * row.y
    return a != 0.0, Move(a), totals


RULE = Rule(
    name="pa2",
    title="passive-aggressive, damped: each update reduces the row's loss, never to 0",
    source="Crammer et al. 2006, PA-II (Shalev-Shwartz & Singer 2006, section 5)",
    hyper=Hyper,
    state=Slots(move=Move, own=Own, weight="theta"),
    observe=Observe(observe, sums=1),
    weight=weight,
    step=step,
    update=update,
    losses=Losses(names=("hinge",)),
    row=RowHooks(importance="cap", range=NORMS),
    certificate=Certificate(
        reason="the papers prove bounds for the capped update, not for the damped one"
    ),
)
