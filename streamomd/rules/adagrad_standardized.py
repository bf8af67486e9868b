r"""AdaGrad on standardised inputs: columns in any units and with any offset, one step size.

Numeric columns are learned as z_j = (x_j - c_j) / s_j. The reference (c, s) is the mean and the
standard deviation of the rows seen; it moves at t = 1, 2, ..., 16, then at t growing by a quarter,
from 1,000 on by doubling, and each move leaves the predictions as they are. A hashed or sparse
coordinate is not centred; its scale is the root of q_i, the mean of x_i^2 over the rows that hold
it. With e = -h l'(g) of a row's margin g, and N the sum of all z^2,

    H_j += h (l' z_j)^2,    g_j <- g_j + eta sqrt(n / N) s z_j / sqrt(H_j),

where s = -h l'(g + chi s) is the exact (implicit) step and n the sum of importances. In regression
the target's mean and standard deviation are a reference, too; with another loss than the square
one, of targets cut to five deviations, so that a few huge ones do not set the pace. An abs(z_j)
above sqrt(n) shows that s_j is too small: then g_j is squashed, as in NAG; so is that of a sparse
coordinate whose x^2 is more than all of its x^2 before.

Predictions do not change with the units or the offset of a numeric column, nor, in regression, with
those of the target. It is the first-order part of ``auto``, and what ``auto`` is for losses without
a curvature. No paper proves a bound for it.

Averaged mode has 16 rounds an epoch, and learns some rows exactly before and between them: see
docs/modes.md.

Cost: O(nnz + numeric columns).

>>> from streamomd.training.demo import score
>>> score("adagrad_standardized"), score("adagrad_standardized", "square")
(0.09, 0.385)
"""

from __future__ import annotations

from typing import NamedTuple

from streamomd.rules.common.standardized import (
    RANGE,
    VERSION,
    Shared,
    Totals,
    mixed,
    older,
)
from streamomd.rules.contract import Block, Certificate, Mean, Params, RowHooks, Rule, Slots, Sum
from streamomd.rules.params import Positive


class Hyper(NamedTuple):
    eta: Positive = 2.0


class Own(NamedTuple):
    """g, H: weight and summed squared slopes."""

    g: Mean = 0.0
    H: Sum = 0.0


def weight(own: Own, outside: float, first: float) -> float:
    return first * own.g


def share(lead: float, h: Hyper) -> float:
    return 0.0


def learns(h: Hyper) -> bool:
    return True


def none(params: Params) -> int:
    return 0


RULE = Rule(
    name="adagrad_standardized",
    title="AdaGrad on running standardised inputs: any units and offsets, one step size",
    source="Duchi, Hazan & Singer 2011, eq. 6; Ross, Mineiro & Langford 2013, algorithm 2",
    hyper=Hyper,
    state=Slots(
        own=Own, shared=Shared, totals=Totals, version=VERSION, older=older
    ),
    weight=weight,
    step=mixed,
    certificate=Certificate(reason="AdaGrad's theorem is for inputs whose reference is fixed"),
    row=RowHooks(importance="relative", range=RANGE),
    storage=Block(
        second=False, first=True, share=share, learns_first=learns, most=none
    ),
)  # fmt: skip
