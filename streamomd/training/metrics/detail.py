"""Metrics in addition to sums of losses: ranking, calibration, classes, regression errors.

Each kind is one array or two of running sums, to which rows are added one by one, so that how they
are cut changes no bit. ``rows`` counts them: figures of some rows are not reported as those of all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Floats
from streamomd.losses import Loss
from streamomd.losses.contract import identity
from streamomd.training.metrics.ranking import (
    COARSE,
    FINE,
    Bounded,
    auc,
    average_precision,
    binned,
    bins,
    calibration,
    calibration_error,
    centres,
)

MOST_CLASSES = 100
NOTHING: dict[str, Any] = dict.fromkeys(
    (
        "auc", "auc_error", "average_precision", "average_precision_error", "mae", "r2",
        "confusion", "per_class", "calibration", "calibration_error",
    )
)  # fmt: skip
"""Every figure there is; null where there is nothing to say."""
RANKS = tuple(NOTHING)[:4]


@dataclass(eq=False)
class BinaryDetail:
    """Two classes. weights: float64 (2, bins), of either class by margin."""

    classes: ClassVar[int] = 2
    weights: Floats
    rows: int = 0

    def add(self, loss: Loss, margins: Floats, y: Floats, weight: Floats) -> None:
        """Count rows: margins (rows, learners), y ±1."""
        one = margins.shape[1] == 1
        at = binned(margins[:, 0] if one else margins[:, 1] - margins[:, 0], self.digits)
        at += (y > 0.0) * self.weights.shape[1]
        np.add.at(self.weights.reshape(-1), at, weight)
        self.rows += len(y)

    @property
    def digits(self) -> int:
        """How fine the bins are."""
        return FINE if self.weights.shape[1] == bins(FINE) else COARSE

    def rank(self) -> dict[str, Any]:
        """How well the margins rank; nothing of NaN, which has no place."""
        return {} if self.weights[:, -1].any() else _ranks(*self.weights[:, :-1])

    def figures(
        self, loss: Loss, total: Floats, classes: Sequence[Any], smoothing: float = 0.0
    ) -> dict[str, Any]:
        """Ranking, confusion, the classes, and calibration where the loss gives probabilities.

        smoothing: e of their p' = (1 - e) p + e / 2, see ``Engine.smoothing``.
        """
        weights, rank = self.weights[:, :-1], self.rank()
        confusion = weights.reshape(2, 2, -1).sum(axis=2)
        if not rank:
            return {"confusion": confusion.tolist()}
        ranks = [_ranks(*weights[::-1, ::-1]), rank]
        calibrated: list[dict[str, Any]] | None = None
        if loss.probabilistic:
            seen = np.flatnonzero(weights.any(axis=0))
            likely = (1.0 - smoothing) * _means(loss)(centres(self.digits)[seen]) + smoothing / 2.0
            calibrated = calibration(weights[0, seen], weights[1, seen], likely)
        return {
            **rank,
            "confusion": confusion.tolist(),
            "per_class": _classes(classes, confusion, ranks),
            "calibration": calibrated,
            "calibration_error": calibration_error(calibrated) if calibrated else None,
        }

    def calibrated(self, mean: Callable[[float], float]) -> dict[str, Any] | None:
        """Log loss and calibration of other probabilities, mean(margin); None where there is NaN.

        They are those of the middle of each bin.
        """
        seen = np.flatnonzero(self.weights.any(axis=0))
        if not len(seen) or seen[-1] == self.weights.shape[1] - 1:
            return None
        negatives, positives = self.weights[:, seen]
        likely = np.array([mean(one) for one in centres(self.digits)[seen].tolist()])
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = _terms(negatives, 1.0 - likely) + _terms(positives, likely)
        levels = calibration(negatives, positives, likely)
        loss = float(terms.sum() / (negatives.sum() + positives.sum()))
        return {
            "log_loss": loss if math.isfinite(loss) else None,
            "calibration": levels,
            "calibration_error": calibration_error(levels),
        }


@dataclass(eq=False)
class MulticlassDetail:
    """More classes. weights: float64 (classes, 2, bins), of all others and of the class itself, by
    its score; confusion: float64 (classes, classes), by class and predicted class.

    A class's score is its margin, or with a coupled loss its odds.
    """

    weights: Floats
    confusion: Floats
    rows: int = 0

    @property
    def classes(self) -> int:
        """How many."""
        return len(self.confusion)

    def add(self, loss: Loss, margins: Floats, y: Floats, weight: Floats) -> None:
        """Count rows: margins (rows, classes), y the class's number."""
        scores = margins.T.copy()
        rest = _exponentials(scores) if loss.coupled else None
        for k, (weights, score) in enumerate(zip(self.weights, scores, strict=True)):
            with np.errstate(all="ignore"):
                at = binned(score if rest is None else score / (rest - score), COARSE)
            at += (y == k) * weights.shape[1]
            np.add.at(weights.reshape(-1), at, weight)
        cell = y.astype(np.int64) * len(self.confusion) + margins.argmax(axis=1)
        np.add.at(self.confusion.reshape(-1), cell, weight)
        self.rows += len(y)

    def rank(self) -> dict[str, Any]:
        """The means over the classes there are, each against all others."""
        return _mean(self._ranks())

    def figures(
        self, loss: Loss, total: Floats, classes: Sequence[Any], smoothing: float = 0.0
    ) -> dict[str, Any]:
        """Ranking, confusion and the classes."""
        ranks, counts = self._ranks(), {"confusion": self.confusion.tolist()}
        if not ranks:
            return counts
        return {**_mean(ranks), **counts, "per_class": _classes(classes, self.confusion, ranks)}

    def _ranks(self) -> list[dict[str, Any]]:
        """Returns the rank metrics of each class; none where there is NaN."""
        nan = self.weights[:, :, -1].any()
        return [] if nan else [_ranks(*weights[:, :-1]) for weights in self.weights]


