"""Hyper-parameters: legal values, how a job's values are parsed and printed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

from streamomd.core.wording import nearest


@dataclass(frozen=True)
class Above:
    """A finite number above ``low``, or at least ``low`` when ``closed``."""

    low: float
    closed: bool = False

    def parse(self, value: Any) -> float:
        """The number, or ValueError saying what is expected."""
        number = _number(value)
        if math.isfinite(number) and (number > self.low or (self.closed and number == self.low)):
            return float(number)
        bound = "at least" if self.closed else "above"
        raise ValueError(f"expected a number {bound} {self.low:g}{_decimal_point(value)}")

    def show(self, number: float) -> Any:
        """What is saved and printed."""
        return number


@dataclass(frozen=True)
class Choice:
    """One of a few words; inside, its place among them."""

    words: tuple[str, ...]

    def parse(self, value: Any) -> float:
        """The word's place, or ValueError naming the words."""
        if value in self.words:
            return float(self.words.index(value))
        found = nearest(value, self.words) if isinstance(value, str) else None
        hint = f"; did you mean {found!r}?" if found else ""
        raise ValueError(f"expected one of {', '.join(self.words)}{hint}")

    def show(self, number: float) -> Any:
        """What is saved and printed."""
        return self.words[int(number)]


@dataclass(frozen=True)
class Between:
    """A number between ``low`` and ``high``; ``closed``: or one of them. ``whole``: an integer."""

    low: float
    high: float
    closed: bool = True
    whole: bool = False

    def parse(self, value: Any) -> float:
        """The number, or ValueError saying what is expected."""
        number = _number(value)
        inside = self.low < number < self.high
        if self.closed:
            inside = self.low <= number <= self.high
        if inside and (not self.whole or number == int(number)):
            return float(number)
        what = "a whole number" if self.whole else "a number"
        raise ValueError(f"expected {what} between {self.low:g} and {self.high:g}")

    def show(self, number: float) -> Any:
        """What is saved and printed."""
        return int(number) if self.whole else number


@dataclass(frozen=True)
class Switch:
    """Yes or no."""

    def parse(self, value: Any) -> float:
        """1 or 0, or ValueError."""
        if isinstance(value, bool):
            return float(value)
        raise ValueError("expected true or false")

    def show(self, number: float) -> Any:
        """What is saved and printed."""
        return bool(number)


RAW_UNITS = "true where features or targets are in raw units (no certificate)"
"""What a rule needs whose explicit steps overshoot on long rows, of its ``implicit``."""
Kind = Above | Between | Choice | Switch
Positive = Annotated[float, Above(0.0)]
NotNegative = Annotated[float, Above(0.0, closed=True)]
YesNo = Annotated[float, Switch()]
Lipschitz = Annotated[float, Above(0.0, closed=True)]
"""A hyper-parameter of this kind is named L; 0 stands for the loss's own constant."""


def needs(hyper: type[tuple[float, ...]]) -> dict[str, str]:
    """The parameters that no default fits, each with how to choose its value.

    It is the text after the kind: ``C: Annotated[Positive, "at least the norm of u"] = 1.0``.
    """
    hints = get_type_hints(hyper, include_extras=True)
    texts = {name: hint.__metadata__[1:] for name, hint in hints.items()}
    return {name: text[0] for name, text in texts.items() if text}


def kinds(hyper: type[tuple[float, ...]]) -> dict[str, Kind]:
    """The kind of each parameter, of a rule's or a loss's ``hyper``."""
    hints = get_type_hints(hyper, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}


def _decimal_point(value: Any) -> str:
    """The end of a message about a number with a decimal comma."""
    plain = value.replace(",", ".") if isinstance(value, str) else ""
    is_number = plain != value and plain.replace(".", "", 1).isdecimal()
    return f"; with a decimal point: {plain}" if is_number else ""


def _number(value: Any) -> float:
    """The value if it is a number, else NaN, which lies between no bounds."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
