"""Events as JSON lines: in the file of ``--log``, and on stderr with ``--log-format json``.

{"time": 1767225600.1, "level": "info", "event": "commit", "run": "runs/bank", "sequence": 7, …}
"""

from __future__ import annotations

import io
import json
import math
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from streamomd.core.errors import UsageError
from streamomd.core.run_events import Event
from streamomd.core.urls import harmless, scrub
from streamomd.core.wording import similar_path


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
