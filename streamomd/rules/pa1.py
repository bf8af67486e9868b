r"""PA-I: the passive-aggressive update with a cap (P2, section 5).

f(w) = ||w||^2 / 2, w = grad f*(theta) = theta. When the hinge loss l is positive, the step that
brings it to 0, but at most C (times the row's importance):

    a = min(C, l / ||x||^2),    theta <- theta + a y x.

Each step is the best one for the dual value D = sum of a - ||theta||^2 / 2. O(nnz) a row.

Certificates, for any u, L(u) its summed hinge loss: D, which here is the sum of
a l - a^2 ||x||^2 / 2, is at most f(u) + C L(u) (P2, theorem 3), so there are at most
(f(u) + C L(u)) / r mistakes, each of which raised D by r or more (theorem 1). Where C ||x||^2 <= 1
for all rows (||x|| <= 1 with C = 1; checked on the rows), with k = ||u||^2 / C, the bound of the
Perceptron on rows of that length holds too (P0, corollary 2: in its equation 21 each margin error
adds a (a ||x||^2 + 2 y yhat - 2) C <= 0, as a ||x||^2 <= 1 - y yhat):

    mistakes <= L(u) + k/2 + sqrt(k) sqrt(k/4 + L(u)).

The dual value is in the progress line. It adapts to each row's length, so rows may
differ in norm; features should still be on one scale.

>>> from streamomd.training.demo import score
>>> score("pa1"), score("pa1", C=0.01)
(0.264, 0.22)
"""

from __future__ import annotations

from typing import NamedTuple

from streamomd.rules.certificates.ascent_bounds import pa1_certified
from streamomd.rules.contract import Losses, Observe, Row, RowHooks, Rule, Slots
from streamomd.rules.params import Positive
from streamomd.rules.perceptron import Move, Own, observe, update, weight
from streamomd.rules.ranges import NORMS


class Hyper(NamedTuple):
    C: Positive = 1.0


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[bool, Move, object]:
    cap, norm2 = row.importance * h.C, row.q[0]
    a = 0.0
    if norm2 * cap > row.loss:
        a = row.loss / norm2
    elif norm2 > 0.0 and row.loss > 0.0:
        a = cap
    return a != 0.0, Move(a * row.y), totals


RULE = pa1_certified(
    Rule(
        name="pa1",
        title=(
            "passive-aggressive, capped: the smallest change that fits the row, up to a step of C"
        ),
        source="Shalev-Shwartz & Singer 2006, section 5 (Crammer et al. 2006, PA-I)",
        hyper=Hyper,
        state=Slots(move=Move, own=Own, weight="theta"),
        observe=Observe(observe, sums=1),
        weight=weight,
        step=step,
        update=update,
        losses=Losses(names=("hinge",)),
        row=RowHooks(importance="cap", range=NORMS),
    )
)
