"""What a rule is: a frozen description and plain functions of one coordinate's numbers.

The engine walks the rows; a rule only says what happens to the numbers of a row or a coordinate::

    weight(own, shared, totals, clock, h) -> w      the prediction is the sum of w * x
    step(row, totals, clock, h) -> move, totals     the row's numbers that update needs
    update(own, shared, x, move, clock, h) -> own

and, where a rule needs them (absent, they cost nothing)::

    begin(d, h) -> totals                           at the start, of d coordinates
    observe(shared, x, clock, h) -> shared, q       before the prediction; q is summed over the row,
                                                    or its largest taken: ``maxima``
    align(own, old, new, totals, clock, h) -> own   own slots carried to new shared ones; at each
                                                    touch of a rule that has no observe, nor sums
    rejoin(own, w, shared, totals, clock, h) -> own  merged slots made from the mean weight w
    prepare(q, totals, clock, h) -> totals          once a row, observed and not yet weighed
    part(own, shared, x, totals, clock, h) -> p     summed instead of w * x, where that is not it
    terms(own, shared, x, totals, clock, h) -> r    summed beside the prediction, into row.r
    clamp(margin, totals, h) -> margin              what is predicted, where the sum may go too far
    stretch(move, factor) -> move                   a step made longer or shorter: implicit steps

Sums over all coordinates, seen or not (norms, partition functions)::

    mass(own, shared, totals, clock, h) -> numbers  what a coordinate adds to the Coords totals
    stale(totals, clock, h) -> bool                 must they be summed anew?
    peak(own, shared, totals, clock, h) -> number   its maximum over all coordinates goes to rebase
    rebase(totals, peak, clock, h) -> totals        before they are summed anew
    refresh(own, shared, totals, clock, h) -> own   own slots that depend on totals

With a matrix A for each learner beside the coordinates (``keeps="matrix"``), m = <w, x>,
chi = <x, A^-1 x>, v = A^-1 x of before the row::

    start_scale(h) -> number                        A starts as this times the identity
    foresee(m, chi, h) -> margin                    where what is predicted is not m
    step: row.q = (m, chi); move = (s, c, ...)      w <- w + s v by ``update`` with v_i for x
                                                    (s != 0), and A <- A + c x x' (c >= 0)

With the last rows and their multipliers kept (``keeps="recent"``), see ``engine.recent``::

    pair(old, new, cross, totals, h) -> moves, totals   the exact step for the last two rows

``clock`` is t, the number of the current row from 1, as a float. ``h`` holds the hyper-parameters.
``x`` is never 0, and ``update`` is called only where the move's first number is not 0: what is
constant over a row belongs into the move, computed once. Rule functions use module ``math``
only, so that compiled and uncompiled runs agree to the bit; all numbers are float64 inside.

``Own``, ``Shared`` and ``Totals`` are NamedTuples: a field is a slot, its default the start, its
annotation how two states merge. Shared slots are moved by x and the clock alone and kept once for
all learners side by side; own slots and totals are kept for each. The Coords fields of ``Totals``
come first and belong to the engine: it adds what ``mass`` says after a change less what it said
before, and sums anew when a rule says ``stale``, when much has cancelled, and now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple, get_type_hints

from streamomd.core.errors import UsageError
from streamomd.core.nearest import nearest
from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.common.sets import ComparatorSet
from streamomd.rules.params import Kind
from streamomd.rules.ranges import ANY, Range

Sum = Annotated[float, "sum"]
Mean = Annotated[float, "mean"]
Max = Annotated[float, "max"]
Min = Annotated[float, "min"]
Coords = Annotated[float, "coords"]
"""A total that is a sum over all coordinates: see ``mass``."""

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
    r: Any


class Nothing(NamedTuple):
    """No slots, totals or sums."""


Importance = Literal["copies", "updates", "loss", "step", "cap", "noise", "presence"]
"""What importance h > 0 of a row means; 0 always means that the row teaches nothing.

