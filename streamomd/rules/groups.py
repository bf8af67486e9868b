"""The groups of a rule's description: slots, row hooks, sums, constraint, storage, certificate.

Each optional group is one frozen object; its fields are documented in its class. Rules import
all of them from ``streamomd.rules.contract``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_type_hints

from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.common.sets import ComparatorSet
from streamomd.rules.ranges import ANY, Range

Sum = Annotated[float, "sum"]
Mean = Annotated[float, "mean"]
Max = Annotated[float, "max"]
Min = Annotated[float, "min"]
Coords = Annotated[float, "coords"]
"""A total that is a sum over all coordinates: see ``CoordinateSums``."""

Functions = Callable[..., Any]
Params = Mapping[str, Any]
AnyRule = Any
"""A rule or None: ``contract.Rule`` is made of what is defined here."""
Numbers = type[tuple[float, ...]]
"""A NamedTuple of floats, each with a default."""


class Slot(NamedTuple):
    """A number of each coordinate (or, as a total, of each learner)."""

    name: str
    start: float
    merge: str


class Nothing(NamedTuple):
    """No slots, totals or sums."""


Importance = Literal[
    "copies", "updates", "loss", "step", "cap", "noise", "presence", "relative"
]  # fmt: skip
"""What importance h > 0 of a row means; 0 always means that the row updates nothing.

copies: the row h times in a row. updates: the row h times, while each of the copies updates.
loss: h times the loss. step: h times the step in theta, all else as of one row. cap: h times the
parameter C. noise: the parameter r divided by h. presence: any h > 0 is the same. relative: h over
the mean of the rows so far: a constant factor of all importances changes nothing.
"""


class Saved(NamedTuple):
    """A saved state in a commit: its version, whether rows had an importance column, whether
    it has the certificate's accounts, and the parameters."""

    version: int
    weighted: bool
    certificate: bool
    params: Params


def readable(saved: Saved) -> str:
    """For a rule whose older states are still valid."""
    return ""


PROJECTED = 1_000_000
MATRIX = 4096


@dataclass(frozen=True)
class Slots:
    """The numbers of a rule: NamedTuples whose field is a slot, its default the start, its
    annotation how two states merge.

    Shared slots are moved by x and the clock alone, one for all learners side by side; ``own`` and
    ``totals`` are of each learner. ``move`` is what ``step`` hands to ``update``; it is not saved.
    The Coords fields of ``totals`` come first and belong to the engine.

    begin(d, h) -> totals                               at the start, of d coordinates
    rejoin(own, w, shared, totals, clock, h) -> own     merged slots made from the mean weight w

    weight: the own slot that is the weight before the first row, "" if none is.
    curvature: the own slot of summed squared gradients, by which means of merged states may be
    weighted; "" if there is none.
    degrees: (slot, power) of shared and own slots, besides the curvature, that are multiplied by
    that power of a constant when all values of their coordinate are multiplied by it.
    version: grows when the same rows lead to another state. older(saved): why a state of an older
    version cannot be resumed, or "" where its numbers mean the same.
    """

    own: Numbers = Nothing
    shared: Numbers = Nothing
    totals: Numbers = Nothing
    move: Numbers = Nothing
    begin: Functions | None = None
    rejoin: Functions | None = None
    weight: str = ""
    curvature: str = ""
    degrees: tuple[tuple[str, int], ...] = ()
    version: int = 1
    older: Callable[[Saved], str] = readable


@dataclass(frozen=True)
class Observe:
    """What is observed of a row before it is predicted, from x and the clock alone.

    function(shared, x, clock, h) -> shared, q: q is ``sums`` numbers, each summed over the row; of
    the last ``maxima`` of them the largest is taken instead.
    weighted: x comes times the row's importance, for scales that bound h g x.
    ahead(params): whether all rows are observed once before the first is learned.
    """

    function: Functions
    sums: int = 0
    maxima: int = 0
    weighted: bool = False
    ahead: Callable[[Params], bool] | None = None


