"""The group of all commands, and how each prints its result or error."""

from __future__ import annotations

import functools
import itertools
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from streamomd.cli import formatting
from streamomd.core.errors import StreamomdError
from streamomd.core.machine_errors import is_of_the_machine, one_line
from streamomd.core.run_events import emit, is_json, showing_phases
from streamomd.core.urls import harmless, without_credentials
from streamomd.core.wording import nearest, width_of, wrap


class Choice(click.ParamType[str]):
    """One of a few words, or another name of one; an unknown word gets the nearest one."""

    name = "choice"

    def __init__(self, words: Sequence[str], others: dict[str, str] | None = None) -> None:
        self.words, self.others = tuple(words), others or {}

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Called by click for the help."""
        words = "|".join(self.words)
        return f"{{{words}}}" if param.param_type_name == "argument" else f"[{words}]"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Called by click."""
        word = self.others.get(value, value)
        if word not in self.words:
            found = nearest(value, [*self.words, *self.others])
            hint = f"; did you mean {found!r}?" if found else ""
            self.fail(f"{value!r} is not one of {', '.join(self.words)}{hint}")
        return word

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        """Called by click for the end of the message about a missing option."""
        return f"Choose from: {', '.join(self.words)}."

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[Any]:
        """Called by click."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(word) for word in self.words if word.startswith(incomplete)]


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
OPTIONS_ELSEWHERE = {
    "--lr": "--eta", "--step-size": "--eta", "--iterations": "--epochs", "--overwrite": "--restart",
}  # fmt: skip
"""What options are called in other programs."""


def _named_elsewhere(error: click.NoSuchOption) -> click.NoSuchOption:
    """The error with the command's own option, if other programs call it so."""
    own, ctx = OPTIONS_ELSEWHERE.get(error.option_name, ""), error.ctx
    if ctx is None or not any(own in param.opts for param in ctx.command.get_params(ctx)):
        return error
    text = f"No such option {error.option_name!r}. Did you mean {own!r}?"
    return click.NoSuchOption(error.option_name, text, ctx=ctx)


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
            if error.option_name not in {name for param in params for name in param.opts}:
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
            if isinstance(error, click.NoSuchOption):
                error = _named_elsewhere(error)
            error.message = without_credentials(error.message)  # type: ignore[misc]
            if not ctx.meta.get(JSON_LINES):
                raise error from None
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


def _report_error(text: str, exit_code: int, /, **fields: Any) -> None:
    if is_json():
        stopped = exit_code in (130, 143)
        level = "warning" if stopped else "error"
        emit("stopped" if stopped else "error", text, level, exit_code=exit_code, **fields)
    else:
        click.echo(wrap(f"streamomd: {harmless(text)}", width_of(sys.stderr)), err=True)


def _fields(error: StreamomdError) -> dict[str, Any]:
    """The error as data, without credentials of URLs."""
    found = error.message.fields()
    return {k: without_credentials(v) if isinstance(v, str) else v for k, v in found.items()}


@contextmanager
def exit_on_error() -> Iterator[None]:
    """End the process for errors of streamomd and of the machine, and for Ctrl-C; others pass."""
    for name in LIBRARIES:
        logging.getLogger(name).addHandler(logging.NullHandler())
    try:
        yield
    except StreamomdError as error:
        _report_error(str(error), error.exit_code, **_fields(error))
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
