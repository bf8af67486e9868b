"""What a loss is: a frozen description and plain functions of one prediction, module ``math`` only.

``margin`` is the prediction <w, x>; ``y`` the target: any number in regression, -1 or +1 in
classification; ``p`` the loss's own parameters, a NamedTuple. ``slope`` is the derivative of
``value`` by the margin; at a kink it is the subgradient nearest 0. ``mean`` maps a margin to what
is predicted. ``along(margin, y, change, p)`` is for implicit steps: by which factor, from 0 to 1,
to shorten a step that would move the margin by ``change``, so that the margin follows the loss's
own flow along the row instead of its slope at the start.

``solve(m, chi, y, h, p, slope)`` gives (s, a) of the exact implicit step of importance h > 0 along
a row, s = -h l'(m + chi s). slope is l'(m), which its caller has. chi >= 0 is by how much s = 1
moves the margin; h chi is finite. a is h times the secant's curvature, h (|l'(m)| - |s| / h) / (chi
|s| / h); where chi s is 0, h l''(m).
``derived.make_solve`` makes one of any other loss, with a = 0.

A coupled loss sees the margins of all learners: ``couple(margins, i, y, slopes)`` gives row i's
loss and writes a slope for each learner; y is the class's number.
``solve_all(margins, i, chi, y, h, s, a, work)`` is its exact step, of all learners together: it
writes s, s_k = -h times the slope of k at margins[i] + chi * s, and a, h times the mean of the
curvatures at both ends. chi, s, a and work, which is scratch: float64 (learners,).
"""

from __future__ import annotations

import functools
import math
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_type_hints

from streamomd.core.errors import UsageError
from streamomd.core.message import Key, Message, PerReader, invalid_value
from streamomd.rules.contract import Nothing, Rule, no_parameter
from streamomd.rules.params import Positive

Scalar = Callable[..., float]


def identity(margin: float) -> float:
    return margin


