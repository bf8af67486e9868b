"""Metrics by hour and by day of the rows' own time, in UTC, and the stream time.

The loss of each row is that which the engine adds to the sums of the epoch. Rows are added one by
one, so how they are cut changes no bit. A row that comes late counts in the period of its own time.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Floats, Times
from streamomd.core.jit import LazyCompiled, callable_part, int64, read, written

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


class Periods:
    """Rows and sums of periods of one length.

    numbers: of the periods that are retained, int64 (periods,), ascending, from that of 1970 on;
    rows: int64 (periods,). sums: float64 (periods, 3), of importance, loss, and mistakes or squared
    errors. earlier, earlier_rows: of all that are not retained.
    """

    def __init__(self) -> None:
        self._numbers, self._rows = np.zeros((2, RETAINED), np.int64)
        self._sums = np.zeros((RETAINED, 3))
        self._counts = np.zeros(2, np.int64)  # of periods, and of earlier rows
        self.earlier = np.zeros(3)

    @property
    def numbers(self) -> Times:
        """The numbers of the periods that are retained."""
        return self._numbers[: self._counts[0]]

    @property
    def rows(self) -> NDArray[np.int64]:
        """The rows of each of them."""
        return self._rows[: self._counts[0]]

    @property
    def sums(self) -> Floats:
        """The sums of each of them, (periods, 3)."""
        return self._sums[: self._counts[0]]

    @property
    def earlier_rows(self) -> int:
        """Rows of periods that are not retained."""
        return int(self._counts[1])

    def add(self, length: int, time: Times, weight: Floats, losses: Floats) -> None:
        """Add rows one by one: how they are cut into batches changes no bit. losses: (rows, 2)."""
        table = self._numbers, self._rows, self._sums.reshape(-1), self._counts, self.earlier
        with np.errstate(all="ignore"):  # of a model that diverges
            compiled_add_rows(len(time), length, time, weight, losses.reshape(-1), *table)

    def join(self, other: Periods) -> None:
        """Add the sums of other rows."""
        numbers = np.union1d(self.numbers, other.numbers)
        rows, sums = np.zeros(len(numbers), np.int64), np.zeros((len(numbers), 3))
        for one in (self, other):
            at = np.searchsorted(numbers, one.numbers)
            rows[at] += one.rows
            sums[at] += one.sums
        early = max(0, len(numbers) - RETAINED)
        earlier = self.earlier + other.earlier
        for one in sums[:early]:
            earlier += one
        found = self.earlier_rows + other.earlier_rows + int(rows[:early].sum())
        self._fill(numbers[early:], rows[early:], sums[early:], earlier, found)

    def _fill(
        self, numbers: Times, rows: Times, sums: Floats, earlier: Floats, earlier_rows: int
    ) -> None:
        count = len(numbers)
        self._numbers[:count], self._rows[:count], self._sums[:count] = numbers, rows, sums
        self._counts[...] = count, earlier_rows
        self.earlier[...] = earlier

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
        made = cls()
        made._fill(numbers[:-1], rows[:-1], sums[:-1], sums[-1], int(rows[-1]))
        return made


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
        if time[0] >= known and not (time[1:] < time[:-1]).any():  # a third of what follows
            self.ties += int(time[0] == known) + int(np.count_nonzero(time[1:] == time[:-1]))
            self.latest = int(time[-1])
            return
        before = np.maximum.accumulate(np.concatenate([[known], time[:-1]]))
        self.late += int(np.count_nonzero(time < before))
        self.ties += int(np.count_nonzero(time == before))
        self.latest = max(int(before[-1]), int(time[-1]))

    def count(self, time: Times, weight: Floats, losses: Floats) -> None:
        """Count rows in the periods of their times. losses: (rows, 2), of weight 1 each."""
        if not len(time):
            return
        self.hours.add(HOUR, time, weight, losses)
        self.days.add(DAY, time, weight, losses)
        self.day = int(time[-1]) // DAY

    def add(self, other: ByTime) -> None:
        """Add other rows, as counted after these. Late rows and ties of each are its own: no sum
        says which of the other's are late after these."""
        self.hours.join(other.hours)
        self.days.join(other.days)
        if other.latest is not None:
            self.latest = max(other.latest, other.latest if self.latest is None else self.latest)
        self.late, self.ties = self.late + other.late, self.ties + other.ties
        self.day = other.day if len(other.days.numbers) else self.day

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


FEW = 20_000
"""Rows that are added before the kernel is compiled."""


