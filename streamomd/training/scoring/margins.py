"""Margins of encoded rows, with the operations of ``engine.predict`` in their order.

Most rules predict the sum of w_j x_j. Those that predict more have a ``RuleMargins``: a part of
their own for each entry, a clamp, or what a matrix foresees. The rule's functions are those that
the engine compiles. They use module ``math`` only, so that Python gives the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Floats
from streamomd.core.errors import DataError, UsageError
from streamomd.rules import find_rule
from streamomd.rules.contract import Matrix, Rule, fields
from streamomd.training.scoring.row_encoder import Entries


@dataclass(frozen=True, eq=False)
class Weights:
    """Rows of numbers by coordinate, 0 where there is none.

    numbers: (n, columns). coordinates: int64 (n,), ascending; None: numbers has a row for each.
    """

    size: int
    numbers: Floats
    coordinates: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, numbers: Floats) -> Self:
        """All numbers, (size, columns): only those not 0 if they are fewer than half."""
        used = np.flatnonzero((numbers != 0.0).any(axis=1))
        if 2 * len(used) >= len(numbers):
            return cls(len(numbers), np.ascontiguousarray(numbers))
        return cls(len(numbers), np.ascontiguousarray(numbers[used]), used.astype(np.int64))

    @property
    def columns(self) -> int:
        """How many numbers a coordinate has."""
        return int(self.numbers.shape[1])

    def at(self, coordinate: int) -> tuple[float, ...]:
        """The numbers of a coordinate."""
        if self.coordinates is None:
            return tuple(self.numbers[coordinate].tolist())
        at = int(self.coordinates.searchsorted(coordinate))
        if at < len(self.coordinates) and self.coordinates[at] == coordinate:
            return tuple(self.numbers[at].tolist())
        return (0.0,) * self.columns

    def among(self, coordinates: Any) -> Floats:
        """The numbers of several, (…, columns)."""
        if self.coordinates is None:
            found: Floats = self.numbers[coordinates]
            return found
        wanted = np.asarray(coordinates)
        if not len(self.coordinates):
            return np.zeros((*wanted.shape, self.columns))
        at = np.minimum(self.coordinates.searchsorted(wanted), len(self.coordinates) - 1)
        found = self.numbers[at].copy()
        found[self.coordinates[at] != wanted] = 0.0
        return found


@dataclass(frozen=True, eq=False)
class RuleMargins:
    """A rule with its state.

    cells: [shared slots | own slot 0 of each learner | slot 1 …] by coordinate. totals: (learners,
    n). matrix: (learners, d, d) of a rule that foresees, else None. clock: of the next row.
    """

    rule: Rule
    loss: str
    params: dict[str, Any]
    bias: bool
    cells: Weights
    totals: Floats
    clock: float
    matrix: Floats | None = None

    @property
    def learners(self) -> int:
        """How many margins a row has."""
        return len(self.totals)

    @cached_property
    def _h(self) -> Any:
        return self.rule.hyper_of(self.params)

    @cached_property
    def _totals(self) -> list[Any]:
        make: Any = self.rule.state.totals
        return [make(*row[: len(fields(make))]) for row in self.totals.tolist()]

    def margins(self, coordinates: list[int], values: list[float]) -> list[float]:
        """The margins of a row without zeros and without its bias."""
        at, x = self._with_bias(coordinates, values)
        found = [0.0] * self.learners
        for pieces in self._all_pieces(at, x):
            for k, piece in enumerate(pieces):
                found[k] += piece
        storage, clamp = self.rule.storage, self.rule.row.clamp
        if isinstance(storage, Matrix) and storage.foresee is not None:
            scale = storage.start_scale(self._h) if storage.start_scale else 1.0
            for k in range(self.learners):
                chi = self._look(k, at, x) / scale
                found[k] = storage.foresee(found[k], chi, self._h)
        if clamp is not None:
            totals = self._totals
            found = [clamp(m, totals[k], self._h) for k, m in enumerate(found)]
        return found

    def pieces(
        self, coordinates: list[int], values: list[float]
    ) -> tuple[list[list[float]], list[float]]:
        """What each entry adds to each learner's sum, and what the bias adds."""
        found = self._all_pieces(*self._with_bias(coordinates, values))
        return (found[1:], found[0]) if self.bias else (found, [0.0] * self.learners)

    def saved(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """The arrays by name, and the rest, of which ``restored`` makes it again."""
        arrays = {"cells": self.cells.numbers, "totals": self.totals}
        if self.matrix is not None:
            arrays["matrix"] = self.matrix
        rule = {"name": self.rule.name, "loss": self.loss, "params": self.params}
        return arrays, {**rule, "slots": _slot_names(self.rule), "clock": self.clock}

    @classmethod
    def restored(
        cls, saved: Mapping[str, Any], bias: bool, size: int, learners: int,
        arrays: Mapping[str, NDArray[Any]],
    ) -> Self:  # fmt: skip
        """What was saved. Raises DataError for arrays that are not such a rule's."""
        rule = _rule_of(saved)
        cells, totals, matrix = arrays["cells"], arrays["totals"], arrays.get("matrix")
        used = len(rule.shared_slots) + len(rule.own_slots) * learners
        storage = rule.storage
        foresees = isinstance(storage, Matrix) and storage.foresee is not None
        fits = cells.shape == (size, used) and totals.shape == (learners, len(rule.total_slots))
        fits = fits and (matrix is not None) == foresees
        if not fits or (matrix is not None and matrix.shape != (learners, size, size)):
            raise DataError(f"arrays of other shapes than rule {rule.name!r} has")
        params = rule.parse_params(saved["params"])
        clock = float(saved["clock"])
        return cls(rule, saved["loss"], params, bias, Weights(size, cells), totals, clock, matrix)

    def _with_bias(
        self, coordinates: list[int], values: list[float]
    ) -> tuple[list[int], list[float]]:
        return ([0, *coordinates], [1.0, *values]) if self.bias else (coordinates, values)

    def _all_pieces(self, at: Sequence[int], x: Sequence[float]) -> list[list[float]]:
        rule, L = self.rule, self.learners
        n_shared, n_own = len(rule.shared_slots), len(rule.own_slots)
        make: Any = rule.state
        weight, part = rule.weight, rule.row.part
        given = self.clock, self._h
        found = []
        for cells, value in zip(self.cells.among(np.array(at, np.int64)).tolist(), x, strict=True):
            shared, pieces = make.shared(*cells[:n_shared]), []
            for k in range(L):
                own = make.own(*(cells[n_shared + k + m * L] for m in range(n_own)))
                whole = self._totals[k]
                if part is not None:
                    pieces.append(part(own, shared, value, whole, *given))
                else:
                    pieces.append(weight(own, shared, whole, *given) * value)
            found.append(pieces)
        return found

    def _look(self, k: int, at: list[int], x: list[float]) -> float:
        """chi of learner k, as ``engine.loops.matrix.look`` sums it: for each column four sums of
        every fourth entry before it. numpy does all columns together."""
        assert self.matrix is not None
        matrix = self.matrix[k]
        d = len(matrix)
        places = np.array(at, np.int64)
        before = places.searchsorted(np.arange(d))  # entries of the row before each column
        sums, whole = np.zeros((4, d)), before - before % 4
        for n, (place, value) in enumerate(zip(at, x, strict=True)):
            pieces = matrix[:, place] * value
            reached = n < whole
            sums[n % 4, reached] += pieces[reached]
        rest = sums[0]
        for n, (place, value) in enumerate(zip(at, x, strict=True)):
            reached = (n >= whole) & (n < before)
            rest[reached] += (matrix[:, place] * value)[reached]
        total = (rest + sums[1]) + (sums[2] + sums[3])
        total[places] += np.array(x)
        found = total * (np.diagonal(matrix) * total)
        return float(np.add.accumulate(found)[-1]) if d else 0.0


def _slot_names(rule: Rule) -> list[str]:
    return [slot.name for slot in (*rule.shared_slots, *rule.own_slots, *rule.total_slots)]


def _rule_of(saved: Mapping[str, Any]) -> Rule:
    """The installed rule with the slots that were saved. Raises DataError where there is none."""
    try:
        rule = find_rule(saved["name"]).for_loss(saved["loss"])
        params = rule.parse_params(saved["params"])
    except UsageError as error:
        raise DataError(str(error)) from None
    accounted = rule.certificate.accounted or rule
    known = rule, accounted, rule.reduced_for(params), accounted.reduced_for(params)
    fitting = [one for one in known if _slot_names(one) == saved["slots"]]
    if not fitting:
        raise DataError(f"rule {rule.name!r} has other slots in this version: save it again")
    return fitting[0]


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
