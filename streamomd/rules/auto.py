r"""auto, the default: online Laplace steps and AdaGrad on standardised inputs, mixed.

Two predictors learn every row: B as in ``laplace``, G as in ``adagrad_standardized``. The
prediction is wB m_B + (1 - wB) m_G, one linear model, with

    wB = 1 / (1 + exp(lead)),    lead <- clip(lead + k (loss(m_B) - loss(m_G)), -50, 50),

k = 2 h / (h + mean h) for log loss, over 2 v for the square loss, v the mean of the smaller squared
error: a row of mean importance counts once, and a heavy one twice at most. B is
as good as a tuned batch model where the rows are shuffled; G follows a stream that changes, and
learns where B's curvature is of no use. From the second pass over the same rows on, B alone learns
and predicts, saved models too. In exact mode a later pass of 4,000 rows and more is accepted where
it lowers the loss of rows that it does not learn by a tenth; else the run ends with the model
before it.

A saved model predicts rows that come later, for which the best mixture of the next row may be poor:
it follows the latest rows. So weights are copied now and then, eight times in an octave of rows,
and rows are also predicted by the newest copy, which has learned none of the rows since, or with
the square loss by the one before it. On these frozen predictions the saved model is fitted,
``prefer`` = "auto": G's share, and with log losses a scale of B's block, one of its other
coordinates, and the share of the classes' frequencies; of the scales half is taken, for copies of
fewer rows need more of it. Where under a quarter of the rows have frozen predictions, as in
averaged mode, the mixture that predicts the next row is saved. ``saved_loss`` of the result is the
mean loss of frozen predictions. ``prefer`` = "recent" saves the mixture that predicts the next row,
"whole" B alone: for data whose rows of all times count alike.

From row 65,536 on, with log losses, a predictor rests that the next row's prediction does not use
(40 nats behind, and 1 % worse of late), and the saved model little (less than a tenth): it learns
from 32 rows in 256, each of which counts eight times, for the lead too.

Log losses are those of p' = (1 - e) p + e / classes with e = 1 / (t + 2), after t rows, and so are
the probabilities of predictions; progressive predictions of numbers are clipped to a range of the
targets around them.

Losses without a curvature to learn (hinge, absolute, ...) are learned by G alone.

Three classes and more are learned jointly, by softmax, unless another loss is named.

Predictions do not change with the units or the offset of a numeric column, nor, in regression, with
those of the target. There is nothing to tune.

Certificate: that of ``laplace``, for the square loss. By how much the mixture's loss differs from
B's is counted in the run and part of the bound.

Averaged mode has 16 rounds an epoch, and learns some rows exactly before and between them: see
docs/modes.md.

Cost: O(block + nnz) of most rows, O(block^2 + nnz) of those of large leverage, and of the first
1,023: see ``laplace``. Tables of more than 255 numeric columns are learned in groups of 64, O(64)
a column of a heavy row. Groups do not know of each other, so such tables need rows or passes: on
two made tables of 300 independent columns and 3,000 rows the RMSE was 16 and 31 % above ridge
regression's after one pass.

>>> from streamomd.training.demo import score
>>> score("auto"), score("auto", "square"), score("auto", "hinge")
(0.084, 0.33, 0.104)
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from streamomd.rules import adagrad_standardized, laplace
from streamomd.rules.certificates.matrix_bounds import ridge_certified
from streamomd.rules.common.standardized import (
    AUTO,
    BLOCK,
    RANGE,
    WHOLE,
    Preference,
    Shared,
    Size,
    Totals,
    mixed,
    share_of_lead,
)
from streamomd.rules.contract import Block, Mean, RowHooks, Rule, Slots, Sum
from streamomd.rules.params import Positive


class Hyper(NamedTuple):
    eta: Positive = 2.0
    prior: Positive = 1.0
    prior_bias: Positive = 0.01
    prior_sparse: Positive = 1.0
    block: Size = BLOCK
    prefer: Preference = AUTO


class Own(NamedTuple):
    """w, S: weight and summed curvature of B. g, H: weight and summed squared slopes of G."""

    w: Mean = 0.0
    S: Sum = 0.0
    g: Mean = 0.0
    H: Sum = 0.0


def weight(own: Own, outside: float, first: float) -> float:
    return outside * own.w + first * own.g


def share(lead: float, h: Hyper) -> float:
    return 1.0 if h.prefer == WHOLE else share_of_lead(lead)


def learns(h: Hyper) -> bool:
    return h.prefer != WHOLE


first_order = adagrad_standardized.RULE
RULE = ridge_certified(Rule(
    name="auto",
    title="the default: online Laplace steps and AdaGrad on standardised inputs, mixed",
    source="rules laplace and adagrad_standardized",
    hyper=Hyper,
    state=Slots(
        own=Own, shared=Shared, totals=Totals, version=laplace.VERSION, older=laplace.older,
    ),
    weight=weight,
    step=mixed,
    row=RowHooks(importance="relative", range=RANGE),
    storage=Block(
        second=True, first=True, share=share, learns_first=learns, most=laplace.most,
        curved=laplace.LOSSES,
        other=replace(first_order, name="auto", hyper=Hyper),
    ),
))  # fmt: skip