@callable_part
def find_period(
    number: int, numbers: Any, rows: Any, sums: Any, counts: Any, earlier: Any
) -> Any:  # fmt: skip
    """The place of a period in the table, to which it is added; -1: it is earlier than all of a
    full table."""
    used = at = counts[0]
    low, guess = 0, number - numbers[0]
    if 0 <= guess < used and numbers[guess] == number:  # most streams have rows in each period
        return guess
    while low < at:
        middle = (low + at) >> 1
        if numbers[middle] < number:
            low = middle + 1
        else:
            at = middle
    if at < used and numbers[at] == number:
        return at
    if used < len(numbers):
        for k in range(used, at, -1):
            numbers[k], rows[k] = numbers[k - 1], rows[k - 1]
            sums[3 * k : 3 * k + 3] = sums[3 * k - 3 : 3 * k]
        counts[0] = used + 1
    elif at == 0:
        return -1
    else:  # the earliest period gives way
        at -= 1
        counts[1] += rows[0]
        earlier += sums[:3]
        numbers[:at], rows[:at] = numbers[1 : at + 1], rows[1 : at + 1]
        sums[: 3 * at] = sums[3 : 3 * at + 3]
    numbers[at], rows[at] = number, 0
    sums[3 * at : 3 * at + 3] = 0.0
    return at


def add_rows(
    length: int, time: Any, weight: Any, losses: Any,
    numbers: Any, rows: Any, sums: Any, counts: Any, earlier: Any,
) -> None:  # fmt: skip
    """Add rows to the table of ``Periods``, whose arrays are the last five, sums as (periods * 3,).

    losses: (rows * 2,). The period is looked up where it changes: most rows are of the one before.
    Until then its sums are in registers, which takes half the time of sums in memory.
    """
    low = 0
    while low < len(time):
        number = time[low] // length
        begin = number * length
        end = begin + length
        at = find_period(number, numbers, rows, sums, counts, earlier)
        table, k = (sums, 3 * at) if at >= 0 else (earlier, 0)
        w, loss, wrong, i = table[k], table[k + 1], table[k + 2], low
        while i < len(time) and begin <= time[i] < end:
            w += weight[i]
            loss += weight[i] * losses[2 * i]
            wrong += weight[i] * losses[2 * i + 1]
            i += 1
        table[k], table[k + 1], table[k + 2] = w, loss, wrong
        if at >= 0:
            rows[at] += i - low
        else:
            counts[1] += i - low
        low = i


_NUMBERS, _FLOATS = written("int64"), written("float64")
SIGNATURE = [
    int64, read("int64"), read("float64"), read("float64"),
    _NUMBERS, _NUMBERS, _FLOATS, _NUMBERS, _FLOATS,
]  # fmt: skip
compiled_add_rows = LazyCompiled(add_rows, SIGNATURE, FEW)


PERIODS = {"hour": (HOUR, 0), "day": (DAY, 0), "week": (7 * DAY, -3 * DAY)}
"""Length and the start of the one of 1970, in nanoseconds. Weeks begin on Monday."""
KEYS = ("period", "learned", "rows", "loss", "error", "rmse", "auc", "auc_error", "sums")
WORD, SUMS = 8, 3
"""Bytes of a number in a commit, and sums of rows."""


@dataclass(eq=False)
class Backtest:
    """by, gap: of the periods, and seconds before each whose rows are not learned yet.

    number: of the period under way, whose metrics are ``Metrics.period``. periods: figures of those
    that are finished, the latest ones; earlier: of all before them, None without any. before: rows
    of the periods without a model. finished: sums of all rows before the period under way.
    """

    by: str
    gap: float
    number: int | None = None
    periods: list[dict[str, Any]] = field(default_factory=list)
    before: int = 0
    earlier: dict[str, Any] | None = None
    finished: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])

    @property
    def length(self) -> int:
        """The length of a period, in nanoseconds."""
        return PERIODS[self.by][0]

    @property
    def origin(self) -> int:
        """The start of period 0, in nanoseconds since 1970."""
        return PERIODS[self.by][1]

    def array(self) -> NDArray[np.uint64]:
        """What a checkpoint saves: JSON, filled up with spaces."""
        text = json.dumps(vars(self)).encode()
        return np.frombuffer(text.ljust(-(-len(text) // WORD) * WORD), np.uint64)

    @classmethod
    def from_array(cls, array: NDArray[Any]) -> Backtest:
        """Back from ``array``."""
        made = cls(**json.loads(np.ascontiguousarray(array, np.uint64).tobytes()))
        for one in (*made.periods, *([made.earlier] if made.earlier else [])):
            if not {*KEYS} <= one.keys() or len(one["sums"]) != SUMS:
                raise ValueError("a period of a backtest without figures")
        if made.by not in PERIODS or len(made.finished) != SUMS:
            raise ValueError(f"a backtest by {made.by!r}")
        return made
