"""What a person looks at while a sweep runs: a table on a terminal, else lines at doubling rows."""

from __future__ import annotations

import math
import sys
import time

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from streamomd.core.run_events import is_json
from streamomd.core.urls import printable
from streamomd.core.wording import worded as worded_skipped
from streamomd.runs.run_metrics import RunMetrics
from streamomd.runs.sweep.grid import worded
from streamomd.runs.sweep.learners import Learner, Sweep
from streamomd.training import progress
from streamomd.training.metrics import Metrics
from streamomd.training.progress import Speed, is_verbose, note, show

MOST = 24
"""Learners of a table on a terminal, the best first."""
EVERY = 0.5  # seconds between two tables


class SweepWatcher:
    """Reports the progress of a sweep. next_row: as a ``Watcher``'s."""

    next_row: float = math.inf

    def update(self) -> None:
        """After some rows."""

    def close(self) -> None:
        """At the end, whether it was reached or not."""


class LeaderboardLines(SweepWatcher):
    """A line at 1, 2, 4, 8 … rows: which is best so far, and how all of them do; none in the first
    seconds, unless it is verbose."""

    def __init__(self, sweep: Sweep, total: int) -> None:
        self._sweep, self._total, self._speed = sweep, total, Speed(sweep.rows)
        self.next_row = 1 << sweep.rows.bit_length()
        self._began, self._headed = time.monotonic(), is_json()  # which names its fields

    def _head(self) -> None:
        self._headed = True
        note(
            f"{'rows':>12} {'done':>5} {'learners':>8} {'best':>10} {'median':>10} {'worst':>10} "
            f"{'rows/s':>10}  by {self._sweep.measure}"
        )

    def update(self) -> None:
        """A line, if it is time."""
        sweep, rows = self._sweep, self._sweep.rows
        if rows < self.next_row:
            return
        self.next_row = 1 << rows.bit_length()
        if not (
            is_verbose() or is_json() or time.monotonic() - self._began > progress.LINE_SECONDS
        ):
            return
        if not self._headed:
            self._head()
        ranked = sweep.ranked()
        numbers = [show(learner.figures()[sweep.measure]) for learner in ranked]
        figures = f"{numbers[0]:>10} {numbers[len(numbers) // 2]:>10} {numbers[-1]:>10}"
        done = f"{rows / self._total:.0%}" if self._total else ""
        note(
            f"{rows:>12,} {done:>5} {len(ranked):>8} {figures} {self._speed.rate(rows):>10,.0f}  "
            f"{worded(ranked[0].chosen)}{_skipped(sweep)}",
            "progress",
            "info",
            rows=rows,
            learners=len(ranked),
            best=ranked[0].name,
            **ranked[0].figures(),
            rate=self._speed.rate(rows),
            skipped=sweep.lead.metrics.skipped,
        )


class ExportedLearners(SweepWatcher):
    """Stores the figures of the learners for the metrics of a port, by prefix and name."""

    def __init__(self, sweep: Sweep, total: int, exported: RunMetrics, prefix: str) -> None:
        self._sweep, self._exported, self._prefix = sweep, exported, prefix
        exported.begin_sweep(self._figures(), total)

    def update(self) -> None:
        """See ``SweepWatcher``."""
        self._exported.update_sweep(self._figures())

    def close(self) -> None:
        """See ``SweepWatcher``."""
        if self._sweep.active:
            self._exported.take_sweep(self._figures())

    def _figures(self) -> dict[str, Metrics]:
        active = self._sweep.active
        return {f"{self._prefix}{learner.name}": learner.model.metrics for learner in active}


class Leaderboard(SweepWatcher):
    """A table of the learners, the best first and marked, rebuilt twice a second."""

    def __init__(self, sweep: Sweep, total: int) -> None:
        self._sweep, self._total, self._speed = sweep, total, Speed(sweep.rows)
        self._looked = 0.0
        self._live = Live(board(sweep, ""), console=Console(file=sys.stderr), auto_refresh=False)
        self._live.start()

    def update(self) -> None:
        """Another table, if it is time."""
        if time.monotonic() - self._looked > EVERY:
            self._show()

    def close(self) -> None:
        """Give the terminal back, the last table on it."""
        self._show()
        self._live.stop()

    def _show(self) -> None:
        self._looked, rows = time.monotonic(), self._sweep.rows
        done = f" of {self._total:,} ({rows / self._total:.0%})" if self._total else ""
        rate = f"{self._speed.rate(rows):,.0f} rows/s"
        title = f"{rows:,} rows{done}, {rate}{_skipped(self._sweep)}"
        self._live.update(board(self._sweep, title), refresh=True)


def board(sweep: Sweep, title: str) -> Table:
    """Learners and their figures so far, the best first and marked."""
    wrong = "error" if sweep.lead.metrics.classifies else "rmse"
    table = Table(title=title, title_justify="left")
    for name in ("", "learner"):
        table.add_column(name)
    for name in ("rows", "loss", wrong):
        table.add_column(name, justify="right")
    ranked = standings(sweep)
    for place, learner in enumerate(ranked[:MOST]):
        figures = learner.figures()
        table.add_row(
            "best" if place == 0 else outcome_of(learner),
            escape(printable(worded(learner.chosen))),
            f"{learner.model.metrics.total_rows:,}",
            show(figures["loss"]),
            show(figures[wrong]),
            style="bold" if place == 0 else "dim" if learner.dropped else "",
        )
    if len(ranked) > MOST:
        table.add_row("", f"… and {len(ranked) - MOST} more", "", "", "")
    return table


def outcome_of(learner: Learner) -> str:
    """Why it no longer learns, in a word."""
    return "diverged" if learner.diverged else "dropped" if learner.dropped else ""


def standings(sweep: Sweep) -> list[Learner]:
    """All learners: those that learn, the best first, then the dropped, the last dropped first."""
    dropped = [learner for learner in sweep.learners if learner.dropped]
    return [*sweep.ranked(), *sorted(dropped, key=lambda learner: -learner.dropped)]


def _skipped(sweep: Sweep) -> str:
    skipped = sweep.lead.metrics.skipped
    return f"; skipped {worded_skipped(skipped)}" if skipped else ""


def sweep_watcher(sweep: Sweep, total: int) -> SweepWatcher:
    """The table on a terminal, lines elsewhere; on stderr. total: rows expected in all."""
    if sys.stderr and sys.stderr.isatty():
        return Leaderboard(sweep, total)
    return LeaderboardLines(sweep, total)