@dataclass(frozen=True)
class RowHooks:
    """Optional hooks of a row. Absent hooks cost nothing.

    importance: what a row's importance h stands for; tests check each rule against it.
    range: the magnitudes of feature values it learns from; others make a bad row.

    prepare(q, totals, clock, h) -> totals              once a row, observed and not yet predicted
    catch_up(own, old, new, totals, clock, h) -> own    at each touch, by the clock alone
    part(own, shared, x, totals, clock, h) -> p         summed instead of w * x
    terms(own, shared, x, totals, clock, h) -> r        ``gathers`` numbers, summed into row.r
    clamp(margin, totals, h) -> margin                  what is predicted, if the sum is too large
    stretch(move, factor) -> move                       a step made longer or shorter

    implicit: the yes/no parameter that enables implicit steps, the exact step along the row;
    "" if the rule has none.
    """

    importance: Importance = "loss"
    range: Range = ANY
    prepare: Functions | None = None
    catch_up: Functions | None = None
    part: Functions | None = None
    terms: Functions | None = None
    gathers: int = 0
    clamp: Functions | None = None
    stretch: Functions | None = None
    implicit: str = ""


@dataclass(frozen=True)
class CoordinateSums:
    """Sums over all coordinates, seen or not: norms, partition functions.

    mass(own, shared, totals, clock, h) -> numbers      what a coordinate adds to the Coords totals
    stale(totals, clock, h) -> bool                     must they be summed again?
    peak(own, shared, totals, clock, h) -> number       its maximum over all coordinates: to rebase
    rebase(totals, peak, clock, h) -> totals            before they are summed again
    refresh(own, shared, totals, clock, h) -> own       own slots that depend on totals

    The engine adds the change of ``mass`` after each update, and recomputes the sums when ``stale``
    is true, when many digits have cancelled, and at fixed intervals.
    """

    mass: Functions
    stale: Functions | None = None
    peak: Functions | None = None
    rebase: Functions | None = None
    refresh: Functions | None = None


@dataclass(frozen=True)
class Constraint:
    """A convex set that contains the weights, by one multiplier mu for all coordinates.

    After each row, active or not, where ``outside(totals, clock, h)`` is true, the engine finds
    the mu >= 0 at which the sum of ``reach(own, shared, mu, totals, clock, h)`` over all
    coordinates, falling in mu, is ``radius(h)``; else mu is 0. ``settle(totals, mu, h)`` gets mu
    either way; after ``project(own, shared, mu, totals, clock, h)``, where there is one, has moved
    every coordinate's own slots, the Coords totals are summed again.

    largest(params): the most coordinates it accepts, None: any number.
    """

    outside: Functions
    reach: Functions
    radius: Functions
    project: Functions | None = None
    settle: Functions | None = None
    largest: Callable[[Params], int | None] | None = None


@dataclass(frozen=True)
class Coordinates:
    """Slots of each coordinate and nothing else.

    matrices: how many a state has next to its cells, as in every storage. rounds: merges per epoch
    of averaged mode, unless a job sets their number.
    reduced(params): an equal rule without the slots that these parameters do not need; None: they
    need all.
    """

    kind: ClassVar[str] = "coordinates"
    matrices: ClassVar[int] = 0
    rounds: ClassVar[int] = 1
    reduced: Callable[[Params], AnyRule] | None = None


@dataclass(frozen=True)
class Matrix:
    """A matrix A of each learner; m = <w, x>, chi = <x, A^-1 x>, v = A^-1 x, all before the row.

    start_scale(h) -> number    A starts as this times the identity; absent: 1
    foresee(m, chi, h) -> margin    what is predicted, where that is not m

    ``step`` gets row.r = (m, chi) and gives move = (s, c, ...): w <- w + s v by ``update`` with v_i
    for x (s != 0), and A <- A + c x x' (c >= 0). A constraint holds the slot ``Slots.weight``.
    largest(params): the most coordinates it accepts.
    """

    kind: ClassVar[str] = "matrix"
    matrices: ClassVar[int] = 1
    rounds: ClassVar[int] = 1
    largest: Callable[[Params], int]
    start_scale: Functions | None = None
    foresee: Functions | None = None


@dataclass(frozen=True)
class RootMatrix:
    """The square root of a sum of z z' of each learner, see ``engine.loops.root_matrix``.

    Own slots begin with w and theta; ``Hyper`` has update, eta, delta, l1, l2, box, ball, radius
    and every.
    ``update`` gets a coordinate's new w for x; the move begins with g: z = g x.
    largest(params): the most coordinates it accepts.
    """

    kind: ClassVar[str] = "root"
    matrices: ClassVar[int] = 2
    rounds: ClassVar[int] = 1
    largest: Callable[[Params], int]


