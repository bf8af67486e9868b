"""Formulas of the learners on standardised inputs: ``auto`` and its parts, ``laplace`` and
``adagrad_standardized``.

Two predictors learn the same rows. B: online Laplace (Newton) steps, with a full matrix over a
block of coordinates and a diagonal for the others. G: AdaGrad with NAG's pace and squash. Here is
what concerns one coordinate outside the block, and a row's totals; the block's algebra is in
``engine.loops.block``. n sums importances, t counts rows. Importances are relative: priors, G's
pace and the lead are in units of the mean n / t, so that a constant factor changes nothing.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, NamedTuple

from streamomd.rules.contract import Max, Mean, Saved, Sum
from streamomd.rules.params import Between, Choice
from streamomd.rules.ranges import SQUARES, Limits, Range

RANGE = Range(Limits(1e-150, 1e150), SQUARES.float32)
"""Slots and moments hold sums of x^2 over as many as 10^6 rows."""
AUTO, RECENT, WHOLE = 0.0, 1.0, 2.0
"""Words of ``prefer``."""
RECENT_ROWS = 8192.0
"""The mean log losses of B and of G are of about as many rows."""
LEAD = 50.0
"""Bound on the lead, in nats: by how much one predictor's past can outweigh the other's."""


Size = Annotated[float, Between(1, 4096, whole=True)]
Preference = Annotated[float, Choice(("auto", "recent", "whole"))]
BLOCK = 64.0
"""Coordinates of the block at most, besides numeric columns."""


class Shared(NamedTuple):
    """n: rows that hold the coordinate, by importance. q: mean x^2 over them. place: its row in the
    block, 0 outside."""

    n: Sum = 0.0
    q: Mean = 0.0
    place: Max = 0.0


class Totals(NamedTuple):
    """Common to all learners, in the row of the first, but for the last four.

    t, n: rows learned and their importance; squares: summed h^2. next: the row of the next change
    of reference. labels, y_mean, y_M2, y_min, y_max: of the targets. c_y, s_y: their reference.
    mse, v: mean squared error of B, and of the better one; recent mean log losses of B and of G.
    lam, lam_bias: the priors' strength now, in the unit of importances. N: summed squares of
    standardised rows. lead: of G over B, in nats. since: the row at which it changed its sign.
    recent_n, recent_t, all_n: importance and rows since the last recalibration, and in all.
    horizon: importance of the first pass, once it has ended, else 0. outside: what multiplies
    prior_sparse. outside_g, outside_R: see ``along_outside``, summed since the last change of
    reference. Of each learner: recent_a, all_a: curvature over the same rows. retained: what
    recalibrations have left of A since the common start of a merge. scale: of S, which is stored
    without them.
    """

    t: Sum = 0.0
    n: Sum = 0.0
    next: Max = 1.0
    labels: Sum = 0.0
    y_mean: Mean = 0.0
    y_M2: Sum = 0.0
    y_min: Mean = 0.0
    y_max: Mean = 0.0
    c_y: Mean = 0.0
    s_y: Mean = 0.0
    mse: Mean = 0.0
    v: Mean = 0.0
    lam: Mean = 0.0
    lam_bias: Mean = 0.0
    N: Sum = 0.0
    squares: Sum = 0.0
    lead: Sum = 0.0
    since: Max = 0.0
    recent_n: Sum = 0.0
    recent_t: Sum = 0.0
    all_n: Sum = 0.0
    horizon: Max = 0.0
    outside: Mean = 1.0
    outside_g: Sum = 0.0
    outside_R: Sum = 0.0
    recent_a: Sum = 0.0
    all_a: Sum = 0.0
    retained: Mean = 1.0
    scale: Mean = 1.0


VERSION = 4


def older(saved: Saved) -> str:
    """Version 1 had priors and a lead in rows of importance 1; version 2 arrays of the coordinates
    in use; version 3 fewer totals."""
    if saved.version < 2:
        return "importances are copies of a row, not relative to their mean"
    if saved.version < 3:
        return "its arrays are not padded to multiples of eight"
    return "it has no total that multiplies the prior outside the block"


class Accounts(NamedTuple):
    """What the certificate of the square loss needs in addition to ``Totals``.

    cost: of (y - p)^2 h chi / (1 + h chi), p the prediction. volume: of log(1 + h chi). steepest:
    the largest h (y - p)^2 since the last change of reference. excess: of ((y - p)^2 - (y - m)^2) h
    / (1 + h chi) / 2. moved: by how much changes of reference have lowered the least regularised
    loss. past: of steepest times the growth of volume, up to the last change, where it was mark.
    """

    cost: Sum = 0.0
    volume: Sum = 0.0
    steepest: Max = 0.0
    excess: Sum = 0.0
    moved: Sum = 0.0
    past: Sum = 0.0
    mark: Max = 0.0


def see(shared: Shared, x: float, importance: float) -> Shared:
    """A sparse coordinate of a row, before it is predicted."""
    n, off = shared.n + importance, x * x - shared.q
    if off == 0.0:  # as of a category: a division less
        return Shared(n, shared.q, shared.place)
    return Shared(n, shared.q + off * (importance / n), shared.place)


def outweighs(shared: Shared, x: float, importance: float) -> bool:
    """Whether a row's x^2 is more than all x^2 before it: then the scale so far was too small."""
    return 0.0 < shared.n * shared.q < importance * x * x


