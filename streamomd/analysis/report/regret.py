"""Regret on the page: the result of ``streamomd certify``, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from streamomd.analysis.certify import measure
from streamomd.analysis.certify.claims import KEEP, no_theorem
from streamomd.analysis.certify.replay import FixedWeights
from streamomd.analysis.report.charts import Axis, Series, bars, brief, lines
from streamomd.analysis.report.learning import curve_points
from streamomd.analysis.report.markup import grid, paragraph, section, table
from streamomd.rules import find_rule
from streamomd.training.model_data import ModelData

TITLE = "Regret and certificate"
MOST_ROWS = 200_000
"""Rows above which the regret of a run without a certificate is not measured: the search takes many
passes."""
Learner = Mapping[str, Any]


def regret(
    model: ModelData, shards: str | Sequence[str], *, wanted: bool, **options: Any
) -> Element:
    """Regret over the run's shards with its bounds. options: as in ``certify.measure``."""
    reason = _unproven(model)
    if not shards or not wanted or (reason and model.metrics.total_rows > MOST_ROWS):
        return section(TITLE, paragraph(reason or _unmeasured(shards)))
    learners, comparator = measure(model, shards, **options)
    if comparator is None and reason:
        return section(TITLE, paragraph(reason), paragraph(f"No regret: {learners[0]['reason']}."))
    if reason:
        learners = [{**learner, "claims": None, "reason": ""} for learner in learners]
    return section(
        TITLE,
        *([paragraph(reason)] if reason else []),
        *(part for learner in learners for part in _learner(learner)),
        *_curve(model, comparator),
    )


def _unproven(model: ModelData) -> str:
    """Why there is no certificate, in a sentence; empty if there is one."""
    rule = model.spec.rule
    if unproven := no_theorem(rule, model.spec.model.loss):
        return f"No certificate for rule {rule.name}: {unproven}."
    if find_rule(rule.name).certificate.accounted is not None and not model.spec.model.certificate:
        return f"No certificate: {KEEP}."
    return ""


def _unmeasured(shards: str | Sequence[str]) -> str:
    if shards:
        return "Omitted (--no-certificate)."
    return (
        "Not measured: it needs the rows that were learned. Pass their shards to the report, "
        "or run streamomd certify."
    )


def _curve(model: ModelData, comparator: FixedWeights | None) -> list[Element]:
    """Regret per row over rows: against the weights that are best for all rows together."""
    points = curve_points(model.metrics)
    if comparator is None or len(points) < 2:
        return []
    rows, loss = points[:, 0], points[:, 2]
    fixed = comparator.losses_at([int(row) for row in rows])
    if len(fixed) != len(rows) or not np.isfinite(fixed).all():
        return []
    mean = (loss - fixed) / rows
    x = Axis.of("rows learned", rows, log=True)
    note = (
        "The loss of the run less that of the fixed weights that are best for all rows, divided by "
        "the rows so far. It can be negative where rows change with time."
    )
    y = Axis.of("regret per row", np.append(mean, 0.0))
    return [
        grid(lines("Regret over rows", [Series("regret per row", rows, mean)], x, y, note=note))
    ]


def _learner(one: Learner) -> list[Element]:
    name = "" if one["learner"] is None else f"{one['learner']}: "
    inside = []
    if one["loss"] is not None:
        inside.append(
            paragraph(
                f"{name or 'The run: '}the total loss is {brief(one['loss'])}; that of the best "
                f"fixed weights found is {brief(one['comparator_loss'])}: a regret "
                f"of {brief(one['regret'])}, {brief(one['regret'] / one['rows'])} per row."
            )
        )
    if one["claims"] is None:
        reason = f"{name}no certificate: {one['reason']}."
        return [*inside, *([paragraph(reason)] if one["reason"] else [])]
    inside += [
        paragraph(f"{name}{claim['claim']} ({claim['source']}): {claim['reason']}.")
        for claim in one["refused"]
    ]
    return [*inside, *_claims(name, one["claims"])]


def _claims(name: str, claims: Sequence[Mapping[str, Any]]) -> list[Element]:
    rows = []
    for claim in claims:
        numbers = [brief(claim[side]) for side in ("measured", "bound")]
        ratio = "" if claim["ratio"] is None else f"{claim['ratio']:.3g}"
        note = f" ({claim['note']})" if claim["note"] else ""
        rows.append((claim["claim"], *numbers, ratio, claim["source"] + note))
    heads = [f"{name}claim", "measured", "bound", "bound / measured", "proven in"]
    pairs = {f"{claim['claim']}, measured": claim["measured"] for claim in claims}
    pairs |= {f"bound on it, {claim['source']}": claim["bound"] for claim in claims}
    chart = bars(f"{name}measured value and bound", "sum over all rows", [*pairs.items()])
    return [table(heads, rows, numbers=(1, 2, 3), label=f"{name}claims"), grid(chart)]