@dataclass(frozen=True)
class Loss:
    """A loss's description and functions.

    ``lipschitz(p)`` bounds abs(slope), None: unbounded. ``least``: the smallest legal target in
    regression, None: any. ``degree``: of the value in the target's unit, value(a m, a y) = a^degree
    value(m, y) for a > 0 where ``lengths``, parameters in that unit, are multiplied by a, too; 0:
    the target has no unit, or no such degree. ``quadratic``: its second derivative is 1 everywhere
    and its mean the margin, so that its minimum is ridge regression. ``kinked``: its slope jumps.
    """

    name: str
    title: str
    value: Scalar
    slope: Scalar
    classifies: bool
    mean: Callable[[float], float] = identity
    hyper: type[tuple[float, ...]] = Nothing
    lipschitz: Callable[[Any], float] | None = None
    probabilistic: bool = False
    along: Scalar | None = None
    solve: Callable[..., tuple[float, float]] | None = None
    couple: Callable[..., float] | None = None
    solve_all: Callable[..., None] | None = None
    least: float | None = None
    degree: int = 0
    quadratic: bool = False
    kinked: bool = False
    lengths: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def coupled(self) -> bool:
        """Whether it needs a learner per class, also for two classes, and the margins of all."""
        return self.couple is not None

    @property
    def centres(self) -> bool:
        """Whether the target may have a reference: a margin is its mean, or median, itself."""
        return not self.classifies and self.mean is identity

    def parse_params(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Validated parameters, with defaults. Raises UsageError naming the parameter."""
        kinds, defaults = self._fields()
        unknown = [name for name in given if name not in kinds]
        if unknown:
            raise UsageError(f"loss {self.name!r} {no_parameter(unknown[0], kinds)}")
        shown = {}
        for name, kind in kinds.items():
            value = given.get(name, defaults[name])
            try:
                shown[name] = kind.show(kind.parse(value))
            except ValueError as error:
                key = f"model.loss_params.{name}"
                raise UsageError(invalid_value(key, repr(value), str(error))) from None
        return shown

    def numbers(self, params: Mapping[str, Any]) -> Any:
        """Parsed parameters as the NamedTuple its functions read."""
        kinds, defaults = self._fields()
        return self.hyper(*(kind.parse(params.get(n, defaults[n])) for n, kind in kinds.items()))

    def _fields(self) -> tuple[dict[str, Any], dict[str, float]]:
        hints = get_type_hints(self.hyper, include_extras=True)
        kinds = {name: hint.__metadata__[0] for name, hint in hints.items()}
        return kinds, self.hyper._field_defaults  # type: ignore[attr-defined]


STEPS = 100
"""1 … 2^-1075 narrows to a factor of 2 in 22 steps at most, and to a digit in 54 more."""
DIGIT = 2.0**-52


def make_solve(loss: Loss) -> Callable[..., tuple[float, float]]:
    """solve(m, chi, y, h, p, start) -> (s, a): the loss's own, see ``contract``, or one with a = 0.

    At a kink the margin stops. The loss is not coupled; its slope never falls, and its minimum is
    less than 1e300 away.
    """
    if loss.solve is not None:
        return loss.solve
    slope = loss.slope
    bracket, narrow = _make_bracket(slope), _make_narrow(slope)

    def solve(
        m: float, chi: float, y: float, h: float, p: Any, start: float
    ) -> tuple[float, float]:
        """In d = chi |s|, by which the margin moves: d / X + sign slope(m + sign d), X = h chi,
        rises through 0."""
        m, chi, y, h = float(m), float(chi), float(y), float(h)
        start = float(start)
        X = h * chi
        high = X * abs(start)
        if not high > 1e-290:  # the margin does not move, or is NaN
            return -h * start, 0.0
        sign = 1.0 if start < 0.0 else -1.0
        high = min(high, 1e300)
        if high / X + sign * slope(m + sign * high, y, p) <= 0.0:  # the slope is constant so far
            return -h * start, 0.0
        low, high = bracket(m, X, sign, y, p, high)
        return sign * (narrow(m, X, sign, y, p, low, high) / chi), 0.0

    return solve


def _make_bracket(slope: Scalar) -> Callable[..., tuple[float, float]]:
    def bracket(
        m: float, X: float, sign: float, y: float, p: Any, high: float
    ) -> tuple[float, float]:
        """(low, high) with high <= 2 low, if there is one: the order of magnitude of d."""
        low, factor = 0.0, 0.5
        for _ in range(STEPS):
            if high <= 2.0 * low:
                break
            if low > 0.0:
                d = math.sqrt(low) * math.sqrt(high)
            else:
                d, factor = factor * high, factor * factor
            if not low < d < high:
                break
            if d / X + sign * slope(m + sign * d, y, p) < 0.0:
                low = d
            else:
                high = d
        return low, high

    return bracket


def _make_narrow(slope: Scalar) -> Scalar:
    def narrow(m: float, X: float, sign: float, y: float, p: Any, low: float, high: float) -> float:
        """d by ITP (Oliveira & Takahashi 2020): false position, moved toward the middle as far as
        the bracket needs in order to end as narrow as one halving less would leave it."""
        below = low / X + sign * slope(m + sign * low, y, p)
        above = high / X + sign * slope(m + sign * high, y, p)
        room = high - low  # the half-width that is due
        pull = 0.2 / room if room > 1e-290 else 0.0
        for _ in range(STEPS):
            width, least = high - low, DIGIT * high
            if width <= least or above <= 0.0:
                break
            half = low + 0.5 * width
            d = low + width * (below / (below - above))
            if not low <= d <= high:  # below is infinite
                d = half
            side = 1.0 if d < half else -1.0
            shift = max(pull * width * width, least)
            d = d + side * shift if shift <= abs(half - d) else half
            if abs(d - half) > room - 0.5 * width:
                d = half - side * (room - 0.5 * width)
            if not low < d < high:
                break
            room *= 0.5
            height = d / X + sign * slope(m + sign * d, y, p)
            if height < 0.0:
                low, below = d, height
            else:
                high, above = d, height
        return high

    return narrow


HALVINGS = 60


@functools.cache
def smoothed(loss: Loss) -> Loss:
    """The loss's Moreau envelope, with its own parameters and ``smoothing``."""
    value, slope = loss.value, loss.slope

    def foot(margin: float, y: float, p: Any) -> float:
        """The q of the minimum: q - p + s l'(q) rises through 0 between p - s l'(p) and p."""
        end = margin - p.smoothing * slope(margin, y, p)
        low, high = min(margin, end), max(margin, end)
        for _ in range(HALVINGS):
            half = 0.5 * (low + high)
            if half <= low or half >= high:
                break
            if half - margin + p.smoothing * slope(half, y, p) > 0.0:
                high = half
            else:
                low = half
        middle: float = 0.5 * (low + high)
        return middle

    def smooth_value(margin: float, y: float, p: Any) -> float:
        q = foot(margin, y, p)
        below: float = value(q, y, p) + (margin - q) * (margin - q) / (2.0 * p.smoothing)
        return below

    def smooth_slope(margin: float, y: float, p: Any) -> float:
        rise: float = (margin - foot(margin, y, p)) / p.smoothing
        return rise

    return replace(
        loss, name=f"smooth_{loss.name}", value=smooth_value, slope=smooth_slope, along=None,
        solve=None, hyper=_with_smoothing(loss.hyper), aliases=(), quadratic=False, kinked=False,
    )  # fmt: skip


def _with_smoothing(hyper: type[tuple[float, ...]]) -> type[tuple[float, ...]]:
    kinds = {} if hyper is Nothing else get_type_hints(hyper, include_extras=True)
    defaults = [*getattr(hyper, "_field_defaults", {}).values(), 1.0]
    make: Callable[..., Any] = namedtuple
    made: type[tuple[float, ...]] = make("Smoothed", [*kinds, "smoothing"], defaults=defaults)
    made.__annotations__ = {**kinds, "smoothing": Positive}
    return made


def with_lipschitz(
    rule: Rule, loss: Loss, params: Mapping[str, Any], loss_params: Mapping[str, Any]
) -> dict[str, Any]:
    """The rule's parameters, a bound of 0 on the slope replaced by the loss's constant.

    Raises UsageError if the rule needs one and the loss has none.
    """
    name = rule.losses.lipschitz
    if not name or params[name] != 0.0:
        return dict(params)
    if loss.lipschitz is None:
        found = (
            f"rule {rule.name!r} needs a bound on the slope of the loss, and {loss.name!r} has none"
        )
        how = PerReader(f"--set {name}=…", f"{name}=…, or params={{'{name}': …}}")
        remedy = ("give one (", how, "), larger than any slope the run will meet")
        key = Key(f"model.params.{name}")
        form = "{found}: {remedy}"
        raise UsageError(Message("missing_value", form, key=key, found=found, remedy=remedy))
    return {**params, name: float(loss.lipschitz(loss.numbers(loss_params)))}
