"""When the leader of a gang asks for a commit: as ``Keeper`` does, at the edges of rounds."""

from __future__ import annotations

import math
import time

from streamomd.config.spec import Checkpoint
from streamomd.training.checkpoint_manager import SHARE


class CommitSchedule:
    """By rows exactly; by time, of which commits may take their share and no more."""

    def __init__(self, kept: Checkpoint, rows: int) -> None:
        self._kept = kept
        self.done(rows, 0.0)

    def at(self, rows: int) -> bool:
        """Whether it is time after so many rows."""
        return rows >= self._row or time.monotonic() >= self._time

    def done(self, rows: int, seconds: float) -> None:
        """A commit was made, which took so long."""
        every = self._kept.every_rows
        self._row = float((rows // every + 1) * every) if every else math.inf
        pause = max(self._kept.every_seconds, seconds * (1 / SHARE - 1))
        self._time = time.monotonic() + pause if self._kept.every_seconds else math.inf
