"""Watch a run from another process: its newest commit, and its job's status on a cluster.

Nothing is written. A commit is read once, and at most a quarter of the time is spent reading.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.live import Live
from rich.text import Text

from streamomd.analysis.history import history, speeds
from streamomd.checkpoint import open_store
from streamomd.checkpoint.commit_reader import sequences
from streamomd.config.spec import Spec
from streamomd.core.errors import ClusterError, InputNotFoundError, NoCommitError, StorageError
from streamomd.core.urls import absolute, printable, shown
from streamomd.core.wording import worded
from streamomd.training.column_statistics import Fired
from streamomd.training.drift_alerts import worded_alert
from streamomd.training.load_model import load_model
from streamomd.training.metrics import Metrics
from streamomd.training.progress import show

Options = Mapping[str, Any] | None
PAUSE_FACTOR = 3.0  # minimum pause before the next read, in multiples of the last read's duration
LOG_BYTES = 1 << 16
ALERTS = 5  # the last ones are shown
ENDED_STATES = ("finished", "stopped", "failed", "lost")
"""States of a job that has ended."""


@dataclass(frozen=True, eq=False)
class View:
    """The current state of a run.

    sequence, written: of the newest commit; −1 and "" before there is one. rows, sums (importance,
    loss, mistakes), skipped: of that commit, or newer from a cluster. since: the sums since the
    previous view. rate: rows per second. expected: total rows, 0 if unknown. state: of a job on its
    cluster. top: the heaviest features, (name, weights). problem: an error, if any. due:
    when the next commit is, in words, while the newest has no rows. alerts: in words.
    """

    url: str
    sequence: int = -1
    written: str = ""
    rows: int = 0
    expected: int = 0
    classifies: bool = True
    sums: NDArray[np.float64] = field(default_factory=lambda: np.zeros(3))
    since: NDArray[np.float64] = field(default_factory=lambda: np.zeros(3))
    rate: float | None = None
    skipped: Mapping[str, int] = field(default_factory=dict)
    top: tuple[tuple[str, tuple[float, ...]], ...] = ()
    finished: bool = False
    state: str = ""
    problem: str = ""
    due: str = ""
    alerts: tuple[str, ...] = ()

    def figures(self) -> dict[str, Any]:
        """For JSON: the metrics of ``train``, and those of this view."""
        metrics = Metrics(self.classifies)
        figures = metrics.figures(self.sums)
        return {
            "url": shown(self.url),
            "rows": self.rows,
            "expected": self.expected or None,
            **figures,
            "since_last": metrics.figures(self.since)["loss"],
            "rows_per_second": self.rate,
            "skipped": dict(self.skipped),
            "alerts": list(self.alerts),
            "top": [{"name": name, "weight": list(weight)} for name, weight in self.top],
            "commit": {"sequence": self.sequence, "written": self.written},
            "finished": self.finished,
            "state": self.state or None,
            "said": self.problem or None,
        }

    def lines(self) -> Iterator[str]:
        """Lines for a terminal."""
        figures = self.figures()
        commit = (
            f"commit {self.sequence}, {self.written}" if self.sequence >= 0 else "no commit yet"
        )
        over = "finished" if self.finished else self.state
        yield f"{shown(self.url)}: {commit}{f', {over}' if over else ''}"
        share = f" of {self.expected:,} ({self.rows / self.expected:.0%})" if self.expected else ""
        rate = "" if self.rate is None else f", {self.rate:,.0f} rows/s"
        yield f"rows {self.rows:,}{share}{rate}"
        if self.rows:
            wrong = "error" if self.classifies else "rmse"
            last = (
                f", since last {show(figures['since_last'])}"
                if 0 < self.since[0] < self.sums[0]
                else ""
            )
            yield f"loss {show(figures['loss'])}{last}, {wrong} {show(figures[wrong])}"
        if self.skipped:
            yield f"skipped {worded(self.skipped)}"
        for alert in self.alerts[-ALERTS:]:
            yield f"alert: {alert}"
        for name, weight in self.top:
            yield f"{' '.join(f'{value:>12.6g}' for value in weight)}  {printable(name)}"
        if self.due and not self.rows and not self.finished:
            yield self.due
        if self.problem:
            yield printable(self.problem)


def read_view(view: View, options: Options = None, *, top: int = 10) -> View:
    """The view of the newest commit; the given one if there is none newer.

    Raises NoCommitError if there is none, StorageError if the store does not answer.
    """
    listed = sequences(open_store(absolute(view.url), options))
    if listed[-1:] == [view.sequence]:
        return replace(view, problem="")
    model, loaded = load_model(
        view.url, storage_options=options, remote=None if top else _skip_state
    )
    run_history, metrics = history(model, options), model.metrics
    pace = speeds(run_history.commits)
    newer = replace(
        view,
        sequence=model.sequence,
        written=loaded.commit.written,
        expected=run_history.rows * model.spec.train.epochs,
        classifies=metrics.classifies,
        rate=pace[-1][1] if pace else None,
        skipped=metrics.skipped,
        top=tuple((one["name"], tuple(one["weight"])) for one in model.inspect(top)) if top else (),
        finished=model.finished,
        alerts=tuple(worded_alert(one, model.plan) for one in _alerts(metrics)),
        problem="; ".join(
            f"commit {sequence} rejected: {why}" for sequence, why in loaded.rejected
        ),
        due=_due(model.spec, loaded.commit.written),
    )
    return _advance(newer, metrics.total_rows, metrics.total)


def _alerts(metrics: Metrics) -> list[Fired]:
    return metrics.drift.alerts if metrics.drift is not None else []


def _due(spec: Spec, written: str) -> str:
    """When the first commit with rows is due, by the job."""
    rows, seconds = spec.checkpoint.every_rows, spec.checkpoint.every_seconds
    after = [f"after row {rows:,}"] if rows else []
    if seconds:
        at = datetime.fromisoformat(written) + timedelta(seconds=seconds)
        after.append(f"about {at:%H:%M:%S} UTC (checkpoint.every_seconds = {seconds:g})")
    if not after:
        return ""
    return f"no rows committed yet; the next commit is due {' or '.join(after)}, or at the end"


def with_log(view: View, path: str) -> View:
    """The view with the newest figures of a run's log, if they are of more rows.

    Raises InputNotFoundError if there is no such file.
    """
    found = _last_progress(path)
    if found is None or found.rows <= view.rows:
        return view
    sums = found.rows * np.array([1.0, found.loss, found.wrong])
    newer = replace(view, classifies=found.classifies, due="")
    return replace(_advance(newer, found.rows, sums), rate=found.rate)


class LogLine(NamedTuple):
    """Figures of a line of a log. wrong: the error, or the mean squared error."""

    rows: int
    loss: float
    wrong: float
    classifies: bool
    rate: float | None


def _last_progress(path: str) -> LogLine | None:
    """The last line of figures in the last 64 KB of a log; None if there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(0, 2)
            file.seek(max(file.tell() - LOG_BYTES, 0))
            lines = file.read().splitlines()
    except OSError as error:
        raise InputNotFoundError(f"log {path!r} cannot be read: {error.strerror}") from None
    for line in reversed(lines):
        with suppress(ValueError, TypeError, KeyError, OverflowError, RecursionError):
            found = _figures(json.loads(line))
            if found is not None:
                return found
    return None


