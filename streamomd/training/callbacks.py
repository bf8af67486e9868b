"""Callbacks: objects that receive the progress of a run by ``on_progress(figures)``.

``figures`` is a dict of plain numbers and strings, a new one for each call:

    state        "running"; last of all "finished", or "stopped" after a signal or an error
    rows         learned so far, of ``expected``, in all epochs
    loss         progressive loss so far; ``since_last``: of the rows since the call before
    error, rmse  so far; None where they have no meaning
    rate         rows a second, of this process
    seconds      since the run began in this process
    skipped      bad rows skipped, by reason
    job          the job's tables, without secrets
    checkpoint   its URL, empty if nothing is saved

and the rule's own figure by its name, if it has one. Calls come at 1, 2, 4, 8 … rows, whenever ten
seconds have passed, and at the end. They are made between rows, by the thread that
learns: a slow callback delays the run. An exception in a callback is reported once, and that
callback is not called again. The run continues: callbacks do not change its results.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from streamomd.core.errors import UsageError
from streamomd.core.urls import scrub
from streamomd.training.metrics import Metrics
from streamomd.training.progress import Figure, RecentFigures, Speed, Watcher, note

SECONDS = 10.0


class Callback(Protocol):
    """An object that receives progress."""

    def on_progress(self, figures: dict[str, Any]) -> None:
        """Receive the progress of the run; the module's docstring lists the figures."""


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
