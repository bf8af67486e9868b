"""Metrics by hour and by day of the rows' own time, in UTC, and the stream time.

A period's sums are what the sums of the epoch grew by while its rows were learned, so that they are
those of the engine. They are added up where the hour changes, never where a batch ends: how rows
are cut changes no bit. A row that comes late counts in the period of its own time.
"""

from __future__ import annotations

import datetime
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
EARLIER, NEVER = -(1 << 62), -(1 << 62)
"""In a checkpoint: the number of the period of all earlier rows, and the time before any row."""

EARLIER_TEXT = "earlier"
"""The period of all rows before those that are retained."""


@dataclass(eq=False)
class Periods:
    """Rows and sums (importance, loss, mistakes or squared errors) of periods of one length.

    rows, sums: by number of the period, from that of 1970 on. earlier: of all that are not
    retained, if there are any.
    """

    rows: dict[int, int] = field(default_factory=dict)
    sums: dict[int, Floats] = field(default_factory=dict)

    def add(self, number: int, rows: int, sums: Floats) -> None:
        """Add rows and sums to a period."""
        number = self._place(number)
        self.rows[number] = self.rows.get(number, 0) + rows
        self.sums[number] = self.sums.get(number, np.zeros(3)) + sums

    def _place(self, number: int) -> int:
        """The period where a number's rows are counted; the earliest one gives way to a new one."""
        own = len(self.rows) - (EARLIER in self.rows)
        if number in self.rows or own < RETAINED:
            return number
        first = min(one for one in self.rows if one != EARLIER)
        if number < first:
            return EARLIER
        rows, sums = self.rows.pop(first), self.sums.pop(first)
        self.rows[EARLIER] = self.rows.get(EARLIER, 0) + rows
        self.sums[EARLIER] = self.sums.get(EARLIER, np.zeros(3)) + sums
        return number

    def figures(self, length: int, figures: Figures) -> list[dict[str, Any]]:
        """rows, loss, error and rmse of each period in order; "earlier" is first."""
        return [
            {
                "period": period_text(number, length),
                "rows": self.rows[number],
                **figures(self.sums[number]),
            }
            for number in sorted(self.rows)
        ]

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """What a checkpoint saves."""
        numbers = sorted(self.rows)
        return {
            name: np.array([(one, self.rows[one]) for one in numbers], np.int64).reshape(-1, 2),
            f"{name}sums": np.array([self.sums[one] for one in numbers]).reshape(-1, 3),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], name: str) -> Periods:
        """Back from ``arrays``."""
        found, sums = arrays[name].tolist(), arrays[f"{name}sums"]
        if len(found) != len(sums) or len(found) > RETAINED + 1:
            raise ValueError(f"{len(sums)} sums of {len(found)} periods")
        made = cls()
        for (number, rows), own in zip(found, sums, strict=True):
            made.rows[number], made.sums[number] = rows, np.array(own, np.float64)
        return made


@dataclass(eq=False)
class ByTime:
    """Metrics by hour and by day.

    latest: the stream time, the latest time of a row that was read; None before the first. late:
    rows whose time was before it; ties: rows whose time was the same. hour: the number of the hour
    whose rows are learned now, None if none is; base: the sums of the epoch when it began.
    """

    hours: Periods = field(default_factory=Periods)
    days: Periods = field(default_factory=Periods)
    latest: int | None = None
    late: int = 0
    ties: int = 0
    hour: int | None = None
    base: Floats = field(default_factory=lambda: np.zeros(3))
    _waiting: int = 0

    def read(self, time: Times) -> None:
        """Move the stream time past rows, and count those that are late or tie."""
        if not len(time):
            return
        known = NEVER if self.latest is None else self.latest
        before = np.maximum.accumulate(np.concatenate([[known], time[:-1]]))
        self.late += int(np.count_nonzero(time < before))
        self.ties += int(np.count_nonzero(time == before))
        self.latest = max(int(before[-1]), int(time[-1]))

    def begin(self, hour: int, sums: Floats) -> None:
        """The next rows are of this hour. sums: of the epoch so far."""
        if hour != self.hour:
            self.close(sums)
            self.hour, self.base = hour, sums.copy()

    def count(self, rows: int) -> None:
        """Count rows of the hour under way."""
        self._waiting += rows

    def close(self, sums: Floats) -> None:
        """End the hour under way. sums: of the epoch so far."""
        if self.hour is not None and self._waiting:
            grown = sums - self.base
            self.hours.add(self.hour, self._waiting, grown)
            self.days.add(self.hour // 24, self._waiting, grown)
        self.hour, self._waiting, self.base = None, 0, np.zeros(3)

    def result(self, sums: Floats, figures: Figures) -> dict[str, Any]:
        """Figures by hour and by day, with those of the hour under way. sums: of the epoch."""
        now = self.copy()
        now.close(sums)
        latest = None if now.latest is None else time_text(now.latest)
        return {
            "latest": latest,
            "late": now.late,
            "ties": now.ties,
            "hour": now.hours.figures(HOUR, figures),
            "day": now.days.figures(DAY, figures),
        }

    def last_day(self, sums: Floats) -> tuple[str, int, Floats] | None:
        """The day under way, its rows and sums so far; None before the first row."""
        if self.hour is None:
            return None
        day = self.hour // 24
        rows = self.days.rows.get(day, 0) + self._waiting
        return (
            period_text(day, DAY), rows, self.days.sums.get(day, np.zeros(3)) + (sums - self.base)
        )  # fmt: skip

    def copy(self) -> ByTime:
        """The same figures, apart from these."""
        return ByTime.from_arrays(self.arrays())

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint saves."""
        latest = NEVER if self.latest is None else self.latest
        hour = NEVER if self.hour is None else self.hour
        clock = np.array([latest, self.late, self.ties, hour, self._waiting], np.int64)
        return {
            "metrics.clock": clock,
            "metrics.base": self.base,
            **self.hours.arrays("metrics.hours"),
            **self.days.arrays("metrics.days"),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> ByTime:
        """Back from ``arrays``."""
        latest, late, ties, hour, waiting = arrays["metrics.clock"].tolist()
        return cls(
            Periods.from_arrays(arrays, "metrics.hours"),
            Periods.from_arrays(arrays, "metrics.days"),
            None if latest == NEVER else latest,
            late,
            ties,
            None if hour == NEVER else hour,
            np.array(arrays["metrics.base"], np.float64).reshape(3),
            waiting,
        )


def ends_of_hours(time: Times | None, length: int = HOUR) -> list[int]:
    """Where rows of one hour, or another length, end: before each row of another one than the row
    before, in order. None of no times.

    >>> ends_of_hours(np.array([5, 6, 13, 4]) * HOUR // 2), ends_of_hours(None)
    ([1, 2, 3], [])
    """
    if time is None or not len(time):
        return []
    numbers = time // length
    return [*(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist()]


def next_end(ends: list[int], low: int, high: int) -> int:
    """The first of these ends after ``low``; ``high`` if there is none before it.

    >>> next_end([2, 5], 0, 9), next_end([2, 5], 2, 9), next_end([2, 5], 5, 9), next_end([2], 0, 1)
    (2, 5, 9, 1)
    """
    at = bisect_right(ends, low)
    return min(high, ends[at]) if at < len(ends) else high


def period_text(number: int, length: int, origin: int = 0) -> str:
    """The start of a period in UTC: a date for whole days, else to the minute. origin: the start of
    period 0.

    >>> period_text(20_454, DAY), period_text(490_901, HOUR)
    ('2026-01-01', '2026-01-01T05:00Z')
    """
    if number == EARLIER:
        return EARLIER_TEXT
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
