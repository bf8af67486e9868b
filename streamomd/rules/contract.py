"""What a rule is: a frozen description and plain functions of one coordinate's numbers.

The engine loops over rows; a rule defines a row's step and a coordinate's update::

    weight(own, shared, totals, clock, h) -> w      the prediction is the sum of w * x
    step(row, totals, clock, h) -> active, move, totals
                                                    is there an update, and what it needs
    update(own, shared, x, move, clock, h) -> own   for each coordinate of an active row
    observe(shared, x, clock, h) -> shared, q       before the prediction, for ``Observe``
    align(own, old, new, totals, clock, h) -> own   own slots carried from old shared slots to new

Everything else is optional and grouped by what it is for: ``RowHooks`` (a row's other sums and
steps), ``CoordinateSums`` (sums over all coordinates), ``Constraint`` (a set for the weights),
``storage`` (a matrix, its root, or recent rows). A group that is absent costs nothing.

``clock`` is t, the number of the current row from 1, as a float. ``h`` holds the hyper-parameters.
``x`` is never 0. What is constant over a row belongs into the move, computed once. Rule functions
use module ``math`` only, so that compiled and uncompiled runs are bit-identical; all numbers are
float64 inside.

No behaviour of the engine depends on a parameter's or a slot's name: where one has a role, a field
of a group names it (``RowHooks.implicit``, ``Losses.lipschitz``, ``Slots.weight``, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple, get_type_hints

from streamomd.core.errors import UsageError
from streamomd.core.message import invalid_value
from streamomd.core.wording import nearest
from streamomd.rules.groups import (
    MATRIX,
    PROJECTED,
    Block,
    Certificate,
    Constraint,
    Coordinates,
    CoordinateSums,
    Coords,
    Functions,
    Importance,
    Losses,
    Matrix,
    Max,
    Mean,
    Min,
    Nothing,
    Numbers,
    Observe,
    Params,
    RecentRows,
    RootMatrix,
    RowHooks,
    Saved,
    Slot,
    Slots,
    Storage,
    Sum,
    fields,
    readable,
    slots_of,
)
from streamomd.rules.params import Kind

__all__ = [
    "MATRIX",
    "PROJECTED",
    "Block",
    "Certificate",
    "Constraint",
    "CoordinateSums",
    "Coordinates",
    "Coords",
    "Functions",
    "Importance",
    "Losses",
    "Matrix",
    "Max",
    "Mean",
    "Min",
    "Nothing",
    "Numbers",
    "Observe",
    "Params",
    "RecentRows",
    "RootMatrix",
    "Row",
    "RowHooks",
    "Rule",
    "Saved",
    "Slot",
    "Slots",
    "Storage",
    "Sum",
    "fields",
    "readable",
]


class Row(NamedTuple):
    """What ``step`` gets of a row: numbers of one learner.

    q: what ``observe`` gave, combined over the row. r: what ``RowHooks.terms`` gave, summed over
    the row; of a rule with a matrix (m, chi), see ``Matrix``.
    """

    margin: float
    y: float
    importance: float
    loss: float
    slope: float
    q: Any
    r: Any


def unchanged(own: Any, *given: Any) -> Any:
    """The update of rules whose loops move coordinates themselves: see ``Block``."""
    return own


@dataclass(frozen=True)
class Rule:
    """A learner's description: texts, hyper-parameters, slots, functions, and optional groups."""

    name: str
    title: str
    source: str
    weight: Functions
    step: Functions
    update: Functions = unchanged
    hyper: Numbers = Nothing
    state: Slots = field(default_factory=Slots)
    observe: Observe | None = None
    align: Functions | None = None
    losses: Losses = field(default_factory=Losses)
    certificate: Certificate = field(default_factory=Certificate)
    row: RowHooks = field(default_factory=RowHooks)
    sums: CoordinateSums | None = None
    constraint: Constraint | None = None
    storage: Storage = field(default_factory=Coordinates)

    @cached_property
    def own_slots(self) -> tuple[Slot, ...]:
        """Slots of each learner."""
        return slots_of(self.state.own)

    @cached_property
    def shared_slots(self) -> tuple[Slot, ...]:
        """Slots that all learners share."""
        return slots_of(self.state.shared)

    @cached_property
    def total_slots(self) -> tuple[Slot, ...]:
        """Numbers of each learner; for each sum over coordinates also the engine's own."""
        slots = slots_of(self.state.totals)
        sums = [slot for slot in slots if slot.merge == "coords"]
        return (*slots, *(Slot(f"top.{slot.name}", 0.0, "coords") for slot in sums))

    @cached_property
    def masses(self) -> int:
        """How many totals are sums over all coordinates; they come first."""
        return sum(slot.merge == "coords" for slot in slots_of(self.state.totals))

    @cached_property
    def numbers(self) -> tuple[int, int, int]:
        """How many numbers a row has: sums, maxima among them, and r of each learner."""
        if self.storage.kind == "matrix":
            return 0, 0, 2
        if self.storage.kind == "root":
            return 1, 0, 0
        q = (self.observe.sums, self.observe.maxima) if self.observe else (0, 0)
        return *q, self.row.gathers

    @cached_property
    def modes(self) -> tuple[str, ...]:
        """The modes it learns in with its default parameters."""
        return self.modes_with(self.parse_params({}))

    def modes_with(self, params: Params) -> tuple[str, ...]:
        """The modes it learns in with these parameters.

        Averaged: all but states with rows, which do not merge. Sharded: where all that a row needs
        of other coordinates is one sum over its own.
        """
        rule = self.reduced_for(params)
        maxima = rule.observe is not None and rule.observe.maxima > 0
        whole = rule.masses > 0 or rule.constraint is not None or rule.row.prepare is not None
        coordinates = rule.storage.kind == "coordinates" and not whole and not maxima
        able = {
            "exact": True,
            "averaged": rule.storage.kind != "recent",
            "sharded": coordinates and not self.is_implicit(params) and not self.looks(params),
        }
        return tuple(mode for mode, one in able.items() if one)

    def reduced_for(self, params: Params) -> Rule:
        """An equal rule without the slots that these parameters do not need."""
        able = isinstance(self.storage, Coordinates | RecentRows)
        reduced = self.storage.reduced if able else None  # type: ignore[union-attr]
        found: Rule = (reduced and reduced(params)) or self
        return found

    def for_loss(self, loss: str) -> Rule:
        """The rule that learns with this loss under the same name."""
        storage = self.storage
        if isinstance(storage, Block) and storage.other and loss not in storage.curved:
            other: Rule = storage.other
            return other
        return self

    def looks(self, params: Params) -> bool:
        """Whether all rows are observed once before the first is learned."""
        ahead = self.observe.ahead if self.observe else None
        return ahead is not None and ahead(params)

    def largest(self, params: Params) -> int | None:
        """The most coordinates it accepts; None: any number."""
        group = self.storage if isinstance(self.storage, Matrix | RootMatrix) else self.constraint
        return group.largest(params) if group and group.largest else None

    def is_implicit(self, params: Params) -> bool:
        """Whether these parameters enable implicit steps."""
        return bool(self.row.implicit and params.get(self.row.implicit, False))

    def parse_params(self, given: Params) -> dict[str, Any]:
        """Validated hyper-parameters with defaults, as saved in a job.

        Raises UsageError naming the parameter, its value and what is expected.
        """
        kinds, defaults = self._hyper_fields()
        unknown = [name for name in given if name not in kinds]
        if unknown:
            raise UsageError(f"rule {self.name!r} {no_parameter(unknown[0], kinds)}")
        shown = {}
        for name, kind in kinds.items():
            value = given.get(name, kind.show(defaults[name]))
            try:
                shown[name] = kind.show(kind.parse(value))
            except ValueError as error:
                key = f"model.params.{name}"
                raise UsageError(invalid_value(key, repr(value), str(error))) from None
        return shown

    def hyper_numbers(self, params: Params) -> tuple[float, ...]:
        """Parsed hyper-parameters as the floats the rule's functions read, in field order."""
        kinds, _ = self._hyper_fields()
        return tuple(kinds[name].parse(params[name]) for name in kinds)

    def hyper_of(self, params: Params) -> Any:
        """Parsed hyper-parameters as the NamedTuple that the rule's functions read."""
        make: Callable[..., Any] = self.hyper
        return make(*self.hyper_numbers(params))

    def _hyper_fields(self) -> tuple[Mapping[str, Kind], dict[str, float]]:
        return _kinds(self.hyper), self.hyper._field_defaults  # type: ignore[attr-defined]


@cache  # an engine asks for parameters in each batch
def _kinds(hyper: type[Any]) -> Mapping[str, Kind]:
    """The kinds of a rule's parameters by name."""
    hints = get_type_hints(hyper, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}


def no_parameter(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown parameter, with the nearest one.

    >>> no_parameter("etta", ["eta", "implicit"])
    "has no parameter 'etta'; did you mean 'eta'? it has: eta, implicit"
    """
    found = nearest(name, known)
    hint = f"did you mean {found!r}? " if found else ""
    return f"has no parameter {name!r}; {hint}it has: {', '.join(known) or 'none'}"
