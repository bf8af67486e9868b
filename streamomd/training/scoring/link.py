"""From margins to predictions: calibration, the classes, the loss's mean, probabilities."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Floats
from streamomd.core.errors import DataError, UsageError
from streamomd.core.scalars import sigmoid


@dataclass(frozen=True)
class Calibration:
    """The probability of the second of two classes at a margin.

    "sigmoid": 1 / (1 + exp(-(a m + b))), x = (a, b). "isotonic": linear between the points
    (x_i, p_i), which ascend, and constant beyond them.
    """

    kind: str
    x: tuple[float, ...]
    p: tuple[float, ...] = ()

    def __call__(self, margin: float) -> float:
        """The probability at a margin; NaN at NaN.

        >>> Calibration("isotonic", (0.0, 2.0), (0.25, 0.75))(0.5)
        0.375
        """
        if self.kind == "sigmoid":
            a, b = self.x
            return sigmoid(a * margin + b)
        if math.isnan(margin):
            return math.nan
        above = bisect_right(self.x, margin)
        if above == 0 or above == len(self.x):
            return self.p[0 if above == 0 else -1]
        low, high = self.x[above - 1], self.x[above]
        share = (margin - low) / (high - low)
        return self.p[above - 1] + share * (self.p[above] - self.p[above - 1])

    def of(self, margins: Floats) -> Floats:
        """The probabilities of rows with these margins: (rows,), or (rows, 2) of two learners."""
        two = margins.shape[1] == 2
        score = margins[:, 1] - margins[:, 0] if two else margins[:, 0]
        likely = np.array([self(one) for one in score.tolist()], np.float64)
        return np.column_stack([1.0 - likely, likely]) if two else likely

    def to_json(self) -> dict[str, Any]:
        """What ``from_json`` reads back."""
        return {"kind": self.kind, "x": list(self.x), "p": list(self.p)}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Self:
        """A calibration that was saved. Raises DataError for anything else."""
        kind, x, p = saved["kind"], saved["x"], saved["p"]
        numbers = [*x, *p]
        legal = all(type(one) is float and math.isfinite(one) for one in numbers)
        if kind == "sigmoid":
            legal = legal and len(x) == 2 and not p
        else:
            legal = legal and kind == "isotonic" and len(x) == len(p) > 0
            legal = legal and x == sorted(set(x)) and p == sorted(p) and 0.0 <= p[0] <= p[-1] <= 1.0
        if not legal:
            raise DataError(f"the calibration of kind {kind!r} with {len(numbers)} numbers")
        return cls(kind, tuple(x), tuple(p))


Label = bool | int | float | str
CALIBRATED = "calibrated"


@dataclass(frozen=True)
class Link:
    """From margins to predictions. labels: what is predicted of each class, () in regression.

    classes: as the job has them. loss: its name. probable: there are probabilities. e: their
    smoothing. mean: which function of a margin is predicted: "margin", "sigmoid", or "loss", the
    loss's own. calibration: of the probabilities, in place of the loss's.
    """

    classes: tuple[Label, ...]
    labels: tuple[Label, ...]
    loss: str
    coupled: bool
    probable: bool
    e: float = 0.0
    mean: str = "loss"
    calibration: Calibration | None = None

    @property
    def has_probabilities(self) -> bool:
        """Whether rows have probabilities."""
        return (self.probable or self.calibration is not None) and bool(self.classes)

    def mean_of_margin(self) -> Callable[[float], float]:
        """What is predicted at a margin."""
        if self.mean != "loss":
            return sigmoid if self.mean == "sigmoid" else float
        from streamomd.losses import find_loss  # late: all losses take a third of a scorer's start

        return find_loss(self.loss).mean

    def check(self, learners: int) -> None:
        """Raises DataError unless as many margins belong to these classes."""
        classes = len(self.classes)
        legal = (1,) if classes == 0 else (1, 2) if classes == 2 else (classes,)
        if self.calibration is not None and classes != 2:
            raise DataError(f"a calibration of {classes} classes")
        if classes == 1 or learners not in legal or len(self.labels) != classes:
            raise DataError(f"{learners} margins of {classes} classes")

    def to_json(self) -> dict[str, Any]:
        """What ``from_json`` reads back."""
        found = {name: value for name, value in vars(self).items() if name != "calibration"}
        if self.calibration is None:
            return found
        # Scorers of versions without calibration refuse the word.
        calibrated = {"mean": CALIBRATED, "of": self.mean, CALIBRATED: self.calibration.to_json()}
        return {**found, **calibrated}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Self:
        """A link that was saved. Raises DataError for anything else."""
        mean, calibration = saved["mean"], None
        if mean == CALIBRATED:
            mean, calibration = saved["of"], Calibration.from_json(saved[CALIBRATED])
        made = cls(
            _labels(saved["classes"]),
            _labels(saved["labels"]),
            saved["loss"],
            saved["coupled"],
            saved["probable"],
            float(saved["e"]),
            mean,
            calibration,
        )
        flags = type(made.coupled) is bool and type(made.probable) is bool
        known = made.mean in ("margin", "sigmoid", "loss")
        if type(made.loss) is not str or not flags or not known or not 0.0 <= made.e < 1.0:
            raise DataError(f"the link {dict(saved)!r}")
        try:
            made.mean_of_margin()
        except UsageError as error:
            raise DataError(str(error)) from None
        return made


def _labels(saved: list[Any]) -> tuple[Label, ...]:
    if type(saved) is not list or not all(type(one) in (bool, int, float, str) for one in saved):
        raise DataError(f"the labels {saved!r}")
    return tuple(saved)


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
