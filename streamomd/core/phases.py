"""Phases before the first row, such as compiling: a line on a terminal while one lasts.

Off a terminal a phase is reported once it has lasted for five seconds.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TextIO

PATIENCE = 5.0
"""Seconds after which a phase is reported off a terminal."""
CLEAR = "\r\x1b[K"
_SHOWN = ContextVar("phases_shown", default=False)
_LINE = [""]
"""What the terminal's last line shows now; a message has to replace it."""


@contextmanager
def showing_phases(shown: bool = True) -> Iterator[None]:
    """Phases are shown while inside: by a command, not by a library."""
    token = _SHOWN.set(shown)
    try:
        yield
    finally:
        _SHOWN.reset(token)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Show the name and "…" on stderr while inside."""
    out = sys.stderr
    if not _SHOWN.get() or out is None or out.closed:
        yield
    elif out.isatty() and os.environ.get("TERM") != "dumb":  # which cannot clear a line
        with _line(f"{name} …", out):
            yield
    else:
        timer = threading.Timer(PATIENCE, _write, (f"{name} …\n", out))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


@contextmanager
def _line(text: str, out: TextIO) -> Iterator[None]:
    before, _LINE[0] = _LINE[0], text
    _write(f"{CLEAR}{text}", out)
    try:
        yield
    finally:
        _LINE[0] = before
        _write(f"{CLEAR}{before}", out)


def around_line(text: str, out: TextIO) -> str:
    """A line of text as it is printed to ``out``: it takes the place of a phase that is shown,
    which follows it."""
    if not _LINE[0] or out is not sys.stderr:
        return f"{text}\n"
    return f"{CLEAR}{text}\n{_LINE[0]}"


def _write(text: str, out: TextIO) -> None:
    with suppress(OSError, ValueError):  # closed
        out.write(text)
        out.flush()
