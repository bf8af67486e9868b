"""Progress of a running job: lines at doubling row counts after 5 s, and callbacks; bars:
``progress_bars``.

Watchers are updated after every batch. What happens now and then is an event
(``streamomd.core.run_events``); ``note`` also prints it.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TextIO

import numpy as np

from streamomd.core.errors import UsageError
from streamomd.core.run_events import (
    Event,
    JsonStderr,
    around_line,
    emit,
    having,
    is_json,
    json_format,
    receiving,
    showing_phases,
)
from streamomd.core.urls import harmless, scrub
from streamomd.core.wording import counted, width_of, worded, wrap
from streamomd.training.metrics import Metrics

LOG_SECONDS = 10.0
COPY_SECONDS = 2.0
LINE_SECONDS = 5.0
"""Seconds of a run without lines off a terminal: a shorter one is summed up by its result."""
_VERBOSE = ContextVar("verbose", default=False)
_QUIET = ContextVar("quiet", default=False)


class Watcher:
    """Receives the progress of a run. next_row: it is updated at exactly this row, if batches pass
    it."""

    next_row: float = math.inf

    def update(self, metrics: Metrics) -> None:
        """After each batch."""

    def finish(self, metrics: Metrics) -> None:
        """When the last row is learned."""

    def close(self) -> None:
        """At the end, whether it was reached or not."""


class Figure(NamedTuple):
    """A number that the rule reports in addition to the loss: its name and its current value."""

    name: str
    now: Callable[[], float]


@dataclass
class RecentFigures:
    """Figures of the rows since the last look."""

    sums: Any = field(default_factory=lambda: np.zeros(3))

    def figures(self, metrics: Metrics) -> dict[str, float | None]:
        """loss, error and rmse since the last call."""
        total = metrics.total
        with np.errstate(invalid="ignore"):  # squared errors may have overflowed: no figure then
            figures = metrics.figures(total - self.sums)
        self.sums = total
        return figures


class Speed:
    """Rows a second since the run began in this process."""

    def __init__(self, rows: int) -> None:
        self._rows, self._started = rows, time.monotonic()

    def rate(self, rows: int) -> float:
        """Rows a second, when ``rows`` have been learned."""
        return (rows - self._rows) / max(time.monotonic() - self._started, 1e-9)


class LineProgress(Watcher):
    """A line at 1, 4, 16 … rows, and one at the end: eight in six hours of a log. None in the first
    seconds of a run. If it is verbose, at 1, 2, 4, 8 … rows from the first on."""

    def __init__(
        self, metrics: Metrics, total: int, out: TextIO | None, figure: Figure | None = None
    ) -> None:
        self._total, self._out, self._shown, self._figure = total, out, -1, figure
        self._since, self._speed = RecentFigures(metrics.total), Speed(metrics.total_rows)
        self._at(metrics.total_rows)
        self._began = time.monotonic()
        measure = "error" if metrics.classifies else "rmse"
        self._head = (
            f"{'rows':>12} {'done':>5} {'loss':>10} {'since last':>10} {measure:>10} "
            f"{'rows/s':>10}{f' {figure.name:>12}' if figure else ''}"
        )

    def update(self, metrics: Metrics) -> None:
        """A line, if it is time."""
        if metrics.total_rows < self.next_row:
            return
        if is_verbose() or time.monotonic() - self._began > LINE_SECONDS:
            self._print(metrics)
        else:
            self._at(metrics.total_rows)

    def finish(self, metrics: Metrics) -> None:
        """The last line, if there were others."""
        if self._shown >= 0 and metrics.total_rows != self._shown:
            self._print(metrics)

    def _at(self, rows: int) -> None:
        bits = rows.bit_length()
        self.next_row = 1 << (bits if is_verbose() else (bits + 1) // 2 * 2)

    def _print(self, metrics: Metrics) -> None:
        if self._shown < 0:
            _say(self._head, self._out)
        rows, now = metrics.total_rows, metrics.figures(metrics.total)
        since = self._since.figures(metrics)
        measure = now["error"] if metrics.classifies else now["rmse"]
        done = f"{rows / self._total:.0%}" if self._total else ""
        _say(
            f"{rows:>12,} {done:>5} {show(now['loss']):>10} {show(since['loss']):>10} "
            f"{show(measure):>10} {self._speed.rate(rows):>10,.0f}"
            f"{f' {show(self._figure.now()):>12}' if self._figure else ''}{last_figures(metrics)}",
            self._out,
        )
        self._shown = rows
        self._at(rows)


class ProgressEvents(Watcher):
    """Events "progress" with the figures, at doubling row counts and every ten seconds."""

    def __init__(self, metrics: Metrics) -> None:
        self._since, self._speed = RecentFigures(metrics.total), Speed(metrics.total_rows)
        self._emitted = time.monotonic()
        self.next_row = 1 << metrics.total_rows.bit_length()

    def update(self, metrics: Metrics) -> None:
        """An event, if it is time."""
        due = time.monotonic() - self._emitted > LOG_SECONDS
        if due or metrics.total_rows >= self.next_row:
            self.finish(metrics)

    def finish(self, metrics: Metrics) -> None:
        """An event with the figures."""
        rows, now = metrics.total_rows, metrics.figures(metrics.total)
        since = self._since.figures(metrics)["loss"]
        rate, skipped = self._speed.rate(rows), metrics.skipped
        day = {"day": last} if (last := metrics.last_day) is not None else {}
        emit("progress", rows=rows, since_last=since, rate=rate, **now, skipped=skipped, **day)
        self._emitted = time.monotonic()
        self.next_row = 1 << rows.bit_length()


@contextmanager
def watching(watchers: Sequence[Watcher], metrics: Metrics) -> Iterator[Sequence[Watcher]]:
    """Watchers inside: ``finish`` is called if the end is reached, and ``close`` always."""
    try:
        yield watchers
        for watcher in watchers:
            watcher.finish(metrics)
    finally:
        for watcher in watchers:
            watcher.close()


def note(text: str, event: str = "message", level: str = "info", /, **fields: Any) -> None:
    """Report a message to the user, separate from the results; to programs, an event."""
    emit(event, text, level, **fields)
    if not _QUIET.get() and not is_json():
        _say(text, sys.stderr)


def note_return(what: str, rows: int, before: int) -> None:
    """Report that a recovery returned to an earlier row, and how many rows are learned again."""
    again = max(0, before - rows)
    note(
        f"{what}; returned to row {rows:,}: {counted(again, 'row')} again",
        "returned",
        "warning",
        rows=rows,
        rows_again=again,
    )


@contextmanager
def json_messages() -> Iterator[None]:
    """While inside, stderr has one JSON object per line: notes, progress and other events."""
    before, lines = sys.stderr, JsonStderr(sys.stderr)

    def receive(event: Event) -> None:
        if not _QUIET.get():
            lines.receive(event)

    sys.stderr = lines  # other libraries print to it
    try:
        with json_format(), receiving(receive):
            yield
    finally:
        lines.finish()
        sys.stderr = before


@contextmanager
def quiet_notes(quiet: bool) -> Iterator[None]:
    """Notes and phases are not shown while inside, if ``quiet``."""
    with having(_QUIET, quiet), showing_phases(shown=False) if quiet else nullcontext():
        yield


def verbose_output() -> AbstractContextManager[None]:
    """While inside: lines of progress from the first row, and results with hashes."""
    return having(_VERBOSE, True)


def is_verbose() -> bool:
    """Whether ``--verbose`` was passed."""
    return _VERBOSE.get()


def copying() -> Callable[[int, int, int], None]:
    """A function of rows, bytes done and bytes in all that reports them every two seconds."""
    reported = time.monotonic()

    def report(rows: int, done: int, total: int) -> None:
        nonlocal reported
        if time.monotonic() - reported > COPY_SECONDS:
            reported = time.monotonic()
            share = f", {done / total:.0%} of the source" if total > 0 else ""
            note(f"{rows:>12,} rows{share}")

    return report


def _say(text: str, out: TextIO | None) -> None:
    """Print a line. With the pipe or stderr closed the run continues without output."""
    with suppress(BrokenPipeError):
        if out:
            fitted = wrap(harmless(text), width_of(out))
            print(around_line(fitted, out), end="", file=out, flush=True)


def last_figures(metrics: Metrics) -> str:
    """Text after the figures: loss of the day under way, if rows have times, and of the hold-out
    rows of this epoch so far, and skipped bad rows.

    Hold-out rows are predicted as they come, so the loss starts again with each epoch.
    """
    held, text = metrics.held, ""
    if (day := metrics.last_day) is not None:
        text = f"; {day['period']}: loss {show(day['loss'])} ({counted(day['rows'], 'row')})"
    if held is not None and held.rows and held.rows[-1]:
        of = f"{counted(held.rows[-1], 'row')} of epoch {len(held.rows)}"
        text += f"; hold-out loss {show(held.figures(held.current)['loss'])} ({of})"
    return text + (f"; skipped {worded(metrics.skipped)}" if metrics.skipped else "")


def show(number: float | None) -> str:
    """Six digits, or nan."""
    return "nan" if number is None else f"{number:.6f}" if abs(number) < 1000 else f"{number:.5g}"


SECONDS = 10.0


class Callback(Protocol):
    """An object that receives the progress of a run by ``on_progress(figures)``.

    Calls come at 1, 2, 4, 8 … rows, whenever ten seconds have passed, and at the end. They are made
    between rows, by the thread that learns: a slow callback delays the run. An exception in a
    callback is reported once, and that callback is not called again. The run continues: callbacks
    do not change its results.
    """

    def on_progress(self, figures: dict[str, Any]) -> None:
        """Receive plain numbers and strings, a new dict for each call, with the rule's own figure
        by its name, if it has one:

        state        "running"; last of all "finished", or "stopped" after a signal or an error
        rows         learned so far, of ``expected``, in all epochs
        loss         progressive loss so far; ``since_last``: of the rows since the call before
        error, rmse  so far; None where they have no meaning
        rate         rows a second, of this process
        seconds      since the run began in this process
        skipped      bad rows skipped, by reason
        job          the job's tables, without secrets
        checkpoint   its URL, empty if nothing is saved
        """


def refuse_illegal(callbacks: Sequence[Any]) -> None:
    """Raise UsageError for what has no ``on_progress``, before anything is done."""
    for one in callbacks:
        if not callable(getattr(one, "on_progress", None)):
            raise UsageError(
                f"callbacks hold a {type(one).__name__}, expected an object with a method "
                "on_progress(figures)"
            )


def is_called(callback: Callback, figures: Mapping[str, Any]) -> bool:
    """Call a callback; whether it is to be called again: not after an error, which is reported."""
    try:
        callback.on_progress(dict(figures))
    except Exception as error:
        text = scrub(f"{type(error).__name__}: {error}")
        text = f"{type(callback).__name__}.on_progress raised {text}; it is not called again"
        note(text, "callback_failed", "warning")
        return False
    return True


class CallbackWatcher(Watcher):
    """The watcher that calls the callbacks.

    about: figures that are the same in every call. expected: rows in all.
    """

    def __init__(
        self,
        callbacks: Sequence[Callback],
        metrics: Metrics,
        about: Mapping[str, Any],
        expected: int,
        figure: Figure | None = None,
    ) -> None:
        self._callbacks, self._metrics, self._figure = list(callbacks), metrics, figure
        self._about, self._expected = dict(about), expected
        self._since, self._speed = RecentFigures(metrics.total), Speed(metrics.total_rows)
        self._began = self._called = time.monotonic()
        self._ended = False
        self._plan_next(metrics)

    def update(self, metrics: Metrics) -> None:
        """Call them if it is time."""
        self._metrics = metrics
        due = time.monotonic() - self._called > SECONDS
        if due or metrics.total_rows >= self.next_row:
            self._call("running")

    def finish(self, metrics: Metrics) -> None:
        """Call them with the final figures."""
        self._metrics, self._ended = metrics, True
        self._call("finished")

    def close(self) -> None:
        """Call them with state "stopped" if the run did not finish."""
        if not self._ended:
            self._call("stopped")

    def _plan_next(self, metrics: Metrics) -> None:
        self.next_row = 1 << metrics.total_rows.bit_length()

    def _call(self, state: str) -> None:
        metrics = self._metrics
        figures = self._figures(state)
        self._callbacks = [one for one in self._callbacks if is_called(one, figures)]
        self._called = time.monotonic()
        self._plan_next(metrics)

    def _figures(self, state: str) -> dict[str, Any]:
        metrics, now = self._metrics, time.monotonic()
        own = {self._figure.name: self._figure.now()} if self._figure else {}
        return {
            **own,
            "state": state,
            "rows": metrics.total_rows,
            "expected": self._expected,
            **metrics.figures(metrics.total),
            "since_last": self._since.figures(metrics)["loss"],
            "rate": self._speed.rate(metrics.total_rows),
            "seconds": now - self._began,
            "skipped": metrics.skipped,
            **self._about,
        }