def _figures(line: Mapping[str, Any]) -> LogLine | None:
    rows = int(line["rows"])
    if line["event"] != "progress" or rows <= 0:
        return None
    loss = math.nan if line["loss"] is None else float(line["loss"])
    classifies = line["error"] is not None
    wrong = float(line["error"] if classifies else line["rmse"] or 0.0)
    rate = None if line["rate"] is None else float(line["rate"])
    return LogLine(rows, loss, wrong if classifies else wrong**2, classifies, rate)


def _skip_state(_: Spec) -> bool:
    """Do not load the state: only metrics are needed."""
    return True


def _advance(view: View, rows: int, sums: NDArray[np.float64]) -> View:
    """The view with newer rows, and the difference."""
    if rows == view.rows:
        return view
    return replace(view, rows=rows, sums=sums, since=sums - view.sums)


def views(
    url: str, *, options: Options = None, every: float = 2.0, top: int = 10, log: str = ""
) -> Iterator[View]:
    """Views of a checkpoint, repeatedly, until its run is finished. log: the run's, which has newer
    figures than its commits.

    A missing or unreachable checkpoint is reported and retried.
    """
    view = View(url)
    while not view.finished:
        started = time.monotonic()
        view = _read_view(view, options, top)
        yield with_log(view, log) if log and not view.finished else view
        if not view.finished:
            time.sleep(max(every, PAUSE_FACTOR * (time.monotonic() - started)))


def _read_view(view: View, options: Options, top: int) -> View:
    try:
        return read_view(view, options, top=top)
    except NoCommitError as error:
        return replace(view, problem=f"waiting: {error}")
    except StorageError as error:
        return replace(view, problem=f"retrying: {error}")


def job_views(
    client: Any, name: str, *, options: Options = None, every: float = 2.0, top: int = 10
) -> Iterator[View]:
    """Views of a submitted job, and of its checkpoint if reachable from here, until it ends.

    Raises UsageError for a job unknown to the scheduler; ClusterError if it does not finish.
    """
    from streamomd.distributed import jobs

    view = View(jobs.find(client, name).url)
    while True:
        started = time.monotonic()
        job = jobs.find(client, name)
        status = jobs.status(job, options)
        view = _read_view(view, options, top)
        events = [event for _, event in job.events() if "rows" in event]
        view = replace(view, expected=job.expected, state=status["state"])
        if events and sum(events[-1]["rows"]) > view.rows:
            view = _advance(view, sum(events[-1]["rows"]), np.array(events[-1]["sums"]).sum(axis=0))
        yield view
        if view.state in ENDED_STATES:
            if view.state != "finished":
                raise ClusterError(f"{name} is {view.state}: {status['error']}")
            return
        time.sleep(max(every, PAUSE_FACTOR * (time.monotonic() - started)))


def show_views(shown_views: Iterable[View]) -> View | None:
    """Show views: in place on a terminal, else a block for each changed view; return the last.

    On stdout: they are the command's output.
    """
    last, printed = None, ""
    if sys.stdout.isatty():
        with Live(console=Console(file=sys.stdout), auto_refresh=False) as live:
            for last in shown_views:
                live.update(Text("\n".join(last.lines())), refresh=True)
        return last
    for last in shown_views:
        block = "\n".join(last.lines())
        if block != printed:
            print(block, end="\n\n", flush=True)
        printed = block
    return last
