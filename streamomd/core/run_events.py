"""Events of a run, such as a commit or a lost worker, and phases before its first row.

One stream for messages on stderr, the log of JSON lines and exported metrics. Figures that change
with every batch are not events: watchers read them (``training.progress``).

A line of the log: {"time": 1767225600.1, "level": "info", "event": "commit", "run": "runs/bank", …}
Off a terminal a phase is reported once it has lasted for five seconds.
"""

from __future__ import annotations

import io
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO, TypeVar

from streamomd.core.errors import UsageError
from streamomd.core.urls import harmless, scrub, without_credentials
from streamomd.core.wording import similar_path

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
_Value = TypeVar("_Value")
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
def having(variable: ContextVar[_Value], value: _Value) -> Iterator[None]:
    """A variable of this context has a value while inside."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def receiving(receiver: Receiver) -> AbstractContextManager[None]:
    """Send the events of this context to ``receiver`` too while inside, to the innermost first.

    A thread has its creator's receivers if it runs in a copy of its context.
    """
    return having(_RECEIVERS, (receiver, *_RECEIVERS.get()))


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


def without_events(*names: str) -> AbstractContextManager[None]:
    """Events of these names are dropped while inside."""
    return having(_MUTED, _MUTED.get() | {*names})


def one_run() -> AbstractContextManager[None]:
    """``name_run`` inside names the run until the end of this context."""
    return having(_RUN, "")


def name_run(url: str) -> None:
    """Events of this context are of the run at ``url`` from here on. url: without secrets."""
    _RUN.set("" if url == "none" else url)


def current_run() -> str:
    """The URL that names the run of this context, or ""."""
    return _RUN.get()


def json_format() -> AbstractContextManager[None]:
    """Messages on stderr are JSON lines while inside: what prints text asks ``is_json``."""
    return having(_JSON, True)


def is_json() -> bool:
    """Whether messages on stderr are JSON lines."""
    return _JSON.get()


PATIENCE = 5.0
"""Seconds after which a phase is reported off a terminal."""
CLEAR = "\r\x1b[K"
_SHOWN = ContextVar("phases_shown", default=False)
_LINE = [""]
"""What the terminal's last line shows now; a message has to replace it."""


def showing_phases(shown: bool = True) -> AbstractContextManager[None]:
    """Phases are shown while inside: by a command, not by a library."""
    return having(_SHOWN, shown)


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


def json_line(event: Event) -> str:
    """An event as one line; a number that is not finite is null.

    >>> json_line(Event("lag", "warning", fields={"lag": math.inf})).partition(", ")[2]
    '"level": "warning", "event": "lag", "run": null, "lag": null}'
    """
    head = {"time": time.time(), "level": event.level, "event": event.name, "run": event.run}
    line = {**head, "run": event.run or None, **event.fields}
    if event.text:
        line["message"] = harmless(event.text)
    return json.dumps(_finite(line), default=str)


def _finite(value: Any) -> Any:
    """The value with None for numbers that JSON has no word for."""
    if isinstance(value, Mapping):
        return {str(key): _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class JsonLog:
    """A receiver that appends events to a file, without the messages that have no fields.

    A file that cannot be written is left as it is: the run continues, and ``problem`` says why.
    """

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("a", encoding="utf-8")  # noqa: SIM115  open as long as the run
        self.problem = ""

    def receive(self, event: Event) -> None:
        """Append a line."""
        skipped = event.level == "debug" or event.name == "message"
        if skipped or self._file.closed or self.problem:
            return
        try:
            self._file.write(f"{json_line(event)}\n")
            self._file.flush()
        except OSError as error:
            self.problem = error.strerror or str(error)

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):  # what was not written already failed once
            self._file.close()


class JsonStderr(io.TextIOBase):
    """Stderr on which every line is a JSON object: text of other libraries becomes the message of
    an event ``output``. It replaces ``sys.stderr``."""

    encoding = "utf-8"

    def __init__(self, out: TextIO) -> None:
        super().__init__()
        self._out, self._rest = out, ""

    def receive(self, event: Event) -> None:
        """Write an event. With the pipe or stderr closed the run continues without output."""
        if event.level != "debug":
            with suppress(OSError, ValueError):
                self._out.write(f"{json_line(event)}\n")
                self._out.flush()

    def write(self, text: str) -> int:
        """Called by print, warnings and logging."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            if line.strip():
                self.receive(Event("output", "warning", text=scrub(line)))
        return len(text)

    def finish(self) -> None:
        """Write an incomplete last line."""
        if self._rest:
            self.write("\n")

    def writable(self) -> bool:
        """Called by libraries."""
        return True

    def fileno(self) -> int:
        """The descriptor of stderr itself."""
        return self._out.fileno()


def check_log(path: str | None) -> None:
    """Raises UsageError for a log that cannot be written, before anything is done."""
    try:
        if path:
            Path(path).open("a").close()
    except OSError as error:
        raise UsageError(
            f"log {path!r} cannot be written: {error.strerror}{similar_path(str(path))}"
        ) from None
