"""Margins and sums of rows whose classes were learned in groups: each row's classes in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamomd.engine.loops.row import Shape, miss_of
from streamomd.losses import Loss
from streamomd.rules.contract import Rule


def make_add(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """add(sums, firsts, found, losses, y, importance, margins): what ``step.make_score`` adds.

    firsts: each group's first class, and the number of classes. found, losses: (rows * classes,),
    margins and losses, group after group, in each row after row. margins: (rows, classes), written.
    """
    miss, mean = miss_of(shape), loss.mean

    def add(
        sums: Any, firsts: Any, found: Any, losses: Any, y: Any, importance: Any, margins: Any
    ) -> None:
        rows = len(y)
        for i in range(rows):
            row_loss = 0.0
            for group in range(len(firsts) - 1):
                first = firsts[group]
                classes = firsts[group + 1] - first
                at = first * rows + i * classes
                for k in range(classes):
                    margins[i, first + k] = found[at + k]
                    row_loss += losses[at + k]
            sums[0] += importance[i]
            sums[1] += importance[i] * row_loss
            sums[2] += importance[i] * miss(margins, i, y[i], mean)

    return add
