"""Jobs that were left to a cluster: how they are, what they said, and how to stop them.

A job is a task that Dask keeps for nobody in particular, under the job's id. What it learned is in
its checkpoint; how it goes is in the scheduler's events. So whoever reaches the scheduler can ask,
from any machine.
"""

from __future__ import annotations

import datetime
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from signal import SIGTERM
from typing import Any

from distributed import Client, Future, Variable

from streamomd.checkpoint import list_commits, open_store
from streamomd.config.settings import seconds
from streamomd.core.errors import StoppedError, StreamomdError, UsageError
from streamomd.core.urls import scrub, shown
from streamomd.distributed.cluster import sent

PREFIX = "omd-job-"
ROOT = "streamomd"  # of what is noted on the scheduler
SOON = 1.0  # for a scheduler to tell how a task is
POLL = 0.5


@dataclass(frozen=True)
class Job:
    """A job on a scheduler. expected: rows of all epochs. submitted: ISO time. dropped: cancelled
    without an answer."""

    client: Client
    id: str
    url: str
    expected: int
    submitted: str
    dropped: bool = False

    @property
    def future(self) -> Future[Any] | None:
        """Its task; None if the scheduler has none."""
        try:
            found: Future[Any] = self.client.get_dataset(self.id)
        except KeyError:
            return None
        return found

    def events(self) -> list[tuple[float, dict[str, Any]]]:
        """(time, event), oldest first. An event is a note, or rows and sums of every epoch."""
        return [(when, event) for when, event in self.client.get_events(self.id) or ()]


def send(client: Client, task: Callable[..., Any], url: str, options: Any, expected: int) -> str:
    """Leave a run that was begun at ``url`` to the cluster; the job's id."""
    name = PREFIX + uuid.uuid4().hex[:8]
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    noted = {"url": shown(url), "expected": expected, "submitted": now}
    client.set_metadata([ROOT, name], noted)
    Variable(name, client=client).set(0)
    # The job outlives this client: should all workers that are usable now be replaced, any may run
    # it, and one without streamomd only fails it.
    future = sent(
        client, name, task, url, name, options, waiting=lambda: None, elsewhere=True
    )  # fmt: skip
    client.publish_dataset(future, name=name)
    return name


def find(client: Client, name: str) -> Job:
    """The job of that id. Raises UsageError if the scheduler knows none, naming those it knows."""
    known: dict[str, Any] = client.get_metadata([ROOT], default=None) or {}
    if name not in known:
        there = ", ".join(sorted(known)) or "none"
        raise UsageError(
            f"no job {name!r} at this scheduler (known: {there}). A scheduler that restarts "
            "forgets its jobs; their checkpoints stand: streamomd resume URL"
        )
    return Job(client, name, **known[name])


def status(job: Job, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """How a job is: id, state, url, submitted, rows, expected, loss, error, heard, commit.

    state: "waiting" (no worker has begun it), "running", "finished", "stopped", "failed", "lost".
    heard: seconds since it last told of itself, or None. commit: sequence, rows and time of the
    newest one, or None where the checkpoint is not reached from here (``options``: its own).
    """
    # Its state first: what it tells of the end is there before it has ended.
    state, problem = _state(job, begun=bool(job.events()))
    told = [(when, event) for when, event in job.events() if "rows" in event]
    rows, loss = _figures(told[-1][1]) if told else (0, None)
    return {
        "id": job.id,
        "state": state,
        "url": job.url,
        "submitted": job.submitted,
        "rows": rows,
        "expected": job.expected,
        "loss": loss,
        "error": problem,
        "heard": time.time() - told[-1][0] if told and state == "running" else None,
        "commit": _newest(job.url, options),
    }


def lines(job: Job, *, follow: bool = False) -> Iterator[str]:
    """What the job said, a line an event; to its end if ``follow``."""
    told = 0
    while True:
        over = not follow or _state(job, begun=True)[0] not in ("waiting", "running")
        events = job.events()
        # The scheduler keeps the last some thousand.
        for when, event in events[min(told, len(events)) :]:
            yield _line(when, event)
        told = len(events)
        if over:
            return
        time.sleep(POLL)


def cancel(job: Job) -> Job:
    """Have it commit and leave; one that no worker has begun, or that does not mind, is dropped."""
    future = job.future
    Variable(job.id, client=job.client).set(int(SIGTERM))
    if future is None or (job.events() and _settles(future, seconds("mind"))):
        return job
    job.client.unpublish_dataset(job.id)
    job.client.cancel([future], force=True)
    job.client.set_metadata([ROOT, job.id, "dropped"], True)
    return find(job.client, job.id)


def _state(job: Job, *, begun: bool) -> tuple[str, str | None]:
    future = job.future
    if job.dropped:
        return (
            "stopped",
            f"dropped: it did not answer, or had not begun: streamomd resume {shown(job.url)}",
        )
    if future is None:
        return "lost", f"its task is gone: streamomd resume {shown(job.url)}"
    _settles(future, SOON)
    if future.status == "finished":
        return "finished", None
    if future.status == "error":
        error = future.exception(timeout=SOON)
        if isinstance(error, StoppedError):
            return "stopped", str(error)
        return "failed", f"{type(error).__name__}: {scrub(str(error))}"
    return ("running" if begun else "waiting"), None


def _settles(future: Future[Any], limit: float) -> bool:
    """Whether a task ends within some seconds."""
    done = threading.Event()
    future.add_done_callback(lambda _: done.set())
    return done.wait(limit)


def _figures(event: Mapping[str, Any]) -> tuple[int, float | None]:
    importance, loss = (sum(one[at] for one in event["sums"]) for at in (0, 1))
    return sum(event["rows"]), loss / importance if importance > 0.0 else None


def _line(when: float, event: Mapping[str, Any]) -> str:
    moment = datetime.datetime.fromtimestamp(when).astimezone().isoformat(timespec="seconds")
    if "note" in event:
        return f"{moment} {event['note']}"
    rows, loss = _figures(event)
    return f"{moment} {rows:>14,} rows, loss {loss if loss is None else format(loss, '.6f')}"


def _newest(url: str, options: Mapping[str, Any] | None) -> dict[str, Any] | None:
    try:
        last = list_commits(open_store(url, options))[-1]
    except (StreamomdError, OSError):
        return None
    return {key: last[key] for key in ("sequence", "rows", "written")}