@dataclass(eq=False)
class RegressionDetail:
    """Regression. sums: float64 (3,) of abs(error), y − c and (y − c)², times importance; c, (1,),
    is the first label, which keeps the digits of what lies far from 0."""

    classes: ClassVar[int] = 1
    sums: Floats = field(default_factory=lambda: np.zeros(3))
    c: Floats = field(default_factory=lambda: np.zeros(1))
    rows: int = 0

    def add(self, loss: Loss, margins: Floats, y: Floats, weight: Floats) -> None:
        """Add rows: margins (rows, 1), y numbers."""
        if not self.rows and len(y):
            self.c[0] = y[0]
        predicted = margins[:, 0] if loss.mean is identity else _means(loss)(margins[:, 0])
        with np.errstate(all="ignore"):
            from_c = y - self.c
            shift = weight * from_c
            for k, terms in enumerate((weight * np.abs(y - predicted), shift, shift * from_c)):
                one_by_one = np.add.accumulate(np.concatenate([self.sums[k : k + 1], terms]))
                self.sums[k] = one_by_one[-1]
        self.rows += len(y)

    def rank(self) -> dict[str, Any]:
        """Nothing: there are no classes."""
        return {}

    def figures(
        self, loss: Loss, total: Floats, classes: Sequence[Any], smoothing: float = 0.0
    ) -> dict[str, Any]:
        """MAE, and R²: 1 − squared errors / squared distances of the labels from their mean."""
        importance, _, squared = total.tolist()
        off, shift, spread = self.sums.tolist()
        if not (importance > 0.0 and math.isfinite(off) and math.isfinite(squared)):
            return {}
        about = spread - shift * shift / importance
        return {"mae": off / importance, "r2": 1.0 - squared / about if about > 0.0 else None}


Detail = BinaryDetail | MulticlassDetail | RegressionDetail


def detail_of(classes: int, digits: int = FINE) -> Detail | None:
    """No rows yet. classes: 1 in regression; of more than 100 nothing is recorded."""
    if classes == 1:
        return RegressionDetail()
    if classes == 2:
        return BinaryDetail(np.zeros((2, bins(digits))))
    if classes > MOST_CLASSES:
        return None
    return MulticlassDetail(np.zeros((classes, 2, bins(COARSE))), np.zeros((classes, classes)))


