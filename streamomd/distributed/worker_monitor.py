"""The workers of a cluster as seen by one client: usable, unusable and unresponsive ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

from distributed import Client, Future

from streamomd.config.settings import seconds
from streamomd.config.spec import Spec
from streamomd.core.errors import ClusterError
from streamomd.core.urls import scrub
from streamomd.core.wording import counted
from streamomd.distributed.scheduler import (
    address_of,
    ask_workers,
    refuse_lost,
    removal_of,
    run_on_loop,
)
from streamomd.distributed.worker_probe import VERSION, WorkerChoice, packages_of, send_probe
from streamomd.training.progress import note

ANSWER_POLL_SECONDS, POLL_SECONDS = 0.05, 0.5
LEAVING = ("closing_gracefully", "closing")
"""The status of a worker that was asked to close, as the scheduler reports it."""
Waiting = Callable[[], object]


def is_leaving(worker: Mapping[str, Any]) -> bool:
    """Whether a worker, as the scheduler describes it, was asked to close."""
    return worker.get("status") in LEAVING


def busy_with(worker: Mapping[str, Any]) -> int:
    """How many tasks the threads of a worker run, as it last reported."""
    return int(worker.get("metrics", {}).get("task_counts", {}).get("executing", 0))


class WorkerMonitor:
    """Checks the workers every few seconds during every wait of a client.

    A worker is usable once it has answered the probe with this version of streamomd; one that joins
    later is probed when it is first seen. A worker without heartbeats is removed from the
    scheduler, so that its tasks run on others: Dask itself waits five minutes for a stopped or
    disconnected machine.
    """

    def __init__(self) -> None:
        self._heartbeats: dict[
            str, tuple[float, float]
        ] = {}  # last heartbeat, and when it was first seen
        self._checked = self._last_usable = self._refreshed = time.monotonic()
        self._probes: dict[
            str, tuple[Future[Any], float]
        ] = {}  # not answered yet, and the start time
        self._answers: dict[str, str] = {}  # why a worker is unusable; "": it is usable
        self._reported_late: set[str] = set()
        self._logged: set[str] = set()  # workers whose tasks have logged events
        self._gone: set[str] = set()
        self._probed = False
        self.choice = WorkerChoice()
        self.workers: dict[str, Any] = {}
        """The workers of the choice, as last described by the scheduler."""

    @property
    def usable(self) -> dict[str, Any]:
        """The last known workers that may get tasks: none that was asked to close."""
        return {
            address: self.workers[address]
            for address, reason in [*self._answers.items()]
            if not reason and not is_leaving(self.workers[address])
        }

    @property
    def unusable(self) -> dict[str, str]:
        """Why each of the other workers may not."""
        reason = {address: reason for address, reason in [*self._answers.items()] if reason}
        return reason | {address: self.late(address, at) for address, (_, at) in self.pending}

    @property
    def pending(self) -> list[tuple[str, tuple[Future[Any], float]]]:
        """Workers that have not answered yet: address, probe, and when it was sent."""
        return [*self._probes.items()]

    def late(self, address: str, since: float) -> str:
        """What is known of a worker without an answer since then (``time.monotonic``)."""
        tasks = busy_with(self.workers.get(address, {}))
        why = f"busy with {counted(tasks, 'task')}" if tasks else "busy or unreachable"
        return f"no answer in {time.monotonic() - since:.0f} s: {why}"

    def probe_all(self, client: Client, waiting: Waiting) -> None:
        """Once: probe the current workers and wait until all have answered or ``probe-seconds``
        have passed; then report the others. Raises ClusterError if none is of the choice."""
        if self._probed:
            return
        self.refresh(client)
        self._refuse_others(client)
        self.wait_for_answers(client, seconds("probe"), waiting)
        self._probed = True
        self._report_late()

    def wait_for_answers(self, client: Client, limit: float, waiting: Waiting) -> None:
        """Wait until all workers that were probed have answered, ``limit`` seconds at most."""
        deadline = time.monotonic() + limit
        while self._probes and time.monotonic() < deadline:
            refuse_lost(client)
            waiting()
            time.sleep(ANSWER_POLL_SECONDS)
            self._collect(client)

    def exclude(self, address: str, reason: str) -> None:
        """Use a worker no longer, and report it."""
        self._probes.pop(address, None)
        self._answers[address] = reason
        note(f"worker {address} is not used: {reason}", "worker_unusable", "warning")

    def note_event(self, event: Mapping[str, Any]) -> None:
        """Remember the worker that logged an event: it may be lost before it is seen otherwise."""
        if "worker" in event:
            self._logged.add(str(event["worker"]))

    def refresh(self, client: Client) -> bool:
        """Get the workers from the scheduler and probe new ones; False if it does not answer."""
        found = self._ask(client)
        self._refreshed = time.monotonic()
        self._update(client, found)
        return found is not None

    def wait_for_usable(self, client: Client, waiting: Waiting) -> list[str]:
        """Addresses of the usable workers; waits until there is one.

        Raises ClusterError if none is usable for minutes.
        """
        self.probe_all(client, waiting)
        while True:
            is_stale = time.monotonic() - self._refreshed > seconds("look")
            if is_stale or not self.usable:
                self.refresh(client)
            # In one order, whatever the scheduler's.
            if addresses := sorted(self.usable):
                return addresses
            refuse_lost(client)
            waiting()
            self.check(client)
            time.sleep(POLL_SECONDS)

    def _ask(self, client: Client) -> dict[str, Any] | None:
        """The workers of the choice; None if the scheduler does not answer."""
        found = ask_workers(client)
        if found is None:
            return None
        return {address: one for address, one in found.items() if self.choice.includes(one)}

    def _refuse_others(self, client: Client) -> None:
        """Raise ClusterError if the scheduler has workers, and none of the choice."""
        if self.workers or not (found := ask_workers(client)):
            return
        lines = "".join(
            f"\n{address}: named {one.get('name')}, resources {one.get('resources') or 'none'}"
            for address, one in sorted(found.items())
        )
        raise ClusterError(
            f"no worker of the cluster at {address_of(client)} {self.choice} "
            f"(cluster.workers, cluster.resources); there are:{lines}"
        )

    def refuse_unusable(self, client: Client) -> None:
        """Raise ClusterError if there are workers and all of them are unusable."""
        if self._probes or not all([*self._answers.values()]) or not self._answers:
            return
        lines = "".join(
            f"\n{address}: {reason}" for address, reason in sorted(self._answers.items())
        )
        raise ClusterError(
            f"no worker of the cluster at {address_of(client)} is usable; install streamomd "
            f'{VERSION} on them, or pass --scheduler "" to run without a cluster:{lines}'
        )

    def check(self, client: Client) -> list[str]:
        """Workers that were just removed; see ``check_workers``."""
        now = time.monotonic()
        if now - self._checked < seconds("look"):
            return []
        if now - self._checked > 2 * seconds("silent"):  # the client did not wait in between
            self._heartbeats.clear()
            self._last_usable = now
        self._checked = now
        answered = self._ask(client)
        self._update(client, answered)
        found = answered or {}
        self._heartbeats = {
            address: self._heartbeat(address, found[address], now) for address in found
        }
        silent = [
            address
            for address, (_, seen_at) in self._heartbeats.items()
            if now - seen_at > seconds("silent")
        ]
        for address in silent:
            self._gone.add(address)
            _unregister(client, address)
            self._forget(address)
            self.workers = {at: one for at, one in self.workers.items() if at != address}
        missing = f"no {'usable ' if found else ''}worker at {address_of(client)}"
        if found and (self.usable or self._probes):
            self._last_usable = now
        elif now - self._last_usable > seconds("lonely"):
            raise ClusterError(f"{missing} for {now - self._last_usable:.0f} s")
        if not (found and self.usable):
            note(f"{missing}: waiting", "no_worker", "warning")
        return silent

    def _heartbeat(self, address: str, worker: dict[str, Any], now: float) -> tuple[float, float]:
        before = self._heartbeats.get(address)
        heartbeat = worker["last_seen"]
        return before if before is not None and before[0] == heartbeat else (heartbeat, now)

    def _update(self, client: Client, found: dict[str, Any] | None) -> None:
        if found is None:  # no answer: nothing is known about the workers
            return
        self.report_losses(client, found)
        self.workers = found
        for address in {*self._probes, *self._answers} - {*found}:
            self._forget(address)
        for address in found:
            if address not in self._probes and address not in self._answers:
                try:
                    probe = send_probe(client, address, self.choice.packages)
                    self._probes[address] = probe, time.monotonic()
                except Exception as error:
                    refuse_lost(client, error)
                    raise
        self._collect(client)
        self._report_late()

    def report_losses(self, client: Client, found: Mapping[str, Any]) -> None:
        """Report workers that are not among those that the scheduler has."""
        self._gone -= {*found}
        for address in ({*self.workers} | self._logged) - {*found} - self._gone:
            self._gone.add(address)
            _report_gone(client, address)

    def _forget(self, address: str) -> None:
        self._probes.pop(address, None)
        self._answers.pop(address, None)
        self._reported_late.discard(address)

    def _collect(self, client: Client) -> None:
        """Collect the answers of finished probes."""
        for address, (probe, _) in [*self._probes.items()]:
            if probe.status == "pending":
                continue
            self._probes.pop(address, None)
            with suppress(OSError, TimeoutError, CancelledError):  # lost in transit: probed again
                reason = scrub(_answer(client, probe))
                self._answers[address] = reason
                if reason:
                    note(f"worker {address} is not used: {reason}", "worker_unusable", "warning")

    def _report_late(self) -> None:
        now, limit = time.monotonic(), seconds("probe")
        for address, (_, seen_at) in [*self._probes.items()]:
            if now - seen_at >= limit and address not in self._reported_late:
                self._reported_late.add(address)
                note(
                    f"worker {address} did not answer in {limit:.0f} s (busy or unreachable): "
                    "it is not used until it does",
                    "worker_late",
                    "warning",
                )


_monitors: WeakKeyDictionary[Client, WorkerMonitor] = WeakKeyDictionary()


def monitor_of(client: Client) -> WorkerMonitor:
    """The monitor of a client."""
    return _monitors.setdefault(client, WorkerMonitor())


def choose_workers(
    client: Client, spec: Spec, excluded: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Have a client use only the workers that a job may use. excluded: those that are unfit for it,
    each with the reason."""
    cluster, urls = spec.cluster, (spec.checkpoint.url, *spec.data.shards)
    monitor = monitor_of(client)
    monitor.choice = WorkerChoice(cluster.workers, cluster.resources, packages_of(urls))
    for address, reason in excluded.items():
        monitor.exclude(address, reason)


