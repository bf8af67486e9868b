"""Arguments and options that commands share, and what they read from them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from streamomd.cli.job_flags import complete_set, complete_shards, complete_url
from streamomd.core.errors import InputNotFoundError, UsageError
from streamomd.core.run_events import phase
from streamomd.core.startup import (
    freeze_objects,
    no_garbage_collection,
    start_numba,
    start_pyarrow_without_pandas,
)
from streamomd.core.urls import protocol, scrub, shown, typed


def _options_file(flag: str, of: str) -> Callable[..., Any]:
    text = f"TOML or JSON file of storage options for the {of}."
    return click.option(flag, metavar="FILE", help=text)


data_options = _options_file("--storage-options", "shards")
checkpoint_options = _options_file("--checkpoint-storage-options", "checkpoint")
set_option = click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a key of the job file, e.g. train.prefetch=64MiB (resume: one that may change). "
    "May be repeated.",
    shell_complete=complete_set,
)
cache_option = click.option(
    "--cache", metavar="DIR", help="Local folder of decoded rows that train --cache wrote."
)
log_option = click.option(
    "--log", metavar="FILE", help="File to append progress to, as lines of JSON."
)


def _cluster_factory(_: click.Context, __: click.Parameter, name: str | None) -> Any:
    from streamomd.config.cluster_choice import ClusterFactory

    if name is None:
        return None
    try:
        return ClusterFactory(name)
    except UsageError as error:
        raise click.UsageError(str(error)) from None


cluster_option = click.option(
    "--cluster", "client", metavar="MODULE:FACTORY", callback=_cluster_factory,
    help="Function that returns a Dask cluster or client, which is closed at the end; it is "
    "imported and called.",
)  # fmt: skip
"""It is the argument ``client`` of a command, as in Python."""
scheduler_option = click.option(
    "--scheduler", metavar="ADDRESS",
    help="Address of the Dask scheduler, tcp://… or tls://…, or its file (.json).  [scheduler-"
    "address of Dask's configuration, DASK_SCHEDULER_ADDRESS]",
)  # fmt: skip


def job_cluster_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options of commands that ask a cluster: for its scheduler, or a client of it."""
    return scheduler_option(cluster_option(function))


def run_cluster_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options of commands that continue a run: its checkpoint chooses no cluster."""
    scheduler = click.option(
        "--scheduler", metavar="ADDRESS",
        help="Address or file (.json) of the Dask scheduler to use; never taken from the "
        "checkpoint.  [none]",
    )  # fmt: skip
    return scheduler(cluster_option(function))


processes_option = click.option(
    "--processes", type=click.IntRange(min=1), metavar="N",
    help="Learn in N processes of this machine, in averaged mode unless --mode is given; the "
    "result does not depend on N.",
)  # fmt: skip


def local_processes(given: dict[str, Any], processes: int | None) -> dict[str, Any]:
    """Flags with the cluster of the option --processes. Raises UsageError for another one."""
    if processes is None:
        return given
    if given["client"] is not None:
        raise UsageError(f"two clusters: --processes {processes} and {given['client']}")
    from streamomd.distributed.cluster import LocalProcesses

    return {**given, "client": LocalProcesses(str(processes))}


def set_scheduler(sets: dict[str, Any], scheduler: str | None) -> dict[str, Any]:
    """The changed keys of a run, with the option --scheduler."""
    return sets if scheduler is None else {**sets, "cluster.scheduler": scheduler}


def metrics_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Where a run serves its metrics."""
    port = click.option(
        "--metrics-port", type=click.IntRange(0, 65_535), metavar="PORT",
        help="Port for Prometheus metrics while the run lasts; 0: any free one, which is printed.  "
        "[none]",
    )  # fmt: skip
    host = click.option(
        "--metrics-host", default="", metavar="ADDRESS",
        help="Address that metrics are served on; they need no password.  [127.0.0.1]",
    )  # fmt: skip
    return port(host(function))


allow_non_finite = click.option(
    "--allow-non-finite", is_flag=True, help="Use the model even if it diverged."
)


def _verbose(ctx: click.Context, _: click.Parameter, given: bool) -> None:
    if given:
        from streamomd.training.progress import verbose_output

        ctx.with_resource(verbose_output())


verbose_option = click.option(
    "-v", "--verbose", is_flag=True, expose_value=False, callback=_verbose,
    help="Print progress from the first row, hashes, and all commands to run next.",
)  # fmt: skip


