"""From margins to predictions and probabilities: of arrays of rows, and of one row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mean = Callable[[float], float]


def chosen(margins: Floats) -> NDArray[np.int64]:
    """Each row's class by its margins, (rows, learners): its place, from 0."""
    one = margins.shape[1] == 1
    return (margins[:, 0] > 0.0).astype(np.int64) if one else margins.argmax(axis=1)


def means(mean: Mean, margins: Floats) -> Floats:
    """What is predicted at margins, of any shape. NaN and infinite margins become such numbers."""
    found = np.array([mean(margin) for margin in margins.ravel().tolist()], np.float64)
    return found.reshape(margins.shape)


def class_probabilities(mean: Mean, coupled: bool, e: float, margins: Floats) -> Floats:
    """Returns probabilities of the second class, (rows,); with a learner a class, (rows, classes).

    e: the smoothing of the rule's log loss. softmax over all classes where the loss couples them;
    other learners each over two classes, before the shares are taken.
    """
    if margins.shape[1] == 1:
        return _smoothed(means(mean, margins[:, 0]), e, 2)
    if coupled:
        with np.errstate(all="ignore"):
            odds: Floats = np.exp(margins - margins.max(axis=1, keepdims=True))
            softmax: Floats = odds / odds.sum(axis=1, keepdims=True)
            return _smoothed(softmax, e, margins.shape[1])
    likely = _smoothed(means(mean, margins), e, 2)
    total = likely.sum(axis=1, keepdims=True)
    shares: Floats = np.full_like(likely, 1.0 / likely.shape[1])
    np.divide(likely, total, out=shares, where=total != 0.0)
    return shares


def each_class(found: Floats) -> Floats:
    """Probabilities with a column for each class, (rows, classes)."""
    return np.column_stack([1.0 - found, found]) if found.ndim == 1 else found


def _smoothed(likely: Floats, e: float, classes: int) -> Floats:
    return (1.0 - e) * likely + e / classes if e > 0.0 else likely
