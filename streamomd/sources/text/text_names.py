"""The text files that sources name, and the command that converts them."""

from __future__ import annotations

import glob
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from streamomd.config.values import join_list
from streamomd.core.urls import absolute, local_name, protocol, typed
from streamomd.sources.tables import ending, text_format

MOST_NAMES = 3
"""Files of a command in a message."""
_FLAGS = {
    "types": "--type", "null_values": "--null", "header": "--no-header", "quotes": "--no-quotes",
}  # fmt: skip
"""Flags of ``convert`` whose names are not those of its options."""


def text_files(text: str) -> list[str]:
    """The local text files that a source names: a file, a glob, or a directory of nothing else."""
    if protocol(text) and not text.startswith("file://"):
        return []
    path = local_name(absolute(text))
    if os.path.isfile(path):
        names = [path]
    elif os.path.isdir(path):
        names = _text_in(path)
    else:
        names = sorted(glob.glob(path)) if text_format(path) else []
    return names if names and all(map(text_format, names)) else []


def _text_in(folder: str) -> list[str]:
    """The text files of a folder that has no other files. A million shards are not looked at."""
    names = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith((".", "_")):
                continue
            if not text_format(entry.name):
                return []
            names.append(entry.path)
    return sorted(names)


def command(
    texts: Sequence[str], files: Sequence[Sequence[str]], options: Mapping[str, Any]
) -> str:
    """The command that converts the text among the sources, to paste into a shell."""
    words = ["streamomd convert"]
    for text, some in zip(texts, files, strict=True):
        words += _pasted(text, some) if some else []
    words += [f"-o shards/{''.join(_flags(options))}"]
    return f"`{' '.join(words)}`"


def _pasted(text: str, files: Sequence[str]) -> list[str]:
    """Names of files for a shell; patterns where there are many."""
    if len(files) <= MOST_NAMES:
        return [typed(file) for file in files]
    folders = dict.fromkeys((os.path.dirname(one), ending(one)) for one in files)
    return [f"{typed(folder)}/*{end}" for folder, end in folders]


def _flags(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        flag = _FLAGS.get(name, f"--{name.replace('_', '-')}")
        yield f" {flag}" if isinstance(value, bool) else f" {flag} {shlex.quote(_worded(value))}"


def _worded(value: str | Sequence[str] | Mapping[str, str]) -> str:
    if isinstance(value, Mapping):
        return join_list(f"{column}={kind}" for column, kind in value.items())
    return value if isinstance(value, str) else join_list(value)
