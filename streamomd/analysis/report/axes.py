"""Axes of charts: positions of numbers, and ticks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
EPOCH = date(1970, 1, 1)
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
LETTERS = ((1e4, 1e6, 1e3, "k"), (1e6, 1e9, 1e6, "M"), (1e9, 1e12, 1e9, "G"))


@dataclass(frozen=True)
class Axis:
    """Numbers from ``low`` to ``high``, on a logarithmic scale if ``log``; low < high.

    whole: ticks are integers. dates: numbers are days since 1970-01-01, and ticks are dates.

    >>> Axis("rows", 1.0, 10000.0, log=True).at(100.0)
    0.5
    >>> [text for _, text in Axis("loss", 0.12, 0.31).ticks()]
    ['0.15', '0.2', '0.25', '0.3']
    """

    label: str
    low: float
    high: float
    log: bool = False
    whole: bool = False
    dates: bool = False

    @property
    def title(self) -> str:
        """The label, with the scale if it is logarithmic."""
        return f"{self.label} (log scale)" if self.log else self.label

    @classmethod
    def of(cls, label: str, numbers: Floats, *, log: bool = False, zero: bool = False) -> Axis:
        """An axis for these numbers; from 0 if ``zero``. Skips numbers that are not finite, and
        with ``log`` those that are not positive."""
        valid = numbers[np.isfinite(numbers) & ((numbers > 0.0) | (not log))]
        low, high = (float(valid.min()), float(valid.max())) if len(valid) else (1.0, 2.0)
        if zero:
            low, high = min(low, 0.0), max(high, 0.0)
        if low == high:
            low, high = (low / 2, high * 2) if log else (low - 0.5, high + 0.5)
        room = 0.0 if log or zero else 0.04 * (high - low)
        return cls(label, low - room, high + room, log)

    def at(self, number: float) -> float:
        """Position in 0 … 1; numbers outside are clipped."""
        if self.log:
            low, high, number = math.log(self.low), math.log(self.high), _log(number)
        else:
            low, high = self.low, self.high
        return min(1.0, max(0.0, (number - low) / (high - low)))

    @classmethod
    def of_integers(cls, label: str, numbers: Floats, *, dates: bool = False) -> Axis:
        """An axis for update numbers, or for days."""
        low, high = float(numbers.min()), float(numbers.max())
        room = max(0.04 * (high - low), 0.2)
        return cls(label, low - room, high + room, whole=True, dates=dates)

    def ticks(self, most: int = 6) -> list[tuple[float, str]]:
        """Round numbers inside the axis, and their texts."""
        if self.whole:
            return _whole(self, 3 if self.dates else most)
        found = _decades(self.low, self.high, most) if self.log else []
        if len(found) < 2:
            found = _even(self.low, self.high, most)
        return [(number, _tick(number)) for number in found]


def _whole(axis: Axis, most: int) -> list[tuple[float, str]]:
    """Integers at regular steps: their digits, or dates."""
    first, last = math.ceil(axis.low), math.floor(axis.high)
    rough = max(1.0, (last - first) / most)
    power = 10.0 ** math.floor(math.log10(rough))
    step = int(next(power * one for one in (1, 2, 5, 10) if power * one >= rough))
    start = first if axis.dates else math.ceil(first / step) * step
    return [
        (float(at), str(date.fromordinal(EPOCH.toordinal() + at)) if axis.dates else _tick(at))
        for at in range(start, last + 1, step)
    ]


def brief(number: float) -> str:
    """A number as short text.

    >>> [brief(one) for one in (0.0, 0.25, 12.0, 20000.0, 1.5e6, 3e9, 1e-5, float("nan"))]
    ['0', '0.25', '12', '20k', '1.5M', '3G', '1e-05', 'nan']
    """
    if not math.isfinite(number):
        return "nan" if math.isnan(number) else "inf" if number > 0 else "-inf"
    for least, most, unit, letter in LETTERS:
        if least <= abs(number) < most:
            return f"{number / unit:.3g}{letter}"
    return f"{number:.4g}"


def _tick(number: float) -> str:
    """Returns the label of a tick: that of ``brief``, but 1,000 is 1k, next to 10k."""
    round_one = 1e3 <= abs(number) < 1e4 and number % 100.0 == 0.0
    return f"{number / 1e3:.3g}k" if round_one else brief(number)


def _log(number: float) -> float:
    return math.log(number) if number > 0.0 else -math.inf


def _decades(low: float, high: float, most: int) -> list[float]:
    """Powers of 10 at regular steps; for few decades also 2 and 5 times."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, math.ceil((last - first) / most))
    factors = (1.0, 2.0, 5.0) if last - first <= 2 else (1.0,)
    found = [factor * 10.0**power for power in range(first, last + 1, every) for factor in factors]
    return [number for number in found if low * 0.999 <= number <= high * 1.001]


def _even(low: float, high: float, most: int) -> list[float]:
    rough = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * one for one in STEPS if power * one >= rough * 0.999)
    count = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return [round(at * step, 12) for at in count]
