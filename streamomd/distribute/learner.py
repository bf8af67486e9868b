"""The one learner as a long task on a worker: the submitter only watches.

What the run is lies in its checkpoint, not in the task: Dask runs a lost one again, elsewhere, and
it goes on from the last commit. An older one that still runs somewhere is fenced by the checkpoint.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from distributed import Client, KilledWorker, Variable, get_worker, worker_client

from streamomd.distribute.cluster import settled, told
from streamomd.errors import ClusterError
from streamomd.metrics import Metrics
from streamomd.report import Watcher, note
from streamomd.stop import StopRequest

TRIES = 3  # of the whole task: Dask itself gives up after four deaths
TOLD_SECONDS, ASKED_SECONDS = 0.1, 1.0


class Teller:
    """On the worker: tells how the run goes, and asks whether it is to stop."""

    next_row = math.inf

    def __init__(self, topic: str, stop: StopRequest, client: Client) -> None:
        self._topic, self._stop = topic, stop
        self._signal = Variable(topic, client=client)
        self._told = self._asked = time.monotonic()

    def update(self, metrics: Metrics) -> None:
        """Ten times a second an event; once a second a look at what the submitter wants."""
        now = time.monotonic()
        if now - self._told > TOLD_SECONDS:
            self._told = now
            self.finish(metrics)
        if now - self._asked > ASKED_SECONDS:
            self._asked = now
            try:
                self._stop.signal = self._stop.signal or int(self._signal.get(timeout=1))
            except TimeoutError:  # the submitter has left: the run goes on without it
                self._asked = math.inf

    def finish(self, metrics: Metrics) -> None:
        """The figures of the last row."""
        get_worker().log_event(self._topic, figures(metrics))

    def close(self) -> None:
        """Nothing is left open."""


def figures(metrics: Metrics) -> dict[str, Any]:
    """Metrics as an event carries them."""
    return {"rows": list(metrics.rows), "sums": metrics.sums.tolist()}


def copy_into(metrics: Metrics, told: dict[str, Any]) -> None:
    """Metrics as an event tells them."""
    metrics.rows = list(told["rows"])
    metrics.sums = np.array(told["sums"], dtype=np.float64).reshape(-1, 3)


@contextmanager
def teller(topic: str, stop: StopRequest) -> Iterator[tuple[Client, Teller]]:
    """On the worker: its client, and who tells the submitter. The task gives its thread back, so
    that this worker can also decode."""
    with worker_client(separate_thread=True) as client:
        yield client, Teller(topic, stop, client)


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

    def result(self) -> dict[str, Any]:
        """Wait for the task's result, watching. Raises what it raised.

        Raises ClusterError where workers die of it, or the scheduler is lost: the last commit
        stands.
        """
        topic = f"omd-learn-{uuid.uuid4().hex[:8]}"
        note(f"{told(self.client)}; learning on a worker")
        signal = Variable(topic, client=self.client)
        signal.set(0)
        self.client.subscribe_topic(topic, self._heard)

        def waiting() -> None:
            for watcher in self.watchers:
                watcher.update(self.metrics)
            if self.stop.signal:
                signal.set(self.stop.signal)

        for attempt in range(TRIES):
            future = self.client.submit(
                self.task, self.url, topic, self.arguments, key=f"{topic}-{attempt}", pure=False
            )
            settled(self.client, future, waiting)
            try:
                found: dict[str, Any] = future.result()
            except KilledWorker:
                note(f"workers die of {topic}; sent again from the last commit")
                continue
            self.client.unsubscribe_topic(topic)
            copy_into(self.metrics, found)
            return found
        raise ClusterError(
            f"every worker that learns {self.url} dies; is the state larger than its memory? Look "
            f"at the workers' logs, then: streamomd resume {self.url}"
        )

    def _heard(self, event: tuple[float, dict[str, Any]]) -> None:
        copy_into(self.metrics, event[1])
