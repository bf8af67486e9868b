"""Events of a run, such as a commit or a lost worker, and phases before its first row.

One stream for messages on stderr, the log of JSON lines and exported metrics. Figures that change
with every batch are not events: watchers read them (``training.progress``).

Off a terminal a phase is reported once it has lasted for five seconds.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TextIO

from streamomd.core.urls import without_credentials

LEVELS = ("debug", "info", "warning", "error")
"""Events of level debug are counted; they are in no log."""


@dataclass(frozen=True)
class Event:
    """name: its kind, in one word. run: URL of the checkpoint, without secrets; "" if there is
    none. text: the message for a person, "" if only the fields matter."""

    name: str
    level: str = "info"
    run: str = ""
    text: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)


Receiver = Callable[[Event], None]
_RECEIVERS: ContextVar[tuple[Receiver, ...]] = ContextVar("receivers", default=())
_MUTED: ContextVar[frozenset[str]] = ContextVar("muted", default=frozenset())
_RUN: ContextVar[str] = ContextVar("run", default="")
_JSON = ContextVar("json", default=False)


def emit(name: str, text: str = "", level: str = "info", /, **fields: Any) -> None:
    """Pass an event to every receiver, in this thread. A receiver must not raise."""
    receivers = _RECEIVERS.get()
    if not receivers or name in _MUTED.get():
        return
    event = Event(name, level, _RUN.get(), without_credentials(text), fields)
    for receiver in receivers:
        receiver(event)


def count_request(operation: str) -> None:
    """Report a request to a remote store, in this thread's context."""
    emit("store_request", "", "debug", operation=operation)


@contextmanager
def receiving(receiver: Receiver) -> Iterator[None]:
    """Send the events of this context to ``receiver`` too while inside, to the innermost first.

    A thread has its creator's receivers if it runs in a copy of its context.
    """
    token = _RECEIVERS.set((receiver, *_RECEIVERS.get()))
    try:
        yield
    finally:
        _RECEIVERS.reset(token)


def request_counter() -> Callable[[], None]:
    """A function that reports a read of a remote store to the receivers of this context. It may be
    called in any thread: those of Arrow have no context."""
    receivers = _RECEIVERS.get()

    def count() -> None:
        event = Event("store_request", "debug", fields={"operation": "read"})
        for receiver in receivers:
            receiver(event)

    return count


def same_receivers() -> dict[str, Any]:
    """Arguments of a ThreadPoolExecutor whose threads send events to this context's receivers."""
    return {"initializer": _RECEIVERS.set, "initargs": (_RECEIVERS.get(),)}


@contextmanager
def without_events(*names: str) -> Iterator[None]:
    """Events of these names are dropped while inside."""
    token = _MUTED.set(_MUTED.get() | {*names})
    try:
        yield
    finally:
        _MUTED.reset(token)


@contextmanager
def one_run() -> Iterator[None]:
    """``name_run`` inside names the run until the end of this context."""
    token = _RUN.set("")
    try:
        yield
    finally:
        _RUN.reset(token)


def name_run(url: str) -> None:
    """Events of this context are of the run at ``url`` from here on. url: without secrets."""
    _RUN.set("" if url == "none" else url)


def current_run() -> str:
    """The URL that names the run of this context, or ""."""
    return _RUN.get()


@contextmanager
def json_format() -> Iterator[None]:
    """Messages on stderr are JSON lines while inside: what prints text asks ``is_json``."""
    token = _JSON.set(True)
    try:
        yield
    finally:
        _JSON.reset(token)


def is_json() -> bool:
    """Whether messages on stderr are JSON lines."""
    return _JSON.get()


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