def table_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options for tables and text among the shards; a command passes them on as ``**table``."""
    for option in (
        *csv_options("that of the run"),
        click.option(
            "--as-files", is_flag=True,
            help="Read files of Delta and Iceberg tables as they are, deleted rows too.",
        ),
        click.option(
            "--as-of", default="", metavar="TIME",
            help="Time (ISO 8601) whose newest version of a table is read.",
        ),
        click.option(
            "--version", type=click.IntRange(min=0), metavar="N",
            help="Version of a Delta table, or snapshot of an Iceberg table.  [the newest; "
            "certify: that of the run]",
        ),
    ):  # fmt: skip
        function = option(function)
    return function


def csv_options(default: str) -> Iterator[Callable[..., Any]]:
    """Options of text files; they are in the argument ``csv`` of the command. default: of each."""
    for flag, name, metavar, text in (
        ("--null-values", "null_values", "A,B,…", "Texts of CSV files that mean a missing value"),
        ("--type", "types", "COL=TYPE,…", "Types of columns of text files"),
        ("--date-format", "date_format", "FORMAT", "Format of dates in CSV files"),
        ("--encoding", "encoding", "NAME", "Encoding of text files"),
        ("--decimal", "decimal", "CHAR", "Decimal mark of numbers in CSV files"),
        ("--delimiter", "delimiter", "CHAR", "Character between the values of CSV files"),
    ):
        help_text = f"{text}.  [{default}]"
        yield click.option(
            flag, name, metavar=metavar, help=help_text, expose_value=False, callback=_set_csv
        )


def _set_csv(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    own = ctx.params.setdefault("csv", {})
    if value is not None:
        own[param.name] = value


what = click.argument("what", nargs=-1, required=True, metavar="JOB.toml | SHARDS…",
                      shell_complete=complete_shards)  # fmt: skip
restart = click.option(
    "--restart", is_flag=True, help="Overwrite an existing checkpoint and start over."
)
url = click.argument("url", shell_complete=complete_url)
shards = click.argument("shards", nargs=-1, required=True, shell_complete=complete_shards)


def output_option(metavar: str, text: str, **more: Any) -> Callable[..., Any]:
    """Where a command writes; ``--to`` is the option's first name and stays."""
    return click.option("-o", "--output", "--to", "to", metavar=metavar, help=text, **more)


def run_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The arguments and options of commands that start a run, next to the flags of a job."""
    function = data_options(checkpoint_options(set_option(function)))
    return what(restart(function))


def job_and_shards(
    what: tuple[str, ...], given: dict[str, Any]
) -> tuple[str | None, dict[str, Any]]:
    """The job file among the arguments, if there is one, and the flags with the other arguments."""
    jobs = [name for name in what if name.endswith(".toml") and not os.path.isdir(name)]
    job = jobs[0] if len(jobs) == 1 else None
    _refuse_misplaced(what, jobs, given)
    return job, {**given, "shards": [name for name in what if name != job]}


def _refuse_misplaced(what: Sequence[str], jobs: Sequence[str], given: Mapping[str, Any]) -> None:
    """Raises UsageError for arguments that are no job and no shards, but for a known slip."""
    if len(jobs) > 1:
        raise UsageError(
            f"{len(jobs)} job files, {', '.join(jobs)}: a run has one: name one of them"
        )
    plain = [name for name in what if not protocol(name) and not set(name) & set("*?[")]
    missing = [name for name in plain if not os.path.lexists(name)]
    label = given.get("label")
    for name in missing:
        if name in given:
            value = what[what.index(name) + 1 :][:1]
            example = f"--{name} {value[0] if value else 'VALUE'}"
            raise UsageError(f"no file {name!r}: an option is written with dashes, {example}")
        if label and os.path.lexists(label):
            raise UsageError(
                f"no file {name!r}, and the label {label!r} is one: did you mean "
                f"{label} --label {name}?"
            )
    for name in what:
        if name.endswith((".yaml", ".yml", ".json")) and os.path.isfile(name):
            raise UsageError(f"{name!r} is not a data file; a job file is TOML and ends in .toml")


def joined(lists: tuple[list[str], ...]) -> list[str]:
    """The names of an option that may be repeated, each time a list a,b."""
    return [name for names in lists for name in names]


def read_options_file(path: str | None) -> dict[str, Any] | None:
    """Storage options from a JSON or TOML file: every user of a machine can read arguments."""
    if path is None:
        return None
    import tomllib

    from streamomd.training.progress import note

    try:
        text = Path(path).read_text("utf-8")
        if Path(path).stat().st_mode & 0o077:
            note(f"others may read the storage options in {shown(path)}: run chmod 600 on it")
        options = json.loads(text) if path.endswith(".json") else tomllib.loads(text)
    except FileNotFoundError:
        raise InputNotFoundError(f"no storage options file {path!r}") from None
    except (ValueError, OSError, RecursionError) as error:
        raise UsageError(f"storage options {path!r}: {scrub(str(error))}") from None
    if not isinstance(options, dict):
        raise UsageError(f"storage options {path!r}: expected a table of options")
    return options


def python_arguments(given: dict[str, Any]) -> dict[str, Any]:
    """Flags as the Python functions take them: files of options read, --set parsed."""
    from streamomd.config.build_job import parse_sets

    files = {key: read_options_file(given[key]) for key in given if key.endswith("storage_options")}
    sets = {"sets": parse_sets(given["sets"])} if "sets" in given else {}
    return {**given, **files, **sets}


def open_model(url: str, checkpoint_storage_options: str | None, cache: str | None = None) -> Any:
    """The newest model at a URL."""
    options = read_options_file(checkpoint_storage_options)
    runs = import_runs()
    with phase("loading the model"):
        model = runs.load(url, storage_options=options, cache=cache or "")
        untrained = model.is_untrained
    if untrained:
        from streamomd.training.progress import note

        note(
            f"{shown(url)} has saved no learned rows: it predicts the same for every row; "
            f"`streamomd resume {typed(url)}` continues the run"
        )
    return model


def import_runs() -> Any:
    """The module that trains and loads, imported without pandas and garbage collection."""
    with phase("starting"), no_garbage_collection():
        start_pyarrow_without_pandas()
        start_numba()
        from streamomd.runs import train as runs

        freeze_objects()
    return runs
