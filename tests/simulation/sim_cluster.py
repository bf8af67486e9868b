"""A cluster as the code under test sees it: a scheduler, workers that die, tasks that run again.

As Dask does: a task whose worker is lost runs elsewhere, unless it may not; four deaths end it; a
result is lost with its worker; what a worker says that was taken off the list is not heard.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
        self.held: list[Any] = []  # what averaged mode holds of a commit

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

    def submit(self, key: str, function: Any, given: Any, where: Any, priority: int) -> SimFuture:
        """A task, to be run as soon as there is a place."""
        number = next(self._numbers)
        task = Task(key, function, given, where, priority, number, Signal(self.loop))
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
            fit = [one for one in free if task.where is None or one.address in task.where]
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


class SimClient:
    """As distributed.Client: of a driver, or of a worker that speaks with the scheduler."""

    asynchronous = False
    dashboard_link = ""

    def __init__(self, cluster: Cluster, process: Process) -> None:
        self.cluster, self.process = cluster, process
        self.status, self.loop = "running", None
        self.scheduler = SimpleNamespace(
            address="tcp://scheduler:0", identity=self._identity, unregister=self._unregister
        )
        self._mine: list[Task] = []
        process.ends.append(self._gone)

    def submit(
        self,
        function: Any,
        *given: Any,
        key: str,
        pure: bool,
        priority: int = 0,
        workers: Any = None,
        allow_other_workers: bool = False,
    ) -> SimFuture:
        future = self.cluster.submit(key, function, given, workers, priority)
        self._mine.append(future.task)
        return future

    def cancel(self, futures: list[SimFuture], force: bool = False) -> None:
        for future in futures:
            self.cluster.forget(future.task)

    def _gone(self) -> None:
        for task in self._mine:
            self.cluster.forget(task)

    async def gather(
        self, futures: list[SimFuture], direct: Any = None, asynchronous: bool = True
    ) -> list[Any]:
        [future] = futures
        while not (future.done() and _at_hand(future)):
            await Coming.until(future.task.changed)
        if future.task.error:
            raise future.task.error
        return [future.task.value]

    def subscribe_topic(self, topic: str, call: Callable[[Any], None]) -> None:
        self.cluster.heard.setdefault(topic, []).append((self.process, call))

    def unsubscribe_topic(self, topic: str) -> None:
        self.cluster.heard.pop(topic, None)

    async def _identity(self, n_workers: int) -> dict[str, Any]:
        told = {
            address: {"last_seen": worker.seen, "nthreads": 1, "memory_limit": 0}
            for address, worker in self.cluster.workers.items()
        }
        return {"workers": told}

    async def _unregister(self, address: str, stimulus_id: str) -> None:
        worker = self.cluster.workers.get(address)
        if worker:
            self.cluster.removed(worker)


def _at_hand(future: SimFuture) -> bool:
    worker = future.task.worker
    return worker is None or future.task.state != "memory" or worker.silent_since is None


class Coming:
    """As concurrent.futures.Future, of a coroutine that goes on while its result is asked for."""

    def __init__(self, loop: Loop, work: Any) -> None:
        self._loop, self._work = loop, work
        self._found: Any = None
        self._error: BaseException | None = None
        self._ended = False

    class until:
        """Awaited: a signal."""

        def __init__(self, signal: Signal) -> None:
            self._signal = signal

        def __await__(self) -> Iterator[Signal]:
            yield self._signal

    def result(self, timeout: float) -> Any:
        deadline = self._loop.now + timeout
        while not self._ended:
            try:
                signal = self._work.send(None)
            except StopIteration as stop:
                self._found, self._ended = stop.value, True
            except Exception as error:
                self._error, self._ended = error, True
            else:
                if self._loop.now >= deadline:
                    raise TimeoutError
                signal.wait(min(0.5, deadline - self._loop.now + 1e-6))
        if self._error:
            raise self._error
        return self._found

    def done(self) -> bool:
        return self._ended

    def cancel(self) -> None:
        self._work.close()


class SimQueue:
    """As distributed.Queue."""

    def __init__(self, name: str, client: SimClient) -> None:
        self._name, self._client = name, client
        self._cluster = client.cluster

    def _items(self) -> list[Any]:
        answered(self._client)
        return self._cluster.queues.setdefault(self._name, [])

    def qsize(self, callback_timeout: float) -> int:
        return len(self._items())

    def get(self, callback_timeout: float) -> Any:
        found = self._items().pop(0)
        answered(self._client)
        return found

    def put(self, value: Any, callback_timeout: float) -> None:
        self._items().append(value)

    def close(self) -> None:
        self._cluster.queues.pop(self._name, None)


class SimVariable:
    """As distributed.Variable."""

    def __init__(self, name: str, client: SimClient) -> None:
        self._name, self._client = name, client
        self._all = client.cluster.variables

    def set(self, value: Any, callback_timeout: float) -> None:
        answered(self._client)
        self._all[self._name] = dict(value)

    def get(self, timeout: float, callback_timeout: float) -> Any:
        answered(self._client)
        if self._name not in self._all:
            self._client.cluster.loop.sleep(timeout)
            if self._name not in self._all:
                raise TimeoutError
        found = dict(self._all[self._name])
        answered(self._client)
        return found

    def delete(self) -> None:
        self._all.pop(self._name, None)


def answered(client: SimClient) -> None:
    """A question to the scheduler, or its answer, is under way; while it is cut off, it waits."""
    loop = client.cluster.loop
    loop.sleep(loop.draw.uniform(0.0, client.cluster.slow))
    worker = next((one for one in client.cluster.everyone if one.process is client.process), None)
    while worker and worker.cut_since is not None:
        loop.sleep(0.5)
        if worker.cut_since is not None and loop.now - worker.cut_since > 30.0:
            raise TimeoutError


@contextmanager
def worker_client(loop: Loop) -> Iterator[SimClient]:
    """As distributed.worker_client: the task gives its place back."""
    worker, task = Here.get(loop)
    if worker.task is task:
        worker.task = None
    worker.cluster._place()
    yield SimClient(worker.cluster, worker.process)
