"""The one learner as a long task on a worker: the submitter only watches.

What the run is lies in its checkpoint, not in the task: Dask runs a lost one again, elsewhere, and
it goes on from the last commit. An older one that still runs somewhere is fenced by the checkpoint.
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
from streamomd.core.urls import shown
from streamomd.distributed.cluster import LostError, outcome, sent
from streamomd.distributed.events import hearing
from streamomd.distributed.scheduler import refuse_lost
from streamomd.training.metrics import Metrics
from streamomd.training.progress import Watcher, note
from streamomd.training.signals import StopRequest

TRIES = 3  # without a row learned in between: Dask itself gives up after four deaths
TOLD_SECONDS, ASKED_SECONDS = 0.5, 1.0


class EventReporter:
    """On the worker: tells how the run goes, and asks whether it is to stop."""

    next_row = math.inf

    def __init__(self, topic: str, stop: StopRequest, client: Client) -> None:
        self._topic, self._stop = topic, stop
        self._signal = Variable(topic, client=client)
        self._told = self._asked = time.monotonic()

    def update(self, metrics: Metrics) -> None:
        """Twice a second an event; once a second a look at what the submitter wants."""
        now = time.monotonic()
        if now - self._told > TOLD_SECONDS:
            self._told = now
            self.finish(metrics)
        if now - self._asked > ASKED_SECONDS:
            self._asked = now
            try:
                self._stop.signal = self._stop.signal or int(self._signal.get(timeout=1))
            except TimeoutError:  # deleted: the submitter has left
                self._stop.signal = self._stop.signal or SIGTERM

    def finish(self, metrics: Metrics) -> None:
        """The figures of the last row."""
        get_worker().log_event(self._topic, figures(metrics))

    def say(self, text: str) -> None:
        """A note for the person."""
        get_worker().log_event(self._topic, {"note": text})

    def close(self) -> None:
        """Nothing is left open."""


def goes_on_elsewhere(client: Client) -> bool:
    """Whether Dask has given this task to another worker, as when this one is retired.

    Dask takes an error of a task from any worker, also from one that it no longer waits for.
    """
    worker = get_worker()
    here, key = (worker.address, worker.contact_address), worker.get_current_task()
    with suppress(OSError, TimeoutError):
        return any(key in keys for at, keys in client.processing().items() if at not in here)
    return False


def figures(metrics: Metrics) -> dict[str, Any]:
    """Metrics as an event carries them."""
    return {
        "rows": list(metrics.rows), "sums": metrics.sums.tolist(), "bad": metrics.bad.tolist()
    }  # fmt: skip


def copy_into(metrics: Metrics, told: dict[str, Any]) -> None:
    """Metrics as an event tells them."""
    metrics.rows = list(told["rows"])
    metrics.sums = np.array(told["sums"], dtype=np.float64).reshape(-1, 3)
    metrics.bad = np.array(told["bad"], dtype=np.int64).reshape(-1, len(REASONS))


@contextmanager
def teller(topic: str, stop: StopRequest) -> Iterator[tuple[Client, EventReporter]]:
    """On the worker: its client, and who tells the submitter. The task gives its thread back, so
    that this worker can also decode."""
    with worker_client(separate_thread=True) as client:
        yield client, EventReporter(topic, stop, client)


@dataclass
class Submitted:
    """A learner's task, as its submitter sees it."""

    client: Client
    task: Callable[..., dict[str, Any]]
    url: str
    arguments: Any
    metrics: Metrics
    watchers: list[Watcher]
    stop: StopRequest
    _heard: list[Any] = field(default_factory=list)
    _asked: float = 0.0

    def result(self) -> dict[str, Any]:
        """Wait for the task's result, watching. Raises what it raised.

        Raises ClusterError where workers die of it, or the scheduler is lost: the last commit
        stands.
        """
        topic = f"omd-learn-{uuid.uuid4().hex[:8]}"
        note("learning on a worker")
        signal = Variable(topic, client=self.client)
        try:
            signal.set(0)
            with hearing(self.client, topic, self._heard.append):
                found = self._tried(topic, signal)
            copy_into(self.metrics, found)
            return found
        except OSError as error:
            refuse_lost(self.client, error)
            raise
        finally:
            self._leave(signal)

    def _tried(self, topic: str, signal: Variable) -> dict[str, Any]:
        tries = 0
        while tries < TRIES:
            rows, key = self.metrics.total_rows, f"{topic}-{uuid.uuid4().hex[:4]}"
            given = (self.url, topic, self.arguments)
            future = sent(self.client, key, self.task, *given, waiting=self._refuse_stopped)
            self._asked = 0.0
            try:
                found: dict[str, Any] = outcome(
                    self.client, future, partial(self._waiting, signal, future)
                )
                return found
            except LostError as error:
                note(f"the learner was lost ({error}); sent again")
                tries = 1 if self.metrics.total_rows > rows else tries + 1
        raise ClusterError(
            f"every worker that learns {shown(self.url)} dies; is the state larger than its "
            f"memory? Look at the workers' logs, then: streamomd resume {shown(self.url)}"
        )

    def _refuse_stopped(self) -> None:
        """Raise StoppedError after a signal, while no learner runs."""
        if self.stop.signal:
            raise StoppedError(
                "stopped while no worker learns: the last commit is intact; resume with: "
                f"streamomd resume {shown(self.url)}",
                signal=self.stop.signal,
            )

    def _waiting(self, signal: Variable, future: Future[Any]) -> None:
        """Show what was heard; hand a signal on, and leave if nobody minds it."""
        while self._heard:
            event = self._heard.pop(0)[1]
            if "note" in event:
                note(event["note"])
            else:
                copy_into(self.metrics, event)
        for watcher in self.watchers:
            watcher.update(self.metrics)
        if not self.stop.signal:
            return
        if not self._asked:
            self._asked = time.monotonic()
            signal.set(self.stop.signal)
        elif time.monotonic() - self._asked > seconds("mind"):
            future.cancel()
            raise StoppedError(
                f"stopped: the learner did not answer in {seconds('mind'):.0f} s, its last commit "
                f"stands; go on with: streamomd resume {shown(self.url)}",
                signal=self.stop.signal,
            )

    def _leave(self, signal: Variable) -> None:
        """Whoever still learns is told to stop, and nothing stays on the scheduler."""
        if self.client.status != "running":
            return
        with suppress(OSError, TimeoutError, ValueError):
            signal.delete()
