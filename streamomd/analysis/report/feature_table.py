"""Features on the page: the heaviest by name, all weights, and the scale of each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from streamomd.analysis.report.charts import (
    COLOURS,
    Axis,
    Series,
    bars,
    brief,
    cells,
    columns,
    lines,
)
from streamomd.analysis.report.data_warnings import DataWarning
from streamomd.analysis.report.feature_weights import FeatureScales, Weights
from streamomd.analysis.report.markup import element, grid, paragraph, section, table
from streamomd.analysis.report.verdict import NORMAL
from streamomd.core.batch import Floats
from streamomd.features import name_of
from streamomd.training.column_importance import Effect, effects_of, pair_effects
from streamomd.training.model_data import ModelData

DRAWN_CURVES = 24


def curves_of_columns(model: ModelData, mean: Floats | None = None) -> list[Element]:
    """A chart for each curve, at most ``DRAWN_CURVES``; nothing of a model without any. mean: of
    each coordinate in rows that were measured."""
    effects = effects_of(model, mean)
    if not effects:
        return []
    text = (
        "What a column adds to the margin at each value, relative to its mean over the knots; the "
        "column whose effect varies most comes first. Beyond the knots effects are lines, of "
        "which the beginning is drawn."
    )
    if effects[0].errors is not None:
        text += " Bands: 1.96 standard errors, with the covariances of the column's weights."
    text += " Grey: the knots." if effects[0].shares is None else " Grey: the density of the rows."
    if len(effects) > DRAWN_CURVES:
        text += f" {DRAWN_CURVES} of {len(effects)} curves are drawn."
    charts = [_chart(model, effect) for effect in effects[:DRAWN_CURVES]]
    return [element("h3", "Curves"), paragraph(text), grid(*charts)]


def tables_of_pairs(model: ModelData) -> list[Element]:
    """A chart for each pair, at most ``DRAWN_CURVES``; nothing of a model without any."""
    effects = pair_effects(model)
    if not effects:
        return []
    text = (
        "What two columns add together to the margin, beyond each alone, relative to the mean of "
        "the cells; the pair whose effect varies most comes first. Blue cells add, orange ones "
        "take away; those without a row are empty."
    )
    if len(effects) > DRAWN_CURVES:
        text += f" {DRAWN_CURVES} of {len(effects)} pairs are drawn."
    classes, charts = model.plan.classes, []
    for one in effects[:DRAWN_CURVES]:
        of_class = f" of class {classes[one.learner]}" if len(classes) > 2 else ""
        note = f"Standard deviation{of_class}: {brief(one.spread)}."
        lows = [name.partition("..")[0] for name in one.values[1]]
        over = [f"{low}.." if low and low != name else name
                for low, name in zip(lows, one.values[1], strict=True)]  # fmt: skip
        values = one.values[0], over
        charts.append(cells(" × ".join(one.columns), one.columns, values, one.cells, note=note))
    return [element("h3", "Pairs of columns"), paragraph(text), grid(*charts)]


def _chart(model: ModelData, effect: Effect) -> Element:
    classes, y = model.plan.classes, effect.y
    which = [*range(y.shape[1])]
    if y.shape[1] > len(COLOURS):  # those that it moves most
        which = sorted(np.argsort(-y.std(axis=0), kind="stable")[: len(COLOURS)].tolist())
    names = [str(classes[k]) for k in which] if y.shape[1] > 1 else [effect.name]
    errors = np.zeros(y.shape) if effect.errors is None else NORMAL * effect.errors
    series = [
        Series(name, effect.x, y[:, k], error=errors[:, k])
        for name, k in zip(names, which, strict=True)
    ]
    ends = [y[:, which], (y + errors)[:, which], (y - errors)[:, which]]
    axis = Axis.of("effect", np.concatenate([one.ravel() for one in ends]))
    note = f"Standard deviation over the knots: {brief(effect.spread)}."
    x = Axis.of(effect.name, effect.x)
    return lines(effect.name, series, x, axis, note=note, rug=_rug(effect))


def _rug(effect: Effect) -> list[tuple[float, float, float]]:
    """Cells around knots, (low, high, density), the largest of density 1; else the knots."""
    knots = effect.x[effect.is_knot]
    if effect.shares is None:
        return [(knot, knot, 0.3) for knot in knots.tolist()]
    half = np.diff(knots) / 2.0
    edges = np.concatenate([knots[:1] - half[:1], knots[1:] - half, knots[-1:] + half[-1:]])
    density = np.maximum(effect.shares, 0.0) / np.diff(edges)
    heights = (density / (density.max() or 1.0)).tolist()
    return [*zip(edges[:-1].tolist(), edges[1:].tolist(), heights, strict=True)]


DRAWN = 12
MOST_COLUMNS = 400  # named in the table of sizes
MOST_LEARNERS = 6  # with a column each


def features_section(
    model: ModelData, sizes: FeatureScales, weights: Weights, found: list[DataWarning]
) -> Element:
    """The section on features."""
    return section(
        "Features",
        grid(*_charts(weights, model.plan.classes)),
        paragraph(_weights_text(model, weights)),
        *_by_column(weights.importances),
        *curves_of_columns(model, sizes.mean if len(sizes.mean) else None),
        *tables_of_pairs(model),
        *([element("h3", "The heaviest, by name"), _heaviest(model, sizes, weights)]
          if weights.top else []),
        element("h3", "Scale of each column"),
        *_sizes(model, sizes, found),
    )  # fmt: skip


def _by_column(importances: Mapping[str, float]) -> list[Element]:
    """What each column adds to a prediction, as a standard deviation over the measured rows."""
    total = sum(importances.values())
    if not total > 0.0:
        return []
    most = sorted(importances.items(), key=lambda one: (-one[1], one[0]))[:MOST_COLUMNS]
    rows = [(name, brief(value), f"{value / total:.1%}") for name, value in most]
    return [
        element("h3", "Importance of each column"),
        paragraph("The standard deviation of what the column adds to the margin, over these rows."),
        table(["column", "importance", "share"], rows, numbers=(1, 2), label="Importance"),
    ]


def _charts(weights: Weights, classes: Sequence[Any]) -> list[Element]:
    charts = []
    if weights.top:
        label = "weight × typical value" if weights.by_unit else "weight"
        signed = [
            (feature.name, math.copysign(feature.moves, feature.heaviest))
            for feature in weights.top[:DRAWN]
        ]
        title = "What moves a prediction most" if weights.centred else "Weights by size of feature"
        charts.append(bars(title, label, signed, note=_sides(classes)))
    if len(weights.edges):
        edges = weights.edges
        x = Axis("size of the weight", float(edges[0]), float(edges[-1]), log=True)
        both = np.concatenate([weights.below, weights.above]).astype(np.float64)
        y = Axis("weights", 0.0, max(float(both.max()), 1.0), whole=True)
        counts = [
            Series("above 0", edges[:-1], weights.above.astype(float)),
            Series("below 0", edges[:-1], weights.below.astype(float)),
        ]
        note = f"{weights.zeros:,} more are exactly 0." if weights.zeros else ""
        charts.append(columns("All weights by size", edges.tolist(), counts, x, y, note=note))
    return charts


def _sides(classes: Sequence[Any]) -> str:
    """The meaning of positive and negative weights."""
    if not classes:
        return "Blue: towards larger numbers; orange: towards smaller ones."
    if len(classes) == 2:
        return f"Blue: towards {classes[1]!r}; orange: towards {classes[0]!r}."
    return "Of the class where it weighs most; blue: towards it, orange: away from it."


def _weights_text(model: ModelData, weights: Weights) -> str:
    total = model.plan.size * model.engine.layout.learners
    used = total - weights.zeros
    text = f"{used:,} of {total:,} weights are not 0."
    if not weights.by_unit:
        text += " The features' scales are unknown: they are ordered by weight only."
    elif not weights.centred:
        text += (
            " Ordered by weight times the root of the mean square, which is not an importance: the "
            "rule stores no means, and a column far from 0 has a large one however little it "
            "moves. Pass the run's shards to the report for importances."
        )
    return text


def _heaviest(model: ModelData, sizes: FeatureScales, weights: Weights) -> Element:
    """Returns the table of the features with the largest weights."""
    learners = model.engine.layout.learners
    several = 1 < learners <= MOST_LEARNERS
    names = [f"weight of {name}" for name in model.plan.classes] if several else ["weight"]
    rows = [
        (
            feature.name,
            *(brief(weight) for weight in (feature.weight if several else (feature.heaviest,))),
            _known(float(sizes.unit[feature.coordinate])),
            brief(feature.moves),
            f"{feature.share:.1%}",
            _share(float(sizes.present[feature.coordinate])),
            f"{feature.coordinate:,}",
        )
        for feature in weights.top
    ]
    moves = "moves" if weights.centred else "weight × value"
    heads = ["feature", *names, "typical value", moves, "share", "not 0 in", "coordinate"]
    shown = [column for column in range(len(heads)) if any(row[column] for row in rows)]
    return table(
        [heads[column] for column in shown],
        [[row[column] for column in shown] for row in rows],
        numbers=range(1, len(shown)),
        label="The heaviest features",
    )


def _sizes(model: ModelData, sizes: FeatureScales, warnings: list[DataWarning]) -> list[Element]:
    """The columns that are not hashed: a hashed value is 1 in its rows. Hats are from 0 to 1."""
    plan = model.plan
    marked = {name for one in warnings for name in one.name.split(", ")}
    front = [*range(int(plan.bias), plan.hat_offset), *range(plan.tree_offset, plan.hashed_offset)]
    if not front:
        return [paragraph("There is no numeric column.")]
    rows = []
    for at in front[:MOST_COLUMNS]:
        name = name_of(plan, model.names, at)
        ends = (sizes.low[at], sizes.high[at])
        ratio = float(sizes.largest[at] / sizes.typical[at]) if sizes.typical[at] > 0 else math.nan
        look = "look" if name in marked else ""
        known = [_known(float(one)) for one in (*ends, sizes.largest[at], sizes.typical[at], ratio)]
        rows.append((name, *known, _share(float(sizes.present[at])), look))
    heads = ["feature", "least", "greatest", "largest abs.", "typical", "largest / typical",
             "not 0 in", ""]  # fmt: skip
    text = f"{sizes.source} Typical: the root of the mean square."
    if len(front) > MOST_COLUMNS:
        text += f" The first {MOST_COLUMNS} columns are shown."
    shown = [at for at in range(len(heads)) if at == 0 or any(row[at] for row in rows)]
    if shown == [0]:
        return [paragraph(text)]
    shown_rows = [[row[at] for at in shown] for row in rows]
    numbers = [index for index, at in enumerate(shown) if 0 < at < len(heads) - 1]
    names = [heads[at] for at in shown]
    return [paragraph(text), table(names, shown_rows, numbers=numbers, label="Scale of columns")]


def _known(number: float) -> str:
    return "" if math.isnan(number) else brief(number)


def _share(number: float) -> str:
    return "" if math.isnan(number) else f"{number:.1%}"
