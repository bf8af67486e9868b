"""Commands that train many models on one job: sweep in one pass, backtest by period."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from streamomd.cli import formatting
from streamomd.cli.command_group import CODES, Choice, guarded, main
from streamomd.cli.job_flags import JobCommand, complete_grid
from streamomd.cli.options import (
    checkpoint_options,
    cluster_option,
    data_options,
    job_and_shards,
    log_option,
    metrics_options,
    output_option,
    python_arguments,
    restart,
    run_options,
    set_option,
    verbose_option,
    what,
)
from streamomd.core.errors import UsageError
from streamomd.core.run_events import phase
from streamomd.core.urls import typed
from streamomd.core.wording import counted


@main.command(cls=JobCommand, epilog=CODES)
@run_options
@cluster_option
@click.option(
    "--grid",
    "texts",
    multiple=True,
    metavar="KEY=VALUES",
    shell_complete=complete_grid,
    help="Values to try for a parameter, rule or loss: v1,v2 a list, a..b:n n values in equal "
    "ratios, lin:a..b:n in equal steps. Repeated: every combination.  [the job alone]",
)
@click.option(
    "--halve", type=int, default=0, metavar="ROWS",
    help="Rows after which the worse half of the learners is dropped, again at 2, 4, 8 … times as "
    "many; 0: never.",
)  # fmt: skip
@click.option(
    "--extend", is_flag=True,
    help="While the best value of a parameter is at an end of its values, train three more beyond "
    "it in another pass, at most three times.",
)  # fmt: skip
@output_option(
    "FILE", "File of the results: a table (.parquet) or a page with charts (.html). May be "
    "repeated.", multiple=True,
)  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Overwrite existing files of results.")
@metrics_options
@verbose_option
@guarded
def sweep(
    what: tuple[str, ...],
    texts: tuple[str, ...],
    halve: int,
    extend: bool,
    to: tuple[str, ...],
    overwrite: bool,
    **given: Any,
) -> tuple[Any, str]:
    """Train many models in one pass: each row is decoded once and learned by all of them.

    Each model is bit-identical to one trained alone and has its own checkpoint in URL/learners;
    the best is also saved to URL/best.

    \b
      streamomd sweep job.toml --rule nag --grid eta=0.01..10:16 --extend --to sweep.html
      streamomd sweep data/ --label y --checkpoint runs/s --grid rule=nag,ogd --grid eta=0.1..1:4
      streamomd sweep job.toml --rule nag --grid eta=0.01..10:32 --halve 10000    # then 16 …
      streamomd sweep job.toml --grid eta=0.01..10:64 --scheduler tcp://10.0.0.5:8786

    With a cluster, each worker learns a group of the models and reads every row once.
    """
    with phase("starting"):
        from streamomd.analysis.report.sweep_pages import refuse_output, write_results
        from streamomd.runs.sweep import sweep
        from streamomd.runs.sweep.grid import parse_grid

    for file in to:
        refuse_output(file, overwrite=overwrite)
    job, given = job_and_shards(what, given)
    grid = parse_grid(texts)
    models = sweep(job, grid=grid, halve=halve, extend=extend, **python_arguments(given))
    result = models.result()
    for file in to:
        write_results(result, file, overwrite=overwrite)
    return result, format_sweep(result, models.lead.spec.data.shards)


def resume_sweep_command(url: str, *, log: str | None = None, **given: Any) -> tuple[Any, str]:
    """The result of ``resume`` of a sweep."""
    from streamomd.runs.sweep import resume_sweep

    if log:
        raise UsageError("a sweep has no --log: use --json for the metrics of its learners")
    models = resume_sweep(url, **given)
    result = models.result()
    return result, format_sweep(result, models.lead.spec.data.shards)


def format_sweep(result: Mapping[str, Any], shards: Sequence[str]) -> str:
    """A table of the learners with the best marked, and commands to run next."""
    from streamomd.runs.sweep.grid import worded

    best, held = result["best"], "holdout" in result["best"]
    wrong = "rmse" if best["error"] is None else "error"
    rows = [
        {
            "": "best" if learner["name"] == best["name"] else _outcome(learner),
            "learner": worded(learner["params"]),
            "rows": f"{learner['rows']:,}",
            **{key: _number(learner[key]) for key in ("loss", wrong)},
            **({"held-out loss": _number((learner["holdout"] or {}).get("loss"))} if held else {}),
            "saved to": _saved_to(learner["name"]) if result["checkpoint"]["url"] else "",
        }
        for learner in result["learners"]
    ]
    figures = f"{result['seconds']:.2f} s ({result['rows_per_second']:,.0f} rows/s)"
    lines = [
        formatting.format_table(rows),
        f"{counted(result['rows'], 'row')}, {counted(len(rows), 'learner')}, {figures}",
    ]
    lines += _edges(result)
    if not result["checkpoint"]["url"]:
        return "\n".join(lines)
    url = typed(result["checkpoint"]["url"])
    data = " ".join(map(typed, shards)) if len(shards) <= formatting.MAX_SHARDS else "SHARDS"
    lines += [
        f"saved to {url}, commit {result['checkpoint']['sequence']}",
        "next:",
        f"  streamomd inspect {url}/best",
        f"  streamomd predict {url}/best {data} -o predictions/",
        f"  streamomd resume {url} --epochs {result['epochs'] + 1}",
    ]
    return "\n".join(lines)


def _edges(result: Mapping[str, Any]) -> list[str]:
    """A line for each parameter whose best value is at an end of those tried."""
    return [
        f"the best {edge['key']}, {edge['value']}, is the {edge['end']} of those tried: try "
        f"{'larger' if edge['end'] == 'largest' else 'smaller'} ones, or pass --extend"
        for edge in result["edges"]
    ]


def _saved_to(name: str) -> str:
    """The folder of a learner below the sweep's URL."""
    folder, _, number = name.rpartition("/")
    return f"{folder}/learners/{number}".removeprefix("/")