def joined(first: Detail | None, second: Detail | None, importance: float) -> Detail | None:
    """The detail of the rows of both; the second may become part of it. importance: of the second.

    Sums about the second's first label are moved to that of the first: with d the difference of the
    two, Σ(y + d) = Σy + d Σ1 and Σ(y + d)² = Σy² + 2 d Σy + d² Σ1.
    """
    if first is None or second is None or not first.rows:
        return second if second is not None else first
    if isinstance(first, RegressionDetail) and isinstance(second, RegressionDetail):
        off, shift, spread = second.sums.tolist()
        d = float(second.c[0] - first.c[0])
        moved = [off, shift + d * importance, spread + 2.0 * d * shift + d * d * importance]
        first.sums += np.array(moved) if second.rows else 0.0
    else:
        others = _arrays(second)
        for name, array in _arrays(first).items():
            array += others[name]  # noqa: PLW2901  (in place)
    first.rows += second.rows
    return first


def saved(detail: Detail | None) -> dict[str, NDArray[Any]]:
    """What a checkpoint saves: of each array the numbers that are not 0, few of thousands."""
    if detail is None:
        return {}
    found: dict[str, NDArray[Any]] = {"detail.of": np.array([detail.classes, detail.rows])}
    for name, array in _arrays(detail).items():
        at = np.flatnonzero(array)
        found[f"detail.{name}.at"], found[f"detail.{name}.value"] = at, array.reshape(-1)[at]
    return found


def restored(arrays: Mapping[str, NDArray[Any]]) -> Detail | None:
    """Back from ``saved``; nothing of a checkpoint that has none."""
    if "detail.of" not in arrays:
        return None
    classes, rows = arrays["detail.of"].tolist()
    made = detail_of(classes)
    if made is not None:
        made.rows = rows
        for name, array in _arrays(made).items():
            array.reshape(-1)[arrays[f"detail.{name}.at"]] = arrays[f"detail.{name}.value"]
    return made


def _arrays(detail: Detail) -> dict[str, Floats]:
    return {name: value for name, value in vars(detail).items() if name != "rows"}


def _terms(weight: Floats, likely: Floats) -> Floats:
    """The log loss of rows of these probabilities, by weight; 0 where there are none."""
    return np.where(weight > 0.0, -weight * np.log(likely), 0.0)


def _means(loss: Loss) -> Callable[[Floats], Floats]:
    """What a loss predicts at margins; slow, for it is Python's."""
    return np.vectorize(loss.mean, otypes=[np.float64])


def _exponentials(margins: Floats) -> Floats:
    """Put e^margin in the place of (classes, rows), up to a factor for each row; their sums.

    Summed class by class, so that a row's numbers do not depend on the rows next to it.
    """
    with np.errstate(all="ignore"):
        margins -= margins.max(axis=0)
        np.exp(margins, out=margins)
        total: Floats = margins[0].copy()
        for one in margins[1:]:
            total += one
    return total


def _ranks(negatives: Floats, positives: Floats) -> dict[str, Any]:
    """Both figures of ranking with their errors."""
    ranks: tuple[Bounded, Bounded] = (
        auc(negatives, positives), average_precision(negatives, positives)
    )  # fmt: skip
    return dict(zip(RANKS, (*ranks[0], *ranks[1]), strict=True))


def _mean(ranks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    there = [one for one in ranks if one["auc"] is not None]
    return {key: sum(one[key] for one in there) / len(there) for key in RANKS if there}


def _classes(
    classes: Sequence[Any], confusion: Floats, ranks: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Each class: its weight, precision and recall, and how it ranks against the others."""
    rows, columns, hits = confusion.sum(axis=1), confusion.sum(axis=0), confusion.diagonal()
    return [
        {
            "class": classes[k],
            "weight": float(rows[k]),
            "precision": float(hits[k] / columns[k]) if columns[k] > 0.0 else None,
            "recall": float(hits[k] / rows[k]) if rows[k] > 0.0 else None,
            **rank,
        }
        for k, rank in enumerate(ranks)
    ]
