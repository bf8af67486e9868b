"""The effect of each number with a curve: what it adds to the margin, its errors, and its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamomd.engine.block_state import moments
from streamomd.engine.standard_errors import has_errors, sum_errors
from streamomd.features.plan import number_name
from streamomd.training.model_data import ModelData

Floats = NDArray[np.float64]
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