def check_workers(client: Client) -> list[str]:
    """Check the workers during a wait; return those that were just removed.

    Raises ClusterError if there was no usable worker for minutes.
    """
    return monitor_of(client).check(client)


def usable_workers(client: Client, waiting: Waiting = lambda: None) -> dict[str, Any]:
    """The scheduler's current information about each usable worker, by address."""
    monitor = monitor_of(client)
    monitor.probe_all(client, waiting)
    return monitor.usable if monitor.refresh(client) else {}


def probe_workers(client: Client, waiting: Waiting) -> None:
    """Probe all workers and report unusable ones.

    Raises ClusterError if there are workers and none is usable.
    """
    monitor = monitor_of(client)
    monitor.probe_all(client, waiting)
    monitor.refuse_unusable(client)


def note_unused(parts: int, workers: int) -> None:
    """Report workers that get nothing to do, because there are fewer parts."""
    if parts < workers:
        note(f"{parts} of {workers} workers are used; set train.parts")


def report_last_losses(client: Client) -> None:
    """Report workers that were lost since the last check."""
    monitor = _monitors.get(client)
    if monitor is not None and client.status == "running":
        found = ask_workers(client)
        if found is not None:
            monitor.report_losses(client, found)


def drop_monitor(client: Client) -> None:
    """Drop the monitor of a client; unanswered probes are released."""
    _monitors.pop(client, None)


