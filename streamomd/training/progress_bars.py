"""Bars of a run's progress: on a terminal, in a notebook; lines elsewhere."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from html import escape
from typing import TextIO

from streamomd.core.wording import counted
from streamomd.training.metrics import Metrics
from streamomd.training.progress import (
    Figure,
    LineProgress,
    RecentFigures,
    Speed,
    Watcher,
    last_figures,
    show,
)

WIDE = 100
"""Columns of a terminal: fewer have a shorter bar, and no last loss."""
BAR, SHORT_BAR = 20, 12
ETA_WIDTH = len(" 100% ETA 00:00:00 ")


class BarText:
    """The figures next to a bar."""

    def __init__(self, metrics: Metrics, figure: Figure | None) -> None:
        self._since, self.speed = RecentFigures(metrics.total), Speed(metrics.total_rows)
        self._looked, self._figure = 0.0, figure
        self._shown, self._last = metrics.total_rows, show(None)

    @property
    def is_due(self) -> bool:
        """Whether the bar may move: five times a second."""
        return time.monotonic() - self._looked > 0.2

    def text(self, metrics: Metrics, *, last: bool = True) -> str:
        """The figures now. last: with the loss since the last look."""
        self._looked = time.monotonic()
        if not metrics.total_rows:
            return counted(0, "row")
        now, rows = metrics.figures(metrics.total), metrics.total_rows
        if rows != self._shown:  # else what was the last still is
            self._shown, self._last = rows, show(self._since.figures(metrics)["loss"])
        rate, since = self.speed.rate(rows), f", last {self._last}" if last else ""
        figures = f"{counted(rows, 'row')}, loss {show(now['loss'])}{since}, {rate:,.0f} rows/s"
        if self._figure:
            figures += f", {self._figure.name} {show(self._figure.now())}"
        return figures + last_figures(metrics)


class ProgressBar(Watcher):
    """A progress bar with the loss so far and since the last look, and the time left."""

    def __init__(
        self, metrics: Metrics, total: int, out: TextIO, figure: Figure | None = None
    ) -> None:
        from rich.console import Console  # for a terminal alone, and slow to import
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._text = BarText(metrics, figure)
        console = Console(file=out)
        self._wide = console.width >= WIDE
        bar = BAR if self._wide else SHORT_BAR
        self._room = max(console.width - bar - ETA_WIDTH - 1, 0)
        self._bar = Progress(
            BarColumn(bar_width=bar),
            TextColumn("{task.percentage:>3.0f}% ETA"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}", markup=False),
            console=console,
        )
        self._task = self._bar.add_task(
            "", total=total or None, completed=metrics.total_rows, figures=""
        )
        self._bar.start()

    def update(self, metrics: Metrics) -> None:
        """Move the bar, if it is time."""
        if self._text.is_due:
            self._show(metrics)

    def finish(self, metrics: Metrics) -> None:
        """Move it to the end: rows that were skipped or filtered are never counted."""
        self._show(metrics)
        self._bar.update(self._task, total=metrics.total_rows, completed=metrics.total_rows)

    def close(self) -> None:
        """Give the terminal back."""
        self._bar.stop()

    def _show(self, metrics: Metrics) -> None:
        figures = self._text.text(metrics, last=self._wide)
        if len(figures) > self._room:  # a second line would stay on the terminal
            figures = f"{figures[: max(self._room - 1, 0)]}…"
        self._bar.update(self._task, completed=metrics.total_rows, figures=figures)


class NotebookBar(Watcher):
    """The same bar as one output of a notebook's cell, which is replaced as it moves."""

    def __init__(self, metrics: Metrics, total: int, figure: Figure | None = None) -> None:
        from IPython.display import HTML, display  # type: ignore[import-not-found]

        self._text, self._total, self._html = BarText(metrics, figure), total, HTML
        self._output = display(HTML(self._bar(metrics, total)), display_id=True)

    def update(self, metrics: Metrics) -> None:
        """Move the bar, if it is time."""
        if self._text.is_due:
            self._output.update(self._html(self._bar(metrics, self._total)))

    def finish(self, metrics: Metrics) -> None:
        """Move it to the end."""
        self._output.update(self._html(self._bar(metrics, metrics.total_rows)))

    def _bar(self, metrics: Metrics, total: int) -> str:
        rows = metrics.total_rows
        left = (total - rows) / max(self._text.speed.rate(rows), 1e-9)
        known = (
            f"{rows / total:.0%} ETA {timedelta(seconds=int(left))} " if 0 < rows < total else ""
        )
        value = f' value="{rows}" max="{total}"' if total else ""
        return f"<progress{value}></progress> {known}{escape(self._text.text(metrics))}"


def in_notebook() -> bool:
    """Whether a notebook's kernel runs this process."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def progress(
    metrics: Metrics, total: int, figure: Figure | None = None
) -> LineProgress | ProgressBar | NotebookBar:
    """The bar on a terminal and in a notebook, lines elsewhere; on stderr. ``total``: rows expected
    in all."""
    if sys.stderr and sys.stderr.isatty():
        return ProgressBar(metrics, total, sys.stderr, figure)
    if in_notebook():
        return NotebookBar(metrics, total, figure)
    return LineProgress(metrics, total, sys.stderr, figure)
