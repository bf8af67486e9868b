"""What all commands share: the group, common options, and printing of results and errors."""

from __future__ import annotations

import functools
import itertools
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from streamomd.cli import formatting
from streamomd.cli.choice import Choice
from streamomd.cli.completion import complete_set, complete_shards, complete_url
from streamomd.core.errors import InputNotFoundError, StreamomdError, UsageError
from streamomd.core.machine_errors import is_of_the_machine, one_line
from streamomd.core.phases import phase, showing_phases
from streamomd.core.run_events import emit, is_json
from streamomd.core.startup import (
    freeze_objects,
    no_garbage_collection,
    start_numba,
    start_pyarrow_without_pandas,
)
from streamomd.core.terminal import width_of, wrap
from streamomd.core.urls import harmless, protocol, scrub, shown, typed, without_credentials

CODES = """\b
Exit codes: 0 success, 1 unexpected error or storage unreachable, 2 invalid usage or input,
3 data or job changed, 4 no usable commit, 5 another writer took over,
6 the model diverged or is not finite, 7 an alert, with --fail-on-alert,
130/143 stopped by a signal, after a commit."""

LIBRARIES = ("gcsfs", "s3fs", "fsspec", "aiobotocore")
"""They log a traceback of what they raise as well; an error is one line here."""
JSON_LINES = "streamomd.json_lines"
"""Key of a context: whether messages are JSON lines."""
MAX_SENTENCE = 200  # characters; no command's first sentence is longer
ELSEWHERE = {
    "fit": "train", "run": "train", "learn": "train", "start": "train", "continue": "resume",
    "test": "evaluate", "eval": "evaluate", "score": "predict", "infer": "predict",
    "tune": "sweep", "search": "sweep", "show": "inspect", "info": "inspect", "import": "convert",
    "validate": "plan", "check": "plan",
}  # fmt: skip
"""What commands are called in other programs."""


class Commands(click.Group):
    """A group that lists its commands with their whole first sentence, which click would cut, and
    knows what they are called elsewhere."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Called by click for the first argument."""
        own = ELSEWHERE.get(args[0])
        if own in self.commands and args[0] not in self.commands:
            raise click.UsageError(f"No such command {args[0]!r}. Did you mean {own!r}?", ctx)
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Called by click for everything before the command."""
        given = list(args)
        ctx.meta[JSON_LINES] = wants_json_lines(given)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            train = self.commands["train"]
            params = train.get_params(click.Context(train, parent=ctx))
            if error.option_name not in {name for one in params for name in one.opts}:
                raise
            raise click.UsageError(
                f"{error.option_name} is an option of a command; the command comes first: "
                f"{ctx.info_name} train {' '.join(given)}",
                ctx,
            ) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Called by click: an error in the arguments is a JSON line too, where those are wanted."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            error.message = without_credentials(error.message)  # type: ignore[misc]
            if not ctx.meta.get(JSON_LINES):
                raise
            with showing_messages("json"):
                _report_error(error.format_message(), error.exit_code)
            ctx.exit(error.exit_code)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Called by click for the end of the group's help."""
        rows = [
            (name, self.commands[name].get_short_help_str(limit=MAX_SENTENCE))
            for name in self.list_commands(ctx)
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(
    "streamomd",
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="streamomd")
def main() -> None:
    """Train linear models on more rows than fit in memory; a killed run resumes bit-identically.

    \b
      streamomd init rows.csv --label y             look at data, write a commented job.toml
      streamomd train job.toml                      learn from data files, watch the loss
      streamomd resume runs/bank                    continue a run from its last commit
      streamomd predict runs/bank new/ -o out/      write predictions
    """


def wants_json_lines(words: Sequence[str]) -> bool:
    """Whether arguments ask for messages as JSON lines; before they are parsed.

    >>> wants_json_lines(["train", "data", "--log-format", "json"])
    True
    """
    pairs = itertools.pairwise(words)
    return "--log-format=json" in words or ("--log-format", "json") in pairs


@contextmanager
def showing_messages(log_format: str) -> Iterator[None]:
    """Messages on stderr are text, or JSON lines, while inside; phases are shown as text."""
    if log_format == "text":
        with showing_phases():
            yield
        return
    from streamomd.training.progress import json_messages

    with json_messages():
        yield


def _report_error(text: str, code: int) -> None:
    if is_json():
        stopped = code in (130, 143)
        level = "warning" if stopped else "error"
        emit("stopped" if stopped else "error", text, level, exit_code=code)
    else:
        click.echo(wrap(f"streamomd: {harmless(text)}", width_of(sys.stderr)), err=True)


@contextmanager
def exit_on_error() -> Iterator[None]:
    """End the process for errors of streamomd and of the machine, and for Ctrl-C; others pass."""
    for name in LIBRARIES:
        logging.getLogger(name).addHandler(logging.NullHandler())
    try:
        yield
    except StreamomdError as error:
        _report_error(str(error), error.exit_code)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        _report_error("interrupted", 130)
        sys.exit(130)
    except Exception as error:
        known = is_of_the_machine(error)
        if not known and not is_json():
            raise
        _report_error(one_line(error) if known else traceback.format_exc(), 1)
        sys.exit(1)


log_format_option = click.option(
    "--log-format", type=Choice(["text", "json"]), default="text",
    help="Format of messages on stderr: text, or json, an object per line.  [text]",
)  # fmt: skip


def guarded(function: Callable[..., tuple[Any, str]]) -> Callable[..., None]:
    """A command that prints the text or JSON that it returns, or one line for an error."""

    @click.option("--json", "as_json", is_flag=True, help="Print the result as a JSON object.")
    @log_format_option
    @functools.wraps(function)
    def run(*, as_json: bool, log_format: str, **given: Any) -> None:
        with showing_messages(log_format), exit_on_error():
            result, text = function(**given)
            if as_json:
                _print(json.dumps(formatting.as_json(result), allow_nan=False))
            else:
                _print(wrap(text, width_of(sys.stdout)))

    return run


def _print(text: str) -> None:
    try:
        click.echo(text)
    except BrokenPipeError:  # the reader of a pipe has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
    from streamomd.config.cluster_factory import ClusterFactory

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
