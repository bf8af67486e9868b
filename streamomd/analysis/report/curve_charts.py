"""Curves on the page: what each number with hats adds to the margin, by its value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

from streamomd.analysis.report.axes import Axis, brief
from streamomd.analysis.report.charts import COLOURS, Series, lines
from streamomd.analysis.report.markup import element, grid, paragraph
from streamomd.features.plan import number_name
from streamomd.training.model_data import ModelData

Floats = NDArray[np.float64]
DRAWN = 24


class Effect(NamedTuple):
    """What a number adds to each learner's margin at ``x``, its knots and the ends of the first
    rows; 0 in the mean of the knots. spread: standard deviation over the knots, of the learner
    where it is largest."""

    name: str
    x: Floats
    y: Floats
    spread: float


def effects_of(model: ModelData) -> list[Effect]:
    """The effect of each curve, that of the largest spread first."""
    return sorted(_effects(model), key=lambda one: (-one.spread, one.name))


def _effects(model: ModelData) -> Iterator[Effect]:
    plan, bias = model.plan, int(model.plan.bias)
    weights = model.engine.weights(model.state, 0, plan.hashed_offset)
    for curve, places in plan.hats_of_curves:
        knots = np.array(curve.knots)
        x = np.unique([curve.least, *knots, curve.most])
        hats = np.array([np.interp(x, knots, row) for row in np.eye(len(knots))]).T
        y = np.outer(x, weights[bias + curve.place]) + hats @ weights[places]
        y -= y[np.isin(x, knots)].mean(axis=0)
        spread = float(y[np.isin(x, knots)].std(axis=0).max())
        yield Effect(number_name(plan, curve.place), x, y, spread)


def curves_of_columns(model: ModelData) -> list[Element]:
    """A chart for each curve, at most ``DRAWN``; nothing of a model without any."""
    effects = effects_of(model)
    if not effects:
        return []
    text = (
        "What a column adds to the margin at each value, relative to its mean over the knots; the "
        "column whose effect varies most comes first. The lines end at the least and the largest "
        "value of the rows that decided the knots."
    )
    if len(effects) > DRAWN:
        text += f" {DRAWN} of {len(effects)} curves are drawn."
    charts = [_chart(model, effect) for effect in effects[:DRAWN]]
    return [element("h3", "Curves"), paragraph(text), grid(*charts)]


def _chart(model: ModelData, effect: Effect) -> Element:
    classes, y = model.plan.classes, effect.y
    which = [*range(y.shape[1])]
    if y.shape[1] > len(COLOURS):  # those that it moves most
        which = sorted(np.argsort(-y.std(axis=0), kind="stable")[: len(COLOURS)].tolist())
    names = [str(classes[k]) for k in which] if y.shape[1] > 1 else [effect.name]
    series = [Series(name, effect.x, y[:, k]) for name, k in zip(names, which, strict=True)]
    axis = Axis.of("effect", np.concatenate([one.y for one in series]))
    note = f"Standard deviation over the knots: {brief(effect.spread)}."
    return lines(effect.name, series, Axis.of(effect.name, effect.x), axis, note=note)
