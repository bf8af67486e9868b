"""The effect of each pair of columns: what two values add together to the margin."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from streamomd.core.batch import Floats
from streamomd.features.hashed import NULL, cross_name
from streamomd.features.plan import number_name
from streamomd.training.model_data import ModelData

MOST_VALUES = 12
"""Values of a category in the table of a pair."""
BETWEEN = re.compile(r"(?<!\\)\^")
"""What stands between the values of a cross; in values it is escaped."""
MISSING = "missing"


class PairEffect(NamedTuple):
    """What two columns add together to a learner's margin, (values of the one, of the other), 0 in
    the mean of the cells that were learned, NaN in others. learner: that of the largest spread, the
    standard deviation over these cells."""

    columns: tuple[str, str]
    values: tuple[list[str], list[str]]
    cells: Floats
    learner: int
    spread: float


def pair_effects(model: ModelData) -> list[PairEffect]:
    """The effect of each pair, that of the largest spread first. Values are those that have names;
    of categories with more than ``MOST_VALUES`` the first ones in their order."""
    plan = model.plan
    if not plan.pairs:
        return []
    weights = model.engine.weights(model.state, plan.hashed_offset, plan.sparse_offset)
    columns = {cross_name(pair): pair for pair in plan.pairs}
    cells: dict[str, dict[tuple[str, ...], int]] = {name: {} for name in columns}
    longest_first = sorted(map(re.escape, columns), key=len, reverse=True)
    named = re.compile(f"({'|'.join(longest_first)})=(.*)", re.DOTALL)
    for at, texts in model.names.seen().items():
        for match in filter(None, map(named.fullmatch, texts)):
            values = tuple(BETWEEN.split(match[2]))
            if len(values) == 2:
                cells[match[1]][values] = at - plan.hashed_offset
    found = [
        _pair_effect(model, columns[name], known, weights) for name, known in cells.items() if known
    ]
    return sorted(found, key=lambda one: (-one.spread, one.columns))


def _pair_effect(
    model: ModelData, pair: tuple[str, str], cells: Mapping[tuple[str, ...], int], weights: Floats
) -> PairEffect:
    bins = {number_name(model.plan, one.place): one.names for one in model.plan.bins}
    axes = []
    for side, name in enumerate(pair):
        seen = {values[side] for values in cells}
        known = [one for one in bins.get(name, sorted(seen - {NULL})) if one in seen]
        axes.append(known[:MOST_VALUES] + ([NULL] if NULL in seen else []))
    table = np.full((len(axes[0]), len(axes[1]), weights.shape[1]), np.nan)
    for (a, b), at in cells.items():
        if a in axes[0] and b in axes[1]:
            table[axes[0].index(a), axes[1].index(b)] = weights[at]
    learned = ~np.isnan(table[:, :, 0])
    table -= table[learned].mean(axis=0)
    spreads = table[learned].std(axis=0)
    learner = int(spreads.argmax())
    first, second = ([MISSING if one == NULL else one for one in axis] for axis in axes)
    found = table[:, :, learner]
    return PairEffect(pair, (first, second), found, learner, float(spreads[learner]))


def pair_tables(model: ModelData) -> list[dict[str, Any]]:
    """The same for JSON: null where no row was learned."""
    return [
        {
            "columns": list(one.columns),
            "spread": one.spread,
            "learner": one.learner,
            "values": [*one.values],
            "effect": [[None if np.isnan(x) else x for x in row] for row in one.cells.tolist()],
        }
        for one in pair_effects(model)
    ]
