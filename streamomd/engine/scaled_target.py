"""The target in standard units, for rules that have no reference of their own.

A rule learns (y - c) / s in place of y, with the loss's parameters that are differences of targets
divided by s, and predicts c + s m. (c, s) are the mean and the standard deviation of the targets of
earlier rows, updated where references of columns are: see ``standardize``. At a change to (c', s')
each learner's weights become

    w' = w s / s',    w_0' = (w_0 s + c - c') / s',

so that predictions stay as they are. Summed squared gradients are multiplied by (s / s')^(2 k), k
the degree of the loss's slope in the target's unit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Batch
from streamomd.engine.loops.row_losses import M2, MU, C, N, S
from streamomd.engine.standardize import Front
from streamomd.engine.state import State
from streamomd.losses import Loss
from streamomd.rules.contract import Rule, fields

Floats = NDArray[np.float64]


def scaled(target: Floats, batch: Batch) -> Floats:
    """The targets of rows in standard units; 0 while there is one value only.

    The first value that is not c gives the scale: nothing has been learned until then.
    """
    c = target[C]
    if target[S] == 0.0 and target[N] > 0.0:
        others = np.flatnonzero((batch.y != c) & (batch.weight > 0.0))
        if len(others):
            target[S] = abs(batch.y[others[0]] - c)
    return (batch.y - c) / target[S] if target[S] > 0.0 else np.zeros(len(batch))


def scaled_parameters(hyper: Floats, rule: Rule, loss: Loss, scale: float) -> Floats:
    """Hyper-parameters whose lengths of the loss are in standard units."""
    found, first = hyper.copy(), len(fields(rule.hyper))
    for name in loss.lengths if scale > 0.0 else ():
        found[first + fields(loss.hyper).index(name)] /= scale
    return found


def next_target(target: Floats) -> tuple[float, float]:
    """(c', s') of the targets observed; targets that are constant to the last digit keep s."""
    if target[N] == 0.0:
        return float(target[C]), float(target[S])
    s = math.sqrt(target[M2] / target[N])
    return float(target[MU]), s if s > 0.0 else float(target[S])


def rescale_slots(state: State, loss: Loss, ratio: float) -> None:
    """Weights that are slots, and squared gradients, where s / s' is ``ratio``."""
    slots = state.layout.rule.state
    if slots.curvature:
        _multiply(state.slot(slots.curvature), ratio ** (2 * (loss.degree - 1)))
    if slots.rejoin is None:
        _multiply(state.slot(slots.weight), ratio)


def shift_bias(state: State, h: Any, change: float) -> None:
    """Add to each learner's weight of the bias."""
    front = Front(state, h, 1)
    for k in range(state.layout.learners):
        front.replace(0, k, front.weights[0, k] + change)
    front.store(state)


def _multiply(slot: NDArray[Any], factor: float) -> None:
    np.multiply(slot, factor, out=slot, dtype=np.float64, casting="same_kind")
