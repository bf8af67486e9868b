"""A cluster as the code under test sees it: a scheduler, workers that die, tasks that run again.

As Dask does: a task whose worker is lost runs elsewhere, unless it may not; four deaths end it; a
result is lost with its worker; what a worker says that was taken off the list is not heard.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from distributed import KilledWorker
from sim_loop import Fiber, Loop, Process, Signal

DEATHS = 3
PATIENCE = 2.0
"""Seconds until a worker that comes back finds that it is not wanted any more."""


class Worker:
    """A process that tasks run in, one at a time but for those that gave their place back."""

    def __init__(self, cluster: Cluster, address: str) -> None:
        self.cluster, self.address = cluster, address
        self.process = cluster.loop.process(address)
        self.process.ends.append(self._ended)
        self.task: Task | None = None
        self.cut_since: float | None = None
        self.silent_since: float | None = None
        self.memory_manager = SimpleNamespace(memory_limit=0)
        self.merged: dict[str, Any] = {}  # results of rounds of averaged mode

    @property
    def seen(self) -> float:
        """When it was last heard of."""
        now = self.cluster.loop.now if self.silent_since is None else self.silent_since
        return now - now % 0.5

    def silent(self, seconds: float, *, paused: bool) -> None:
        """Stopped, or cut off, for so long."""
        loop = self.cluster.loop
        if self.silent_since is not None or self.process.dead:
            return
        self.silent_since = loop.now
        if paused:
            self.process.pause(seconds)
        else:
            self.cut_since = loop.now
        loop.at(seconds, self._back)

    def _back(self) -> None:
        self.silent_since = self.cut_since = None
        if self.address not in self.cluster.workers:
            self.cluster.loop.at(self.cluster.loop.draw.uniform(0.0, PATIENCE), self.process.kill)

    def _ended(self) -> None:
        loop, draw = self.cluster.loop, self.cluster.loop.draw
        loop.at(draw.uniform(0.0, 0.2), lambda: self.cluster.removed(self))
        again = self.address if self.cluster.same else ""
        loop.at(draw.uniform(0.1, 5.0), lambda: self.cluster.add(again))  # its nanny's doing

    def run(self, task: Task, attempt: int) -> None:
        """Begin a task; what comes of it is told to the scheduler."""
        if self.process.dead:
            return
        if any(need.state != "memory" for need in task.needs):  # lost on the way
            self.task = None
            self.tell(lambda: self.cluster.missed(task, attempt))
            return

        given = task.values()

        def work() -> None:
            Here.enter(self, task)
            try:
                value, error = task.function(*given), None
            except Exception as raised:
                value, error = None, raised
            if self.task is task:
                self.task = None
            self.tell(lambda: self.cluster.finished(self, task, attempt, value, error))

        Fiber(self.process, work)

    def tell(self, act: Callable[[], Any]) -> None:
        """Something reaches the scheduler, if this worker is still on its list when it does."""
        loop = self.cluster.loop

        def arrive() -> None:
            if self.cut_since is not None:
                loop.at(0.5, arrive)
            elif self.cluster.workers.get(self.address) is self:
                act()

        loop.at(loop.draw.uniform(0.0, 0.01), arrive)

    def log_event(self, topic: str, message: Any) -> None:
        """For whoever has subscribed."""
        self.tell(lambda: self.cluster.event(topic, message))


class Here:
    """On which worker a fiber runs."""

    @staticmethod
    def enter(worker: Worker, task: Task) -> None:
        worker.cluster.loop.current.here = (worker, task)

    @staticmethod
    def get(loop: Loop) -> tuple[Worker, Task]:
        found: tuple[Worker, Task] = loop.current.here
        return found


@dataclass(eq=False)
class Task:
    """Something to be done: what, where, and how far it is."""

    key: str
    function: Callable[..., Any]
    given: tuple[Any, ...]
    where: list[str] | None
    loose: bool
    priority: int
    number: int
    changed: Signal
    state: str = "waiting"
    worker: Worker | None = None
    value: Any = None
    error: BaseException | None = None
    deaths: int = 0
    attempt: int = 0
    calls: list[Callable[[Any], None]] = field(default_factory=list)

    @property
    def needs(self) -> list[Task]:
        """The tasks whose values it is given."""
        return [one.task for one in self.given if isinstance(one, SimFuture)]

    def values(self) -> list[Any]:
        """What it is given."""
        return [one.task.value if isinstance(one, SimFuture) else one for one in self.given]

    def settle(self, state: str) -> None:
        """It has ended, one way or the other."""
        self.state = state
        self.changed.notify()
        if state in SETTLED:
            for call in self.calls:
                call(None)


SETTLED = ("memory", "erred", "cancelled")


class SimFuture:
    """As distributed.Future."""

    def __init__(self, task: Task) -> None:
        self.task = task

    @property
    def status(self) -> str:
        return {"memory": "finished", "erred": "error", "cancelled": "cancelled"}.get(
            self.task.state, "pending"
        )

    def done(self) -> bool:
        return self.task.state in SETTLED

    def add_done_callback(self, call: Callable[[Any], None]) -> None:
        if self.done():
            call(self)
        else:
            self.task.calls.append(call)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return self.task.error


class Cluster:
    """The scheduler, and all that it knows."""

    def __init__(self, loop: Loop, size: int, slow: float, same: bool) -> None:
        self.loop, self.slow, self.same = loop, slow, same
        self.workers: dict[str, Worker] = {}
        self.tasks: list[Task] = []
        self.submitted: list[Task] = []
        self.queues: dict[str, list[Any]] = {}
        self.variables: dict[str, Any] = {}
        self.heard: dict[str, list[tuple[Process, Callable[[Any], None]]]] = {}
        self.everyone: list[Worker] = []
        self._numbers = itertools.count()
        for _ in range(size):
            self.add()

    def add(self, address: str = "") -> None:
        """Another worker, of another address or the same."""
        worker = Worker(self, address or f"tcp://worker:{next(self._numbers)}")
        if address in self.workers:
            self.removed(self.workers[address])
        self.workers[worker.address] = worker
        self.everyone.append(worker)
        self._place()

    def submit(
        self, key: str, function: Any, given: Any, where: Any, loose: bool, priority: int
    ) -> SimFuture:
        """A task, to be run as soon as there is a place. loose: anywhere once ``where`` is gone."""
        number = next(self._numbers)
        task = Task(key, function, given, where, loose, priority, number, Signal(self.loop))
        self.tasks.append(task)
        self.submitted.append(task)
        self._place()
        return SimFuture(task)

    def forget(self, task: Task) -> None:
        """Nobody wants it; whoever runs it is not told."""
        if task in self.tasks:
            self.tasks.remove(task)
            task.settle("cancelled")

    def finished(
        self, worker: Worker, task: Task, attempt: int, value: Any, error: Exception | None
    ) -> None:
        """A worker tells what came of a task; of an attempt given up before, nobody hears."""
        if task.attempt == attempt and task.state == "processing":
            if error:
                self._fail(task, error)
            else:
                task.value = value
                task.settle("memory")
        self._place()

    def missed(self, task: Task, attempt: int) -> None:
        """What a task needs is not there any more."""
        if task.attempt == attempt and task.state == "processing":
            task.attempt += 1
            task.state, task.worker = "waiting", None
        self._place()

    def _fail(self, task: Task, error: BaseException) -> None:
        """What needs it fails with it."""
        task.error = error
        task.settle("erred")
        for other in self.tasks:
            if task in other.needs and other.state != "erred":
                self._fail(other, error)

    def removed(self, worker: Worker) -> None:
        """A worker is lost, with all results it had."""
        if self.workers.get(worker.address) is not worker:
            return
        del self.workers[worker.address]
        for task in list(self.tasks):
            if task.worker is not worker or task.state not in ("processing", "memory"):
                continue
            task.deaths += task.state == "processing"
            task.attempt += 1
            if task.deaths > DEATHS:
                self._fail(task, KilledWorker(task.key, None, DEATHS))
            else:
                task.state, task.worker, task.value = "waiting", None, None
        self._place()

    def event(self, topic: str, message: Any) -> None:
        """Tell the subscribers."""
        for process, call in self.heard.get(topic, ()):
            if not process.dead:
                call((self.loop.now, message))

    def _place(self) -> None:
        free = [worker for worker in self.workers.values() if worker.task is None]
        wanted = [task for task in self.tasks if task.state == "waiting"]
        for task in sorted(wanted, key=lambda task: (-task.priority, task.number)):
            if any(need.state != "memory" for need in task.needs):
                continue
            where = task.where
            if task.loose and where is not None and self.workers.keys().isdisjoint(where):
                where = None
            fit = [one for one in free if where is None or one.address in where]
            if not fit:
                continue
            worker = self.loop.draw.choice(fit)
            free.remove(worker)
            worker.task, task.worker, task.state = task, worker, "processing"
            self._send(worker, task)

    def _send(self, worker: Worker, task: Task) -> None:
        attempt = task.attempt
        delay = self.loop.draw.uniform(0.0, 2 * self.slow)
        self.loop.at(delay, lambda: worker.run(task, attempt))
