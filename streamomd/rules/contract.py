"""What a rule is: a frozen description and plain functions of one coordinate's numbers.

The engine walks the rows; a rule only says what happens to the numbers of a row or a coordinate::

    observe(shared, x, clock, h) -> shared, q       before the prediction; q is summed over the row
    align(own, old, new, h) -> own                  own slots carried to new shared ones
    weight(own, shared, totals, clock, h) -> w      the prediction is the sum of w * x
    step(row, totals, clock, h) -> move, totals     the row's numbers that update needs
    update(own, shared, x, move, clock, h) -> own

``clock`` is t, the number of the current row from 1, as a float. ``h`` holds the hyper-parameters.
``x`` is never 0, and ``update`` is called only where the move's first number is not 0: what is
constant over a row belongs into the move, computed once. Rule functions use module ``math``
only, so that compiled and uncompiled runs agree to the bit; all numbers are float64 inside.

``Own``, ``Shared`` and ``Totals`` are NamedTuples: a field is a slot, its default the start, its
annotation how two states merge. Shared slots are moved by x and the clock alone and kept once for
all learners side by side; own slots and totals are kept for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, NamedTuple, get_type_hints

from streamomd.errors import UsageError

Sum = Annotated[float, "sum"]
Mean = Annotated[float, "mean"]
Max = Annotated[float, "max"]

Functions = Callable[..., Any]


class Slot(NamedTuple):
    """A number kept for each coordinate (or, as a total, for each learner)."""

    name: str
    start: float
    merge: str


class Row(NamedTuple):
    """What ``step`` is told of a row: numbers of one learner."""

    margin: float
    y: float
    importance: float
    loss: float
    slope: float
    q: Any


class Nothing(NamedTuple):
    """No slots, totals or sums."""


@dataclass(frozen=True)
class Above:
    """A finite number above ``low``, or at least ``low`` when ``closed``."""

    low: float
    closed: bool = False

    def parse(self, value: Any) -> float:
        """The number, or ValueError saying what is expected."""
        number = (
            value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
        )
        if math.isfinite(number) and (number > self.low or (self.closed and number == self.low)):
            return float(number)
        bound = "at least" if self.closed else "above"
        raise ValueError(f"expected a number {bound} {self.low:g}")

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
        raise ValueError(f"expected one of {', '.join(self.words)}")

    def show(self, number: float) -> Any:
        """What is saved and printed."""
        return self.words[int(number)]


Positive = Annotated[float, Above(0.0)]
NotNegative = Annotated[float, Above(0.0, closed=True)]


@dataclass(frozen=True)
class Rule:
    """A learner's description: names, slots, hyper-parameters and its functions.

    ``sums`` counts the numbers ``observe`` gives to be summed over a row. ``losses`` names the
    losses the paper proves it for, the first being its default; empty: all, by default logistic.
    """

    name: str
    title: str
    source: str
    weight: Functions
    step: Functions
    update: Functions
    hyper: type[tuple[float, ...]] = Nothing
    move: type[tuple[float, ...]] = Nothing
    own: type[tuple[float, ...]] = Nothing
    shared: type[tuple[float, ...]] = Nothing
    totals: type[tuple[float, ...]] = Nothing
    sums: int = 0
    observe: Functions | None = None
    align: Functions | None = None
    losses: tuple[str, ...] = ()
    modes: tuple[str, ...] = field(default=("exact",))

    @cached_property
    def own_slots(self) -> tuple[Slot, ...]:
        """Slots kept for each learner."""
        return _slots(self.own)

    @cached_property
    def shared_slots(self) -> tuple[Slot, ...]:
        """Slots kept once for all learners."""
        return _slots(self.shared)

    @cached_property
    def total_slots(self) -> tuple[Slot, ...]:
        """Numbers kept once a learner."""
        return _slots(self.totals)

    def parse_params(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Hyper-parameters made legal, defaults filled in, as saved in a job.

        Raises UsageError naming the parameter, what came and what is expected.
        """
        kinds, defaults = self._hyper_fields()
        unknown = [name for name in given if name not in kinds]
        if unknown:
            known = ", ".join(kinds) or "none"
            raise UsageError(f"rule {self.name!r} has no parameter {unknown[0]!r}; it has: {known}")
        shown = {}
        for name, kind in kinds.items():
            value = given.get(name, kind.show(defaults[name]))
            try:
                shown[name] = kind.show(kind.parse(value))
            except ValueError as error:
                raise UsageError(f"model.params.{name} = {value!r}: {error}") from None
        return shown

    def hyper_numbers(self, params: Mapping[str, Any]) -> tuple[float, ...]:
        """Parsed hyper-parameters as the floats the rule's functions read, in field order."""
        kinds, _ = self._hyper_fields()
        return tuple(kinds[name].parse(params[name]) for name in kinds)

    def _hyper_fields(self) -> tuple[dict[str, Above | Choice], dict[str, float]]:
        hints = get_type_hints(self.hyper, include_extras=True)
        kinds = {name: hint.__metadata__[0] for name, hint in hints.items()}
        return kinds, self.hyper._field_defaults  # type: ignore[attr-defined]


def fields(numbers: type[tuple[float, ...]]) -> tuple[str, ...]:
    """A NamedTuple's field names."""
    names: tuple[str, ...] = numbers._fields  # type: ignore[attr-defined]
    return names


def _slots(fields: type[tuple[float, ...]]) -> tuple[Slot, ...]:
    hints = get_type_hints(fields, include_extras=True)
    starts = fields._field_defaults  # type: ignore[attr-defined]
    return tuple(Slot(name, starts[name], hint.__metadata__[0]) for name, hint in hints.items())
