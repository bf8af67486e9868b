"""The learner as a long task on a worker; the submitting process only watches.

The run is in its checkpoint, not in the task: Dask reruns a lost task on another worker, which
resumes from the last commit. The checkpoint stops an older task that still runs.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from signal import SIGTERM
from typing import Any

import numpy as np
from distributed import Client, Future, Variable, get_worker, worker_client

from streamomd.config.settings import seconds
from streamomd.core.batch import REASONS
from streamomd.core.errors import ClusterError, StoppedError
from streamomd.core.run_events import Event, emit
from streamomd.core.urls import shown
from streamomd.distributed.cluster import TaskLostError, send_task, wait_for_any, wait_for_result
from streamomd.distributed.scheduler import refuse_lost, subscribe_events
from streamomd.distributed.worker_monitor import monitor_of
from streamomd.training.metrics import Metrics
from streamomd.training.progress import Watcher, note
from streamomd.training.signals import StopRequest

ATTEMPTS = 3  # without a row learned between them: Dask itself gives up after four deaths
REPORT_SECONDS, POLL_SECONDS = 0.5, 1.0


class EventReporter(Watcher):
    """On the worker: logs the metrics as events, and reads whether to stop."""

    def __init__(self, topic: str, stop: StopRequest, client: Client) -> None:
        self._topic, self._stop = topic, stop
        self._worker = get_worker()  # which only the task's own thread finds
        self._signal = Variable(topic, client=client)
        self._client = client
        self._is_first = not self._earlier_events()
        # A worker may be lost before the first rows are reported.
        self.log({"note": "", "event": "task_started", "level": "debug", "fields": {}})
        self._report_time = self._asked_at = time.monotonic()

    @property
    def threads(self) -> int:
        """Threads of this worker."""
        return int(self._worker.state.nthreads)

    def rows_before(self) -> int | None:
        """Rows that earlier tasks of the topic reported; None if this is the first one."""
        reported = [event for event in self._earlier_events() if "rows" in event]
        if reported:
            return int(sum(reported[-1]["rows"]))
        return None if self._is_first else 0

    def _earlier_events(self) -> list[dict[str, Any]]:
        with suppress(OSError, TimeoutError):
            return [event for _, event in self._client.get_events(self._topic) or ()]
        return []

    def update(self, metrics: Metrics) -> None:
        """Log an event twice a second; read the stop signal once a second."""
        self.report(partial(metrics_event, metrics))

    def report(self, make: Callable[[], dict[str, Any]], seconds: float = REPORT_SECONDS) -> None:
        """Logs the event that ``make`` returns, every ``seconds``; reads the stop signal once a
        second."""
        now = time.monotonic()
        if now - self._report_time > seconds:
            self._report_time = now
            self.log(make())
        if now - self._asked_at > POLL_SECONDS:
            self._asked_at = now
            try:
                self._stop.signal = self._stop.signal or int(self._signal.get(timeout=1))
            except TimeoutError:  # deleted: the submitter is gone
                self._stop.signal = self._stop.signal or SIGTERM

    def finish(self, metrics: Metrics) -> None:
        """Log the metrics of the last row."""
        self.log(metrics_event(metrics))

    def log(self, event: dict[str, Any]) -> None:
        """Log an event with the rows learned."""
        self._worker.log_event(self._topic, event)

    def receive(self, event: Event) -> None:
        """Pass on an event of the run; notes for the user have a text. Called from any thread."""
        if event.level != "debug":
            fields = {"event": event.name, "level": event.level, "fields": dict(event.fields)}
            self._worker.log_event(self._topic, {"note": event.text, **fields})


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


def pass_on(event: dict[str, Any], reported: set[str] | None = None) -> None:
    """Report a worker's event in this process. reported: texts that workers reported before, which
    are not printed again."""
    if event["note"] and (reported is None or event["note"] not in reported):
        if reported is not None:
            reported.add(event["note"])
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
    """The task of a learner, on the side of its submitter. name: in messages. take: called with the
    figures of events and of the result; None: they are of ``metrics``. reported: see ``pass_on``.
    """

    client: Client
    task: Callable[..., dict[str, Any]]
    url: str
    arguments: Any
    metrics: Metrics
    watchers: Sequence[Watcher]
    stop: StopRequest
    name: str = "the learner"
    take: Callable[[dict[str, Any]], None] | None = None
    reported: set[str] | None = None
    topic: str = field(default_factory=lambda: f"omd-learn-{uuid.uuid4().hex[:8]}")
    _events: list[Any] = field(default_factory=list)
    _asked_at: float = 0.0
    _future: Future[Any] | None = None
    _attempts: int = 0
    _rows_before: int = 0

    def result(self) -> dict[str, Any]:
        """Wait for the task's result and report progress. Raises what it raised.

        Raises ClusterError if workers die repeatedly or the scheduler is lost; the last commit is
        intact.
        """
        note("learning on a worker")
        return learner_results(self.client, [self])[0]

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Inside, the task's events are received, and a signal reaches it."""
        signal = self._signal
        try:
            # Before the task: a missing variable means to it that its submitter is gone.
            signal.set(0)
            with subscribe_events(self.client, self.topic, self._events.append):
                yield
        except OSError as error:
            refuse_lost(self.client, error)
            raise
        finally:
            self._clean_up(signal)

    @cached_property
    def _signal(self) -> Variable:
        return Variable(self.topic, client=self.client)

    def running(self) -> Future[Any]:
        """The task, which is submitted unless there is one."""
        if self._future is None:
            if self._attempts == ATTEMPTS:
                raise ClusterError(
                    f"every worker that learns {shown(self.url)} died; is the state larger than "
                    "its memory? Check the workers' logs, then: streamomd resume "
                    f"{shown(self.url)}"
                )
            self._rows_before, key = self.metrics.total_rows, f"{self.topic}-{uuid.uuid4().hex[:4]}"
            given = (self.url, self.topic, self.arguments)
            waiting = self._refuse_stopped
            self._future = send_task(self.client, key, self.task, *given, waiting=waiting)
            self._asked_at = 0.0
        return self._future

    def outcome(self) -> dict[str, Any] | None:
        """The result of the task, which ended; None if it was lost. Raises what it raised."""
        try:
            figures: dict[str, Any] = wait_for_result(self.client, self.running(), self._report)
        except TaskLostError as error:
            note(f"{self.name} was lost ({error}); submitted again", "learner_lost", "warning")
            # Workers may be replaced all day, as long as rows are learned between.
            learned = self.metrics.total_rows > self._rows_before
            self._attempts = 1 if learned else self._attempts + 1
            self._future = None
            return None
        self._take(figures)
        return figures

    def _take(self, figures: dict[str, Any]) -> None:
        if self.take is None:
            update_metrics(self.metrics, figures)
        else:
            self.metrics.rows = list(figures["rows"])
            self.take(figures)

    def _refuse_stopped(self) -> None:
        """Raise StoppedError after a signal, while no learner runs."""
        if self.stop.signal:
            raise StoppedError(
                "stopped while no worker learns: the last commit is intact; resume with: "
                f"streamomd resume {shown(self.url)}",
                signal=self.stop.signal,
            )

    def _report(self) -> None:
        """Show the events; forward a signal, and raise StoppedError if it has no effect in time."""
        while self._events:
            event = self._events.pop(0)[1]
            # A worker may die before the monitor has seen it.
            monitor_of(self.client).note_event(event)
            if "note" in event:
                pass_on(event, self.reported)
            else:
                self._take(event)
        for watcher in self.watchers:
            watcher.update(self.metrics)
        if not self.stop.signal:
            return
        if not self._asked_at:
            self._asked_at = time.monotonic()
            self._signal.set(self.stop.signal)
        elif time.monotonic() - self._asked_at > seconds("mind"):
            if self._future is not None:
                self._future.cancel()
            raise StoppedError(
                f"stopped: {self.name} did not answer in {seconds('mind'):.0f} s, its last commit "
                f"is intact; resume with: streamomd resume {shown(self.url)}",
                signal=self.stop.signal,
            )

    def _clean_up(self, signal: Variable) -> None:
        """Delete the variable, which stops a learner that still runs."""
        if self.client.status != "running":
            return
        with suppress(OSError, TimeoutError, ValueError):
            # A learner that cannot read it stops, after a commit.
            signal.delete()


