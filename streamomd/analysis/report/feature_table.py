"""Features on the page: the heaviest by name, all weights, and the scale of each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

from streamomd.analysis.report.charts import COLOURS, Axis, Series, bars, brief, columns, lines
from streamomd.analysis.report.data_warnings import DataWarning
from streamomd.analysis.report.feature_weights import FeatureScales, Weights
from streamomd.analysis.report.markup import element, grid, paragraph, section, table
from streamomd.features import name_of
from streamomd.features.plan import number_name
from streamomd.training.model_data import ModelData

Floats = NDArray[np.float64]
DRAWN_CURVES = 24


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
    """A chart for each curve, at most ``DRAWN_CURVES``; nothing of a model without any."""
    effects = effects_of(model)
    if not effects:
        return []
    text = (
        "What a column adds to the margin at each value, relative to its mean over the knots; the "
        "column whose effect varies most comes first. The lines end at the least and the largest "
        "value of the rows that decided the knots."
    )
    if len(effects) > DRAWN_CURVES:
        text += f" {DRAWN_CURVES} of {len(effects)} curves are drawn."
    charts = [_chart(model, effect) for effect in effects[:DRAWN_CURVES]]
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
        *curves_of_columns(model),
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


def _sizes(model: ModelData, sizes: FeatureScales, found: list[DataWarning]) -> list[Element]:
    """The columns that are not hashed: a hashed value is 1 in its rows."""
    plan = model.plan
    marked = {name for one in found for name in one.name.split(", ")}
    front = range(int(plan.bias), min(plan.hashed_offset, MOST_COLUMNS))
    if not front:
        return [paragraph("There is no numeric column.")]
    rows = []
    for at in front:
        name = name_of(plan, model.names, at)
        ends = (sizes.low[at], sizes.high[at])
        ratio = float(sizes.largest[at] / sizes.typical[at]) if sizes.typical[at] > 0 else math.nan
        look = "look" if name in marked else ""
        known = [_known(float(one)) for one in (*ends, sizes.largest[at], sizes.typical[at], ratio)]
        rows.append((name, *known, _share(float(sizes.present[at])), look))
    heads = ["feature", "least", "greatest", "largest abs.", "typical", "largest / typical",
             "not 0 in", ""]  # fmt: skip
    text = f"{sizes.source} Typical: the root of the mean square."
    if plan.hashed_offset > MOST_COLUMNS:
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
