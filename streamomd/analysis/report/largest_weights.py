"""Weights: the heaviest features, their effect on predictions, and the distribution of all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamomd.analysis.report.feature_scales import FeatureScales
from streamomd.features import name_of
from streamomd.training.model import Model
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


def weigh(model: Model, sizes: FeatureScales, top: int = 25) -> Weights:
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
        found = [int(at) for at in np.argsort(-moves, kind="stable")[:top] if moves[at] > 0.0]
        heavy += [
            (float(moves[at]), low + int(used[at]), tuple(weights[at].tolist())) for at in found
        ]
        heavy = sorted(heavy, key=lambda one: (-one[0], one[1]))[:top]
    top_features = tuple(
        Feature(at, name_of(model.plan, model.names, at), weight, moves, moves / total)
        for moves, at, weight in heavy
    )
    return Weights(top_features, *_trimmed(counts), zeros, broken, by_unit)


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
