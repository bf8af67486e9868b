"""Jobs submitted to a cluster: their status, their log, and how to cancel them.

A job is a Dask task published under the job's id, independent of any client. Its model is in its
checkpoint, its progress in the scheduler's events. So any client of the scheduler can query it,
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
from streamomd.distributed.cluster import send_task

PREFIX = "omd-job-"
ROOT = "streamomd"  # key of the metadata on the scheduler
STATUS_SECONDS = 1.0  # for a scheduler to report the state of a task
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Job:
    """A job on a scheduler. expected: rows of all epochs, 0 of one that follows. submitted: ISO
    time. dropped: cancelled without an answer."""

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
        """(time, event), oldest first: events of the run, or the rows and sums of every epoch."""
        return [(when, event) for when, event in self.client.get_events(self.id) or ()]


def send(
    client: Client,
    task: Callable[..., Any],
    url: str,
    options: Any,
    expected: int,
    resources: Mapping[str, float],
) -> str:
    """Submit the run at ``url`` to the cluster; return the job's id. resources: of the worker that
    learns, which the job holds while it runs."""
    name = PREFIX + uuid.uuid4().hex[:8]
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    record = {"url": shown(url), "expected": expected, "submitted": now}
    client.set_metadata([ROOT, name], record)
    # Before the task runs: it reads from this variable whether to stop.
    Variable(name, client=client).set(0)
    # The job outlives this client: if all currently usable workers are replaced, any worker may
    # run it, and one without streamomd only fails it.
    future = send_task(
        client, name, task, url, name, options, waiting=lambda: None, any_worker=True,
        resources=resources,
    )  # fmt: skip
    client.publish_dataset(future, name=name)
    return name


def find(client: Client, name: str) -> Job:
    """The job of that id. Raises UsageError naming the known jobs if there is none."""
    known: dict[str, Any] = client.get_metadata([ROOT], default=None) or {}
    if name not in known:
        known_names = ", ".join(sorted(known)) or "none"
        raise UsageError(
            f"no job {name!r} at this scheduler (known: {known_names}). A restarted scheduler "
            "has no jobs; their checkpoints are intact: streamomd resume URL"
        )
    return Job(client, name, **known[name])


def status(job: Job, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Status of a job: id, state, url, submitted, rows, expected, loss, error, last_report,
    commit.

    state: "waiting" (no worker has its task), "running", "finished", "stopped", "failed", "lost".
    rows: of the newest commit where no worker has the job any more, since later rows are lost.
    last_report: seconds since its last event, only of a running job that has one.
    commit: sequence, rows and time of the newest one, or None if the checkpoint is not reachable
    from here (``options``: its storage options).
    """
    # The state first: the last events are logged before the task ends.
    state, problem = _state(job, started=bool(job.events()))
    printed = [(when, event) for when, event in job.events() if "rows" in event]
    rows, loss = _figures(printed[-1][1]) if printed else (0, None)
    commit = _newest_commit(job.url, options)
    if state not in ("running", "finished") and commit and commit["rows"] != rows:
        rows, loss = commit["rows"], None
    running = printed and state == "running"
    return {
        "id": job.id,
        "state": state,
        "url": job.url,
        "submitted": job.submitted,
        "rows": rows,
        "expected": job.expected,
        "loss": loss,
        "error": problem,
        **({"last_report": time.time() - printed[-1][0]} if running else {}),
        "commit": commit,
    }


def lines(job: Job, *, follow: bool = False) -> Iterator[str]:
    """The job's log, one line per event; until it ends if ``follow``. Repeated progress is
    printed once."""
    printed, progress = 0.0, None
    while True:
        ended = not follow or _state(job, started=True)[0] not in ("waiting", "running")
        # The scheduler stores only the last few thousand events: their times show which are new.
        for when, event in [one for one in job.events() if one[0] > printed]:
            printed = when
            if event.get("note") == "":  # an event for programs
                continue
            if "note" not in event:
                if _figures(event) == progress:
                    continue
                progress = _figures(event)
            yield _line(when, event)
        if ended:
            return
        time.sleep(POLL_SECONDS)


def cancel(job: Job) -> Job:
    """Have a job commit and stop; one that has not started or does not react is dropped."""
    future = job.future
    Variable(job.id, client=job.client).set(int(SIGTERM))
    if future is None or (job.events() and _ends_within(future, seconds("mind"))):
        return job
    job.client.unpublish_dataset(job.id)
    # force: other clients hold the published task, too.
    job.client.cancel([future], force=True)
    job.client.set_metadata([ROOT, job.id, "dropped"], True)
    return find(job.client, job.id)


def _state(job: Job, *, started: bool) -> tuple[str, str | None]:
    future = job.future
    if job.dropped:
        return (
            "stopped",
            f"dropped: it did not react or had not started: streamomd resume {shown(job.url)}",
        )
    if future is None:
        return "lost", f"its task is gone: streamomd resume {shown(job.url)}"
    # Before its status: a task that no worker has any more may have ended.
    there = started and any(job.id in keys for keys in job.client.processing().values())
    _ends_within(future, STATUS_SECONDS)
    if future.status == "finished":
        return "finished", None
    if future.status == "error":
        error = future.exception(timeout=STATUS_SECONDS)
        if isinstance(error, StoppedError):
            return "stopped", str(error)
        return "failed", f"{type(error).__name__}: {scrub(str(error))}"
    left = (
        "its worker died or left, and no other one has its task yet: if none takes it, cancel it "
        f"and run streamomd resume {shown(job.url)}"
    )
    return ("running", None) if there else ("waiting", left if started else None)


def _ends_within(future: Future[Any], limit: float) -> bool:
    """Whether a task ends within ``limit`` seconds."""
    done = threading.Event()
    future.add_done_callback(lambda _: done.set())
    return done.wait(limit)


def _figures(event: Mapping[str, Any]) -> tuple[int, float | None]:
    importance, loss = (sum(one[at] for one in event["sums"]) for at in (0, 1))
    return sum(event["rows"]), loss / importance if importance > 0.0 else None


def _line(when: float, event: Mapping[str, Any]) -> str:
    time_text = datetime.datetime.fromtimestamp(when).astimezone().isoformat(timespec="seconds")
    if "note" in event:
        return f"{time_text} {event['note']}"
    rows, loss = _figures(event)
    return f"{time_text} {rows:>14,} rows, loss {loss if loss is None else format(loss, '.6f')}"


def _newest_commit(url: str, options: Mapping[str, Any] | None) -> dict[str, Any] | None:
    try:
        # Any problem is the same here: what this machine cannot read is not shown.
        last = list_commits(open_store(url, options))[-1]
    except (StreamomdError, OSError):
        return None
    return {key: last[key] for key in ("sequence", "rows", "written")}