copies: the row h times in a row. updates: the row h times, while each of the copies updates.
loss: h times the loss. step: h times the step in theta, all else as of one row. cap: h times the
parameter C. noise: the parameter r divided by h. presence: any h > 0 is the same.
"""


class Saved(NamedTuple):
    """What a commit says of a state: its version, whether rows had an importance column, whether
    the rule kept its certificate's accounts, and the parameters."""

    version: int
    weighted: bool
    certificate: bool
    params: Mapping[str, Any]


def readable(saved: Saved) -> str:
    """For a rule whose older states mean the same."""
    return ""


PROJECTED = 1_000_000
MATRIX = 4096


class Set(NamedTuple):
    """A convex set that the weights are kept in, by one multiplier mu for all coordinates.

    After each row, active or not, ``outside(totals, clock, h)`` is asked. If so, the engine finds
    the mu >= 0 at which the sum of ``reach(own, shared, mu, totals, clock, h)`` over all
    coordinates, falling in mu, is ``radius(h)``; else mu is 0. ``settle(totals, mu, h)`` is told
    of mu either way; after ``project(own, shared, mu, totals, clock, h)``, where there is one,
    has moved every coordinate's own slots, the Coords totals are summed anew.
    """

    outside: Functions
    reach: Functions
    radius: Functions
    project: Functions | None = None
    settle: Functions | None = None


