r"""PA: the passive-aggressive update without a cap (P2, section 5, C infinite).

f(w) = ||w||^2 / 2, w = grad f*(theta) = theta. When the hinge loss l is positive, the step that
brings it to 0:

    theta <- theta + (l / ||x||^2) y x.

A row of importance 0 causes no update; any other importance counts as 1. O(nnz) a row. No
certificate: a single wrong label can move it arbitrarily far, so no bound holds unless the data are
separable.

Choose it for clean labels; with noise use `pa1` or `pa2`, which cap or damp the step.

>>> from streamomd.training.demo import score
>>> score("pa")
0.275
"""

from __future__ import annotations

from streamomd.rules.contract import Certificate, Losses, Observe, Row, RowHooks, Rule, Slots
from streamomd.rules.perceptron import Move, Own, observe, update, weight
from streamomd.rules.ranges import NORMS


def step(row: Row, totals: object, clock: float, h: object) -> tuple[bool, Move, object]:
    if row.q[0] > 0.0 and row.importance > 0.0:
        a = row.loss / row.q[0] * row.y
        return a != 0.0, Move(a), totals
    return False, Move(0.0), totals


RULE = Rule(
    name="pa",
    title="passive-aggressive: each update brings the row's loss to 0; for clean labels",
    source="Shalev-Shwartz & Singer 2006, section 5 (Crammer et al. 2006, PA)",
    state=Slots(move=Move, own=Own, weight="theta"),
    observe=Observe(observe, sums=1),
    weight=weight,
    step=step,
    update=update,
    losses=Losses(names=("hinge",)),
    row=RowHooks(importance="presence", range=NORMS),
    certificate=Certificate(
        reason="without a cap on the step no bound holds where labels are noisy"
    ),
)
