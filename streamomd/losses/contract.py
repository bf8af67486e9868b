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

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from streamomd.core.errors import UsageError
from streamomd.core.message import invalid_value
from streamomd.rules.contract import Nothing, no_parameter

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
