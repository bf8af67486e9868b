"""Progressive validation: each row is predicted before it is learned; sums of the losses.

Also skipped bad rows, by reason.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import FILTERED, REASONS, SAMPLED, Floats, Times
from streamomd.core.errors import TooManyBadRowsError
from streamomd.core.finite import finite_or_none
from streamomd.core.wording import counted, worded
from streamomd.losses import Loss
from streamomd.losses.contract import identity
from streamomd.training.column_statistics import Drift
from streamomd.training.metrics.by_time import Backtest, ByTime
from streamomd.training.metrics.detail import (
    NOTHING,
    BinaryDetail,
    Detail,
    detail_of,
    joined,
    restored,
    saved,
)
from streamomd.training.metrics.ranking import FINE, binned, bins
from streamomd.training.metrics.residuals import Residuals
from streamomd.training.scoring.link import means

Counts = NDArray[np.int64]
BLOCK = 1 << 13
"""Rows looked at in one go: memory for many more is allocated and returned to the system
each time, at twice the cost."""
POINTS = 8
"""Points of the curve in an octave of rows, from EVENLY rows on."""
EVENLY = 1024
HELD, PERIOD = "held.", "period."
"""Prefixes of the names of a checkpoint's arrays for other rows."""


def next_point(rows: int) -> int:
    """The curve's first point after ``rows`` rows: 1, 2, 4 … 1,024, then eight per octave.

    >>> [next_point(rows) for rows in (0, 1, 2, 3, 1000, 1024, 1152, 2047, 2048)]
    [1, 2, 4, 4, 1024, 1152, 1280, 2048, 2304]
    """
    octave = 1 << rows.bit_length() >> 1
    step = octave // POINTS if octave >= EVENLY else max(1, octave)
    return (rows // step + 1) * step


@dataclass(eq=False)
class Metrics:
    """Rows and sums of each epoch.

    sums: float64 (epochs, 3): importance, loss times importance, and mistakes (squared errors in
    regression) times importance. Rows are added one by one, so how they are cut changes no bit.
    bad: int64 (epochs, reasons), rows skipped, by index in REASONS, those that a filter drops
    as well; they are not among ``rows``.
    curve: float64 (points, 4): rows learned in all epochs, and the sums of all epochs then; a point
    where ``count`` came to the ``next_point``, or first went past it.
    detail: more metrics of the same rows, if recorded; see ``streamomd.training.metrics.detail``.
    held: metrics of hold-out rows. Its detail restarts with each epoch; ranks, float64 (epochs
    before, 2), has their AUC and its error, NaN for none.
    classes: float64 (classes + 1,), the weight of all rows by class and in all, of a job that
    balances classes. margins: float64 (2, bins), the weight of rows of either class by their margin
    before they were first learned, of a job that calibrates. residuals: of a regression's rows
    then. drift: of a job with alerts.
    by_time: of the same rows, by hour and day, if they have times. backtest: the figures of one;
    period: metrics of the rows of its period under way.
    """

    classifies: bool
    rows: list[int] = field(default_factory=list)
    sums: Floats = field(default_factory=lambda: np.zeros((0, 3)))
    bad: Counts = field(default_factory=lambda: np.zeros((0, len(REASONS)), np.int64))
    curve: Floats = field(default_factory=lambda: np.zeros((0, 4)))
    detail: Detail | None = None
    held: Metrics | None = None
    ranks: Floats = field(default_factory=lambda: np.zeros((0, 2)))
    classes: Floats | None = None
    margins: Floats | None = None
    residuals: Residuals | None = None
    drift: Drift | None = None
    by_time: ByTime | None = None
    backtest: Backtest | None = None
    period: Metrics | None = None

    @property
    def current(self) -> Floats:
        """The sums of the epoch under way, to be added to in place."""
        sums: Floats = self.sums[-1]
        return sums

    @property
    def next_point(self) -> int:
        """The number of rows at the next point of the curve."""
        return next_point(self.total_rows)

    def count(self, rows: int) -> None:
        """Count rows of the epoch under way, whose sums are among those of the epoch by now."""
        due = self.next_point
        self.rows[-1] += rows
        if self.total_rows >= due:
            self.curve = np.vstack([self.curve, [self.total_rows, *self.total]])

    def add(self, other: Metrics, most: int | None = None) -> None:
        """Add the rows of the other's only epoch, as learned after those of the epoch under way.

        Raises TooManyBadRowsError as ``count_skipped`` does.
        """
        self.count_skipped(other.bad[-1], most)
        self.current[...] += other.current
        self.count(other.total_rows)
        self.detail = joined(self.detail, other.detail, float(other.current[0]))
        if other.classes is not None:
            self.classes = other.classes + (0.0 if self.classes is None else self.classes)
        if other.margins is not None:
            self.margins = other.margins + (0.0 if self.margins is None else self.margins)
        if other.residuals is not None:
            self.residuals = self.residuals or Residuals()
            self.residuals.add(other.residuals)
        if other.by_time is not None:
            self.by_time = self.by_time or ByTime()
            self.by_time.add(other.by_time)
        if self.held is not None and other.held is not None:
            self.held.add(other.held)

    def examine(
        self,
        loss: Loss,
        classes: int,
        margins: Floats,
        y: Floats,
        weight: Floats,
        *,
        digits: int = FINE,
    ) -> None:
        """Keep more of rows than their sums. classes: 1 in regression; y as in a batch.

        digits: how fine the bins of two classes are.
        """
        self.detail = self.detail or detail_of(classes, digits)
        if self.detail is None:
            return
        for low in range(0, len(y), BLOCK):
            some = slice(low, low + BLOCK)
            self.detail.add(loss, margins[some], y[some], weight[some])

    def count_first(self, loss: Loss, margins: Floats, y: Floats, weight: Floats) -> None:
        """Count rows that are learned for the first time by their margins, (rows, learners): of two
        classes for calibration, of numbers for prediction intervals."""
        if not self.classifies:
            self.residuals = self.residuals or Residuals()
            predicted = margins[:, 0] if loss.mean is identity else means(loss.mean, margins[:, 0])
            self.residuals.count((y - predicted)[weight > 0.0])
            return
        if self.margins is None:
            self.margins = np.zeros((2, bins(FINE)))
        scores = margins[:, 0] if margins.shape[1] == 1 else margins[:, 1] - margins[:, 0]
        at = binned(scores, FINE) + (y > 0.0) * self.margins.shape[1]
        np.add.at(self.margins.reshape(-1), at, weight)

    def count_skipped(self, bad: Counts, most: int | None) -> None:
        """Count bad rows of the epoch under way, by reason.

        Raises TooManyBadRowsError when they are more than ``most``, if that is a number. Those
        that a filter or ``data.sample`` drops are counted, too, and are no bad rows.
        """
        self.bad[-1] += bad
        if most is None:
            return
        found = int(self.bad[-1].sum() - self.bad[-1, [FILTERED, SAMPLED]].sum())
        if found > most:
            raise TooManyBadRowsError(
                f"{counted(found, 'bad row')} in this epoch ({worded(self.skipped)}), and at most "
                f"{most:,} are allowed (data.max_bad_rows): fix the shards, or resume from the "
                "last commit with a larger --set data.max_bad_rows=N"
            )

    @property
    def skipped(self) -> dict[str, int]:
        """Bad rows of all epochs, by reason; those there are."""
        total = self.bad.sum(axis=0).tolist()
        total[FILTERED] = total[SAMPLED] = 0
        return {reason: n for reason, n in zip(REASONS, total, strict=True) if n}

    @property
    def filtered(self) -> int:
        """Rows of all epochs that a filter dropped."""
        return int(self.bad[:, FILTERED].sum())

    @property
    def sampled_out(self) -> int:
        """Rows of all epochs that ``data.sample`` dropped."""
        return int(self.bad[:, SAMPLED].sum())

    def begin(self, epoch: int, unread: int = 0) -> None:
        """Start an epoch, or resume it. unread: rows of the epoch that a filter does not read."""
        if len(self.rows) <= epoch:
            if self.by_time is not None:  # times begin again
                self.by_time.latest = None
            self.rows.append(0)
            self.sums = np.vstack([self.sums, np.zeros(3)])
            self.bad = np.vstack([self.bad, np.zeros(len(REASONS), np.int64)])
            self.bad[-1, FILTERED] = unread
        # An epoch that continues another run's has rows, and hold-out rows only from here on.
        if self.held is not None and len(self.held.rows) <= epoch:
            self.held._begin_afresh(epoch)

    def add_unread(self, unread: int) -> None:
        """Count more rows of the epoch under way that a filter does not read."""
        self.bad[-1, FILTERED] += unread

    def _begin_afresh(self, epoch: int) -> None:
        """Begin an epoch, with a detail of its own."""
        self.ranks, self.detail = self.ranks_by_epoch, None
        self.begin(epoch)
        self.by_time = None

    @property
    def last_day(self) -> dict[str, Any] | None:
        """Figures of the day of the row that was learned last; None without times."""
        return None if self.by_time is None else self.by_time.last_day(self.figures)

    def time_figures(self) -> dict[str, Any] | None:
        """Figures by hour and by day; None without times."""
        return None if self.by_time is None else self.by_time.result(self.figures)

    def count_times(self, time: Times, weight: Floats, losses: Floats) -> None:
        """Count rows by their times. losses: see ``ByTime.count``."""
        self.by_time = self.by_time or ByTime()
        self.by_time.count(time, weight, losses)

    def read_times(self, time: Times) -> None:
        """Move the stream time past rows that were read; see ``ByTime.read``."""
        self.by_time = self.by_time or ByTime()
        self.by_time.read(time)

    @property
    def ranks_by_epoch(self) -> Floats:
        """AUC and its error of hold-out rows in each epoch: (epochs, 2), NaN for none."""
        if not self.rows:
            return self.ranks
        ranking = self.detail.rank() if self.detail is not None else {}
        last = [ranking.get("auc"), ranking.get("auc_error")]
        return np.vstack([self.ranks, np.array(last, dtype=np.float64)])

    def as_one_epoch(self, held: Metrics | None) -> Metrics:
        """The same figures as those of one epoch that continues. held: of hold-out rows."""
        if not self.rows:
            return replace(self, held=held)
        bad = self.bad.sum(axis=0, keepdims=True)
        sums = self.total[None, :]
        return replace(self, rows=[self.total_rows], sums=sums, bad=bad, held=held)

    def copy(self) -> Metrics:
        """The same figures, apart from these."""
        return deepcopy(self)

    def take(self, other: Metrics) -> None:
        """Make these figures the other's, which are no longer used."""
        vars(self).update(vars(other))

    @property
    def total_rows(self) -> int:
        """Rows of all epochs."""
        return sum(self.rows)

    @property
    def total(self) -> Floats:
        """Sums of all epochs, added in their order."""
        total = np.zeros(3)
        for sums in self.sums:
            total += sums
        return total

    def result(self) -> dict[str, Any]:
        """rows, loss, error and rmse, of all and by epoch; null where undefined.

        skipped: bad rows, by reason.
        """
        epochs = [
            {"rows": rows, **self.figures(sums)}
            for rows, sums in zip(self.rows, self.sums, strict=True)
        ]
        total = {"rows": self.total_rows, **self.figures(self.total)}
        return {**total, "epochs": epochs, "skipped": self.skipped}

    def detailed(
        self, loss: Loss, classes: Sequence[Any], *, last: bool = False, smoothing: float = 0.0
    ) -> dict[str, Any]:
        """Metrics of all rows in addition to the sums; null where undefined.

        classes: their names. last: of the last epoch's rows. smoothing: of the probabilities, see
        ``Engine.smoothing``. All is null of a run that has a detail of some of its rows only.
        """
        detail, rows, sums = self.detail, self.total_rows, self.total
        if last and self.rows:
            rows, sums = self.rows[-1], self.current
        whole = detail is not None and detail.rows == rows
        if detail is None or not whole:
            return dict(NOTHING)
        return {**NOTHING, **detail.figures(loss, sums, classes, smoothing)}

    def calibrated(
        self, mean: Callable[[float], float] | None, *, last: bool = False
    ) -> dict[str, Any] | None:
        """Log loss and calibration of calibrated probabilities, mean(margin), of the same rows as
        ``detailed``; None without them."""
        rows = self.rows[-1] if last and self.rows else self.total_rows
        if mean is None or not isinstance(self.detail, BinaryDetail) or self.detail.rows != rows:
            return None
        return self.detail.calibrated(mean)

    def figures(self, sums: Floats) -> dict[str, float | None]:
        """loss, error, rmse of some sums."""
        importance, loss, wrong = (float(number) for number in sums)
        mean = finite_or_none(wrong / importance) if importance > 0.0 else None
        return {
            "loss": finite_or_none(loss / importance) if importance > 0.0 else None,
            "error": mean if self.classifies else None,
            "rmse": math.sqrt(mean) if mean is not None and not self.classifies else None,
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint saves."""
        more = {"metrics.bad": self.bad, "metrics.curve": self.curve, "metrics.ranks": self.ranks}
        parts = ((HELD, self.held), (PERIOD, self.period))
        below = {f"{k}{name}": a for k, one in parts if one for name, a in one.arrays().items()}
        if self.backtest is not None:
            below["metrics.backtest"] = self.backtest.array()
        alerts = self.drift.saved() if self.drift is not None else {}
        timed = self.by_time.arrays() if self.by_time is not None else {}
        own = self.residuals.arrays() if self.residuals is not None else {}
        return {**self._learned(), **more, **timed, **saved(self.detail), **own, **alerts, **below}

    def _learned(self) -> dict[str, NDArray[Any]]:
        found = {"metrics.rows": np.array(self.rows, dtype=np.int64), "metrics.sums": self.sums}
        if self.classes is not None:
            found["metrics.classes"] = self.classes
        if self.margins is not None:  # few of thousands of bins have rows
            at = np.flatnonzero(self.margins)
            found["metrics.margins.at"] = at
            found["metrics.margins.value"] = self.margins.reshape(-1)[at]
        return found

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]], *, classifies: bool) -> Metrics:
        """Back from ``arrays``."""
        made = cls._read(arrays, classifies)
        held, period = (
            {n.removeprefix(prefix): array for n, array in arrays.items() if n.startswith(prefix)}
            for prefix in (HELD, PERIOD)
        )
        made.held = cls._read(held, classifies) if held else None
        made.period = cls._read(period, classifies) if period else None
        found = arrays.get("metrics.backtest")
        made.backtest = None if found is None else Backtest.from_array(found)
        return made

    @classmethod
    def _read(cls, arrays: dict[str, NDArray[Any]], classifies: bool) -> Metrics:
        rows = [int(row) for row in arrays["metrics.rows"]]
        sums = np.array(arrays["metrics.sums"], dtype=np.float64)
        if sums.shape != (len(rows), 3):
            raise ValueError(f"sums of {sums.shape} for {len(rows)} epochs")
        made = cls(classifies, rows, sums, np.zeros((len(rows), len(REASONS)), np.int64))
        # Runs of older versions had no choice but to stop at bad rows, and saved no history.
        if "metrics.bad" in arrays:
            made.bad[:, : arrays["metrics.bad"].shape[1]] = arrays["metrics.bad"]
        if "metrics.curve" in arrays:
            made.curve = np.array(arrays["metrics.curve"], dtype=np.float64).reshape(-1, 4)
            made.ranks = np.array(arrays["metrics.ranks"], dtype=np.float64).reshape(-1, 2)
        made.detail, made.residuals = restored(arrays), Residuals.restored(arrays)
        if "metrics.classes" in arrays:
            made.classes = np.array(arrays["metrics.classes"], dtype=np.float64)
        made.drift = Drift.restored(arrays)
        if "metrics.margins.at" in arrays:
            made.margins = np.zeros((2, bins(FINE)))
            made.margins.reshape(-1)[arrays["metrics.margins.at"]] = arrays["metrics.margins.value"]
        made.by_time = ByTime.from_arrays(arrays) if "metrics.clock" in arrays else None
        return made

    def digest(self, digest: hashlib._Hash) -> None:
        """Feed what was learned to a hash: it is the same where bad rows never were."""
        for name, array in self._learned().items():
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(array).data)
