"""Watching a run from outside: what its newest commit tells, and what a cluster tells of its job.

Nothing is written. A commit is read once, and no more than a quarter of the time goes into reading.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.live import Live
from rich.text import Text

from streamomd.analysis.history import history, speeds
from streamomd.checkpoint import open_store
from streamomd.checkpoint.commit_list import sequences
from streamomd.config.spec import Spec
from streamomd.core.errors import ClusterError, NoCommitError, StorageError
from streamomd.core.urls import absolute, printable, shown
from streamomd.training.load_model import load_model
from streamomd.training.metrics import Metrics, worded
from streamomd.training.progress import show

Options = Mapping[str, Any] | None
REST = 3.0  # times as long as a look took is waited, at least, before the next
OVER = ("finished", "stopped", "failed", "lost")
"""States of a job that nobody works on any more."""


@dataclass(frozen=True, eq=False)
class View:
    """What is known of a run now.

    sequence, written: of the newest commit; −1 and "" before there is one. rows, sums (importance,
    loss, mistakes), skipped: of that commit, or newer where a cluster tells them. since: the sums
    since the look before. rate: rows a second. expected: rows in all, 0 if nobody knows. state: of
    a job on its cluster. top: the heaviest features, (name, weights). said: what is amiss.
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
    said: str = ""

    def figures(self) -> dict[str, Any]:
        """For JSON: the figures that ``train`` has too, and those of this view."""
        metrics = Metrics(self.classifies)
        told = metrics.figures(self.sums)
        return {
            "url": shown(self.url),
            "rows": self.rows,
            "expected": self.expected or None,
            **told,
            "since_last": metrics.figures(self.since)["loss"],
            "rows_per_second": self.rate,
            "skipped": dict(self.skipped),
            "top": [{"name": name, "weight": list(weight)} for name, weight in self.top],
            "commit": {"sequence": self.sequence, "written": self.written},
            "finished": self.finished,
            "state": self.state or None,
            "said": self.said or None,
        }

    def lines(self) -> Iterator[str]:
        """For a terminal."""
        told = self.figures()
        at = f"commit {self.sequence}, {self.written}" if self.sequence >= 0 else "no commit yet"
        over = "finished" if self.finished else self.state
        yield f"{shown(self.url)}: {at}{f', {over}' if over else ''}"
        share = f" of {self.expected:,} ({self.rows / self.expected:.0%})" if self.expected else ""
        rate = "" if self.rate is None else f", {self.rate:,.0f} rows/s"
        yield f"rows {self.rows:,}{share}{rate}"
        if self.rows:
            wrong = "error" if self.classifies else "rmse"
            last = (
                f", since last {show(told['since_last'])}"
                if 0 < self.since[0] < self.sums[0]
                else ""
            )
            yield f"loss {show(told['loss'])}{last}, {wrong} {show(told[wrong])}"
        if self.skipped:
            yield f"skipped {worded(self.skipped)}"
        for name, weight in self.top:
            yield f"{' '.join(f'{one:>12.6g}' for one in weight)}  {printable(name)}"
        if self.said:
            yield printable(self.said)


def look(view: View, options: Options = None, *, top: int = 10) -> View:
    """The view of the newest commit; the same one if there is none newer.

    Raises NoCommitError where there is none, StorageError where the store does not answer.
    """
    found = sequences(open_store(absolute(view.url), options))
    if found[-1:] == [view.sequence]:
        return replace(view, said="")
    model, loaded = load_model(view.url, storage_options=options, far=None if top else _is_far)
    told, metrics = history(model, options), model.metrics
    pace = speeds(told.commits)
    newer = replace(
        view,
        sequence=model.sequence,
        written=loaded.commit.written,
        expected=told.rows * model.spec.train.epochs,
        classifies=metrics.classifies,
        rate=pace[-1][1] if pace else None,
        skipped=metrics.skipped,
        top=tuple((one["name"], tuple(one["weight"])) for one in model.inspect(top)) if top else (),
        finished=model.finished,
        said="; ".join(f"commit {at} rejected: {why}" for at, why in loaded.rejected),
    )
    return _moved(newer, metrics.total_rows, metrics.total)


def _is_far(_: Spec) -> bool:
    """Only figures are wanted: the state stays where it is."""
    return True


def _moved(view: View, rows: int, sums: NDArray[np.float64]) -> View:
    """The view with newer rows, and what came since."""
    if rows == view.rows:
        return view
    return replace(view, rows=rows, sums=sums, since=sums - view.sums)


def views(
    url: str, *, options: Options = None, every: float = 2.0, top: int = 10
) -> Iterator[View]:
    """Look at a checkpoint again and again, until its run is finished.

    One that is not there yet, or does not answer, is told and asked again.
    """
    view = View(url)
    while not view.finished:
        began = time.monotonic()
        view = _patient(view, options, top)
        yield view
        if not view.finished:
            time.sleep(max(every, REST * (time.monotonic() - began)))


def _patient(view: View, options: Options, top: int) -> View:
    try:
        return look(view, options, top=top)
    except NoCommitError as error:
        return replace(view, said=f"waiting: {error}")
    except StorageError as error:
        return replace(view, said=f"asked again in a moment: {error}")


def job_views(
    client: Any, name: str, *, options: Options = None, every: float = 2.0, top: int = 10
) -> Iterator[View]:
    """Look at a submitted job, and at its checkpoint where that is reached from here, to its end.

    Raises UsageError for a job that the scheduler does not know; ClusterError if it ends otherwise
    than finished.
    """
    from streamomd.distributed import jobs

    view = View(jobs.find(client, name).url)
    while True:
        began = time.monotonic()
        job = jobs.find(client, name)
        status = jobs.status(job, options)
        view = _patient(view, options, top)
        told = [event for _, event in job.events() if "rows" in event]
        view = replace(view, expected=job.expected, state=status["state"])
        if told and sum(told[-1]["rows"]) > view.rows:
            view = _moved(view, sum(told[-1]["rows"]), np.array(told[-1]["sums"]).sum(axis=0))
        yield view
        if view.state in OVER:
            if view.state != "finished":
                raise ClusterError(f"{name} is {view.state}: {status['error']}")
            return
        time.sleep(max(every, REST * (time.monotonic() - began)))


def tell(seen: Iterable[View]) -> View | None:
    """Show views as they come: in place on a terminal, else a block for each that tells something
    new; the last.

    On stdout: they are what was asked for.
    """
    last, told = None, ""
    if sys.stdout.isatty():
        with Live(console=Console(file=sys.stdout), auto_refresh=False) as live:
            for last in seen:
                live.update(Text("\n".join(last.lines())), refresh=True)
        return last
    for last in seen:
        block = "\n".join(last.lines())
        if block != told:
            print(block, end="\n\n", flush=True)
        told = block
    return last
