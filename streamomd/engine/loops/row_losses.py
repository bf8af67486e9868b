"""The loss of each row by its margins, and sums of rows whose target was learned in standard
units.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streamomd.engine.loops import block_row
from streamomd.engine.loops.load_store import take
from streamomd.engine.loops.row import Shape, miss_of, number_of_class, target
from streamomd.losses import Loss
from streamomd.rules.common.standardized import smoothing
from streamomd.rules.contract import Rule, fields


def make_row_losses(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """row_losses(t, hyper, y, importance, margins, found): loss and mistake of each row.

    t: rows learned before; found: (rows, 2), written. A block's log loss is smoothed by t.
    """
    smooths = rule.storage.kind == "block"
    row_loss = (block_row.make_losses if smooths else _make_losses)(rule, loss, shape)
    L, miss, mean = shape.learners, miss_of(shape), loss.mean

    def row_losses(t: float, hyper: Any, y: Any, importance: Any, margins: Any, found: Any) -> None:
        slopes = np.zeros(L)
        for i in range(len(y)):
            if importance[i] > 0.0:
                t += 1.0
            found[i, 0] = row_loss(margins, i, y[i], smoothing(t), hyper, slopes)
            found[i, 1] = miss(margins, i, y[i], mean)

    return row_losses


def _make_losses(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., Any]:
    """row_loss(margins, i, y, e, hyper, slopes) -> loss of row i; e is not used."""
    L, classes = shape.learners, shape.classes
    Aim, n_rule = loss.hyper, len(fields(rule.hyper))
    load_aim, value = take(len(fields(Aim))), loss.value
    couple: Any = loss.couple

    def coupled_loss(margins: Any, i: int, y: float, e: float, hyper: Any, slopes: Any) -> float:
        found: float = couple(margins, i, number_of_class(y, classes), slopes)
        return found

    def single_loss(margins: Any, i: int, y: float, e: float, hyper: Any, slopes: Any) -> float:
        aim = Aim(*load_aim(hyper, n_rule, 1))
        total = 0.0
        for k in range(L):
            total += value(margins[i, k], target(y, k, classes, L), aim)
        return total

    return coupled_loss if loss.coupled else single_loss


TARGET_N, MU, M2, TARGET_C, TARGET_S = 0, 1, 2, 3, 4
"""``target``: importance of the targets observed, their moments (Welford), and c and s."""


def make_count(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """count(target, learns, sums, hyper, y, importance, margins): margins become c + s m, and each
    row adds to sums. Rows that are learned are observed: see ``engine.standardize``."""
    Aim, n_rule = loss.hyper, len(fields(rule.hyper))
    load_aim, value = take(len(fields(Aim))), loss.value
    miss, mean = miss_of(shape), loss.mean

    def count(
        target: Any, learns: bool, sums: Any, hyper: Any, y: Any, importance: Any, margins: Any
    ) -> None:
        aim = Aim(*load_aim(hyper, n_rule, 1))
        c, s = target[TARGET_C], target[TARGET_S]
        for i in range(len(y)):
            h = importance[i]
            margins[i, 0] = c + s * margins[i, 0]
            sums[0] += h
            sums[1] += h * value(margins[i, 0], y[i], aim)
            sums[2] += h * miss(margins, i, y[i], mean)
            if learns and h > 0.0:
                target[TARGET_N] += h
                d = y[i] - target[MU]
                target[MU] += d * (h / target[TARGET_N])
                target[M2] += h * d * (y[i] - target[MU])

    return count
