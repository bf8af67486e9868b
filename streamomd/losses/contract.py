"""What a loss is: a frozen description and plain functions of one prediction, module ``math`` only.

``margin`` is the prediction <w, x>; ``y`` the target: any number in regression, -1 or +1 in
classification; ``p`` the loss's own parameters, a NamedTuple. ``slope`` is the derivative of
``value`` by the margin; at a kink it is the subgradient nearest 0. ``mean`` maps a margin to what
is predicted. ``along(margin, y, change, p)`` is for implicit steps: by which factor, from 0 to 1,
to shorten a step that would move the margin by ``change``, so that the margin follows the loss's
own flow along the row instead of its slope at the start.

A coupled loss sees the margins of all learners: ``couple(margins, i, y, slopes)`` gives row i's
loss and writes a slope for each learner; y is the class's number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from streamomd.core.errors import UsageError
from streamomd.rules.contract import Nothing, no_parameter

Scalar = Callable[..., float]


def identity(margin: float) -> float:
    return margin


@dataclass(frozen=True)
class Loss:
    """A loss's description and functions.

    ``lipschitz(p)`` bounds abs(slope), None: unbounded. ``least``: the smallest legal target in
    regression, None: any.
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
    couple: Callable[..., float] | None = None
    least: float | None = None
    aliases: tuple[str, ...] = ()

    @property
    def coupled(self) -> bool:
        """Whether it needs a learner per class, also for two classes, and the margins of all."""
        return self.couple is not None

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
                raise UsageError(f"model.loss_params.{name} = {value!r}: {error}") from None
        return shown

    def numbers(self, params: Mapping[str, Any]) -> Any:
        """Parsed parameters as the NamedTuple its functions read."""
        kinds, defaults = self._fields()
        return self.hyper(*(kind.parse(params.get(n, defaults[n])) for n, kind in kinds.items()))

    def _fields(self) -> tuple[dict[str, Any], dict[str, float]]:
        hints = get_type_hints(self.hyper, include_extras=True)
        kinds = {name: hint.__metadata__[0] for name, hint in hints.items()}
        return kinds, self.hyper._field_defaults  # type: ignore[attr-defined]
