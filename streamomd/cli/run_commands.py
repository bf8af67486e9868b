"""Commands that train: train, resume, update, follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import click

from streamomd.cli import formatting
from streamomd.cli.command_group import CODES, guarded, main
from streamomd.cli.job_flags import LIST, JobCommand, complete_shards, number_or_text
from streamomd.cli.options import (
    checkpoint_options,
    cluster_option,
    data_options,
    import_runs,
    job_and_shards,
    joined,
    local_processes,
    log_option,
    metrics_options,
    processes_option,
    python_arguments,
    run_cluster_options,
    run_options,
    set_option,
    set_scheduler,
    url,
    verbose_option,
)
from streamomd.cli.sweep_command import resume_sweep_command
from streamomd.core.errors import SweepError
from streamomd.core.profiling import Profile, profiled
from streamomd.core.urls import typed
from streamomd.core.wording import counted

track_option = click.option(
    "--track",
    multiple=True,
    type=LIST,
    metavar="TRACKER",
    help="Experiment tracker to log metrics to: mlflow:URI or tensorboard:DIR. May be repeated.",
)
profile_option = click.option("--profile", is_flag=True, help="Print a CPU profile (ns per row).")
quiet_option = click.option(
    "--quiet", is_flag=True, help="Print no progress and no notes, only the result."
)


@main.command(cls=JobCommand, epilog=CODES)
@run_options
@cluster_option
@processes_option
@log_option
@metrics_options
@track_option
@profile_option
@quiet_option
@verbose_option
@guarded
def train(
    what: tuple[str, ...],
    track: tuple[list[str], ...],
    profile: bool,
    processes: int | None,
    **given: Any,
) -> tuple[Any, str]:
    """Train a model on data files (shards); each row is predicted before it is learned.

    \b
      streamomd train pipelines/quickstart.toml
      streamomd train data/*.parquet --label y --rule nag --eta 0.5
      streamomd train s3://bucket/rows/ --label y --checkpoint s3://bucket/run --epochs 3
      streamomd train data/ --label y --rule adagrad --start weights.parquet
      streamomd train data/ --label y --track tensorboard:logs/bank
      streamomd train data/ --label y --checkpoint none --profile
      streamomd train data/ --label y --processes 4
    """
    job, given = job_and_shards(what, local_processes(given, processes))
    if processes is not None:
        given["mode"] = given["mode"] or "averaged"
    run_functions = import_runs()
    from streamomd.integrations.trackers import tracker

    callbacks = [tracker(target) for target in joined(track)]
    with profiled() if profile else nullcontext() as measured:
        model = run_functions.train(job, callbacks=callbacks, **python_arguments(given))
    return _trained(model, measured)


@main.command(epilog=CODES)
@click.argument("folder", default=".")
@verbose_option
@guarded
def demo(folder: str, **given: Any) -> tuple[Any, str]:
    """Write the example data set and its jobs into a folder, and train on it.

    \b
      streamomd demo
      streamomd demo example/

    FOLDER/pipelines gets 45,211 rows of bank marketing in four Parquet shards, and two job files;
    the run is saved to FOLDER/runs/quickstart. The commands of the README then run in FOLDER.
    """
    run_functions = import_runs()
    from streamomd.core.installed import write_example

    job = write_example(folder)
    given = python_arguments(given)
    given["sets"] = {
        "data.shards": str(job.parent / "data" / "bank"),
        "checkpoint.url": str(job.parents[1] / "runs" / "quickstart"),
    }
    return _trained(run_functions.train(str(job), **given), None)


@main.command(epilog=CODES)
@url
@click.option(
    "--epochs", type=number_or_text, metavar="N",
    help="Number of passes over the rows, more than before.",
)  # fmt: skip
@click.option(
    "--on-bad-row", metavar="skip",
    help="What to do with a bad row from here on; only for a run that diverged.",
)  # fmt: skip
@click.option(
    "--accept-new-shards", is_flag=True, help="Also learn shards that were added after the last."
)
@run_cluster_options
@processes_option
@click.option(
    "--cache",
    metavar="DIR",
    help="Local folder for decoded rows; never taken from the checkpoint.  [none]",
)
@data_options
@checkpoint_options
@set_option
@log_option
@metrics_options
@track_option
@profile_option
@verbose_option
@guarded
def resume(
    url: str,
    epochs: Any,
    on_bad_row: str | None,
    scheduler: str | None,
    cache: str | None,
    track: tuple[list[str], ...],
    profile: bool,
    processes: int | None,
    **given: Any,
) -> tuple[Any, str]:
    """Continue a run from its last commit; a finished run prints its result again.

    \b
      streamomd resume runs/bank
      streamomd resume runs/bank --epochs 5
      streamomd resume s3://bucket/run --scheduler tcp://10.0.0.5:8786

    A sweep resumes all its learners, and a backtest its periods. A checkpoint does not choose a
    cluster, cache, tracker or log. Without --scheduler, exact mode runs in this process, averaged
    mode on a cluster of this machine's cores, sharded mode in this process if the state fits in
    memory. The URLs of the shards come from the checkpoint: each is printed before it is opened,
    and refused unless it starts with one of STREAMOMD_ALLOWED_URLS, if that is set.
    """
    import_runs()
    from streamomd.integrations.trackers import tracker
    from streamomd.runs.resume import resume as resume_run

    given = python_arguments(local_processes(given, processes))
    given["sets"] |= {"train.epochs": epochs} if epochs is not None else {}
    given["sets"] |= {"data.on_bad_row": on_bad_row} if on_bad_row else {}
    given["sets"] = set_scheduler(given["sets"], scheduler)
    given["sets"] |= {"data.cache": cache} if cache is not None else {}
    try:
        callbacks = [tracker(target) for target in joined(track)]
        with profiled() if profile else nullcontext() as measured:
            model = resume_run(url, callbacks=callbacks, **given)
    except SweepError:
        return resume_sweep_command(url, **given)
    return _trained(model, measured)


def _trained(model: Any, profile: Profile | None) -> tuple[Any, str]:
    """The result of a run, with its profile if one was measured."""
    result = model.result()
    if "backtest" in result:
        return result["backtest"], formatting.format_backtest(result["backtest"])
    from streamomd.analysis.report.verdict import printed_line
    from streamomd.training.model_figures import recency_note, saved_note, stream_note

    text = formatting.format_run(result, model.spec.data.shards)
    more = (
        printed_line(model, result), stream_note(model), recency_note(model), saved_note(model),
    )  # fmt: skip
    text = "\n".join(filter(None, (text, *more)))
    if profile is None:
        return result, text
    return {**result, "profile": profile.to_json()}, f"{text}\n\n{profile}"


CHOICES = (
    click.option(
        "--settle", metavar="TIME",
        help="Age that a file must have, so that none is read while it is written.  [30s]",
    ),
    click.option("--fail-on-alert", is_flag=True, help="End with exit code 7 at an alert."),
    click.option("--max-shards", type=int, metavar="N", help="Maximum number of shards to learn."),
    click.option(
        "--until", metavar="TIME",
        help="Leave files that were written after this time, ISO 8601, e.g. 2026-01-31T06:00Z.",
    ),
    click.option(
        "--ignore-rewritten", is_flag=True,
        help="Leave out learned shards that were rewritten, instead of refusing them.",
    ),
    click.option(
        "--moved", is_flag=True, help="Learned shards under new URLs were moved: rename them."
    ),
    click.option(
        "--accept-duplicates", is_flag=True,
        help="Learn shards again whose content was learned under another URL.",
    ),
    click.option("--retry-skipped", is_flag=True, help="Try shards again that were skipped."),
    click.option(
        "--appends-only", is_flag=True,
        help="Learn what was appended to a Delta table whose later commits also delete rows.",
    ),
)  # fmt: skip
"""Keys of the job's table [update], for one command."""


TIMES = (
    click.option("--every", metavar="TIME", help="Time between two listings.  [60s]"),
    click.option(
        "--idle-exit", metavar="TIME", help="End after this time without a new shard.  [never]"
    ),
    click.option(
        "--max-lag", metavar="TIME",
        help="Report a shard that is not learned this long after it landed.  [never]",
    ),
)  # fmt: skip
"""Keys of [update] of ``follow`` alone."""


def time_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """When to list, and when to end."""
    for option in reversed(TIMES):
        function = option(function)
    return function


DATA = (
    click.option(
        "--on-bad-row", metavar="skip",
        help="What to do with a bad row from here on; skip: count it.",
    ),
    click.option(
        "--rename", metavar="FILE=COLUMN,…",
        help="From here on, columns that files have under another name, such as amount_eur=amount.",
    ),
    click.option(
        "--as-files", is_flag=True, default=None,
        help="From here on, read files of a Delta or Iceberg table like any others.",
    ),
)  # fmt: skip
"""Keys of the job's table [data] that may change."""

REPORTING = ("log", "track", "metrics_port", "metrics_host")


def choice_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """What counts as new, and how it is read."""
    for option in reversed((*CHOICES, *DATA)):
        function = option(function)
    return function


@main.command(epilog=CODES)
@url
@click.argument("shards", nargs=-1, shell_complete=complete_shards)
@click.option("--dry-run", is_flag=True, help="Only print how many shards are new.")
@click.option(
    "--accept-rewritten", metavar="URL", multiple=True,
    help="Ignore this learned shard as it is rewritten now, from here on. May be repeated.",
)  # fmt: skip
@quiet_option
@choice_options
@run_cluster_options
@data_options
@checkpoint_options
@set_option
@log_option
@metrics_options
@track_option
@verbose_option
@guarded
def update(
    url: str, dry_run: bool, quiet: bool, shards: tuple[str, ...], **given: Any
) -> tuple[Any, str]:
    """Learn the shards that arrived since the last commit, each once, and commit.

    \b
      streamomd update runs/bank --dry-run
      streamomd update runs/day1 day2.csv
      streamomd update s3://bucket/run --settle 5m --max-shards 24

    The files, directories and globs of the job are listed again, with SHARDS, which are added to
    them. An interrupted update is finished before another looks for more. In exact mode the state
    is that of one run over the same shards in the same order, to the bit.
    """
    import_runs()
    from streamomd.runs.resume import run_update

    options, choice = split_choice(python_arguments(given), quiet=quiet)
    more = {"accept_rewritten": choice.pop("accept_rewritten", ()), "shards": shards}
    model, figures = run_update(url, choice, dry_run=dry_run, quiet=quiet, **more, **options)
    result = {**model.result(), **figures}
    return result, format_update(result, model.spec.data.shards, dry_run=dry_run)


@main.command(epilog=CODES)
@url
@time_options
@choice_options
@run_cluster_options
@data_options
@checkpoint_options
@set_option
@log_option
@metrics_options
@track_option
@verbose_option
@guarded
def follow(url: str, **given: Any) -> tuple[Any, str]:
    """Update a run again and again: learn shards as they arrive, each once, and commit.

    \b
      streamomd follow runs/bank
      streamomd follow s3://bucket/run --every 5m --max-lag 1h --log follow.jsonl
      streamomd follow runs/bank --idle-exit 10m

    Local directories are watched where watchfiles is installed (pip install 'streamomd[follow]'):
    new files wake it, and renamed ones need not settle. A store that does not answer is tried
    again. SIGTERM and SIGINT commit and end with 143 and 130.
    """
    import_runs()
    from streamomd.runs.follow import run_follow

    options, choice = split_choice(python_arguments(given))
    model, figures = run_follow(url, choice, **options)
    result = {**model.result(), **figures}
    return result, format_update(result, model.spec.data.shards, dry_run=False)


def split_choice(
    given: Mapping[str, Any], *, quiet: bool = False
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of ``run_update`` among those of a command, and the keys of [update]."""
    from streamomd.core.http_servers import MetricsAddress
    from streamomd.integrations.trackers import tracker
    from streamomd.runs.reporting import Reporting

    log, track, port, host = (given[name] for name in REPORTING)
    trackers = [tracker(target) for target in joined(track)]
    names = ("storage_options", "checkpoint_storage_options")
    keys = ("on_bad_row", "rename", "as_files")
    changed = {f"data.{key}": given[key] for key in keys if given[key]}
    options = {
        "options": tuple(given[name] for name in names),
        "sets": set_scheduler({**given["sets"], **changed}, given["scheduler"]),
        "client": given["client"],
        "reporting": Reporting(log, quiet, trackers, MetricsAddress.of(port, host)),
    }
    named = (*names, *keys, *REPORTING, "sets", "scheduler", "client")
    choice = {key: value for key, value in given.items() if key not in named}
    return options, {
        name: value for name, value in choice.items() if value is not None and value is not False
    }


def format_update(result: Mapping[str, Any], shards: Any, *, dry_run: bool) -> str:
    """What was learned, and the run's figures. What was skipped was printed before."""
    count, rows = counted(result["new_shards"], "new shard"), counted(result["new_rows"], "row")
    lines = [f"{count} ({rows}){', not learned' if dry_run else ''}"]
    if dry_run:
        url = typed(result["checkpoint"]["url"])
        return "\n".join([*lines, *([f"next: streamomd update {url}"] if rows else [])])
    if result["update"]:
        lines[0] += f": {formatting.format_short(result['update'])}"
    if not result["new_shards"]:
        place = f"{typed(result['checkpoint']['url'])}, commit {result['checkpoint']['sequence']}"
        return f"nothing new: {place}, {counted(result['rows'], 'row')}"
    return "\n".join([*lines, "all rows: " + formatting.format_run(result, shards)])
