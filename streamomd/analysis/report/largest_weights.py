"""Weights: the heaviest features, their effect on predictions, and the distribution of all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamomd.analysis.report.feature_scales import FeatureScales
from streamomd.features import name_of
from streamomd.features.names import column_of
from streamomd.features.plan import number_at
from streamomd.training.model_data import ModelData
from streamomd.training.top_weights import weight_blocks

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
DECADE = 8  # bins
EDGES: Floats = np.logspace(-15, 15, 30 * DECADE + 1)
MOST = 32  # bins that are drawn


@dataclass(frozen=True)
class Feature:
    """A coordinate: its name, weight by learner, and its typical effect on a margin.

    moves: the largest abs(weight) times the feature's unit; share: of the sum over all features.
    """

    coordinate: int
    name: str
    weight: tuple[float, ...]
    moves: float
    share: float

    @property
    def heaviest(self) -> float:
        """The weight of the learner with the largest absolute weight."""
        return max(self.weight, key=abs)


@dataclass(frozen=True)
class Weights:
    """top: features that move predictions most. edges: of abs(weight), ascending; below, above:
    number of weights under and over 0 in each bin. zeros, broken: number that are 0, or not
    finite."""

    top: tuple[Feature, ...]
    edges: Floats
    below: Counts
    above: Counts
    zeros: int
    broken: int
    by_unit: bool
    centred: bool
    """Whether ``moves`` is a standard deviation; else it is a weight times a size."""
    importances: Mapping[str, float]
    """By column, the standard deviation of what it adds to the margin; empty unless the scales were
    measured on rows."""


def weigh(model: ModelData, sizes: FeatureScales, top: int = 25) -> Weights:
    """Read every weight once, in blocks of about a million coordinates."""
    unit, counts = sizes.unit, np.zeros((2, len(EDGES) - 1), np.int64)
    by_unit = not np.isnan(unit).all()
    heavy: list[tuple[float, int, tuple[float, ...]]] = []
    total, zeros, broken = 0.0, 0, 0
    for low, block in weight_blocks(model.engine, model.state):
        used = np.flatnonzero((block != 0.0).any(axis=1))
        zeros += int((block == 0.0).sum())
        weights = block[used]
        legal = np.isfinite(weights)
        broken += int((~legal).sum())
        for side, some in enumerate((-weights[legal], weights[legal])):
            inside = np.clip(some[some > 0.0], EDGES[0], EDGES[-1])
            counts[side] += np.histogram(inside, EDGES)[0]
        moves = np.abs(np.where(legal, weights, 0.0)).max(axis=1, initial=0.0)
        if by_unit:
            moves *= np.nan_to_num(unit[low + used])
        moves[low + used < int(model.plan.bias)] = (
            0.0  # equal in every row: it does not distinguish rows
        )
        total += float(moves.sum())
        order = [int(at) for at in np.argsort(-moves, kind="stable")[:top] if moves[at] > 0.0]
        heavy += [
            (float(moves[at]), low + int(used[at]), tuple(weights[at].tolist())) for at in order
        ]
        heavy = sorted(heavy, key=lambda entry: (-entry[0], entry[1]))[:top]
    top_features = tuple(
        Feature(at, name_of(model.plan, model.names, at), weight, moves, moves / total)
        for moves, at, weight in heavy
    )
    centred = by_unit and sizes.spread is not None
    importances = _column_importances(model, sizes)
    return Weights(top_features, *_trimmed(counts), zeros, broken, by_unit, centred, importances)


def _column_importances(model: ModelData, sizes: FeatureScales) -> dict[str, float]:
    """By column, the standard deviation of what it adds to the margin, of the learner where it is
    largest; {} unless the scales were measured on rows.

    With m and q the means of x and x^2, values of a column that exclude each other have
    sum(w^2 q) - sum(w m)^2; elements of vectors, lists and texts count as independent. Of a curve
    a value's hats are the shares in which it counts as the knots next to it.
    """
    plan, size = model.plan, model.plan.size
    if len(sizes.mean) < size or sizes.spread is None:
        return {}
    several = {vector.column for vector in plan.vectors} | {one.column for one in plan.text}
    sums: dict[str, tuple[Floats, Floats, Floats, int]] = {}
    for low, block in weight_blocks(model.engine, model.state):
        for place in np.flatnonzero((block != 0.0).any(axis=1)).tolist():
            coordinate, weights = low + place, block[place]
            name = column_of(plan, model.names, coordinate)
            first, second, apart, count = sums.get(name, (0.0, 0.0, 0.0, 0))
            sums[name] = (
                first + weights * sizes.mean[coordinate],
                second + weights**2 * sizes.typical[coordinate] ** 2,
                apart + weights**2 * sizes.spread[coordinate] ** 2,
                count + 1,
            )
    sums.pop("", None)
    sparse = plan.sparse.indices if plan.sparse else ""
    exclusive = {name for name, one in sums.items() if one[3] > 1} - several - {sparse}
    found = {
        name: float(np.sqrt(np.maximum(second - first**2 if name in exclusive else apart, 0)).max())
        for name, (first, second, apart, _) in sums.items()
    }
    front = model.engine.weights(model.state, 0, plan.hashed_offset)
    for curve, places in plan.hats_of_curves:
        name, element = number_at(plan, curve.place)
        if name in found and element is None:
            effect = np.outer(curve.knots, front[int(plan.bias) + curve.place]) + front[places]
            share = sizes.mean[places]
            variance = share @ effect**2 - (share @ effect) ** 2
            found[name] = float(np.sqrt(np.maximum(variance, 0.0)).max())
    return found


def _trimmed(counts: Counts) -> tuple[Floats, Counts, Counts]:
    """Edges and counts of the non-empty decades, in about thirty bins."""
    there = np.flatnonzero(counts.sum(axis=0)) // DECADE
    if not len(there):
        none = np.zeros(0, np.int64)
        return np.zeros(0), none, none
    low, high = int(there[0]) * DECADE, (int(there[-1]) + 1) * DECADE
    wide = next(one for one in (1, 2, 4, 8) if (high - low) // one <= MOST or one == DECADE)
    below, above = counts[:, low:high].reshape(2, -1, wide).sum(axis=2)
    return EDGES[low : high + 1 : wide], below, above
