"""The command that learns many models in one reading: sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from streamomd.cli import formatting
from streamomd.cli.options import CODES, begin_options, described, guarded, main, parsed
from streamomd.core.errors import UsageError
from streamomd.core.urls import typed


@main.command(epilog=CODES)
@begin_options
@click.option(
    "--grid",
    "texts",
    multiple=True,
    required=True,
    metavar="KEY=VALUES",
    help="a..b:n (n values, each as many times the one before), lin:a..b:n (in equal steps) or "
    "v1,v2 of a parameter, rule or loss; once more: each with each.",
)
@click.option(
    "--halve", type=int, default=0, metavar="ROWS",
    help="Drop the worse half after so many rows, twice, four times … as many.",
)  # fmt: skip
@guarded
def sweep(
    what: tuple[str, ...], texts: tuple[str, ...], halve: int, **given: Any
) -> tuple[Any, str]:
    """Learn many models in one reading: a row is decoded once, and learned by all.

    Each ends as if trained alone, to the bit, with a checkpoint of its own in URL/learners; the
    best also in URL/best.

    \b
      streamomd sweep job.toml --grid eta=0.01..10:16
      streamomd sweep data/ --label y --checkpoint runs/s --grid rule=nag,ogd --grid eta=0.1..1:4
      streamomd sweep job.toml --grid eta=0.01..10:32 --halve 10000    # 16 left, 8 after 20,000 …
    """
    from streamomd.runs.sweep import sweep
    from streamomd.runs.sweep.grid import parse_grid

    job, given = described(what, given)
    models = sweep(job, grid=parse_grid(texts), halve=halve, **parsed(given))
    result = models.result()
    return result, swept(result, models.lead.spec.data.shards)


def resumed(url: str, *, log: str | None = None, **given: Any) -> tuple[Any, str]:
    """What ``resume`` says of a sweep."""
    from streamomd.runs.sweep import resume_sweep

    if log:
        raise UsageError("a sweep keeps no --log: its learners' figures are in --json")
    models = resume_sweep(url, **given)
    result = models.result()
    return result, swept(result, models.lead.spec.data.shards)


def swept(result: Mapping[str, Any], shards: Sequence[str]) -> str:
    """A table of the learners, the best marked, and what to type next."""
    from streamomd.runs.sweep.grid import worded

    best = result["best"]
    wrong = "rmse" if best["error"] is None else "error"
    rows = [
        {
            "": "best" if one["name"] == best["name"] else _outcome(one),
            "learner": worded(one["params"]),
            "rows": f"{one['rows']:,}",
            **{key: _number(one[key]) for key in ("loss", wrong)},
            "kept in": f"learners/{one['name']}" if result["checkpoint"]["url"] else "",
        }
        for one in result["learners"]
    ]
    figures = f"{result['seconds']:.2f} s ({result['rows_per_second']:,.0f} rows/s)"
    lines = [formatting.table(rows), f"{result['rows']:,} rows, {len(rows)} learners, {figures}"]
    lines += edges(best["params"], [one["params"] for one in result["learners"]])
    if not result["checkpoint"]["url"]:
        return "\n".join(lines)
    url = typed(result["checkpoint"]["url"])
    data = " ".join(map(typed, shards)) if len(shards) <= formatting.SHARDS_SHOWN else "SHARDS"
    lines += [
        f"kept in {url}, commit {result['checkpoint']['sequence']}",
        "next:",
        f"  streamomd inspect {url}/best",
        f"  streamomd predict {url}/best {data} --to predictions/",
        f"  streamomd resume {url} --epochs {result['epochs'] + 1}",
    ]
    return "\n".join(lines)


def edges(best: Mapping[str, Any], tried: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each number of the best learner that is the largest or smallest one tried.

    >>> edges({"eta": 10.0}, [{"eta": 0.1}, {"eta": 1.0}, {"eta": 10.0}])
    ['the best eta, 10.0, is the largest of those tried: try larger ones']
    """
    lines = []
    for key, value in best.items():
        values = {one[key] for one in tried if isinstance(one[key], int | float)}
        if len(values) < 2 or isinstance(value, bool) or not isinstance(value, int | float):
            continue
        for most, word in ((max(values), "larg"), (min(values), "small")):
            if value == most:
                end = f"is the {word}est of those tried: try {word}er ones"
                lines.append(f"the best {key}, {value}, {end}")
    return lines


def _outcome(one: Mapping[str, Any]) -> str:
    return "diverged" if one["diverged"] else "dropped" if one["dropped"] else ""


def _number(figure: float | None) -> str:
    return "nan" if figure is None else f"{figure:.6f}"
