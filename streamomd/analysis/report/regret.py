"""Regret on the page: the result of ``streamomd certify``, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from streamomd.analysis.certify import certify
from streamomd.analysis.certify.claims import KEEP, no_theorem
from streamomd.analysis.report.charts import bars
from streamomd.analysis.report.markup import grid, paragraph, section, table
from streamomd.rules import find_rule
from streamomd.training.model import Model

TITLE = "Regret and certificate"
Learner = Mapping[str, Any]


def regret(model: Model, shards: str | Sequence[str], *, wanted: bool, **options: Any) -> Element:
    """Regret over the run's shards with its bounds. options: as in ``certify``."""
    reason = _why_not(model, shards, wanted=wanted)
    if reason:
        return section(TITLE, paragraph(reason))
    certificates = certify(model, shards, **options)
    return section(TITLE, *(element for one in certificates for element in _learner(one)))


def _why_not(model: Model, shards: str | Sequence[str], *, wanted: bool) -> str:
    """Why there is no certificate, in a sentence; empty if there is one."""
    rule = model.spec.rule
    if unproven := no_theorem(rule, model.spec.model.loss):
        return f"No certificate for rule {rule.name}: {unproven}."
    if find_rule(rule.name).certificate.accounted is not None and not model.spec.model.certificate:
        return f"No certificate: {KEEP}."
    if not shards:
        return (
            "Not measured: it needs the rows that were learned. Pass their shards to the report, "
            "or run streamomd certify."
        )
    return "" if wanted else "Omitted (--no-certificate)."


def _learner(one: Learner) -> list[Element]:
    name = "" if one["learner"] is None else f"{one['learner']}: "
    inside = []
    if one["loss"] is not None:
        inside.append(
            paragraph(
                f"{name}the total loss is {one['loss']:,.6g}; that of the best fixed "
                f"weights found is {one['comparator_loss']:,.6g}: a regret "
                f"of {one['regret']:,.6g}, {one['regret'] / one['rows']:.4g} per row."
            )
        )
    if one["claims"] is None:
        return [*inside, paragraph(f"{name}no certificate: {one['reason']}.")]
    inside += [
        paragraph(f"{name}{claim['claim']} ({claim['source']}): {claim['reason']}.")
        for claim in one["refused"]
    ]
    return [*inside, *_claims(name, one["claims"])]


def _claims(name: str, claims: Sequence[Mapping[str, Any]]) -> list[Element]:
    rows = []
    for claim in claims:
        numbers = [f"{claim[side]:,.6g}" for side in ("measured", "bound")]
        ratio = "" if claim["ratio"] is None else f"{claim['ratio']:.3g}"
        note = f" ({claim['note']})" if claim["note"] else ""
        rows.append((claim["claim"], *numbers, ratio, claim["source"] + note))
    heads = [f"{name}claim", "measured", "bound", "bound / measured", "proven in"]
    pairs = {f"{claim['claim']}, measured": claim["measured"] for claim in claims}
    pairs |= {f"bound on it, {claim['source']}": claim["bound"] for claim in claims}
    chart = bars(f"{name}measured value and bound", "sum over all rows", [*pairs.items()])
    return [table(heads, rows, numbers=(1, 2, 3)), grid(chart)]
