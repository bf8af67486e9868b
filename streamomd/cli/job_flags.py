"""Options of a job on the command line, made from its specification, and their completion.

click calls these functions when a shell asks; see docs/installation.md for how to switch it on.
No remote store is read.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click
from click.shell_completion import CompletionItem

from streamomd.cli.command_group import exit_on_error
from streamomd.cli.list_tables import format_guide
from streamomd.core.startup import no_garbage_collection
from streamomd.core.urls import protocol
from streamomd.core.wording import nearest

COLUMN_KEYS = (
    "data.label", "data.weight", "data.numeric", "data.hashed", "data.vectors", "data.text",
    "data.dates", "data.ignore",
)  # fmt: skip
"""Keys whose values are columns: one, or a list."""
ONE_COLUMN = ("data.label", "data.weight")
MOST_FILES = 1000  # of a directory, looked at for the first shard
Items = list[CompletionItem]


def complete_set(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """For ``--set``: a key and "=", then a value."""
    name, equals, value = incomplete.partition("=")
    if equals:
        return _items(f"{name}={word}" for word in _values(ctx, name, value))
    return _items(f"{key}=" for key in _keys(ctx) if key.startswith(incomplete))


def complete_grid(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """For ``--grid``: rule, loss or a parameter, then values between commas."""
    name, equals, value = incomplete.partition("=")
    if not equals:
        names = ["rule", "loss", *_parameters(ctx)]
        return _items(f"{one}=" for one in names if one.startswith(incomplete))
    before, comma, last = value.rpartition(",")
    return _items(f"{name}={before}{comma}{word}" for word in _values(ctx, name, last))


def complete_shards(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """For shards and job files: names of files. bash passes ``--set KEY=VALUE`` as three words, of
    which the last comes here."""
    sets = [text for name in ("sets", "texts") for text in ctx.params.get(name) or ()]
    if sets and "=" not in sets[-1]:
        return _items(_values(ctx, sets[-1], incomplete))
    return [CompletionItem(incomplete, type="file")]


def complete_url(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """For a checkpoint: directories."""
    return [CompletionItem(incomplete, type="dir")]


def completer(key: str, words: Sequence[str]) -> Any:
    """The function for a flag: columns of the given shards, rules, losses, or its few words."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        if key in COLUMN_KEYS and key not in ONE_COLUMN:
            before, comma, last = incomplete.rpartition(",")
            return _items(f"{before}{comma}{word}" for word in _values(ctx, key, last))
        known = words or _values(ctx, key, incomplete)
        return _items(word for word in known if word.startswith(incomplete))

    return complete


def _items(words: Iterable[str]) -> Items:
    return [CompletionItem(word) for word in words]


def _keys(ctx: click.Context) -> list[str]:
    from streamomd.config.flags import fields_of
    from streamomd.config.spec import Spec

    keys = [f"{table}.{name}" for table in Spec.model_fields for name in fields_of(table)]
    return [*keys, *(f"model.params.{name}" for name in _parameters(ctx))]


def _parameters(ctx: click.Context) -> list[str]:
    """Parameters of the rule that is given, else of all rules."""
    from streamomd.rules import all_rules

    rules = all_rules()
    given = ctx.params.get("rule")
    chosen = [rules[given]] if given in rules else list(rules.values())
    return list(dict.fromkeys(name for rule in chosen for name in rule.parse_params({})))


def _values(ctx: click.Context, name: str, start: str) -> list[str]:
    """Values of a key, by its dotted or short name, that start so."""
    from streamomd.config.flags import dotted, fields_of

    key = dotted(name)
    table, _, field_name = key.partition(".")
    if key == "model.rule":
        from streamomd.rules import all_rules

        known = [*all_rules()]
    elif key == "model.loss":
        from streamomd.losses import all_losses

        known = [*all_losses()]
    elif key in COLUMN_KEYS:
        known = _columns(ctx)
    else:
        field = fields_of(table).get(field_name)
        known = _words(field.annotation) if field else []
    return [word for word in known if word.startswith(start)]


def _words(annotation: Any) -> list[str]:
    if annotation is bool:
        return ["true", "false"]
    if get_origin(annotation) is Literal:
        return [str(word) for word in get_args(annotation)]
    return [word for one in get_args(annotation) for word in _words(one)]


def _columns(ctx: click.Context) -> list[str]:
    """Columns of the first local shard among the arguments; none if it cannot be read."""
    # An option whose value is completed has none yet: click then leaves the arguments unparsed.
    given = [str(text) for text in ctx.params.get("what") or ctx.args]
    try:
        paths = [path for text in given[:1] for path in _shards_of(text)]
        return _schema_names(paths[0]) if paths else []
    except Exception:  # a shell shows no errors: it offers nothing
        return []


def _shards_of(text: str) -> list[Path]:
    if text.endswith(".toml"):
        import tomllib

        named = tomllib.loads(Path(text).read_text("utf-8"))["data"]["shards"]
        text = named if isinstance(named, str) else named[0]
    if protocol(text):
        return []
    path = Path(text)
    if path.is_file():
        return [path]
    if not path.is_dir():
        return sorted(Path().glob(text))[:1] if not path.is_absolute() else []
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        for name in sorted(files[:MOST_FILES]):
            if not name.startswith((".", "_")):
                return [Path(folder, name)]
    return []


def _schema_names(path: Path) -> list[str]:
    from streamomd.sources.find import find

    return [name for shard in find(str(path)) for name in shard.schema.names]


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
    from streamomd.sources.text.shuffle_split import parse_shares

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