@dataclass(frozen=True)
class Rule:
    """A learner's description: names, slots, hyper-parameters and its functions.

    ``sums``, ``gathers`` count the numbers that ``observe`` and ``terms`` give to be summed over a
    row; of the last ``maxima`` of ``sums`` the largest is taken instead of the sum. ``losses``
    names the losses the paper proves it for, the first being its default; empty: all, by default
    logistic; ``losses_with(params)`` narrows them. ``keeps``: "coordinates", or what else the
    engine keeps for it. ``weighted_scale``: ``observe`` gets x times the row's importance, for
    scales that bound h g x. ``importance``: what a row's importance h stands for, see
    ``Importance``; tests hold each rule to it. ``range``: the magnitudes of feature values it
    learns from; others make a bad row. ``state_version``: grows when the same rows lead to another
    state. ``older(saved)``: why a state of an older version cannot be continued, or "" where its
    numbers mean the same.
    ``looks(params)``: whether the rows are observed once, all of them, before the first is learned.
    ``largest(params)``: most coordinates it is willing to have, None: any number.

    ``certificate(run) -> claims``: the paper's bounds, or ValueError saying why not of these
    parameters; None: ``uncertified`` says why. ``accounted``: the same rule with the slots its
    certificate needs beside; taken when model.certificate is true.
    ``simplest(params)``: an equal rule without what these parameters do not need.
    ``live(totals, clock, h)``: a figure for the progress line, called ``live_name``.
    ``feasible(slots, h) -> set``: the ``sets.ComparatorSet`` of its weights; None: all weights.
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
    maxima: int = 0
    gathers: int = 0
    weighted_scale: bool = False
    importance: Importance = "loss"
    range: Range = ANY
    state_version: int = 1
    older: Callable[[Saved], str] = readable
    begin: Functions | None = None
    observe: Functions | None = None
    align: Functions | None = None
    rejoin: Functions | None = None
    prepare: Functions | None = None
    part: Functions | None = None
    terms: Functions | None = None
    clamp: Functions | None = None
    stretch: Functions | None = None
    mass: Functions | None = None
    stale: Functions | None = None
    peak: Functions | None = None
    rebase: Functions | None = None
    refresh: Functions | None = None
    kept_in: Set | None = None
    keeps: str = "coordinates"
    foresee: Functions | None = None
    start_scale: Functions | None = None
    pair: Functions | None = None
    looks: Callable[[Mapping[str, Any]], bool] | None = None
    largest: Callable[[Mapping[str, Any]], int | None] | None = None
    losses: tuple[str, ...] = ()
    losses_with: Callable[[Mapping[str, Any]], tuple[str, ...]] | None = None
    certificate: Callable[[Run], list[Claim]] | None = None
    uncertified: str = "no paper proves a bound for it"
    accounted: Rule | None = None
    simplest: Callable[[Mapping[str, Any]], Rule] | None = None
    feasible: Callable[[Any, Any], ComparatorSet] | None = None
    live: Functions | None = None
    live_name: str = ""

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
        """Numbers kept once a learner; for each sum over coordinates also the engine's own."""
        slots = _slots(self.totals)
        sums = [slot for slot in slots if slot.merge == "coords"]
        return (*slots, *(Slot(f"top.{slot.name}", 0.0, "coords") for slot in sums))

    @cached_property
    def masses(self) -> int:
        """How many totals are sums over all coordinates; they come first."""
        return sum(slot.merge == "coords" for slot in _slots(self.totals))

    @cached_property
    def needs_lipschitz(self) -> bool:
        """Whether it has a parameter L, the loss's Lipschitz constant."""
        return "L" in fields(self.hyper)

    @cached_property
    def implicit(self) -> bool:
        """Whether it has the parameter ``implicit``."""
        return "implicit" in fields(self.hyper)

    @cached_property
    def modes(self) -> tuple[str, ...]:
        """The modes it learns in with its default parameters."""
        return self.modes_with(self.parse_params({}))

    def modes_with(self, params: Mapping[str, Any]) -> tuple[str, ...]:
        """The modes it learns in with these parameters.

        Averaged: but for states that keep rows, which do not merge. Sharded: where all that a row
        needs to know of other coordinates is one sum over its own.
        """
        rule = self.simplest(params) if self.simplest else self
        whole = rule.kept_in is not None or rule.prepare is not None or rule.maxima > 0
        all_at_once = rule.masses > 0 or whole
        twice = params.get("implicit", False) or (rule.looks is not None and rule.looks(params))
        able = {
            "exact": True,
            "averaged": rule.keeps != "recent",
            "sharded": rule.keeps == "coordinates" and not all_at_once and not twice,
        }
        return tuple(mode for mode, one in able.items() if one)

    def parse_params(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Hyper-parameters made legal, defaults filled in, as saved in a job.

        Raises UsageError naming the parameter, what came and what is expected.
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
                raise UsageError(f"model.params.{name} = {value!r}: {error}") from None
        return shown

    def hyper_numbers(self, params: Mapping[str, Any]) -> tuple[float, ...]:
        """Parsed hyper-parameters as the floats the rule's functions read, in field order."""
        kinds, _ = self._hyper_fields()
        return tuple(kinds[name].parse(params[name]) for name in kinds)

    def hyper_of(self, params: Mapping[str, Any]) -> Any:
        """Parsed hyper-parameters as the NamedTuple that the rule's functions read."""
        make: Callable[..., Any] = self.hyper
        return make(*self.hyper_numbers(params))

    def _hyper_fields(self) -> tuple[dict[str, Kind], dict[str, float]]:
        hints = get_type_hints(self.hyper, include_extras=True)
        kinds = {name: hint.__metadata__[0] for name, hint in hints.items()}
        return kinds, self.hyper._field_defaults  # type: ignore[attr-defined]


def no_parameter(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown parameter, with the nearest one.

    >>> no_parameter("etta", ["eta", "implicit"])
    "has no parameter 'etta'; did you mean 'eta'? it has: eta, implicit"
    """
    found = nearest(name, known)
    hint = f"did you mean {found!r}? " if found else ""
    return f"has no parameter {name!r}; {hint}it has: {', '.join(known) or 'none'}"


def fields(numbers: type[tuple[float, ...]]) -> tuple[str, ...]:
    """A NamedTuple's field names."""
    names: tuple[str, ...] = numbers._fields  # type: ignore[attr-defined]
    return names


def _slots(fields: type[tuple[float, ...]]) -> tuple[Slot, ...]:
    hints = get_type_hints(fields, include_extras=True)
    starts = fields._field_defaults  # type: ignore[attr-defined]
    return tuple(Slot(name, starts[name], hint.__metadata__[0]) for name, hint in hints.items())
