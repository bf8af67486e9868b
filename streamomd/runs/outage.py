"""A store that does not answer: what is reported, and how long to wait between attempts."""

from __future__ import annotations

from streamomd.core.errors import StorageError
from streamomd.core.urls import scrub
from streamomd.runs.clock import Clock
from streamomd.training.progress import note

PAUSE_SECONDS, MOST_SECONDS = 1.0, 300.0
"""Before the first attempt to reach a store again, and at most; it doubles each time."""


class Outage:
    """pause: seconds to wait before the next attempt; 0: the store answers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = self.pause = 0.0

    def begin(self, error: StorageError, sequence: int) -> None:
        """Report the first failure; wait twice as long after each."""
        if not self.pause:
            self._began = self._clock.seconds()
            note(
                f"{error}; trying again until it answers (last good commit: {sequence})",
                "outage",
                "warning",
                problem=scrub(str(error)),
            )
        self.pause = min(MOST_SECONDS, 2.0 * self.pause or PAUSE_SECONDS)

    def end(self) -> None:
        """The store answered."""
        if self.pause:
            seconds = self._clock.seconds() - self._began
            text = f"the store answers again, after {seconds:.0f} s"
            note(text, "outage_over", "info", seconds=seconds)
        self.pause = 0.0
