"""Sums of rows whose target was learned in standard units: margins, losses and errors are raw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamomd.engine.loops.load_store import take
from streamomd.engine.loops.row import Shape, miss_of
from streamomd.losses import Loss
from streamomd.rules.contract import Rule, fields

N, MU, M2, C, S = 0, 1, 2, 3, 4
"""``target``: importance of the targets observed, their moments (Welford), and c and s."""


def make_count(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """count(target, learns, sums, hyper, y, importance, margins): margins become c + s m, and each
    row adds to sums. Rows that are learned are observed: see ``engine.scaled_target``."""
    Aim, n_rule = loss.hyper, len(fields(rule.hyper))
    load_aim, value = take(len(fields(Aim))), loss.value
    miss, mean = miss_of(shape), loss.mean

    def count(
        target: Any, learns: bool, sums: Any, hyper: Any, y: Any, importance: Any, margins: Any
    ) -> None:
        aim = Aim(*load_aim(hyper, n_rule, 1))
        c, s = target[C], target[S]
        for i in range(len(y)):
            h = importance[i]
            margins[i, 0] = c + s * margins[i, 0]
            sums[0] += h
            sums[1] += h * value(margins[i, 0], y[i], aim)
            sums[2] += h * miss(margins, i, y[i], mean)
            if learns and h > 0.0:
                target[N] += h
                d = y[i] - target[MU]
                target[MU] += d * (h / target[N])
                target[M2] += h * d * (y[i] - target[MU])

    return count
