"""Completion in a shell: rules, losses, keys of a job and their values, columns of local shards.

click calls these functions when a shell asks; see docs/installation.md for how to switch it on.
No remote store is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click
from click.shell_completion import CompletionItem

from streamomd.core.urls import protocol

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
