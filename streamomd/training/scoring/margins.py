"""Margins of encoded rows, with the operations of ``engine.predict`` in their order.

Most rules predict the sum of w_j x_j. Those that predict more have a ``RuleMargins``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamomd.training.scoring.row_encoder import Entries
from streamomd.training.scoring.rule_margins import Weights

if TYPE_CHECKING:
    from streamomd.training.scoring.rule_margins import RuleMargins

Floats = NDArray[np.float64]
FEW = 64
"""Entries up to which a loop is faster than numpy."""


@dataclass(frozen=True, eq=False)
class Margins:
    """A model's weights, and what its margins are relative to.

    start: what each learner's sum begins with, the bias included. reference: (2, p), c and s of
    the first p coordinates after the bias, which are learned as (x - c) / s. target: (c, s), of
    which margins become c + s m. fill: what missing numbers become, by numeric and vector
    coordinate. centres: of the same coordinates, which explanations subtract. rule: of a rule whose
    prediction is more than a sum of w_j x_j.
    """

    bias: bool
    weights: Weights
    start: tuple[float, ...]
    reference: Floats | None = None
    target: tuple[float, float] | None = None
    fill: tuple[float, ...] = ()
    centres: tuple[float, ...] = ()
    rule: RuleMargins | None = None

    @property
    def learners(self) -> int:
        """How many margins a row has."""
        return len(self.start)

    def of(self, entries: Entries) -> list[float]:
        """The margins of a row, one a learner."""
        coordinates, values = self.inputs(entries)
        if self.rule is not None:
            found = self.rule.margins(coordinates, values)
        elif len(coordinates) > FEW:
            pieces = self.weights.among(coordinates) * np.array(values)[:, np.newaxis]
            # One addition after the other: accumulate does not sum pairwise.
            summed = np.add.accumulate(np.concatenate([[self.start], pieces]), axis=0)
            found = summed[-1].tolist()
        else:
            found = list(self.start)
            for at, x in zip(coordinates, values, strict=True):
                for k, w in enumerate(self.weights.at(at)):
                    found[k] += w * x
        return self._scaled(found)

    def of_terms(self, terms: Iterable[tuple[Any, float]]) -> list[float]:
        """The margins of a row's terms, (weights, x) in the order of their addition.

        weights: a float with one learner, else a tuple.
        """
        if len(self.start) == 1:
            margin = self.start[0]
            for w, x in terms:
                margin += w * x
            return self._scaled([margin])
        found, given = list(self.start), list(terms)
        for k, margin in enumerate(self.start):
            total = margin
            for w, x in given:
                total += w[k] * x
            found[k] = total
        return self._scaled(found)

    def _scaled(self, margins: list[float]) -> list[float]:
        """Margins in the target's units."""
        if self.target is None:
            return margins
        c, s = self.target
        return [c + s * margin for margin in margins]

    def inputs(self, entries: Entries) -> tuple[list[int], list[float]]:
        """Coordinates and values as they are learned, without zeros."""
        coordinates, values = entries
        if self.fill:
            first = int(self.bias)
            filled = zip(coordinates, values, strict=True)
            values = [self.fill[at - first] if math.isnan(x) else x for at, x in filled]
        if self.reference is not None:
            values = [*self._standardized(values[: self.reference.shape[1]]),
                      *values[self.reference.shape[1] :]]  # fmt: skip
        some = [(at, x) for at, x in zip(coordinates, values, strict=True) if x != 0.0]
        return [at for at, _ in some], [x for _, x in some]

    def _standardized(self, values: list[float]) -> list[float]:
        assert self.reference is not None
        pairs = zip(values, *self.reference.tolist(), strict=True)
        return [(x - c) / s if s > 0.0 else 0.0 for x, c, s in pairs]

    def explained(self, entries: Entries) -> tuple[list[list[float]], list[float], list[float]]:
        """What each entry adds to each learner's margin, (entries, learners), what the bias adds,
        and the margins."""
        margins = self.of(entries)
        coordinates, values = self.inputs(entries)
        if self.rule is not None:
            pieces, start = self.rule.pieces(coordinates, values)
        else:
            pieces = [
                [w * x for w in self.weights.at(at)]
                for at, x in zip(coordinates, values, strict=True)
            ]
            start = list(self.start)
        by_place = dict(zip(coordinates, pieces, strict=True))
        for place, centre in enumerate(self.centres, int(self.bias)):
            shift = [w * centre for w in self.weights.at(place)]
            own = by_place.get(place, [0.0] * self.learners)
            by_place[place] = [a - b for a, b in zip(own, shift, strict=True)]
            start = [a + b for a, b in zip(start, shift, strict=True)]
        none = [0.0] * self.learners
        found = [by_place.get(at, none) for at in entries.coordinates]
        c, s = self.target or (0.0, 1.0)
        for k, margin in enumerate(margins):
            raw = math.fsum([start[k], *(piece[k] for piece in found)])
            whole = (margin - c) / s if s else 0.0
            # A rule that predicts less than its sum shrinks all parts alike.
            ratio = whole / raw if self.rule is not None and raw else 1.0
            start[k] = c + s * ratio * start[k]
            for piece in found:
                piece[k] *= s * ratio
        return found, start, margins
