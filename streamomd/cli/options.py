"""What every command is made of: the group, options they share, results and errors printed."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from streamomd.cli import formatting
from streamomd.core.errors import StreamomdError
from streamomd.core.machine_errors import is_of_the_machine, one_line
from streamomd.core.startup import (
    freeze_objects,
    no_garbage_collection,
    start_pyarrow_without_pandas,
)
from streamomd.core.urls import harmless

CODES = """\b
Exit codes: 0 done, 1 unexpected or storage out of reach, 2 bad usage or bad input,
3 data or job changed, 4 no usable commit, 5 another writer took over,
6 the model diverged or is not finite,
130/143 stopped by a signal, after a commit."""

JOB_FLAGS = (
    ("--label", "Column to predict."),
    ("--weight", "Column of importance weights."),
    ("--numeric", "Columns a,b,c: one coordinate each."),
    ("--hashed", "Columns a,b,c: one coordinate a value, hashed."),
    ("--rule", "Learner; no name: a guide; see also: streamomd list rules.  [nag]"),
    ("--loss", "Loss; see: streamomd list losses.  [the rule's: logistic]"),
    ("--mode", "exact, averaged or sharded; see: streamomd list modes.  [exact]"),
    ("--dtype", "float64 or float32 slots.  [float64]"),
    ("--checkpoint", "URL to keep the run in, or none.  [runs/NAME-DATE-TIME]"),
    ("--on-bad-row", "error, or skip: leave it out and count it.  [error]"),
    ("--start", "Checkpoint whose state, or Parquet file whose weights, go on with these rows."),
    ("--cache", "Local folder that keeps decoded rows for later epochs and jobs."),
    ("--scheduler", "Address of a Dask scheduler, whose workers may decode."),
)
JOB_NUMBERS = (
    ("--eta", float, "Step size.  [the rule's]"),
    ("--epochs", int, "Times to read the rows.  [1]"),
    ("--bits", int, "2^BITS coordinates for hashed values.  [18]"),
    ("--max-bad-rows", int, "Stop above so many of them in an epoch.  [any number]"),
)
SENTENCE = 200  # letters, and more than any has
OPTIONS_FILE = "Storage options for the {}, a TOML or JSON file."


class Commands(click.Group):
    """A group that lists its commands with all of their first sentence: click cuts it off."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Called by click for the end of the group's help."""
        told = [
            (name, self.commands[name].get_short_help_str(limit=SENTENCE))
            for name in self.list_commands(ctx)
        ]
        with formatter.section("Commands"):
            formatter.write_dl(told)


@click.group(
    "streamomd",
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="streamomd")
def main() -> None:
    """Linear models on more rows than memory: exact, checkpointed, resumable to the bit.

    \b
      streamomd train data/ --label y               learn from shards, watch the loss
      streamomd resume runs/bank                    go on after a kill, to the same bits
      streamomd predict runs/bank new/ --to out/    write predictions
    """


def guarded(function: Callable[..., tuple[Any, str]]) -> Callable[..., None]:
    """A command that returns its result and text: printed, or an error in one line and its code."""

    @click.option("--json", "as_json", is_flag=True, help="Last line of stdout: one JSON object.")
    @functools.wraps(function)
    def run(*, as_json: bool, **given: Any) -> None:
        try:
            result, text = function(**given)
            _print(json.dumps(formatting.as_json(result), allow_nan=False) if as_json else text)
        except StreamomdError as error:
            click.echo(f"streamomd: {harmless(str(error))}", err=True)
            sys.exit(error.exit_code)
        except KeyboardInterrupt:
            click.echo("streamomd: interrupted", err=True)
            sys.exit(130)
        except Exception as error:
            if not is_of_the_machine(error):
                raise
            click.echo(f"streamomd: {harmless(one_line(error))}", err=True)
            sys.exit(1)

    return run


def _print(text: str) -> None:
    try:
        click.echo(text)
    except BrokenPipeError:  # the reader of a pipe has left: nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def job_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The flags that describe a job."""
    for flag, text in reversed(JOB_FLAGS):
        bare: dict[str, Any] = {"flag_value": "", "callback": _named} if flag == "--rule" else {}
        function = click.option(flag, help=text, metavar="TEXT", is_flag=False, **bare)(function)
    for flag, kind, text in reversed(JOB_NUMBERS):
        function = click.option(flag, type=kind, help=text)(function)
    return function


def _named(_: click.Context, __: click.Parameter, rule: str | None) -> str | None:
    if rule == "":
        raise click.UsageError(formatting.guide())
    return rule


def _options_file(flag: str, of: str) -> Callable[..., Any]:
    return click.option(flag, metavar="FILE", help=OPTIONS_FILE.format(of))


data_options = _options_file("--storage-options", "shards")
checkpoint_options = _options_file("--checkpoint-storage-options", "checkpoint")
set_option = click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Any job key.")
cache_option = click.option(
    "--cache", metavar="DIR", help="Local folder of decoded rows that train --cache filled."
)
log_option = click.option("--log", metavar="FILE", help="Append JSON lines of progress.")
allow_non_finite = click.option(
    "--allow-non-finite", is_flag=True, help="Use the model even if it diverged."
)
what = click.argument("what", nargs=-1, required=True, metavar="JOB.toml | SHARDS…")
restart = click.option("--restart", is_flag=True, help="Begin anew where a run is kept already.")
url = click.argument("url")
shards = click.argument("shards", nargs=-1, required=True)


def begin_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """All that a run may be begun with."""
    function = data_options(checkpoint_options(set_option(function)))
    return what(job_options(restart(function)))


def listed(text: str | None) -> list[str] | None:
    """Names between commas."""
    return [name.strip() for name in text.split(",") if name.strip()] if text else None


def described(what: tuple[str, ...], given: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """The job file that words name, if one does, and flags with the shards that the others name."""
    jobs = [name for name in what if name.endswith(".toml")]
    job = jobs[0] if len(jobs) == 1 else None
    given = {**given, "shards": [name for name in what if name != job]}
    for columns in ("numeric", "hashed"):
        given[columns] = listed(given[columns])
    return job, given


def options_in(path: str | None) -> dict[str, Any] | None:
    """Storage options of a file."""
    from streamomd.cli.storage_options import read_options

    return read_options(path)


def parsed(given: dict[str, Any]) -> dict[str, Any]:
    """Flags as the Python functions take them: option files read, --set parsed."""
    from streamomd.config.build_job import parse_sets

    files = {key: options_in(given[key]) for key in given if key.endswith("storage_options")}
    sets = {"sets": parse_sets(given["sets"])} if "sets" in given else {}
    return {**given, **files, **sets}


def loaded(url: str, checkpoint_storage_options: str | None, cache: str | None = None) -> Any:
    """The newest model at a URL."""
    options = options_in(checkpoint_storage_options)
    return runs().load(url, storage_options=options, cache=cache or "")


def runs() -> Any:
    """The module that learns and loads, imported without pandas and without garbage collection."""
    with no_garbage_collection():
        start_pyarrow_without_pandas()
        from streamomd.runs import train as runs

        freeze_objects()
    return runs
