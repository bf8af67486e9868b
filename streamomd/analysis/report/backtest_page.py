"""The page of a backtest: the loss of each period as a plot, and all figures as a table."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from streamomd.analysis.report.axes import Axis, brief
from streamomd.analysis.report.charts import Series, lines
from streamomd.analysis.report.markup import element, grid, page, paragraph, section, table
from streamomd.analysis.report.verdict import percent
from streamomd.core.errors import OutputExistsError, UsageError
from streamomd.core.urls import protocol, refuse_output_url, shown
from streamomd.core.wording import counted
from streamomd.shards.output_files import open_atomic
from streamomd.training.metrics.by_time import EARLIER_TEXT

Result = Mapping[str, Any]
NAMES = {
    "loss": "Loss",
    "log_loss": "Calibrated log loss",
    "error": "Error",
    "rmse": "RMSE",
    "auc": "AUC",
}


def refuse_page(to: str, *, overwrite: bool) -> None:
    """Raises UsageError unless a page can have this name, OutputExistsError if it exists: before
    anything is learned."""
    refuse_output_url(to)
    if protocol(to) or not to.endswith(".html"):
        raise UsageError(f"--output {shown(to)}: expected a local file that ends in .html")
    if not os.path.isdir(os.path.dirname(os.path.abspath(to))):
        raise UsageError(f"{shown(to)}: its directory does not exist; create it, or name another")
    if os.path.lexists(to) and not overwrite:
        raise OutputExistsError(f"{shown(to)} already exists: pass --overwrite, or another name")


def write_page(result: Result, to: str, *, overwrite: bool = False) -> None:
    """Write what ``streamomd.backtest`` gives. Raises as ``refuse_page``."""
    refuse_page(to, overwrite=overwrite)
    with open_atomic(os.path.abspath(to), overwrite=overwrite) as file:
        file.write(backtest_page(result).encode())


def backtest_page(result: Result) -> str:
    """The page."""
    result = {**_flat(result), "periods": [_flat(period) for period in result["periods"]]}
    periods, by = result["periods"], result["by"]
    heading = f"Backtest by {by}: {counted(result['rows'], 'row')} of {counted(len(periods), by)}"
    gap = f", less a gap of {timedelta(seconds=result['gap'])}" if result["gap"] else ""
    known = [key for key in NAMES if any(period[key] is not None for period in periods)]
    whole = ", ".join(f"{NAMES[key]} {_text(result, key)}" for key in known if key != "auc")
    return page(
        heading,
        element(
            "header",
            element("h1", heading),
            paragraph(f"All periods together: {whole}."),
            paragraph(
                f"The rows of each {by} were predicted by the model that had learned all rows "
                f"before it{gap}; times are in UTC."
            ),
        ),
        section(f"By {by}", grid(*(_chart(result, key) for key in known if key != "log_loss"))),
        section("Figures", _table(result, known)),
        element("footer", "Made by streamomd backtest. This page loads nothing and runs nothing."),
    )


def _flat(one: Result) -> dict[str, Any]:
    """Figures with the log loss of calibrated probabilities among them."""
    return {**one, "log_loss": (one.get("calibrated") or {}).get("log_loss")}


def _chart(result: Result, key: str) -> Element:
    """A figure of each period; the loss with that of calibrated probabilities."""
    periods = [one for one in result["periods"] if one["period"] != EARLIER_TEXT]
    at = np.array([_day(one["period"]) for one in periods])
    keys = (key, "log_loss") if key == "loss" and "calibrated" in result else (key,)
    y = np.array([[np.nan if one[k] is None else one[k] for one in periods] for k in keys])
    x = Axis.of_integers(f"{result['by']} (UTC)", at, dates=True)
    series = [Series(NAMES[k], at, some) for k, some in zip(keys, y, strict=True)]
    note = "Rows of each period, by the model of its start."
    return lines(f"{NAMES[key]} by {result['by']}", series, x, Axis.of(NAMES[key], y), note=note)


def _day(period: str) -> float:
    """Days since 1970."""
    return (datetime.fromisoformat(period.replace("Z", "")) - datetime(1970, 1, 1)) / timedelta(1)


def _table(result: Result, known: list[str]) -> Element:
    heads = [result["by"], "learned before", "rows", *(NAMES[key] for key in known)]
    rows = [
        (
            one["period"], f"{one['learned']:,}", f"{one['rows']:,}",
            *(_text(one, key) for key in known),
        )
        for one in result["periods"]
    ]  # fmt: skip
    return table(heads, rows, numbers=range(1, len(heads)), label="Figures by period")


def _text(one: Result, key: str) -> str:
    if one[key] is None:
        return ""
    return percent(one[key]) if key == "error" else brief(one[key])
