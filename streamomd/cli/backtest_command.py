"""The command that trains up to each period and evaluates on the next one: backtest."""

from __future__ import annotations

from typing import Any

import click

from streamomd.cli import formatting
from streamomd.cli.choice import Choice
from streamomd.cli.job_flags import JobCommand
from streamomd.cli.options import (
    CODES,
    checkpoint_options,
    cluster_option,
    data_options,
    guarded,
    job_and_shards,
    log_option,
    main,
    output_option,
    python_arguments,
    restart,
    set_option,
    verbose_option,
    what,
)
from streamomd.core.phases import phase


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
        from streamomd.analysis.report.backtest_page import refuse_page, write_page
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
