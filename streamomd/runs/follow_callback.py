"""Callbacks of a run that is updated again and again."""

from __future__ import annotations

from typing import Any

from streamomd.core.urls import scrub
from streamomd.training.callbacks import Callback
from streamomd.training.progress import note


class FollowCallback:
    """A callback that sees the updates of a process as one run: it is "finished" once.

    Each update's figures have the lag after it, and the freshness of its commit.
    """

    def __init__(self, callback: Callback) -> None:
        self._callback: Callback | None = callback
        self._last: dict[str, Any] = {}

    def on_progress(self, figures: dict[str, Any]) -> None:
        """Pass on what is not the end of an update."""
        self._last = {**self._last, **figures, "state": "running"}
        if figures["state"] == "running":
            self._call()

    def end_update(self, **figures: float | None) -> None:
        """Pass on the figures of a committed update."""
        self._last |= figures
        self._call()

    def end(self, state: str) -> None:
        """Pass on the end, if anything was learned."""
        self._last["state"] = state
        self._call()

    def _call(self) -> None:
        if self._callback is None or "rows" not in self._last:
            return
        try:
            self._callback.on_progress(dict(self._last))
        except Exception as error:
            text, name = scrub(f"{type(error).__name__}: {error}"), type(self._callback).__name__
            text = f"{name}.on_progress raised {text}; it is not called again"
            note(text, "callback_failed", "warning")
            self._callback = None
