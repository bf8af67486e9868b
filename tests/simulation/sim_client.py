"""A cluster's scheduler as the code under test speaks with it: client, queue, variable, results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from sim_cluster import Cluster, Here, SimFuture, Task
from sim_loop import Loop, Process, Signal


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
        resources: Any = None,
        workers: Any = None,
        allow_other_workers: bool = False,
    ) -> SimFuture:
        future = self.cluster.submit(key, function, given, workers, allow_other_workers, priority)
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