def _outcome(one: Mapping[str, Any]) -> str:
    return "diverged" if one["diverged"] else "dropped" if one["dropped"] else ""


def _number(figure: float | None) -> str:
    return "nan" if figure is None else f"{figure:.6f}"


@main.command(cls=JobCommand, epilog=CODES)
@what
@restart
@data_options
@checkpoint_options
@set_option
@cluster_option
@click.option(
    "--by", type=Choice(["hour", "day", "week"]), default="day", show_default=True,
    help="Length of the periods, in UTC; weeks begin on Monday.",
)  # fmt: skip
@click.option(
    "--gap", metavar="TIME",
    help="Time before a period whose rows its model has not learned, in seconds or as 1d.  "
    "[data.delay]",
)  # fmt: skip
@output_option("FILE", "File to write a page with a plot to (.html).")
@click.option("--overwrite", is_flag=True, help="Overwrite an existing file.")
@log_option
@verbose_option
@guarded
def backtest(
    what: tuple[str, ...], by: str, gap: str | None, to: str | None, overwrite: bool, **given: Any
) -> tuple[Any, str]:
    """Train up to each day and evaluate on the next one, over all days, in one run.

    \b
      streamomd backtest job.toml --by day
      streamomd backtest job.toml --by day --gap 1d -o backtest.html
      streamomd backtest data/ --label y --time ts --by week --json
      streamomd backtest job.toml --by day --checkpoint runs/backtest

    The model of each period is the one trained on all rows before it, less the gap. The job names
    the column of the times (data.time). With --checkpoint the backtest is saved there: the same
    command again, or streamomd resume, continues one that was interrupted. The job's own checkpoint
    is neither read nor written.
    """
    with phase("starting"):
        from streamomd.analysis.report.sweep_pages import refuse_page, write_page
        from streamomd.runs.backtest import backtest

    if to:
        refuse_page(to, overwrite=overwrite)
    job, given = job_and_shards(what, given)
    given = python_arguments(given)
    if options := given.pop("checkpoint_storage_options", None):
        given["sets"] = {"checkpoint.storage_options": options, **given["sets"]}
    result = backtest(job, by=by, gap=gap, **given)
    if to:
        write_page(result, to, overwrite=overwrite)
    return result, formatting.format_backtest(result)
