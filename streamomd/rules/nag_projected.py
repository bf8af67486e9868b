r"""NAG projected: normalized adaptive gradient with the set its regret bounds need (P1, section 5).

Scale s_i = max abs(x_i), in ``passes`` = 1 (streaming) so far, this row counted, in 2
(transductive) over all rows, observed before the first is learned. A_i = sqrt(G_i) s_i / (C eta)
with eta = sqrt(2); f_t(w) = <w, A_t w> / 2, whose conjugate has the gradient theta_i / A_i. With g
the loss's slope, without squashing and without N,

    G_i += (g x_i)^2,    w_i <- w_i - g x_i / A_i = w_i - C eta g x_i / (s_i sqrt(G_i)),

then the nearest w in the norm of A, after each row, with sum s_i abs(w_i) <= C (``norm`` "l1"):
soft(w_i, mu s_i / A_i), P1's p of infinity. "l2" is sum (s_i w_i)^2 <= C^2, p = 2, and "lq" is
sum (s_i abs(w_i))^q <= C^q with 1 / p + 1 / q = 1, each coordinate found by Newton's steps: with
S_i = 1 / (k s_i)^2 and C k for P1's C, k the most that the p-norm of x_i / s_i comes to, k cancels
everywhere.

Certificate, u in the set, w_t the weights that predicted row t:

    regret <= sum_t <w_t - u, (A_t - A_{t-1}) (w_t - u)> / 2
              + sum_t sum_i (g x_i)^2 / (2 A_{t,i})                                     (lemma 1)
           <= 2 sqrt(2) C sum sqrt(G_i) / s_i                            (theorem 1, transductive)
           <= C sum sqrt(G_i) / s_i (1 + 6 D_i + D_i^2) / (2 sqrt(2))       (theorem 2, streaming)

D_i = s_i / the first abs(x_i).

Cost: O(nnz), and O(d) times some 80 halvings on rows that leave the set. Predictions do not change
when any feature is multiplied by any constant that leaves its values in range: G holds squares.
Choose it over NAG when a bound is wanted and a C is known that sum abs(w_i) max abs(x_i) of a good
w does not exceed; else NAG.

Set C. No default fits, as with "l1" it bounds the predictions: abs(<w, x>) <= C. For separable
classes take 10 (the logistic loss of a margin of 10 is 5e-5), in regression the largest abs(y).
Also set ``norm`` = "l2" where rows have many features: the theorems fix eta, and with it steps are
longer than the set is wide before row 2 d^2 with "l1", 2 d with "l2". On separable rows of 12
Gaussian features "l2" with C = 10 makes 17 % errors in 2,000 rows and 10 % in 20,000; "l1" 29 % and
19 %, at the default C 35 % and 29 %.

>>> from streamomd.training.demo import score
>>> score("nag_projected"), score("nag_projected", C=3.0), score("nag_projected", norm="l2")
(0.321, 0.301, 0.21)
>>> score("nag_projected", norm="lq", p=3.0)
0.232
"""

from __future__ import annotations

import math
from typing import Annotated, Any, NamedTuple

from streamomd.rules.certificates.ogd_bounds import certified_in_ball
from streamomd.rules.common.scaled_ball import ETA
from streamomd.rules.contract import Max, Mean, Observe, Params, Row, RowHooks, Rule, Slots, Sum
from streamomd.rules.params import Between, Choice, Positive, YesNo
from streamomd.rules.ranges import SQUARES


class Hyper(NamedTuple):
    C: Annotated[Positive, "at least sum s_i abs(w_i) (l2: its root) of good weights"] = 1.0
    passes: Annotated[float, Between(1, 2, whole=True)] = 1.0
    norm: Annotated[float, Choice(("l1", "l2", "lq")), "l2 where rows have many features"] = 0.0
    clip: YesNo = 0.0
    project_every: Annotated[float, Between(1, 1e9, whole=True)] = 1.0
    p: Annotated[float, Between(1.1, 64.0)] = 4.0


class Shared(NamedTuple):
    s: Max = 0.0


class Own(NamedTuple):
    w: Mean = 0.0
    G: Sum = 0.0


class Move(NamedTuple):
    g: float
    step: float


def observe(shared: Shared, x: float, clock: float, h: Hyper) -> tuple[Shared, tuple[()]]:
    return Shared(max(shared.s, abs(x))), ()


def weight(own: Any, shared: Any, totals: object, clock: float, h: Hyper) -> float:
    return float(own.w)


def looks(params: Params) -> bool:
    return bool(params["passes"] == 2)


def clamp(margin: float, totals: object, h: Hyper) -> float:
    return min(max(margin, -h.C), h.C) if h.clip != 0.0 else margin


def step(row: Row, totals: object, clock: float, h: Hyper) -> tuple[bool, Move, object]:
    g = row.importance * row.slope
    return g != 0.0, Move(g, h.C * ETA * g), totals


def update(own: Own, shared: Shared, x: float, move: Move, clock: float, h: Hyper) -> Own:
    z = move.g * x
    G = own.G + z * z
    if G == 0.0:  # z * z underflowed: 0/0 = 0
        return own
    return Own(own.w - move.step * (x / (shared.s * math.sqrt(G))), G)


RULE = certified_in_ball(
    Rule(
        name="nag_projected",
        title="NAG in the set its regret bound needs: raw units, a bound on the weights known",
        source="Ross, Mineiro & Langford 2013, theorems 1 and 2",
        hyper=Hyper,
        state=Slots(own=Own, shared=Shared, move=Move, weight="w", curvature="G"),
        observe=Observe(observe, ahead=looks),
        weight=weight,
        step=step,
        update=update,
        row=RowHooks(range=SQUARES, clamp=clamp),
    )
)
