"""Softmax cross-entropy over classes, one weight vector per class (P3, section 1).

ln(sum over k of exp(p_k)) - p_y; the slope of class k is its probability, less 1 for class y.
"""

from __future__ import annotations

import math
from typing import Any

from streamomd.losses.contract import Loss
from streamomd.losses.logistic import sigmoid


def couple(margins: Any, i: int, y: int, slopes: Any) -> float:
    """Row i's loss; a slope for each learner. The largest margin is subtracted: no overflow."""
    classes = margins.shape[1]
    top = margins[i, 0]
    for k in range(classes):
        top = max(top, margins[i, k])
    rest = 0.0  # all but class y: its share less 1 would lose the digits of a sure prediction
    for k in range(classes):
        slopes[k] = math.exp(margins[i, k] - top)
        if k != y:
            rest += slopes[k]
    total = rest + slopes[y]
    for k in range(classes):
        slopes[k] /= total
    slopes[y] = -rest / total
    loss: float = math.log(total) + (top - margins[i, y])
    return loss


def value(margin: float, y: float, p: object) -> float:
    """Never called: see ``couple``."""
    return math.nan


def lipschitz(p: object) -> float:
    return 1.0


LOSS = Loss(
    name="softmax",
    title="cross-entropy of several classes, learned together; probabilities",
    value=value,
    slope=value,
    couple=couple,
    mean=sigmoid,
    classifies=True,
    probabilistic=True,
    lipschitz=lipschitz,
    aliases=("cross_entropy", "multinomial"),
)
