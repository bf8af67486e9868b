"""A clock and a watch of files for ``follow``: time passes only while something waits for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from streamomd.runs.follow import Clock, Follower
from streamomd.runs.reporting import Reporting
from streamomd.runs.update_run import UpdateRun
from streamomd.training.signals import StopRequest

BEGIN = 1_800_000_000
"""Seconds since the epoch at which a script begins."""


class Script:
    """Actions at given seconds, in order; the clock of the files is the script's."""

    def __init__(self, *actions: tuple[float, Callable[[], object]], wakes: bool = False) -> None:
        self.now, self.stop = 0.0, StopRequest()
        self.actions, self.wakes = sorted(actions, key=lambda one: one[0]), wakes
        self.waits: list[float] = []
        self.clock = Clock(lambda: int((BEGIN + self.now) * 1e9), lambda: self.now, self.sleep)

    def wait(self, seconds: float) -> bool:
        """Let time pass until the next action, at most."""
        end = self.now + seconds
        if not self.actions or self.actions[0][0] > end:
            self.now = end
            return False
        when, action = self.actions.pop(0)
        self.now = max(self.now, when)
        action()
        return self.wakes

    def sleep(self, seconds: float) -> None:
        """Let time pass, and what is due happen."""
        end = self.now + seconds
        while self.now < end:
            self.wait(end - self.now)

    def complete(self) -> Mapping[str, int]:
        return {}

    def written(self, paths: Collection[str]) -> bool:
        return False

    def forget(self, paths: Collection[str]) -> None: ...

    def close(self) -> None: ...

    def touched(self, path: Path) -> Path:
        """A file as it was written now."""
        os.utime(path, ns=(self.clock.now_ns(),) * 2)
        return path

    def follower(
        self, url: object, *, reporting: Reporting | None = None, **given: Any
    ) -> Follower:
        """A follower in this script."""
        reporting = reporting or Reporting(quiet=True)
        opening = partial(
            UpdateRun.open, str(url), {}, None, None, stop=self.stop, reporting=reporting
        )
        return Follower(opening, given, self.stop, lambda *_: self, clock=self.clock)
