"""Alerts and callbacks of a run that follows its sources, and when new shards landed."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamomd.config.run_tables import Update
from streamomd.config.spec import Spec
from streamomd.core.errors import StorageError
from streamomd.core.urls import redact, scrub, shown
from streamomd.shards.shard import Listed
from streamomd.sources.folder_watch import FileWatch, watch_sources
from streamomd.training.metrics import Metrics
from streamomd.training.progress import Callback, Watcher, is_called, note


@dataclass(eq=False)
class Landings:
    """Listed shards that are not learned, and when each landed (ns since the epoch).

    A shard that the listing before did not have landed after that listing, or at its modification
    time, whichever is later: a copied or renamed file may have an old one. At the first listing
    only the modification time is known. looked_ns: when the last listing was made.
    """

    landed: dict[str, int] = field(default_factory=dict)
    looked_ns: int | None = None

    def look(self, unlearned: Sequence[Listed], now_ns: int, appeared: Mapping[str, int]) -> int:
        """Take a listing; the number of shards that the one before did not have.

        appeared: when files got to their paths, where that is known.
        """
        before, known = self.looked_ns, self.landed
        self.landed = {}
        for file in unlearned:
            times = [now_ns if file.mtime_ns is None and before is None else 0]
            times += [file.mtime_ns or 0, before or 0]
            landed = known.get(file.url, appeared.get(file.path, max(times)))
            self.landed[file.url] = min(landed, now_ns)
        self.looked_ns = now_ns
        return len(self.landed.keys() - known.keys())

    def learned(self, urls: Collection[str], now_ns: int) -> float | None:
        """Remove shards that were committed; seconds since the first of them landed."""
        landed = [self.landed.pop(url) for url in urls if url in self.landed]
        return max(0, now_ns - min(landed)) / 1e9 if landed else None

    def lag(self, now_ns: int) -> float:
        """Seconds since the oldest shard landed that is not learned; 0: all are."""
        return max(0, now_ns - min(self.landed.values(), default=now_ns)) / 1e9

    def ages(self, now_ns: int) -> list[float]:
        """Seconds since each landed that is not learned."""
        return [(now_ns - landed) / 1e9 for landed in self.landed.values()]

    def oldest(self) -> str:
        """URL of that shard."""
        return min(self.landed, key=lambda url: (self.landed[url], url), default="")


@dataclass(frozen=True)
class Clock:
    """now_ns: of the wall, as files have it. seconds: monotonic."""

    now_ns: Callable[[], int] = time.time_ns
    seconds: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


PAUSE_SECONDS, MOST_SECONDS = 1.0, 300.0
"""Before the first attempt to reach a store again, and at most; it doubles each time."""


class LagAlert:
    """Reports a lag above ``max_lag`` once, until it is below. text: the alert, or empty."""

    text = ""

    def look(self, landings: Landings, now_ns: int, most: float) -> None:
        """Compare the lag with ``most`` seconds; 0: there is no limit."""
        lag = landings.lag(now_ns)
        if not most or (lag > most) == bool(self.text):
            return
        url, above = landings.oldest(), f"above update.max_lag = {most:g} s"
        if lag > most:
            self.text = f"lag {lag:,.0f} s is {above}: {shown(url)} is not learned"
            note(self.text, "lag", "warning", lag=lag, max_lag=most, url=redact(url))
        else:
            self.text = ""
            note(
                f"lag {lag:,.0f} s is no longer {above}", "lag_over", "info", lag=lag, max_lag=most
            )


class LagWatcher(Watcher):
    """Looks at the lag every second while rows are learned."""

    def __init__(self, check: Callable[[], object], clock: Clock) -> None:
        self._check, self._clock, self._checked = check, clock, clock.seconds()

    def update(self, metrics: Metrics) -> None:
        """See ``Watcher``."""
        if self._clock.seconds() - self._checked > 1.0:
            self._check()
            self._checked = self._clock.seconds()


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
        if not is_called(self._callback, self._last):
            self._callback = None


def watch_files(spec: Spec, table: Update) -> FileWatch:
    """Watch the sources of a job."""
    data = spec.data
    return watch_sources(data.shards, data.storage_options, writes=not table.settle, report=note)
