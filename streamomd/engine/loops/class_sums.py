"""Sums of rows whose classes were learned in groups: each row's classes in their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamomd.engine.loops.row import Shape, miss_of
from streamomd.losses import Loss
from streamomd.rules.contract import Rule


def make_add(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """add(sums, losses, y, importance, margins): what ``step.make_score`` adds for these rows.

    losses, margins: (rows, classes).
    """
    L, miss, mean = shape.learners, miss_of(shape), loss.mean

    def add(sums: Any, losses: Any, y: Any, importance: Any, margins: Any) -> None:
        for i in range(len(y)):
            row_loss = 0.0
            for k in range(L):
                row_loss += losses[i, k]
            sums[0] += importance[i]
            sums[1] += importance[i] * row_loss
            sums[2] += importance[i] * miss(margins, i, y[i], mean)

    return add
