"""Tables of the runs in Markdown."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Mapping
from statistics import median
from typing import Any

from tools import OURS, TOOLS, lines_of

Runs = Mapping[str, Any]
TITLES = {
    "lists": "i: rcv1-like, 75 of 2^18",
    "clicks": "ii: Criteo-like, raw strings",
    "covertype": "iii: Covertype × 10",
    "news": "iv: 20 newsgroups × 10",
}


def page(runs: Runs, installed: Mapping[str, list[str]]) -> str:
    """The table of the README, then the rates and losses that it comes from."""
    names = [name for name in TITLES if f"{name}/made" in runs]
    tables = (multiples, short, speeds, losses)
    parts = [heading(installed), *(tell(runs, names) for tell in tables)]
    return "\n\n".join(part for part in parts if part)


def heading(installed: Mapping[str, list[str]]) -> str:
    """The machine, and what was installed."""
    wanted = ("vowpalwabbit", "scikit-learn", "dask-ml", "dask", "river")
    found = {one for venv, packages in installed.items() if venv != OURS for one in packages}
    named = [one for one in sorted(found) if one.split("==")[0] in wanted]
    python = f"Python {platform.python_version()}, {os.cpu_count()} cores"
    now = f"{time.strftime('%d %B %Y')}, load average {os.getloadavg()[2]:.1f} at the end"
    return f"{now}. {python}; {', '.join(named)}. Medians; whole processes, start-up included."


def short(runs: Runs, names: list[str]) -> str:
    """A line for each tool: rows a second, of wall and of cpu, on each set."""
    lines = []
    for tool in TOOLS.values():
        found = {name: all_of(runs, name, tool.name, "main") for name in names}
        if any(found.values()):
            cells = [speed_cell(found[name], cpu=tool.cpu) for name in names]
            written = [lines_of(tool.user_code(name)) for name in names if found[name]]
            told = f"{min(written)} … {max(written)}" if len({*written}) > 1 else f"{written[0]}"
            lines.append([tool.name, *cells, told])
    head = ["rows/s (rows/CPU-s)", *(TITLES[name] for name in names), "lines to write"]
    return table(head, lines) if lines else ""


def speed_cell(main: list[Any], *, cpu: bool) -> str:
    """Rows a second of wall and of cpu; a dash for a tool that does not run on the set."""
    if not main:
        return "–"
    kinds = ("wall", "cpu") if cpu else ("wall",)
    wall, *rest = (number(median(speed(run, of) for run in main)) for of in kinds)
    return f"{wall} ({rest[0]})" if rest else wall


def speeds(runs: Runs, names: list[str]) -> str:
    """A line for each set and tool."""
    head = ["data", "tool", "rows", "start-up s", "rows/s without it", "peak MB"]
    lines = []
    for name in names:
        for tool in TOOLS.values():
            main = all_of(runs, name, tool.name, "main")
            if main:
                short_title = TITLES[name].split(":")[0]
                lines.append([short_title, tool.name, *told(runs, name, tool.name, main)])
    return table(head, lines)


def told(runs: Runs, name: str, tool: str, main: list[Any]) -> list[str]:
    """The figures of one tool on one set."""
    start = start_of(runs, name, tool, "wall")
    return [
        f"{main[0]['rows']:,}",
        f"{start:.1f}",
        number(median(speed(run, "wall", start) for run in main)),
        f"{median(run['peak'] for run in main) / 1e6:,.0f}",
    ]


def speed(run: Any, of: str, start: float = 0.0) -> float:
    """Rows a second of wall or of cpu, apart from what a hundred rows take.

    NaN where that is nearly all.
    """
    rest = run[of] - start
    return float(run["rows"] / rest) if rest > 0.25 * run[of] else math.nan


def losses(runs: Runs, names: list[str]) -> str:
    """A line for each set: default → best (its step size), on the same first rows."""
    tools = ("streamomd", "streamomd_auto", "vw_text", "sklearn", "river")
    lines = []
    for name in names:
        cells = [loss_cell(runs, name, tool) for tool in tools]
        if any(cells):
            few, tiny = (f"{runs[f'{name}/made']['rows'][size]:,}" for size in ("few", "tiny"))
            whole = [loss_of(all_of(runs, name, tool, "main")) for tool in tools[:3]]
            river = f"{cells[4]} of {tiny}" if cells[4] else ""
            lines.append([TITLES[name], few, *cells[:4], river, *whole])
    head = ["progressive log loss, default → best", "rows", "streamomd", "streamomd_auto", "VW",
            "scikit-learn", "river, fewer rows", "streamomd, all", "streamomd_auto, all",
            "VW, all"]  # fmt: skip
    return table(head, lines) if lines else ""


def loss_cell(runs: Runs, name: str, tool: str) -> str:
    found = [run for run in all_of(runs, name, tool, "step") if run["loss"] is not None]
    if not found or found[0]["step"]:
        return ""
    if TOOLS[tool].untuned:
        return f"{found[0]['loss']:.4f}"
    best = min(found, key=lambda run: run["loss"])
    at = best["step"] or "default"
    return f"{found[0]['loss']:.4f} → {best['loss']:.4f} ({at})"


def loss_of(main: list[Any]) -> str:
    return f"{main[0]['loss']:.4f}" if main and main[0]["loss"] is not None else ""


def multiples(runs: Runs, names: list[str]) -> str:
    """A line for each tool: how many rows it learns while Vowpal Wabbit learns one from text.

    Of CPU time, whole and without start-up; medians of the rounds' ratios.
    """
    lines = []
    for tool in (one for one in TOOLS.values() if one.cpu):
        found = [
            [ratio(runs, name, tool.name, "vw_text", net=net) for net in (False, True)]
            for name in names
        ]
        if not all(math.isnan(whole) for whole, _ in found):
            cells = [
                "–" if math.isnan(whole) else f"{number(whole)} ({number(net)})"
                for whole, net in found
            ]
            lines.append([tool.name, *cells])
    head = ["rows/CPU-s ÷ vw_text's (without start-up)", *(TITLES[name] for name in names)]
    return table(head, lines) if lines else ""


def ratio(runs: Runs, name: str, ours: str, theirs: str, *, net: bool) -> float:
    """The median of the rounds' ratios of rows per CPU second; NaN where a tool has no runs."""
    above, below = (
        [
            speed(run, "cpu", start_of(runs, name, tool, "cpu") if net else 0.0)
            for run in all_of(runs, name, tool, "main")
        ]
        for tool in (ours, theirs)
    )
    return (
        median(a / b for a, b in zip(above, below, strict=False)) if above and below else math.nan
    )


def start_of(runs: Runs, name: str, tool: str, of: str) -> float:
    """Seconds of a run on a hundred rows."""
    return median(run[of] for run in all_of(runs, name, tool, "start"))


def all_of(runs: Runs, name: str, tool: str, kind: str) -> list[Any]:
    """The runs that ended well, in order."""
    at, found = 0, []
    while (key := f"{name}/{tool}/{kind}/{at}") in runs:
        found.append(runs[key])
        at += 1
    return [run for run in found if not run["status"]]


def number(value: float) -> str:
    """Three digits are told; a benchmark has no more.

    >>> number(1234567.0), number(48.6)
    ('1,230,000', '48.6')
    """
    if math.isnan(value):
        return "–"
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"


def table(head: list[str], lines: list[list[str]]) -> str:
    """Markdown."""
    rule = ["---"] * len(head)
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *lines))
