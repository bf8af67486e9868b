"""Options of the command line: those of a job, made from its specification, and types of values."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import click

from streamomd.cli.command_group import exit_on_error
from streamomd.cli.completion import completer
from streamomd.cli.list_tables import format_guide
from streamomd.core.nearest import nearest
from streamomd.core.startup import no_garbage_collection

SECTIONS = {
    "data": "Data",
    "model": "Model",
    "train": "Training",
    "checkpoint": "Checkpoint",
    "cluster": "Cluster",
    "update": "Update",
}
"""Headings of the help, by table of the job file."""


class JobOption(click.Option):
    """An option that sets a key of a job."""

    section = ""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Called by click: the option under its own name; other names are in docs/job-file.md."""
        value = "" if self.is_flag else f" {self.make_metavar(ctx)}"
        return f"{self.opts[0]}{value}", str(self.help)


class JobCommand(click.Command):
    """A command with an option for every flag of a job; the help has a section for each table."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Called by click. The specification is imported only when such a command runs."""
        with exit_on_error():
            return [*job_options(), *super().get_params(ctx)]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Called by click for the options in the help."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                sections.setdefault(getattr(param, "section", "Options"), []).append(record)
        for name, records in sections.items():
            with formatter.section(name):
                formatter.write_dl(records)


@functools.cache  # click finds an option again by its identity
def job_options() -> list[JobOption]:
    """An option for every flag of the specification."""
    with no_garbage_collection():
        from streamomd.config.flags import all_flags

    return [_option(flag) for flag in all_flags().values() if flag.option]


def _option(flag: Any) -> JobOption:
    names = [f"--{name.replace('_', '-')}" for name in (flag.name, *flag.others)]
    without_value: dict[str, Any] = {}
    if flag.name == "rule":
        without_value = {"is_flag": False, "flag_value": "", "callback": _guide}
    if flag.switch:
        without_value = {"is_flag": True, "default": None}
    few = flag.metavar.split("|") if "|" in flag.metavar else []
    option = JobOption(
        [*names, flag.name],
        shell_complete=completer(flag.key, few),
        help=f"{flag.help}  [{flag.key}{flag.default}]",
        **({} if flag.switch else _valued(flag)),
        **without_value,
    )
    option.section = SECTIONS[flag.table]
    return option


def _valued(flag: Any) -> dict[str, Any]:
    return {"metavar": flag.metavar, "type": number_or_text if flag.number else str}


def number_or_text(text: str) -> int | float | str:
    """The number that a text is; other texts are left to the key, which may accept "64MiB".

    >>> number_or_text("8"), number_or_text("0.1"), number_or_text("64MiB")
    (8, 0.1, '64MiB')
    """
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _guide(_: click.Context, __: click.Parameter, rule: str | None) -> str | None:
    if rule == "":
        raise click.UsageError(format_guide())
    return rule


class Converted(click.ParamType[Any]):
    """A value that a function makes of a text. The function raises ValueError."""

    def __init__(self, name: str, function: Callable[[str], Any]) -> None:
        self.name, self._function = name, function

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Called by click; a default that is no text is returned."""
        try:
            return self._function(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(f"{value!r}: {error}")


def _duration(text: str) -> float:
    from streamomd.config.values import seconds

    value = float(seconds(text))
    if not value >= 0.1:
        raise ValueError("expected 0.1 seconds or more")
    return value


def _list(text: str) -> list[str]:
    from streamomd.config.values import split_list

    names: list[str] = split_list(text)
    return names


def _nulls(text: str) -> list[str]:
    """Returns the texts of a list; a text of blanks or commas alone is one that means missing."""
    return _list(text) or [text]


def _shares(text: str) -> dict[str, float]:
    from streamomd.sources.text.split import parse_shares

    return parse_shares(text)


def _comparator(text: str) -> str:
    """A word, a URL or a file; a slip in the word is no file."""
    if text != "best" and not os.path.exists(text) and nearest(text, ["best"]):
        raise ValueError("expected best or a file of weights; did you mean 'best'?")
    return text


DURATION = Converted("duration", _duration)
LIST = Converted("list", _list)
NULLS = Converted("list", _nulls)
SHARES = Converted("shares", _shares)
COMPARATOR = Converted("comparator", _comparator)
