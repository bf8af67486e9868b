"""The learner as a long task on a worker; the submitting process only watches.

The run is in its checkpoint, not in the task: Dask reruns a lost task on another worker, which
resumes from the last commit. The checkpoint stops an older task that still runs.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from signal import SIGTERM
from typing import Any

import numpy as np
from distributed import Client, Future, Variable, get_worker, worker_client

from streamomd.config.settings import seconds
from streamomd.core.batch import REASONS
from streamomd.core.errors import ClusterError, StoppedError
from streamomd.core.run_events import Event, emit
from streamomd.core.urls import shown
from streamomd.distributed.cluster import TaskLostError, send_task, wait_for_result
from streamomd.distributed.events import subscribe_events
from streamomd.distributed.scheduler import refuse_lost
from streamomd.training.metrics import Metrics
from streamomd.training.progress import Watcher, note
from streamomd.training.signals import StopRequest

ATTEMPTS = 3  # without a row learned between them: Dask itself gives up after four deaths
REPORT_SECONDS, POLL_SECONDS = 0.5, 1.0


class EventReporter:
    """On the worker: logs the metrics as events, and reads whether to stop."""

    next_row = math.inf

    def __init__(self, topic: str, stop: StopRequest, client: Client) -> None:
        self._topic, self._stop = topic, stop
        self._worker = get_worker()  # which only the task's own thread finds
        self._signal = Variable(topic, client=client)
        self._report_time = self._asked_at = time.monotonic()

    def update(self, metrics: Metrics) -> None:
        """Log an event twice a second; read the stop signal once a second."""
        now = time.monotonic()
        if now - self._report_time > REPORT_SECONDS:
            self._report_time = now
            self.finish(metrics)
        if now - self._asked_at > POLL_SECONDS:
            self._asked_at = now
            try:
                self._stop.signal = self._stop.signal or int(self._signal.get(timeout=1))
            except TimeoutError:  # deleted: the submitter is gone
                self._stop.signal = self._stop.signal or SIGTERM

    def finish(self, metrics: Metrics) -> None:
        """Log the metrics of the last row."""
        self._worker.log_event(self._topic, metrics_event(metrics))

    def receive(self, event: Event) -> None:
        """Pass on an event of the run; notes for the user have a text. Called from any thread."""
        if event.level != "debug":
            fields = {"event": event.name, "level": event.level, "fields": dict(event.fields)}
            self._worker.log_event(self._topic, {"note": event.text, **fields})

    def close(self) -> None:
        """Nothing to close."""


def rows_reported(client: Client, topic: str) -> int | None:
    """Rows that an earlier task of the topic had learned; None if this is the first one."""
    with suppress(OSError, TimeoutError):
        events = [event for _, event in client.get_events(topic) or () if "rows" in event]
        return sum(events[-1]["rows"]) if events else None
    return None


def was_reassigned(client: Client) -> bool:
    """Whether Dask reassigned this task to another worker, for example because this one retires.

    Dask accepts an error of a task from any worker, even from one it no longer waits for.
    """
    worker = get_worker()
    own_addresses, key = (worker.address, worker.contact_address), worker.get_current_task()
    with suppress(OSError, TimeoutError):
        return any(
            key in keys
            for address, keys in client.processing().items()
            if address not in own_addresses
        )
    return False


def metrics_event(metrics: Metrics) -> dict[str, Any]:
    """The event of these metrics."""
    return {
        "rows": list(metrics.rows), "sums": metrics.sums.tolist(), "bad": metrics.bad.tolist()
    }  # fmt: skip


def update_metrics(metrics: Metrics, event: dict[str, Any]) -> None:
    """Set the metrics from an event."""
    metrics.rows = list(event["rows"])
    metrics.sums = np.array(event["sums"], dtype=np.float64).reshape(-1, 3)
    metrics.bad = np.array(event["bad"], dtype=np.int64).reshape(-1, len(REASONS))


def pass_on(event: dict[str, Any]) -> None:
    """Report a worker's event in this process."""
    if event["note"]:
        note(event["note"], event["event"], event["level"], **event["fields"])
    else:
        emit(event["event"], "", event["level"], **event["fields"])