@dataclass(frozen=True)
class RecentRows:
    """The last rows with a multiplier each, see ``engine.loops.recent_rows``.

    pair(old, new, cross, totals, h) -> actives, moves, totals  the exact step for the last two rows
    cap(importance, h) -> number        the largest multiplier of a row
    tolerance(h) -> number              coordinate ascent stops when none moves by more, in caps
    share(x, h) -> q                    four numbers, summed over a row, the largest of the last
    curvature(q, h) -> number           of the row; absent: ||x||^2, one step is exact, pair for two

    ``step`` is one multiplier's: row.q = (the row's curvature, its multiplier), the move begins
    with its change times y. reduced: as of ``Coordinates``. depth: the parameter that says of how
    many rows multipliers move, "": of all. most: the parameter that limits how many rows are
    stored, "": no limit.
    """

    kind: ClassVar[str] = "recent"
    matrices: ClassVar[int] = 0
    rounds: ClassVar[int] = 1
    pair: Functions
    cap: Functions
    tolerance: Functions
    depth: str = ""
    most: str = ""
    share: Functions | None = None
    curvature: Functions | None = None
    reduced: Callable[[Params], AnyRule] | None = None


@dataclass(frozen=True)
class Block:
    """Learners on standardised inputs, see ``engine.loops.block``.

    second: B, with a full matrix over a block of coordinates. first: G, AdaGrad. ``Shared``
    and ``Totals`` are those of ``rules.common.standardized``, ``step`` is its ``mixed``.

    weight(own, outside, first) -> w    of a sparse coordinate, in raw units: B's weight outside the
    block and G's times these numbers

    share(lead, h) -> number                            B's share of the prediction
    learns_first(h) -> bool                             whether G learns
    most(params): coordinates of the block at most, besides numeric columns.
    curved: the losses whose curvature it learns. other: the rule for all others, None: it learns
    with no other.
    """

    kind: ClassVar[str] = "block"
    matrices: ClassVar[int] = 0
    rounds: ClassVar[int] = 16
    second: bool
    first: bool
    share: Functions
    learns_first: Functions
    most: Callable[[Params], int]
    curved: tuple[str, ...] = ()
    other: AnyRule = None


Storage = Coordinates | Matrix | RootMatrix | RecentRows | Block


@dataclass(frozen=True)
class Losses:
    """The losses that a rule learns with.

    names: those the paper proves it for, the first being its default; empty: all, by default
    logistic. narrowed(params): fewer. lipschitz: the parameter that bounds the loss's slope, 0
    standing for the loss's own constant; "" if the rule needs no bound.
    """

    names: tuple[str, ...] = ()
    narrowed: Callable[[Params], tuple[str, ...]] | None = None
    lipschitz: str = ""

    @property
    def default(self) -> str:
        """The loss of a job that names none."""
        return self.names[0] if self.names else "logistic"


@dataclass(frozen=True)
class Certificate:
    """The paper's bounds on a finished run.

    claims(run) -> claims: or ValueError saying why not of these parameters; None: ``reason`` says
    why there is no bound. losses: those that claims are about, ``reason`` says why no others;
    empty: all that the rule learns with. accounted: the same rule with the slots that the claims
    need in addition; taken when model.certificate is true. feasible(slots, h): the set of its
    weights; None: all.
    live(totals, clock, h) -> number: a figure for the progress line, called ``live_name``.
    """

    claims: Callable[[Run], list[Claim]] | None = None
    reason: str = "no paper proves a bound for it"
    losses: tuple[str, ...] = ()
    accounted: AnyRule = None
    feasible: Callable[[Any, Any], ComparatorSet] | None = None
    live: Functions | None = None
    live_name: str = ""


def fields(numbers: Numbers) -> tuple[str, ...]:
    """A NamedTuple's field names."""
    names: tuple[str, ...] = numbers._fields  # type: ignore[attr-defined]
    return names


def slots_of(fields: Numbers) -> tuple[Slot, ...]:
    hints = get_type_hints(fields, include_extras=True)
    starts = fields._field_defaults  # type: ignore[attr-defined]
    return tuple(Slot(name, starts[name], hint.__metadata__[0]) for name, hint in hints.items())
