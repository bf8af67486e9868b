"""How far each column moves a model's margins: the standard deviation of what it adds, and of each
number with a curve its effect by value, with errors; of each pair of columns that of both values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Floats
from streamomd.engine.block_state import moments
from streamomd.engine.standard_errors import has_errors, sum_errors
from streamomd.features.hashed import NULL, cross_name
from streamomd.features.names import column_of
from streamomd.features.plan import number_at, number_name
from streamomd.training.model_data import ModelData, weight_blocks


class CoordinateScales(NamedTuple):
    """Of each coordinate, over all rows: mean, root of the mean square, standard deviation."""

    mean: Floats
    typical: Floats
    spread: Floats


def scales_of_block(model: ModelData) -> CoordinateScales:
    """Scales from the state of a block rule: moments of numeric columns, mean squares of others.

    Values of a coordinate outside the front count as equal or 0, as those of categories are.
    """
    state = model.state
    mean, spread = moments(state)
    rows = max(float(state.totals[0, 1]), 1.0)
    seen, squares = (np.asarray(state.slot(name), dtype=np.float64) for name in ("n", "q"))
    share = seen / rows
    typical = np.sqrt(squares * share)
    means = np.sqrt(squares) * share
    deviation = typical * np.sqrt(np.maximum(1.0 - share, 0.0))
    first = int(model.plan.bias)
    front = slice(first, first + len(mean))
    means[front], typical[front], deviation[front] = mean, np.hypot(mean, spread), spread
    means[:first], typical[:first], deviation[:first] = 1.0, 1.0, 0.0
    return CoordinateScales(means, typical, deviation)


def column_importances(model: ModelData, scales: CoordinateScales) -> dict[str, float]:
    """By column, the standard deviation of what it adds to the margin, of the learner where it is
    largest.

    With m and q the means of x and x^2, values of a column that exclude each other have
    sum(w^2 q) - sum(w m)^2; elements of vectors, lists and texts count as independent. Of a curve
    a value's hats are the shares in which it counts as the knots next to it.
    """
    plan = model.plan
    several = {vector.column for vector in plan.vectors} | {one.column for one in plan.text}
    several |= {"trees"} if plan.margins > 1 else set()
    sums: dict[str, tuple[Floats, Floats, Floats, int]] = {}
    for low, block in weight_blocks(model.engine, model.state):
        for place in np.flatnonzero((block != 0.0).any(axis=1)).tolist():
            coordinate, weights = low + place, block[place]
            name = column_of(plan, model.names, coordinate)
            first, second, apart, count = sums.get(name, (0.0, 0.0, 0.0, 0))
            sums[name] = (
                first + weights * scales.mean[coordinate],
                second + weights**2 * scales.typical[coordinate] ** 2,
                apart + weights**2 * scales.spread[coordinate] ** 2,
                count + 1,
            )
    sums.pop("", None)
    sparse = plan.sparse.indices if plan.sparse else ""
    exclusive = {name for name, one in sums.items() if one[3] > 1} - several - {sparse}
    importances = {
        name: float(np.sqrt(np.maximum(second - first**2 if name in exclusive else apart, 0)).max())
        for name, (first, second, apart, _) in sums.items()
    }
    front = model.engine.weights(model.state, 0, plan.hashed_offset)
    for curve, places in plan.hats_of_curves:
        name, element = number_at(plan, curve.place)
        if name in importances and element is None:
            effect = np.outer(curve.knots, front[int(plan.bias) + curve.place]) + front[places]
            share = scales.mean[places]
            variance = share @ effect**2 - (share @ effect) ** 2
            importances[name] = float(np.sqrt(np.maximum(variance, 0.0)).max())
    return importances


BEYOND = 0.1
"""How far effects are given beyond the knots, as a share of their range: beyond that, few values
would take most of a chart."""


class Effect(NamedTuple):
    """What a number adds to each learner's margin at ``x``, its knots and one value on either side;
    0 in the mean of the knots. is_knot: of each x. errors: standard errors of y, None for
    rules without. shares: of the rows that count as each knot, None if unknown. spread: standard
    deviation over the knots, of the learner where it is largest."""

    name: str
    x: Floats
    y: Floats
    is_knot: NDArray[np.bool_]
    errors: Floats | None
    shares: Floats | None
    spread: float


def effects_of(model: ModelData, mean: Floats | None = None) -> list[Effect]:
    """The effect of each curve, that of the largest spread first. mean: of each coordinate, if it
    is known; else that of the rows learned, which rules with a block have."""
    return sorted(_effects(model, mean), key=lambda one: (-one.spread, one.name))


def _effects(model: ModelData, mean: Floats | None) -> Iterator[Effect]:
    plan, bias, engine = model.plan, int(model.plan.bias), model.engine
    weights = engine.weights(model.state, 0, plan.hashed_offset)
    if mean is None and engine.layout.block:
        mean = np.concatenate([np.ones(bias), moments(model.state)[0]])
    for curve, hats in plan.hats_of_curves:
        knots, places = np.array(curve.knots), np.r_[bias + curve.place, hats]
        far = BEYOND * (knots[-1] - knots[0])
        ends = max(curve.least, knots[0] - far), min(curve.most, knots[-1] + far)
        x = np.unique([*ends, *knots])
        factors = np.array([np.interp(x, knots, row) for row in np.eye(len(knots))])
        factors, is_knot = np.vstack([x, factors]).T, np.isin(x, knots)
        factors -= factors[is_knot].mean(axis=0)
        y, errors = factors @ weights[places], None
        if has_errors(engine):
            errors = sum_errors(engine, model.state, places + 1 - bias, factors)
        shares = None if mean is None else mean[hats]
        spread = float(y[is_knot].std(axis=0).max())
        yield Effect(number_name(plan, curve.place), x, y, is_knot, errors, shares, spread)


def effect_tables(model: ModelData) -> list[dict[str, Any]]:
    """The same for JSON: of each curve its column and spread, and of each knot the effect on each
    learner's margin, with its standard error and the share of rows if they are known."""
    return [
        {
            "column": one.name,
            "spread": one.spread,
            "knots": one.x[one.is_knot].tolist(),
            "effect": one.y[one.is_knot].tolist(),
            **({} if one.errors is None else {"error": one.errors[one.is_knot].tolist()}),
            **({} if one.shares is None else {"share": one.shares.tolist()}),
        }
        for one in effects_of(model)
    ]


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
    effects = table[:, :, learner]
    return PairEffect(pair, (first, second), effects, learner, float(spreads[learner]))


def pair_tables(model: ModelData) -> list[dict[str, Any]]:
    """``pair_effects`` for JSON: null where no row was learned."""
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
