"""Lines that fit a terminal: long ones are broken between words."""

from __future__ import annotations

import os
import re
import textwrap
from typing import IO, Any

NARROWEST = 40
_PASTED = re.compile(r"\s*(next: )?streamomd [a-z]|\s+[\w.\"]+ = |\s*\$ ")
"""Lines that are copied as a whole: a command, or a key of a job file."""
_QUOTED = re.compile(r"`[^`]*`")
_JOINED = "\0"


def width_of(out: IO[Any] | None) -> int | None:
    """Columns of the terminal that a stream writes to; None if it is none."""
    try:
        if out is None or not out.isatty():
            return None
        columns = os.get_terminal_size(out.fileno()).columns
    except (OSError, ValueError):  # closed, or a terminal without a size
        return None
    return columns if columns >= NARROWEST else None


def wrap(text: str, width: int | None) -> str:
    """The text with lines of at most ``width`` columns, where spaces allow it.

    Commands in backquotes are not broken; neither are tables (two spaces between words), commands
    and keys on lines of their own.

    >>> print(wrap("a run resumes with `streamomd resume runs/bank` and 3 epochs", 40))
    a run resumes with
      `streamomd resume runs/bank` and 3
      epochs
    """
    if width is None:
        return text
    return "\n".join(_wrap_line(line, width) for line in text.split("\n"))


def _wrap_line(line: str, width: int) -> str:
    if len(line) <= width or "  " in line.lstrip() or _PASTED.match(line):
        return line
    indent = line[: len(line) - len(line.lstrip())] + "  "
    joined = _QUOTED.sub(lambda found: found[0].replace(" ", _JOINED), line)
    broken = textwrap.wrap(
        joined,
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(broken).replace(_JOINED, " ")
