r"""Online Laplace approximation: Newton steps with a full matrix over a block of coordinates.

The block is the bias, all numeric columns and the first sparse coordinates seen, up to ``block`` in
all; the others have a diagonal. Inputs are standardised as in ``adagrad_standardized``. With A the
summed curvature a z z' of the rows, P = (A + prior)^-1, m = w'z and chi = z'P z, a row's step is

    s = -h l'(m + chi s),    w <- w + s P z,    A <- A + a z z',

the exact (implicit) step; a = h (abs(l'(m)) - abs(s) / h) / (chi abs(s) / h) is the curvature of
the secant. Outside the block D_i = prior_sparse q_i + S_i (thrice the prior for the square loss),
w_i <- w_i + s x_i / D_i and S_i <- S_i + a x_i^2.

prior_sparse is multiplied by r, which follows what would have predicted best. The margin moves by
u = -sum_i w_i x_i prior_i / D_i along log r. At each change of reference of the first pass,
from row 1,000 on,

    log r <- log r + G / (R + 5),    G = sum of -l'(m) u,    R = sum of l''(m) u^2,

over the rows since the last change, each before it was learned, and w_i follows by D_i before / D_i
after. So hundreds of categories that say little are held near 0, and those that say much are not.
The step is at most log 4, r between 1 and 100, and the square loss counts in units of its mean
error. From row 16,384 on one row in 2 to 16 is counted, as 2 to 16 rows.

From row 1,024 on most rows are light: h sum_j z_j^2 / (A_jj + prior_j) is below a tenth, for every
learner. chi is that sum then, s z is added to a pool, and P stays. Every 8, 16 or 32 rows w takes
the pool, w <- w + P pool; at fixed rows, 32 in each octave, P is computed from A. From row 8,192 on
one light row in two to eight, chosen by its number, enters A with as many times its curvature. With
``certificate = true`` no row is light.

For the square loss it is ridge regression in closed form, row by row, with a prior that shrinks as
the noise does (mse / var y), until light rows begin, and within a tenth of its standard errors
after; for log loss a is scaled down where recent rows show less curvature,
and the prior follows the evidence. Of log losses the first 16,384 rows are stored (16 MiB at most),
and at rows 32, 48, 64, 96, ... 16,384 w and A of the block are those of the least regularised loss
of all of them: early curvature is that of poor weights. Not in averaged mode, nor in groups, nor
where most values are outside of the block.

The curvature a of class k is its own, p (1 - p), times |H|^2 / |diag H|^2, H = diag(p) - p p': each
class has a matrix of its own, but what one gains, the others lose. It is 2 p (1 - p) where two
classes compete.

From the second pass over the rows on, A forgets: it holds three passes at most, and the prior
counts once for each, but with several classes. Weights outside the block are pulled to 0 by their
prior, wholly in regression and by a third of it with two classes.

Every row counts alike, however old: choose it for shuffled rows. ``auto`` mixes it with a learner
that follows changes, and is the default.

Certificate, for the square loss, one pass and tables whose coordinates all are in the block: with
R(u) the prior at u in the last reference, p what was predicted and P_0 the changes of prior,

    regret of u <= R(u) + sum of ((y - p)^2 - (y - m)^2 / (1 + h chi)) h / 2 + P_0,

with equality where u is w: on scikit-learn's diabetes table it is 1.001 times the regret of the
best weights. The second claim puts the largest h (y - p)^2 times log(1 + h chi) for the terms of
each reference: 4.6 times, and 5.3 times on 5,000 rows of 10 columns. There is no theorem for log
loss, whose curvature vanishes far from its minimum, for coordinates outside of the block, for
groups, and for more than one pass.

Averaged mode has 16 rounds an epoch, and learns some rows exactly before and between them: see
docs/modes.md.

Cost: O(block + nnz) of a light row, O(block^2 + nnz) of the others. Tables of more than 255 numeric
columns are learned in groups of 64, O(64) a column of a heavy row. Groups do not know of each
other, so such tables need rows or passes: on two made tables of 300 independent columns and 3,000
rows the RMSE was 16 and 31 % above ridge regression's after one pass.

>>> from streamomd.training.demo import score
>>> score("laplace"), score("laplace", "square")
(0.087, 0.329)
"""

from __future__ import annotations

from typing import NamedTuple

from streamomd.rules.certificates.matrix_bounds import ridge_certified
from streamomd.rules.common import standardized
from streamomd.rules.common.standardized import (
    BLOCK,
    RANGE,
    Shared,
    Size,
    Totals,
    mixed,
)
from streamomd.rules.contract import (
    Block,
    Losses,
    Mean,
    Params,
    RowHooks,
    Rule,
    Saved,
    Slots,
    Sum,
)
from streamomd.rules.params import Positive

LOSSES = ("logistic", "square", "softmax")
"""Losses whose curvature can be learned."""
VERSION = 6


def older(saved: Saved) -> str:
    """Version 2 stored no rows, version 3 had no pool, version 4 not whether B rests, and version 5
    what multiplies ``prior_sparse``."""
    if saved.version < 2:
        return standardized.older(saved)
    if saved.version < 3:
        return "its first rows are not stored"
    if saved.version < 4:
        return "it has no pool of light rows"
    if saved.version < 5:
        return "it does not say whether the Newton steps rest"
    return "its prior of coordinates outside the block does not follow the predictions"


class Hyper(NamedTuple):
    prior: Positive = 1.0
    prior_bias: Positive = 0.01
    prior_sparse: Positive = 1.0
    block: Size = BLOCK


class Own(NamedTuple):
    """w, S: weight and summed curvature, outside the block."""

    w: Mean = 0.0
    S: Sum = 0.0


def weight(own: Own, outside: float, first: float) -> float:
    return outside * own.w


def share(lead: float, h: Hyper) -> float:
    return 1.0


def learns(h: Hyper) -> bool:
    return False


def most(params: Params) -> int:
    return int(params["block"])


RULE = ridge_certified(Rule(
    name="laplace",
    title="online Laplace (Newton) steps, a full matrix over a block of coordinates",
    source="Spiegelhalter & Lauritzen 1990 (sequential Laplace); Kulis & Bartlett 2010 (implicit)",
    hyper=Hyper,
    state=Slots(
        own=Own, shared=Shared, totals=Totals, version=VERSION, older=older
    ),
    weight=weight,
    step=mixed,
    losses=Losses(names=LOSSES),
    row=RowHooks(importance="relative", range=RANGE),
    storage=Block(
        second=True, first=False, share=share, learns_first=learns, most=most
    ),
))  # fmt: skip
