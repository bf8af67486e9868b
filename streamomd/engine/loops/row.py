"""What every loop needs of a row: its entries, a learner's target, whether it was a mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from streamomd.engine.loops.load_store import number

# No batch has as many entries. An index that may be negative for all the compiler knows is
# checked before each use, to count it from the end: 0.3 ns a non-zero for each array. An index cut
# to 48 bits is never negative; and coordinates are uint32.
FAR = (1 << 48) - 1


class Shape(NamedTuple):
    """What a loop is made for, in addition to its rule and loss.

    learners: side by side. classes: 1 in regression, else as many as there are. width: cells of a
    coordinate, padding included. bias: 1 if coordinate 0 is one, else 0.
    """

    learners: int
    classes: int
    width: int
    bias: int
    dense: bool


def squared_error(margins: Any, i: int, y: float, mean: Any) -> Any:
    """What rmse sums."""
    r = mean(margins[i, 0]) - y
    return r * r


def mistake(margins: Any, i: int, y: float, mean: Any) -> float:
    """1 if the sign is wrong; a margin of 0 predicts the first class; NaN is always wrong."""
    if y > 0.0:
        return 0.0 if margins[i, 0] > 0.0 else 1.0
    return 0.0 if margins[i, 0] <= 0.0 else 1.0


def multiclass_mistake(margins: Any, i: int, y: float, mean: Any) -> float:
    """1 if another class has a larger margin, or an equal one before it; NaN is always wrong."""
    at = int(y)
    best = margins[i, at]
    for l in range(margins.shape[1]):
        if not (margins[i, l] < best or (l >= at and margins[i, l] == best)):
            return 1.0
    return 0.0


def pair_mistake(margins: Any, i: int, y: float, mean: Any) -> float:
    """What ``multiclass_mistake`` gives for two classes with a learner each, y = -1 or +1."""
    return multiclass_mistake(margins, i, 1.0 if y > 0.0 else 0.0, mean)


def miss_of(shape: Shape) -> Callable[..., float]:
    """What counts as a mistake, or as an error."""
    if shape.classes == 2:
        return mistake if shape.learners == 1 else pair_mistake
    return squared_error if shape.classes == 1 else multiclass_mistake


def is_sweep(shape: Shape, coupled: bool) -> bool:
    """Whether the learners side by side are a sweep's: each aims at y and has sums of its own.

    Otherwise two classes, or a number to predict, have one learner, unless the loss couples more.
    """
    return shape.learners > 1 and shape.classes <= 2 and not coupled


def is_group(shape: Shape) -> bool:
    """Whether the learners are some of the classes: see ``engine.divided``.

    y is then relative to the first of them, and sums, (rows * learners,), gets each one's loss of
    each row.
    """
    return shape.classes > 2 and shape.learners < shape.classes


def span(indptr: Any, i: int, bias: int, dense: bool) -> Any:
    """Where row i's values begin, and how many entries it has: the bias, then its values.

    Of a dense batch indptr = [columns].
    """
    if dense:
        return (i * indptr[0]) & FAR, indptr[0] + bias
    return indptr[i] & FAR, (indptr[i + 1] & FAR) - (indptr[i] & FAR) + bias


def entry(indices: Any, values: Any, start: int, n: int, bias: int, dense: bool) -> Any:
    """Coordinate and value of entry n, from 0, of a row whose values begin at start."""
    if n < bias:
        return 0, 1.0
    at = start + n - bias
    if dense:
        return n, number(values[at])
    return indices[at] + bias, number(values[at])


def target(y: float, learner: int, classes: int, learners: int) -> float:
    """A learner's target: y, or in one-against-all whether y is its class."""
    if classes > 2:
        return 1.0 if y == learner else -1.0
    if learners == 2:
        return y if learner == 1 else -y
    return y


def number_of_class(y: float, classes: int) -> int:
    """The class's number, of y as a batch holds it."""
    if classes > 2:
        return int(y)
    return 1 if y > 0.0 else 0
