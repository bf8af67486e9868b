"""The pages of a backtest and of a sweep: plots and tables of their figures."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from streamomd.analysis.report.charts import COLOURS, Axis, Series, lines
from streamomd.analysis.report.markup import element, grid, page, paragraph, section, table
from streamomd.analysis.report.verdict import error_or_figure
from streamomd.core.errors import OutputExistsError, UsageError
from streamomd.core.urls import protocol, refuse_output_url, shown
from streamomd.core.wording import counted
from streamomd.shards.output_files import open_atomic, write_table
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
    whole = ", ".join(
        f"{NAMES[key]} {error_or_figure(result, key, '')}" for key in known if key != "auc"
    )
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
        section("Figures", _periods_table(result, known)),
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


def _periods_table(result: Result, known: list[str]) -> Element:
    heads = [result["by"], "learned before", "rows", *(NAMES[key] for key in known)]
    rows = [
        (
            one["period"], f"{one['learned']:,}", f"{one['rows']:,}",
            *(error_or_figure(one, key, "") for key in known),
        )
        for one in result["periods"]
    ]  # fmt: skip
    return table(heads, rows, numbers=range(1, len(heads)), label="Figures by period")


WIDE = 4.0  # largest over smallest value, from which an axis is logarithmic
KINDS = (".parquet", ".html")


def refuse_output(to: str, *, overwrite: bool) -> None:
    """Raises UsageError unless a file of results can have this name, OutputExistsError if it exists
    on this machine: before anything is learned."""
    refuse_output_url(to)
    if not protocol(to) and os.path.lexists(to) and not overwrite:
        raise OutputExistsError(f"{shown(to)} already exists: pass --overwrite, or another name")
    if not to.endswith(KINDS):
        raise UsageError(
            f"--to {shown(to)}: results of a sweep are written to a file that ends in "
            f"{' or '.join(KINDS)}"
        )


def write_results(result: Result, to: str, *, overwrite: bool = False) -> None:
    """Write what ``Sweep.result`` gives to a .parquet or .html file.

    Raises UsageError for another name, OutputExistsError if the file exists.
    """
    refuse_output(to, overwrite=overwrite)
    with open_atomic(to, overwrite=overwrite) as file:
        if to.endswith(".parquet"):
            write_table(file, columns_of(result))
        else:
            file.write(sweep_page(result).encode())


def columns_of(result: Result) -> dict[str, list[Any]]:
    """A column for each parameter and figure, a row for each learner."""
    learners = result["learners"]
    keys = list(dict.fromkeys(key for one in learners for key in one["params"]))
    figures = ("loss", "error", "rmse", "rows", "dropped", "diverged", "state_sha256")
    return {
        "learner": [one["name"] for one in learners],
        "best": [one["name"] == result["best"]["name"] for one in learners],
        **{f"param.{key}": [one["params"].get(key) for one in learners] for key in keys},
        **{key: [one[key] for one in learners] for key in figures},
        "checkpoint": [one["checkpoint"]["url"] or None for one in learners],
    }


def sweep_page(result: Result) -> str:
    """The page: the best learner, the measure against each parameter, and all learners."""
    best, measure = result["best"], result["measure"]
    charts = list(_charts(result))
    edges = [
        paragraph(
            f"The best {edge['key']}, {edge['value']}, is the {edge['end']} of those tried: values "
            "beyond it may be better (--extend)."
        )
        for edge in result["edges"]
    ]
    heading = f"Sweep of {len(result['learners'])} learners over {result['rows']:,} rows"
    return page(
        heading,
        element(
            "header",
            element("h1", heading),
            paragraph(
                f"Best: {_words(best['params'])}, {measure} {error_or_figure(best, measure)}."
            ),
            *edges,
        ),
        *([section("Parameters", grid(*charts))] if charts else []),
        section("Learners", _table(result)),
        element("footer", "Made by streamomd sweep. This page loads nothing and runs nothing."),
    )


def _charts(result: Result) -> Iterator[Element]:
    """For each numeric parameter: the best measure at each value, by rule for up to three rules."""
    learners = [one for one in result["learners"] if one[result["measure"]] is not None]
    for key in dict.fromkeys(key for one in learners for key in one["params"]):
        known = [one for one in learners if _is_number(one["params"].get(key))]
        if len({one["params"][key] for one in known}) < 2:
            continue
        series = list(_series(known, key, result["measure"]))
        both = np.concatenate([one.x for one in series])
        positive = bool(both.min() > 0.0)
        log = positive and bool(both.max() >= WIDE * both.min())
        heights = np.concatenate([one.y for one in series])
        steep = bool(heights.min() > 0.0) and bool(heights.max() > 10.0 * heights.min())
        x, y = Axis.of(key, both, log=log), Axis.of(result["measure"], heights, log=steep)
        note = "The lowest at each value; diverged learners are left off."
        yield lines(f"{result['measure'].capitalize()} by {key}", series, x, y, note=note)


def _series(learners: Sequence[Result], key: str, measure: str) -> Iterator[Series]:
    groups: dict[str, dict[float, float]] = {}
    for one in learners:
        words = {k: v for k, v in one["params"].items() if not _is_number(v)}
        found = groups.setdefault(_words(words), {})
        value = float(one["params"][key])
        found[value] = min(found.get(value, math.inf), one[measure])
    ranked = sorted(groups.items(), key=lambda group: min(group[1].values()))
    for name, found in ranked[: len(COLOURS)]:
        at = sorted(found)
        yield Series(name or measure, np.array(at), np.array([found[value] for value in at]))


def _table(result: Result) -> Element:
    measure, learners = result["measure"], result["learners"]
    ranked = sorted(
        learners, key=lambda learner: (learner["dropped"] is not None, _least(learner[measure]))
    )
    wrong = "rmse" if result["best"]["error"] is None else "error"
    heads = ["learner", "parameters", "rows", "loss", wrong, ""]
    rows = [
        (
            learner["name"],
            _words(learner["params"]) or "the job",
            f"{learner['rows']:,}",
            error_or_figure(learner, "loss"),
            error_or_figure(learner, wrong),
            _outcome(learner, result),
        )
        for learner in ranked
    ]
    return table(heads, rows, numbers=(2, 3, 4), label="Learners, the best first")


def _outcome(one: Result, result: Result) -> str:
    if one["name"] == result["best"]["name"]:
        return "best"
    return "diverged" if one["diverged"] else "dropped" if one["dropped"] else ""


def _words(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{key.rpartition('.')[2]} = {value}" for key, value in params.items())


def _least(number: float | None) -> float:
    return math.inf if number is None else number


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