@contextmanager
def event_reporter(topic: str, stop: StopRequest) -> Iterator[tuple[Client, EventReporter]]:
    """On the worker: its client, and the reporter to the submitter. The task releases its thread,
    so that this worker can also decode."""
    with worker_client(separate_thread=True) as client:
        yield client, EventReporter(topic, stop, client)


@dataclass
class SubmittedLearner:
    """The task of a learner, on the side of its submitter."""

    client: Client
    task: Callable[..., dict[str, Any]]
    url: str
    arguments: Any
    metrics: Metrics
    watchers: list[Watcher]
    stop: StopRequest
    _events: list[Any] = field(default_factory=list)
    _asked_at: float = 0.0

    def result(self) -> dict[str, Any]:
        """Wait for the task's result and report progress. Raises what it raised.

        Raises ClusterError if workers die repeatedly or the scheduler is lost; the last commit is
        intact.
        """
        topic = f"omd-learn-{uuid.uuid4().hex[:8]}"
        note("learning on a worker")
        signal = Variable(topic, client=self.client)
        try:
            signal.set(0)
            with subscribe_events(self.client, topic, self._events.append):
                found = self._run(topic, signal)
            update_metrics(self.metrics, found)
            return found
        except OSError as error:
            refuse_lost(self.client, error)
            raise
        finally:
            self._clean_up(signal)

    def _run(self, topic: str, signal: Variable) -> dict[str, Any]:
        attempts = 0
        while attempts < ATTEMPTS:
            rows, key = self.metrics.total_rows, f"{topic}-{uuid.uuid4().hex[:4]}"
            given = (self.url, topic, self.arguments)
            future = send_task(self.client, key, self.task, *given, waiting=self._refuse_stopped)
            self._asked_at = 0.0
            try:
                found: dict[str, Any] = wait_for_result(
                    self.client, future, partial(self._report, signal, future)
                )
                return found
            except TaskLostError as error:
                note(f"the learner was lost ({error}); submitted again", "learner_lost", "warning")
                attempts = 1 if self.metrics.total_rows > rows else attempts + 1
        raise ClusterError(
            f"every worker that learns {shown(self.url)} died; is the state larger than its "
            f"memory? Check the workers' logs, then: streamomd resume {shown(self.url)}"
        )

    def _refuse_stopped(self) -> None:
        """Raise StoppedError after a signal, while no learner runs."""
        if self.stop.signal:
            raise StoppedError(
                "stopped while no worker learns: the last commit is intact; resume with: "
                f"streamomd resume {shown(self.url)}",
                signal=self.stop.signal,
            )

    def _report(self, signal: Variable, future: Future[Any]) -> None:
        """Show the events; forward a signal, and raise StoppedError if it has no effect in time."""
        while self._events:
            event = self._events.pop(0)[1]
            if "note" in event:
                pass_on(event)
            else:
                update_metrics(self.metrics, event)
        for watcher in self.watchers:
            watcher.update(self.metrics)
        if not self.stop.signal:
            return
        if not self._asked_at:
            self._asked_at = time.monotonic()
            signal.set(self.stop.signal)
        elif time.monotonic() - self._asked_at > seconds("mind"):
            future.cancel()
            raise StoppedError(
                f"stopped: the learner did not answer in {seconds('mind'):.0f} s, its last commit "
                f"is intact; resume with: streamomd resume {shown(self.url)}",
                signal=self.stop.signal,
            )

    def _clean_up(self, signal: Variable) -> None:
        """Delete the variable, which stops a learner that still runs."""
        if self.client.status != "running":
            return
        with suppress(OSError, TimeoutError, ValueError):
            signal.delete()
