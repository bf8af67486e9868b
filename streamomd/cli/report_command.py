"""Commands that show runs: report, watch, compare."""

from __future__ import annotations

import itertools
import signal
import sys
from typing import Any

import click

from streamomd.cli import formatting
from streamomd.cli.command_group import CODES, Choice, guarded, main
from streamomd.cli.job_flags import DURATION
from streamomd.cli.options import (
    cache_option,
    checkpoint_options,
    data_options,
    job_cluster_options,
    open_model,
    output_option,
    read_options_file,
    table_options,
    url,
)
from streamomd.core.errors import StoppedError
from streamomd.core.run_events import phase
from streamomd.core.urls import printable, typed
from streamomd.core.wording import width_of


@main.command(epilog=CODES)
@url
@click.argument("shards", nargs=-1)
@output_option(
    "FILE", "File or URL to write the report to.", default="report.html", show_default=True
)
@click.option("--overwrite", is_flag=True, help="Overwrite an existing file.")
@click.option(
    "--by", type=Choice(["day", "hour"]),
    help="Length of the periods in charts by the rows' own time (data.time).  [day]",
)  # fmt: skip
@click.option(
    "--certificate/--no-certificate",
    default=True,
    help="With SHARDS: whether to compute the certificate, which reads them many times.  [yes]",
)
@cache_option
@table_options
@data_options
@checkpoint_options
@guarded
def report(
    url: str,
    shards: tuple[str, ...],
    to: str,
    by: str | None,
    overwrite: bool,
    certificate: bool,
    cache: str | None,
    storage_options: str,
    checkpoint_storage_options: str,
    **table: Any,
) -> tuple[Any, str]:
    """Write one HTML page about a run, which opens offline, in light and dark mode.

    \b
      streamomd report runs/bank                          from the checkpoint alone
      streamomd report runs/bank data/ -o bank.html       with metrics on labelled shards

    It starts with a verdict: whether the model predicts better than a constant does. Warnings about
    the data, loss over rows and updates, confusion, calibration, features and the job follow. With
    SHARDS also their metrics, by day if there are dates, and the regret if they are the run's own.
    """
    with phase("starting"):
        from streamomd.analysis.report import write_report

    findings = write_report(
        open_model(url, checkpoint_storage_options, cache),
        to,
        list(shards),
        by=by or "",
        certificate=certificate,
        overwrite=overwrite,
        storage_options=read_options_file(storage_options),
        checkpoint_storage_options=read_options_file(checkpoint_storage_options),
        **table,
    )
    lines = [
        f"{typed(to)}: {findings['bytes'] / 1000:,.0f} kB",
        printable(findings["verdict"]["text"]),
    ]
    for warning in findings["look"]:
        lines += [
            f"check {printable(warning['name'])}: {warning['title']}",
            f"  {printable(warning['text'])}",
        ]
    return findings, "\n".join(lines)


@main.command(epilog=CODES)
@click.argument("url", metavar="URL | ID")
@click.option("--every", type=DURATION, default=2.0, show_default=True, metavar="TIME",
              help="Time between two reads of the checkpoint, in seconds or as 5m.")  # fmt: skip
@click.option("--once", is_flag=True, help="Print the current state once and exit.")
@click.option("--top", type=click.IntRange(min=0), default=10, show_default=True,
              help="Number of features to show; 0 reads no weights.")  # fmt: skip
@job_cluster_options
@click.option("--log", default="", metavar="FILE",
              help="The run's log (train --log), for figures between its commits.")  # fmt: skip
@checkpoint_options
@guarded
def watch(
    url: str,
    every: float,
    once: bool,
    top: int,
    scheduler: str | None,
    client: Any,
    log: str,
    checkpoint_storage_options: str,
) -> tuple[Any, str]:
    """Show the progress of a run from its checkpoint: rows, loss, speed, largest weights.

    \b
      streamomd watch runs/bank
      streamomd watch runs/bank --log bank.jsonl          live, before its first commit too
      streamomd watch omd-job-1a2b3c4d --scheduler tcp://10.0.0.5:8786

    It ends when the run is finished, or at Ctrl-C; the run continues. It writes nothing.
    """
    options = read_options_file(checkpoint_storage_options)
    try:
        if url.startswith("omd-job-"):
            return _watch_job(url, (client, scheduler), every, once, top, options), ""
        return _watch_url(url, every, once, top, options, log), ""
    except KeyboardInterrupt:
        raise StoppedError("stopped watching; the run continues", signal=signal.SIGINT) from None


@main.command(epilog=CODES)
@click.argument("runs", nargs=-1, required=True, metavar="RUN…")
@checkpoint_options
@guarded
def compare(runs: tuple[str, ...], checkpoint_storage_options: str) -> tuple[Any, str]:
    """Print a table of runs: metrics, time, and the job keys in which they differ.

    \b
      streamomd compare runs/a runs/b
      streamomd compare runs/sweep/learners/* --json

    Metrics are of the first epoch, whose rows were predicted before they were learned, and of
    hold-out rows. "same rows" says whether a run learned the rows of the first one: if not, their
    metrics are not comparable.
    """
    with phase("starting"):
        from streamomd.analysis.history import compare_runs, format_comparison

    options = read_options_file(checkpoint_storage_options)
    result = compare_runs(list(runs), checkpoint_storage_options=options)
    table, keys = format_comparison(result)
    lines = [formatting.format_table(table, width_of(sys.stdout))]
    others = [row[""] for row, run in zip(table, result["runs"], strict=True)
              if not run["comparable"]]  # fmt: skip
    if others:
        lines.append(f"not comparable with run 1, other rows were learned: {', '.join(others)}")
    lines += ["", formatting.format_table(keys)] if keys else ["no other key of the jobs differs"]
    return result, "\n".join(lines)


def _watch_url(url: str, every: float, once: bool, top: int, options: Any, log: str) -> Any:
    from streamomd.analysis.watch import View, read_view, show_views, views, with_log

    if once:
        view = read_view(View(url), options, top=top)
        seen = iter([with_log(view, log) if log else view])
    else:
        seen = views(url, options=options, every=every, top=top, log=log)
    last = show_views(seen)
    return last.figures() if last else {}


def _watch_job(
    name: str, cluster: tuple[Any, str | None], every: float, once: bool, top: int, options: Any
) -> Any:
    from streamomd.analysis.watch import job_views, show_views
    from streamomd.runs.connection import connect_needed

    with connect_needed(*cluster) as client:
        seen = job_views(client, name, options=options, every=every, top=top)
        last = show_views(itertools.islice(seen, 1) if once else seen)
    return last.figures() if last else {}
