"""When the leader of a group requests a commit: like ``CheckpointManager``, between rounds."""

from __future__ import annotations

import math
import time

from streamomd.config.spec import Checkpoint
from streamomd.training.checkpoint_manager import SHARE


class CommitSchedule:
    """By rows exactly; by time, with a limit on the share of time spent on commits."""

    def __init__(self, settings: Checkpoint, rows: int) -> None:
        self._settings = settings
        self.record_commit(rows, 0.0)

    def is_due(self, rows: int) -> bool:
        """Whether a commit is due after this number of rows."""
        return rows >= self._next_row or time.monotonic() >= self._next_time

    def record_commit(self, rows: int, seconds: float) -> None:
        """Record a commit and its duration."""
        every = self._settings.every_rows
        self._next_row = float((rows // every + 1) * every) if every else math.inf
        pause = max(self._settings.every_seconds, seconds * (1 / SHARE - 1))
        self._next_time = time.monotonic() + pause if self._settings.every_seconds else math.inf