def squash(shared: Shared, x: float, importance: float) -> float:
    """By what G's weight of such a coordinate is multiplied, as NAG's: else a first value near 0
    would leave a weight that thousands of steps do not correct."""
    return math.sqrt(shared.n * shared.q / importance) / abs(x)


def precision(S: Any, q: Any, scale: Any, prior: Any) -> Any:
    """D_i = lamS q_i + S_i of a coordinate outside the block; prior: lamS, in the unit of
    importances; scale: of S."""
    return prior * q + scale * S


def leverage(x: float, D: float) -> float:
    """x^2 / D: by how much a unit of B's step moves the margin; 0 of a coordinate never learned."""
    return x * (x / D) if D > 0.0 else 0.0


def sparse_unit(squared: bool) -> float:
    """What prior_sparse is a multiple of. Where A counts rows, as in the square loss, coordinates
    of which a row has several overshoot together: 3 is better on 7 of 8 tables, by up to 0.7 %."""
    return 3.0 if squared else 1.0


def pull_of_pass(squared: bool, learners: int) -> float:
    """The multiple of prior_sparse that pulls in each later pass.

    All of it for the square loss, as in the block. Of two classes a third, and of several none:
    weights of rare words gain more by growing than they lose by noise.
    """
    if squared:
        return sparse_unit(squared)
    return 1.0 / 3.0 if learners == 1 else 0.0


def grown(H: float, x: float, slope: float, importance: float) -> float:
    """H_i with this row: h copies of (l' x)^2."""
    z = slope * x
    return H + importance * (z * z)


def share_of_lead(lead: float) -> float:
    """wB = 1 / (1 + exp(lead)): B's share of the prediction."""
    return 1.0 / (1.0 + math.exp(lead))


def following(t: float) -> float:
    """The row of the change of reference after the one at row t."""
    if t < 16.0:
        return t + 1.0
    return math.ceil(1.25 * t) if t < 1000.0 else 2.0 * t


def following_in_pass(t: float, rows: float) -> float:
    """The same in passes after the first, of rows each: 32 changes a pass."""
    return t + max(16.0, math.ceil(rows / 32.0))


def smoothing(t: float) -> float:
    """e = 1 / (t + 2): what a probability loses to the uniform one after t rows."""
    return 1.0 / (t + 2.0)


def smoothed(wrong: float, e: float, classes: float) -> float:
    """The log loss after p <- (1 - e) p + e / classes; wrong: 1 - p of the row's class."""
    return -math.log1p(-((1.0 - e) * wrong + e * (classes - 1.0) / classes))


def mixed(
    lead: float, mse: float, v: float, of_B: float, of_G: float, squared: bool, h: float, n: float,
    t: float, times: float,
) -> tuple[float, float, float]:  # fmt: skip
    """(lead, mse, v) after a row of importance h. of_B, of_G: squared errors, or log losses.

    A row counts twice at most of what one of mean importance does: a few heavy rows decide nothing.
    times: how many rows it stands for in the lead, while a predictor rests.
    """
    k = 2.0 / (1.0 + (n / t) / h)
    if squared:
        mse += (of_B - mse) * (h / n)
        v += (min(of_B, of_G) - v) * (k / t)
        k = k / (2.0 * v) if v > 0.0 else 0.0
    else:
        by = k / min(t, RECENT_ROWS)
        mse += (of_B - mse) * by
        v += (of_G - v) * by
    return min(max(lead + k * times * (of_B - of_G), -LEAD), LEAD), mse, v


def of_noise(prior: float, mse: float, s_y: float) -> float:
    """lam' of the square loss: smaller where the rows are explained better."""
    return prior * min(max(mse / (s_y * s_y), 1e-6), 1.0) if s_y > 0.0 else prior


LEAST = 1e-3
"""The least part of a log loss's prior that evidence leaves."""


def of_evidence(prior: float, t: float, known: float, weights: float, learners: int) -> float:
    """lam' of a log loss, from 100 rows on; known = sum of 1 - lam P_jj, weights = sum of w_j^2.

    Above ``prior`` only of two classes, and from 1,000 rows on: weights that have hardly been
    learned look like weights without a use, and those of several classes are learned slowly.
    Nearly separable tables have weights of hundreds, and ``LEAST`` of it.
    """
    if t < 100.0:
        return prior
    most = 10.0 * prior if learners == 1 and t >= 1000.0 else prior
    return min(max((known + 5.0) / (weights + 5.0 / prior), LEAST * prior), most)


def along_outside(slope: float, moved: float, squared: bool, mse: float) -> tuple[float, float]:
    """(g, R) of -loss, along log ``outside``, at a row. moved: by what B's margin moves along it.

    The square loss is in units of its mean error; the curvature of a log loss is p (1 - p).
    """
    if squared:
        return (-slope * moved / mse, moved * moved / mse) if mse > 0.0 else (0.0, 0.0)
    p = abs(slope)
    return -slope * moved, p * (1.0 - p) * moved * moved


def of_predictions(outside: float, g: float, R: float, t: float) -> float:
    """``outside`` after a Newton step for the rows since the last change of reference, each
    predicted before it was learned; five rows of curvature 1 say that it stays. At most a factor of
    4, for the curvature is that of where it is; between 1 and 100. 1 for 1,000 rows, of which the
    weights are too sure for other reasons. Sums that overflowed say nothing."""
    if t < 1000.0 or not (math.isfinite(g) and math.isfinite(R)):
        return outside
    step = min(max(g / (R + 5.0), -math.log(4.0)), math.log(4.0))
    return min(max(outside * math.exp(step), 1.0), 100.0)
