"""Tables of the runs in Markdown, and how they compare with the targets."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Mapping
from statistics import median
from typing import Any

from tools import OURS, SETS, TOOLS, lines_of

Runs = Mapping[str, Any]
TITLES = {
    "lists": "i: rcv1-like, 75 of 2^18",
    "clicks": "ii: Criteo-like, raw strings",
    "covertype": "iii: Covertype × 10",
    "news": "iv: 20 newsgroups × 10",
}
PROMISED = (  # sets; ours ÷ theirs; of what; at least
    (("lists",), "streamomd", "vw_text", "cpu", 5.0),
    (("lists",), "streamomd_binary", "vw_text", "cpu", 4.5),
    (("lists",), "streamomd_arrow", "vw_text", "cpu", 5.0),
    (("lists",), "streamomd_cache", "vw_cache", "cpu", 2.0),
    (("clicks",), "streamomd", "vw_text", "cpu", 2.2),
    (("clicks",), "streamomd", "vw_text", "wall", 1.6),
    (("clicks",), "streamomd_cache", "vw_cache", "cpu", 2.5),
    (("covertype",), "streamomd", "vw_text", "cpu", 2.0),
    (("covertype",), "streamomd", "vw_text", "wall", 1.8),
    (("news",), "streamomd", "vw_text", "cpu", 1.0),
    (("news",), "streamomd_cache", "vw_cache", "cpu", 1.5),
    (("clicks",), "streamomd", "sklearn", "wall", 10.0),
    (tuple(SETS.values()), "streamomd_auto", "vw_text", "cpu", 0.0),
    (tuple(SETS.values()), "streamomd_auto", "vw_text", "wall", 0.0),
    (tuple(SETS.values()), "streamomd", "dask_ml", "wall", 2.0),
    (tuple(SETS.values()), "streamomd", "river", "wall", 0.0),
)


def page(runs: Runs, installed: Mapping[str, list[str]]) -> str:
    """The table of the README, the whole ones, and the promises."""
    names = [name for name in TITLES if f"{name}/made" in runs]
    tables = (short, speeds, losses, promises)
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
            cells = [speed_cell(found[name]) for name in names]
            written = [lines_of(tool.user_code(name)) for name in names if found[name]]
            told = f"{min(written)} … {max(written)}" if len({*written}) > 1 else f"{written[0]}"
            lines.append([tool.name, *cells, told])
    head = ["rows/s (rows/CPU-s)", *(TITLES[name] for name in names), "lines to write"]
    return table(head, lines) if lines else ""


def speed_cell(main: list[Any]) -> str:
    """Rows a second of wall and of cpu; a dash for a tool that does not run on the set."""
    if not main:
        return "–"
    wall, cpu = (number(median(speed(run, of) for run in main)) for of in ("wall", "cpu"))
    return f"{wall} ({cpu})"


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
    return float(run["rows"] / rest) if rest > 0.1 * run[of] else math.nan


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


def promises(runs: Runs, names: list[str]) -> str:
    """What the ratios are, and should be."""
    lines = []
    for sets, ours, theirs, of, least in PROMISED:
        for name in sets:
            found = ratio(runs, name, ours, theirs, of, net=False)
            net = ratio(runs, name, ours, theirs, of, net=True)
            if found is not None and net is not None:
                unit = "rows/CPU-s" if of == "cpu" else "rows/s"
                aim = f"≥ {least:g}: {'met' if found >= least else 'missed'}" if least else "none"
                title = f"{TITLES[name].split(':')[0]}: {ours} ÷ {theirs}, {unit}"
                lines.append([title, f"{found:.2f}", "–" if math.isnan(net) else f"{net:.2f}", aim])
    lines += losses_promised(runs, names)
    return table(["comparison", "ratio", "without start-up", "target"], lines) if lines else ""


def losses_promised(runs: Runs, names: list[str]) -> list[list[str]]:
    """On how many sets the loss at the defaults is no worse than VW's, on the same first rows."""
    better = counted = 0
    for name in names:
        ours, theirs = (all_of(runs, name, tool, "step") for tool in ("streamomd", "vw_text"))
        if ours and theirs and None not in (ours[0]["loss"], theirs[0]["loss"]):
            counted += 1
            better += ours[0]["loss"] <= theirs[0]["loss"]
    if not counted:
        return []
    aim = f"≥ {counted - 1}: {'met' if better >= counted - 1 else 'missed'}"
    title = "sets where the loss at defaults is no worse than VW's"
    return [[title, f"{better} of {counted}", "", aim]]


def ratio(runs: Runs, name: str, ours: str, theirs: str, of: str, *, net: bool) -> float | None:
    """The median of the rounds' ratios of rows a second; none where a tool has no runs."""
    above, below = (
        [
            speed(run, of, start_of(runs, name, tool, of) if net else 0.0)
            for run in all_of(runs, name, tool, "main")
        ]
        for tool in (ours, theirs)
    )
    return median(a / b for a, b in zip(above, below, strict=False)) if above and below else None


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
