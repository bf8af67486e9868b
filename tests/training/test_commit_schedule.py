"""When a commit is due."""

from __future__ import annotations

import pytest

from streamomd.config.run_tables import Checkpoint
from streamomd.training import checkpoint_manager
from streamomd.training.checkpoint_manager import CommitSchedule


def test_by_rows_exactly() -> None:
    """The first round that ends at or after each multiple."""
    asked, now = [], CommitSchedule(Checkpoint(every_seconds=0, every_rows=100), 0)
    for rows in range(64, 700, 64):
        if now.is_due(rows):
            asked.append(rows)
            now.record_commit(rows, 1e9)
    assert asked == [128, 256, 320, 448, 512, 640]


def test_by_time_within_a_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every ten seconds; after a commit of five seconds, when that is a twentieth of the time."""
    clock = [0.0]
    monkeypatch.setattr(checkpoint_manager.time, "monotonic", lambda: clock[0])
    now = CommitSchedule(Checkpoint(every_seconds=10), 0)
    for is_due, expected in ((9.9, False), (10.0, True)):
        clock[0] = is_due
        assert now.is_due(5) is expected
    now.record_commit(5, 5.0)
    for is_due, expected in ((20.0, False), (104.9, False), (105.0, True)):
        clock[0] = is_due
        assert now.is_due(5) is expected


def test_never_but_at_the_end() -> None:
    """Neither rows nor seconds."""
    assert not CommitSchedule(Checkpoint(every_seconds=0), 0).is_due(10**12)