def learner_results(
    client: Client,
    learners: Sequence[SubmittedLearner],
    waiting: Callable[[], object] = lambda: None,
) -> list[dict[str, Any]]:
    """The results of learners whose tasks run side by side. ``waiting`` is called twice a second.

    After a signal all of them are waited for, then the first StoppedError is raised. Any other
    error of one ends the others, which commit.
    """
    results: dict[int, dict[str, Any]] = {}
    stopped: dict[int, StoppedError] = {}

    def pending() -> list[int]:
        return [at for at in range(len(learners)) if at not in results and at not in stopped]

    def report() -> None:
        for at in pending():
            with collecting(at):
                learners[at]._report()
        waiting()

    @contextmanager
    def collecting(at: int) -> Iterator[None]:
        try:
            yield
        except StoppedError as error:
            stopped[at] = error

    with ExitStack() as stack:
        for learner in learners:
            stack.enter_context(learner.opened())
        while pending():
            tasks = {}
            for at in pending():
                with collecting(at):
                    tasks[learners[at].running()] = at
            ended = wait_for_any(client, [*tasks], report) if tasks else []
            for at in (tasks[task] for task in ended if tasks[task] in pending()):
                with collecting(at):
                    figures = learners[at].outcome()
                    if figures is not None:
                        results[at] = figures
    if stopped:
        # After all have committed: each of them had the signal.
        raise min(stopped.items())[1]
    return [results[at] for at in range(len(learners))]
