"""Commands that show runs and their commits: report, watch, compare; list, verify, shards,
restore.
"""

from __future__ import annotations

import itertools
import signal
import sys
from collections.abc import Iterator, Mapping
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
from streamomd.core.urls import printable, shown, typed
from streamomd.core.wording import counted, first_lines, width_of


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


MOST_LINES = 20
"""Shards printed of a ledger: the first and the last ones."""
MOST_UNDONE = 8


@main.group()
def checkpoint() -> None:
    """List, verify or restore the commits of a checkpoint, or list its shards."""


@checkpoint.command("list", epilog=CODES)
@url
@checkpoint_options
@guarded
def list_commits(url: str, checkpoint_storage_options: str) -> tuple[Any, str]:
    """List every commit: sequence, rows, time, and whether it can be used."""
    return _commits(url, checkpoint_storage_options, deep=False)


@checkpoint.command("verify", epilog=CODES)
@url
@checkpoint_options
@guarded
def verify_commits(url: str, checkpoint_storage_options: str) -> tuple[Any, str]:
    """Read every byte of every commit, compare hashes, and look for NaN and infinities."""
    return _commits(url, checkpoint_storage_options, deep=True)


def _commits(url: str, checkpoint_storage_options: str, *, deep: bool) -> tuple[Any, str]:
    from streamomd.checkpoint import list_commits, list_temporary_files, open_store
    from streamomd.core.errors import CorruptionError, DivergedError
    from streamomd.core.finite import NOT_FINITE

    store = open_store(url, read_options_file(checkpoint_storage_options))
    found = list_commits(store, deep=deep)
    text, temporary = formatting.format_table(found), list_temporary_files(store) if deep else []
    if temporary:
        text += "\n" + formatting.format_temporary_files(temporary)
    problems = [one["problem"] for one in found if not one["ok"]]
    if deep and problems:
        diverged = all(problem.startswith(NOT_FINITE) for problem in problems)
        raise (DivergedError if diverged else CorruptionError)(text)
    return {"commits": found, **({"temporary": temporary} if deep else {})}, text


@checkpoint.command("shards", epilog=CODES)
@url
@checkpoint_options
@guarded
def list_shards(url: str, checkpoint_storage_options: str) -> tuple[Any, str]:
    """List the shards of a run in learned order, with the update that learned each.

    sequence is the first commit that lists the shard. Shards that were skipped because they cannot
    be read follow, with the reason.
    """
    from streamomd.checkpoint import list_ledger, open_store

    found = list_ledger(open_store(url, read_options_file(checkpoint_storage_options)))
    return found, "\n".join(_ledger_lines(found))


@checkpoint.command("restore", epilog=CODES)
@url
@click.option(
    "--at",
    type=int,
    required=True,
    metavar="N",
    help="Sequence of the commit; see checkpoint list.",
)
@checkpoint_options
@guarded
def restore_commit(url: str, at: int, checkpoint_storage_options: str) -> tuple[Any, str]:
    """Make commit N the newest again, with its ledger: undo what was learned since.

    \b
      streamomd checkpoint list runs/bank
      streamomd checkpoint restore runs/bank --at 12

    Another commit repeats it, so that resume, update and predict use it, and running writers stop.
    The later commits stay until retention deletes them. Shards that were learned since count as new
    again: remove or repair the bad ones before the next update.
    """
    from streamomd.checkpoint import open_store, restore_commit

    store = open_store(url, read_options_file(checkpoint_storage_options))
    restored = restore_commit(store, at)
    place = {"url": store.url, "sequence": restored.sequence}
    result = {**restored.to_json(), "checkpoint": place}
    del result["sequence"]
    return result, "\n".join(_restored_lines(result))


def _ledger_lines(ledger: Mapping[str, Any]) -> Iterator[str]:
    """Counts, and a table of the first and the last shards."""
    shards, skipped = ledger["shards"], ledger["skipped"]
    half = MOST_LINES // 2
    lines = [{**shard, "url": shown(shard["url"])} for shard in shards]
    table = formatting.format_table([*lines[:half], *lines[half:][-half:]]).splitlines()
    if len(lines) > MOST_LINES:
        table.insert(1 + half, f"… {len(lines) - MOST_LINES:,} more; --json lists all")
    yield from table
    if skipped:
        yield ""
        yield formatting.format_table(
            [{**shard, "url": shown(shard["url"])} for shard in skipped[:MOST_LINES]]
        )
        if len(skipped) > MOST_LINES:
            yield f"… {len(skipped) - MOST_LINES:,} more skipped; --json lists all"
    yield ""
    rows = sum(shard["rows"] or 0 for shard in shards)
    updates = len({shard["update"] for shard in shards} - {0})
    parts = [f"{counted(len(shards), 'shard')} ({counted(rows, 'row')})"]
    parts += [f"{counted(updates, 'update')} after the first run"] if updates else []
    parts += [f"{len(skipped):,} skipped"] if skipped else []
    yield ", ".join(parts)


def _restored_lines(result: Mapping[str, Any]) -> Iterator[str]:
    """What is the newest commit now, what it undid, and what to do next."""
    url, sequence = result["checkpoint"]["url"], result["checkpoint"]["sequence"]
    rows, updates, shards = (result[f"undone_{key}"] for key in ("rows", "updates", "shards"))
    of = f" of update {result['update']}" if result["update"] else ""
    yield (
        f"commit {sequence} of {shown(url)} repeats commit {result['at']}{of}, after "
        f"{counted(result['rows'], 'row')}"
    )
    if rows is None:
        yield "the newest commit could not be read; what it had learned since is undone"
    elif rows < 0:
        yield f"restored: {counted(-rows, 'row')} that an earlier restore had undone"
    else:
        which = f" of {_range(updates)}" if updates else ""
        yield f"undone: {counted(rows, 'row')}{which}, {counted(len(shards), 'shard')}"
        yield from (f"  {line}" for line in first_lines([*map(shown, shards)], MOST_UNDONE))
    if shards:
        yield "These shards count as new again: remove or repair bad ones, then"
        yield f"  streamomd update {typed(url)}"


def _range(updates: list[int]) -> str:
    first, last = updates[0], updates[-1]
    if not last:
        return "the first run"
    return f"update {first}" if first == last else f"updates {first or 1} to {last}"
