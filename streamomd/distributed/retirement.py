"""A worker that is asked to close waits until the work on it is committed.

``retire_workers``, an adaptive cluster and SIGTERM of a ``dask worker`` announce that a worker
closes: Dask calls ``teardown`` of its plugins first, and closes it when they have returned.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from signal import SIGTERM
from typing import Any, TypeVar

from distributed import Client, Worker, WorkerPlugin, get_worker
from distributed.core import Status

from streamomd.config.settings import seconds
from streamomd.core.errors import StoppedError
from streamomd.distributed.connect import accepts_connections
from streamomd.distributed.scheduler import left_as_expected, workers_of
from streamomd.distributed.worker_monitor import LEAVING, is_leaving
from streamomd.training.metrics import Metrics
from streamomd.training.progress import Watcher
from streamomd.training.signals import StopRequest

POLL_SECONDS = 0.05
ADD_SECONDS = 30.0  # for a busy event loop to add a plugin
STARTED, LEFT = "learner_started", "learner_left"
"""Events of a learner's topic, for the task that continues elsewhere."""
T = TypeVar("T")


class _Hold(WorkerPlugin):
    """A plugin of one worker, added by the task that it waits for."""

    def __init__(self) -> None:
        self.released = threading.Event()

    async def teardown(self, worker: Worker) -> None:
        """Called by Dask before it closes anything. A scheduler that is lost waits for nothing."""
        deadline = time.monotonic() + seconds("mind")
        while not self.released.is_set() and time.monotonic() < deadline:
            if worker.batched_stream is None or worker.batched_stream.closed():
                return
            await asyncio.sleep(POLL_SECONDS)


@contextmanager
def holding_close(worker: Worker) -> Iterator[threading.Event]:
    """Inside, a worker that is asked to close stays, for ``mind-seconds`` at most; until the end,
    or until the event is set. Called by a task in a thread of its own."""
    hold, name = _Hold(), f"streamomd-{uuid.uuid4().hex[:8]}"
    loop: Any = worker.loop.asyncio_loop  # type: ignore[attr-defined]
    adding = asyncio.run_coroutine_threadsafe(worker.plugin_add(hold, name=name), loop)
    adding.result(ADD_SECONDS)
    try:
        yield hold.released
    finally:
        hold.released.set()
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(worker.plugins.pop, name, None)


class Retirement(Watcher):
    """A watcher that has the learner stop, and commit, where its worker is asked to close."""

    def __init__(self, stop: StopRequest, topic: str) -> None:
        self.worker = get_worker()  # which only the task's own thread finds
        self._stop, self._topic = stop, topic
        self._passed: Status | None = None
        self.leaves = False
        self._log(STARTED)

    def update(self, _: Metrics) -> None:
        """Request a stop if the worker was asked to close."""
        status = self.worker.status
        if status.name in LEAVING and status != self._passed and not self._stop.signal:
            self.leaves, self._stop.signal = True, SIGTERM

    def report_left(self) -> None:
        """Report that the commit is made: the task that continues elsewhere waits for that."""
        self._passed = self.worker.status
        self._log(LEFT)

    def resume(self) -> None:
        """The worker stays after all."""
        self.leaves, self._stop.signal = False, 0
        self._log(STARTED)

    def _log(self, name: str) -> None:
        event = {"note": "", "event": name, "level": "debug", "fields": {}}
        self.worker.log_event(self._topic, event)


def learn_until_moved(
    client: Client, topic: str, stop: StopRequest, learn: Callable[[Retirement], T]
) -> T | None:
    """What ``learn`` returns, called on a worker; None if the worker was asked to close.

    Then ``learn`` has committed, and Dask has started the task again on another worker. learn:
    resumes from the last commit; updates the watcher that it gets. Raises what it raises.
    """
    _wait_for_commit(client, topic)
    retirement = Retirement(stop, topic)
    while True:
        with holding_close(retirement.worker) as committed:
            try:
                return learn(retirement)
            except StoppedError:
                if not retirement.leaves:
                    raise
            retirement.report_left()
            committed.set()
            if _has_moved(client, retirement.worker):
                return None
        retirement.resume()


def _wait_for_commit(client: Client, topic: str) -> None:
    """Wait while an earlier task of the topic commits, on a worker that was asked to close."""
    deadline = time.monotonic() + seconds("mind")
    while (address := _last_learner(client, topic)) and time.monotonic() < deadline:
        known = workers_of(client).get(address)
        # Only one that was asked to close still commits; one that died will not.
        was_asked = is_leaving(known) if known else left_as_expected(client, address)
        if not (was_asked and accepts_connections(address)):
            return  # it died, or its task is started again there
        time.sleep(4 * POLL_SECONDS)


def _last_learner(client: Client, topic: str) -> str | None:
    """The worker of the last task of a topic, unless it has left."""
    with suppress(OSError, TimeoutError):
        events = [event for _, event in client.get_events(topic) or () if "worker" in event]
        ours = [one for one in events if one.get("event") in (STARTED, LEFT)]
        if ours and ours[-1]["event"] == STARTED:
            return str(ours[-1]["worker"])
    return None


def _has_moved(client: Client, worker: Worker) -> bool:
    """Whether the scheduler has removed this worker, or closes it; False if it stays."""
    deadline = time.monotonic() + seconds("mind")
    while time.monotonic() < deadline:
        # The scheduler starts tasks again elsewhere once it has removed their worker.
        if worker.address not in workers_of(client):  # also if there is no answer
            return True
        if worker.status.name not in LEAVING:
            return bool(worker.status != Status.running)
        time.sleep(POLL_SECONDS)
    return bool(worker.status != Status.closing_gracefully)
