"""Weights: the heaviest features, how far they move a prediction, and how all are spread."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamomd.features import name_of
from streamomd.model import INSPECT_ROWS, Model
from streamomd.pages.sizes import Sizes

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
BINS = 24


@dataclass(frozen=True)
class Feature:
    """A coordinate: its name, weight by learner, and what it moves a margin by, typically.

    moves: the largest abs(weight) times the feature's unit; share: of the sum over all of them.
    """

    coordinate: int
    name: str
    weight: tuple[float, ...]
    moves: float
    share: float

    @property
    def heaviest(self) -> float:
        """The weight of the learner where it is heaviest."""
        return max(self.weight, key=abs)


@dataclass(frozen=True)
class Weights:
    """top: features that move predictions most. edges: of abs(weight), ascending; below, above:
    how many weights under and over 0 are within. zeros, broken: how many are 0, or no number."""

    top: tuple[Feature, ...]
    edges: Floats
    below: Counts
    above: Counts
    zeros: int
    broken: int
    by_unit: bool


def weigh(model: Model, sizes: Sizes, top: int = 25) -> Weights:
    """Look at every weight once, in stretches of about a million coordinates."""
    unit = sizes.unit
    by_unit = not np.isnan(unit).all()
    heavy: list[tuple[float, int, tuple[float, ...]]] = []
    total, zeros, broken, least, most = 0.0, 0, 0, math.inf, 0.0
    for low, weights in _stretches(model):
        size = np.abs(weights)
        legal = np.isfinite(size)
        broken += int((~legal).sum())
        zeros += int((size == 0.0).sum())
        some = size[legal & (size > 0.0)]
        if len(some):
            least, most = min(least, float(some.min())), max(most, float(some.max()))
        moves = np.where(legal, size, 0.0).max(axis=1)
        if by_unit:
            moves = np.nan_to_num(moves * unit[low : low + len(moves)])
        if model.plan.bias and low == 0:
            moves[0] = 0.0  # it is in every row alike, and tells no row from another
        total += float(moves.sum())
        found = [int(at) for at in np.argsort(-moves, kind="stable")[:top] if moves[at] > 0.0]
        heavy += [(float(moves[at]), low + at, tuple(weights[at].tolist())) for at in found]
        heavy = sorted(heavy, key=lambda one: (-one[0], one[1]))[:top]
    edges, below, above = _spread(model, least, most)
    told = tuple(
        Feature(at, name_of(model.plan, model.names, at), weight, moves, moves / total)
        for moves, at, weight in heavy
    )
    return Weights(told, edges, below, above, zeros, broken, by_unit)


def _stretches(model: Model) -> Iterator[tuple[int, Floats]]:
    for low in range(0, model.plan.size, INSPECT_ROWS):
        high = min(low + INSPECT_ROWS, model.plan.size)
        yield low, model.engine.weights(model.state, low, high)


def _spread(model: Model, least: float, most: float) -> tuple[Floats, Counts, Counts]:
    """Counts of weights by the logarithm of their size."""
    if not most:
        none = np.zeros(0, np.int64)
        return np.zeros(0), none, none
    least = max(least, most * 1e-12)
    low, high = math.floor(math.log10(least)), math.ceil(math.log10(most) + 1e-12)
    high = max(high, low + 1)
    edges = np.logspace(low, high, (high - low) * max(1, BINS // (high - low)) + 1)
    counts = np.zeros((2, len(edges) - 1), np.int64)
    for _, weights in _stretches(model):
        for side, some in enumerate((-weights[weights < 0.0], weights[weights > 0.0])):
            counts[side] += np.histogram(some[np.isfinite(some)], edges)[0]
    return edges, counts[0], counts[1]
