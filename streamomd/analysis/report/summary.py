"""The top of the page: what was learned, how well, whether it is finished; and what to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from streamomd.analysis.history import History, passed
from streamomd.analysis.report.data_warnings import DataWarning
from streamomd.analysis.report.markup import element, paragraph, section
from streamomd.core.urls import shown, typed
from streamomd.training.metrics import Metrics
from streamomd.training.model import Model
from streamomd.training.progress import show


def verdict(model: Model, told: History, figures: Mapping[str, Any], count: int) -> Element:
    """The heading, some sentences, and the figures: those of ``Model.result``. count: of things to
    look at."""
    return element(
        "header",
        element("h1", f"{model.plan.label}, learned by {model.spec.model.rule}"),
        element("p", _where(model, told), class_="soft"),
        paragraph(_sentence(model, told, figures) + _beside(figures)),
        paragraph(_what_next(count)),
        _boxes(model, told, figures),
    )


def _where(model: Model, told: History) -> str:
    if not model.url:
        return "A model in memory."
    written = f", written {told.commits[-1].written:%Y-%m-%d %H:%M} UTC" if told.commits else ""
    return f"Commit {model.sequence} of {shown(model.url)}{written}."


def _sentence(model: Model, told: History, figures: Mapping[str, Any]) -> str:
    rows, epochs = model.metrics.total_rows, model.spec.train.epochs
    share = share_done(model, told)
    done = f" ({share:.0%} of {told.rows * epochs:,})" if share is not None else ""
    begun = len(model.metrics.rows)
    where = f" in {begun} epochs" if model.finished else f", now in epoch {begun}"
    many = where if begun > 1 else ""
    loss = f"{model.spec.model.loss} loss {show(figures['loss'])}"
    wrong = figures["error"]
    if many:
        how = f"{_by_epoch(model.metrics)}, {loss} over all"
    elif wrong is not None:
        how = f"{wrong:.2%} were predicted wrong before they were learned, {loss}"
    else:
        how = f"each was predicted before it was learned, RMSE {show(figures['rmse'])}, {loss}"
    if model.finished:
        early = (
            f", {epochs} were asked for, and it stopped early" if figures["stopped_early"] else ""
        )
        return f"Finished: {rows:,} rows were learned{many}{early}; {how}."
    again = f" Go on with: streamomd resume {typed(model.url)}" if model.url else ""
    return f"Not finished: {rows:,} rows{done} were learned so far{many}; {how}.{again}"


def _by_epoch(metrics: Metrics) -> str:
    """Of the first epoch, whose rows alone were new, and of the last."""
    first, last = (metrics.figures(metrics.sums[epoch]) for epoch in (0, -1))
    name = "error" if metrics.classifies else "RMSE"
    before, after = (show(one[name.lower()]) for one in (first, last))
    return f"{name} {before} in epoch 1, when rows were new, {after} in the last"


def _beside(figures: Mapping[str, Any]) -> str:
    """What would be wrong without learning anything, if the classes' weights are known."""
    weights = [one["weight"] for one in figures["per_class"] or ()]
    if not sum(weights):
        return ""
    return (
        f" Always telling the commonest class is wrong in {1.0 - max(weights) / sum(weights):.2%}."
    )


def _what_next(count: int) -> str:
    if not count:
        return "Nothing stood out among its features."
    return f"{count} thing{'s' if count > 1 else ''} to look at, below."


def share_done(model: Model, told: History) -> float | None:
    """The part of all rows that is behind; None if it is not known."""
    expected = told.rows * model.spec.train.epochs
    return passed(model.metrics) / expected if expected else None


def _boxes(model: Model, told: History, figures: Mapping[str, Any]) -> Element:
    share = share_done(model, told)
    boxes = [("rows learned", f"{model.metrics.total_rows:,}")]
    boxes += [("of all rows", f"{share:.0%}")] if share is not None and not model.finished else []
    boxes += [("loss", show(figures["loss"]))]
    if figures["error"] is not None:
        boxes.append(("wrong", f"{figures['error']:.2%}"))
    if figures["rmse"] is not None:
        boxes.append(("RMSE", show(figures["rmse"])))
    if figures["auc"] is not None:
        boxes.append(("AUC", f"{figures['auc']:.4f}"))
    if figures["r2"] is not None:
        boxes.append(("R²", f"{figures['r2']:.4f}"))
    if figures["holdout"] is not None:
        boxes.append(("held-out loss", show(figures["holdout"]["loss"])))
    boxes.append(("coordinates", f"{model.plan.size:,}"))
    left_out = sum(model.metrics.skipped.values())
    boxes += [("rows left out", f"{left_out:,}")] if left_out else []
    return element(
        "dl",
        *(element("div", element("dt", name), element("dd", text)) for name, text in boxes),
        class_="figures",
    )


def to_look_at(found: Sequence[DataWarning]) -> Element:
    """Each suspect: its name, what stood out, and what to do."""
    if not found:
        return section(
            "Things to look at",
            paragraph(
                "None: no column is empty, constant, far out of scale or named like an id or a "
                "weight, and no feature outweighs all others, as far as what is kept tells."
            ),
        )
    items = [
        element("li", element("strong", one.name), f": {one.title}. ", one.text) for one in found
    ]
    return section("Things to look at", element("ul", *items, class_="look"))