def _answer(client: Client, probe: Future[Any]) -> str:
    if probe.status == "error":
        error = probe.exception(timeout=seconds("answer"))
        return f"the probe failed: {type(error).__name__}: {error}"

    async def gather() -> Any:
        return await client.gather([probe], asynchronous=True)

    return str(run_on_loop(client, gather()).result(seconds("answer"))[0])


def _unregister(client: Client, address: str) -> None:
    scheduler: Any = client.scheduler
    unregistering = scheduler.unregister(address=address, stimulus_id="streamomd-silent")
    with suppress(OSError, TimeoutError):
        run_on_loop(client, unregistering).result(seconds("answer"))
    # After it was removed: only then the scheduler says what runs again.
    again, _ = _lost_tasks(client, address)
    text = f"worker {address} does not answer: {counted(again, 'task')} run again on other workers"
    note(text, "worker_lost", "warning", worker=address, tasks_again=again)


def _report_gone(client: Client, address: str) -> None:
    """Report a worker that the scheduler no longer has, and how many tasks run again for it."""
    again, expected = _lost_tasks(client, address)
    event = ("left", "worker_left", "info") if expected else ("died", "worker_lost", "warning")
    text = f"worker {address} {event[0]}: {counted(again, 'task')} run again"
    note(text, *event[1:], worker=address, tasks_again=again)


def _lost_tasks(client: Client, address: str) -> tuple[int, bool]:
    """The number of tasks that run again because a worker is gone, and whether it was to go.

    As the scheduler recorded it; (0, False) if it does not answer.
    """
    gone = removal_of(client, address)
    keys = {*gone.get("processing-tasks", ()), *gone.get("lost-computed-tasks", ())}
    # An owner's task ends with its worker: its group starts again.
    ours = [key for key in map(str, keys) if key.startswith("omd-")]
    again = [key for key in ours if not key.startswith(("omd-probe", "omd-owner"))]
    return len(again), bool(gone.get("expected"))
