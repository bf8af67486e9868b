"""Metrics by hour and by day of the rows' own time, in UTC, and the stream time.

The loss of each row is that which the engine adds to the sums of the epoch. Rows are added one by
one, so how they are cut changes no bit. A row that comes late counts in the period of its own time.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Times

Floats = NDArray[np.float64]
Figures = Callable[[Floats], dict[str, float | None]]
HOUR, DAY = 3600 * 10**9, 24 * 3600 * 10**9
"""Nanoseconds."""
LENGTHS = {"hour": HOUR, "day": DAY}
RETAINED = 2048
"""Periods of each length that have sums of their own: the latest ones; 85 days of hours, 5 years of
days. The rows of earlier ones have one sum together."""
NEVER = -(1 << 62)
"""The stream time before any row."""

EARLIER_TEXT = "earlier"
"""The period of all rows before those that are retained."""


@dataclass(eq=False)
class Periods:
    """Rows and sums of periods of one length.

    numbers: of the periods that are retained, int64 (periods,), ascending, from that of 1970 on;
    rows: int64 (periods,). sums: float64 (periods, 3), of importance, loss, and mistakes or squared
    errors. earlier, earlier_rows: of all that are not retained.
    """

    numbers: Times = field(default_factory=lambda: np.empty(0, np.int64))
    rows: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    sums: Floats = field(default_factory=lambda: np.empty((0, 3)))
    earlier: Floats = field(default_factory=lambda: np.zeros(3))
    earlier_rows: int = 0

    def add(self, numbers: Times, terms: Floats) -> None:
        """Add rows one by one: how they are cut into batches changes no bit.

        numbers: of their periods. terms: (rows, 3).
        """
        new, first = np.unique(numbers, return_index=True)
        begins = first[~np.isin(new, self.numbers)]
        if len(self.numbers) + len(begins) <= RETAINED:
            for row in begins.tolist():
                self._begin(int(numbers[row]))
            self._add_known(numbers, terms)
            return
        begins.sort()
        self._add_known(numbers[: begins[0]], terms[: begins[0]])
        for low, high in pairwise([*begins.tolist(), len(numbers)]):
            self._begin(int(numbers[low]))
            self._add_known(numbers[low:high], terms[low:high])

    def _begin(self, number: int) -> None:
        """Retain a new period; the earliest one gives way to it."""
        at = int(np.searchsorted(self.numbers, number))
        if len(self.numbers) == RETAINED:
            if not at:
                return
            self.earlier = self.earlier + self.sums[0]
            self.earlier_rows += int(self.rows[0])
            self.numbers, self.rows, self.sums = self.numbers[1:], self.rows[1:], self.sums[1:]
            at -= 1
        self.numbers = np.insert(self.numbers, at, number)
        self.rows = np.insert(self.rows, at, 0)
        self.sums = np.insert(self.sums, at, 0.0, axis=0)

    def _add_known(self, numbers: Times, terms: Floats) -> None:
        """Add rows of periods that are retained, or are earlier."""
        if not len(numbers):
            return
        at = np.searchsorted(self.numbers, numbers)
        known = self.numbers[np.minimum(at, len(self.numbers) - 1)] == numbers
        if not known.all():
            self.earlier_rows += int(np.count_nonzero(~known))
            for k in range(3):
                np.add.at(self.earlier[k : k + 1], np.zeros_like(at[~known]), terms[~known, k])
            at, terms = at[known], terms[known]
        np.add.at(self.rows, at, 1)
        for k in range(3):
            np.add.at(self.sums[:, k], at, terms[:, k])

    def figures(self, length: int, figures: Figures) -> list[dict[str, Any]]:
        """rows, loss, error and rmse of each period in order; "earlier" is first."""
        found = [(EARLIER_TEXT, self.earlier_rows, self.earlier)] if self.earlier_rows else []
        for number, rows, sums in zip(
            self.numbers.tolist(), self.rows.tolist(), self.sums, strict=True
        ):
            found.append((period_text(number, length), rows, sums))
        return [{"period": text, "rows": rows, **figures(sums)} for text, rows, sums in found]

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """What a checkpoint saves; the last row is of earlier periods."""
        rows = np.stack([self.numbers, self.rows], axis=1)
        return {
            name: np.vstack([rows, [[0, self.earlier_rows]]]).astype(np.int64),
            f"{name}sums": np.vstack([self.sums, [self.earlier]]),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], name: str) -> Periods:
        """Back from ``arrays``."""
        found, sums = arrays[name], np.array(arrays[f"{name}sums"], np.float64)
        if found.shape != (len(sums), 2) or not 1 <= len(sums) <= RETAINED + 1:
            raise ValueError(f"sums of {sums.shape} for periods of {found.shape}")
        if sums.shape[1] != 3 or np.any(np.diff(found[:-1, 0]) <= 0):
            raise ValueError("periods that do not ascend")
        numbers, rows = np.array(found, np.int64).T
        return cls(numbers[:-1].copy(), rows[:-1].copy(), sums[:-1], sums[-1], int(rows[-1]))


@dataclass(eq=False)
class ByTime:
    """Metrics by hour and by day.

    latest: the stream time, the latest time of a row that was read; None before the first. late:
    rows whose time was before it; ties: rows whose time was the same. day: the number of the day of
    the row that was counted last.
    """

    hours: Periods = field(default_factory=Periods)
    days: Periods = field(default_factory=Periods)
    latest: int | None = None
    late: int = 0
    ties: int = 0
    day: int = 0

    def read(self, time: Times) -> None:
        """Move the stream time past rows, and count those that are late or tie."""
        if not len(time):
            return
        known = NEVER if self.latest is None else self.latest
        before = np.maximum.accumulate(np.concatenate([[known], time[:-1]]))
        self.late += int(np.count_nonzero(time < before))
        self.ties += int(np.count_nonzero(time == before))
        self.latest = max(int(before[-1]), int(time[-1]))

    def count(self, time: Times, weight: Floats, losses: Floats) -> None:
        """Count rows in the periods of their times. losses: (rows, 2), of weight 1 each."""
        if not len(time):
            return
        terms = np.stack([np.ones(len(time)), *losses.T], axis=1) * weight[:, None]
        self.hours.add(time // HOUR, terms)
        self.days.add(time // DAY, terms)
        self.day = int(time[-1]) // DAY

    def result(self, figures: Figures) -> dict[str, Any]:
        """Figures by hour and by day."""
        return {
            "latest": None if self.latest is None else time_text(self.latest),
            "late": self.late,
            "ties": self.ties,
            "hour": self.hours.figures(HOUR, figures),
            "day": self.days.figures(DAY, figures),
        }

    def last_day(self, figures: Figures) -> dict[str, Any] | None:
        """Figures of the day of the row that was counted last; None before the first row."""
        found = np.flatnonzero(self.days.numbers == self.day)
        if not len(found):
            return None
        rows = int(self.days.rows[found[0]])
        text = period_text(self.day, DAY)
        return {"period": text, "rows": rows, **figures(self.days.sums[found[0]])}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint saves."""
        latest = NEVER if self.latest is None else self.latest
        return {
            "metrics.clock": np.array([latest, self.late, self.ties, self.day], np.int64),
            **self.hours.arrays("metrics.hours"),
            **self.days.arrays("metrics.days"),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> ByTime:
        """Back from ``arrays``."""
        latest, late, ties, day = arrays["metrics.clock"].tolist()
        hours, days = (Periods.from_arrays(arrays, f"metrics.{name}") for name in ("hours", "days"))
        return cls(hours, days, None if latest == NEVER else latest, late, ties, day)


def period_text(number: int, length: int, origin: int = 0) -> str:
    """The start of a period in UTC: a date for whole days, else to the minute. origin: the start of
    period 0.

    >>> period_text(20_454, DAY), period_text(490_901, HOUR)
    ('2026-01-01', '2026-01-01T05:00Z')
    """
    moment = _moment(number * length + origin)
    return moment.strftime("%Y-%m-%d" if length % DAY == 0 else "%Y-%m-%dT%H:%MZ")


def time_text(time: int) -> str:
    """A time in UTC as ISO 8601, with the digits of a second that it has.

    >>> time_text(1_767_225_600_000_000_000), time_text(1_500_000_001)
    ('2026-01-01T00:00:00Z', '1970-01-01T00:00:01.500000001Z')
    """
    seconds, rest = divmod(time, 10**9)
    digits = f".{rest:09d}".rstrip("0").rstrip(".")
    return f"{_moment(seconds * 10**9):%Y-%m-%dT%H:%M:%S}{digits}Z"


def _moment(time: int) -> datetime.datetime:
    start = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return start + datetime.timedelta(microseconds=time // 1000)
