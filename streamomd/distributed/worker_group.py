"""A group of owners on the driver's side: submit, connect, watch and end them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from distributed import Client, Future, Queue, Variable
from distributed.scheduler import heartbeat_interval

from streamomd.config.settings import seconds
from streamomd.core.errors import SchedulerLostError
from streamomd.distributed.cluster import send_task
from streamomd.distributed.connect import CONNECT_SECONDS, accepts_connections
from streamomd.distributed.partition_owner import OwnerSetup, run_owner
from streamomd.distributed.scheduler import ask_workers, left_as_expected, refuse_lost
from streamomd.distributed.star import HEARTBEAT_TIMEOUT_SECONDS, PeerLostError
from streamomd.distributed.worker_monitor import check_workers, is_leaving
from streamomd.training.progress import note

STOPPED_SECONDS = 20.0  # without a heartbeat from a machine that answers
GRACE_SECONDS = HEARTBEAT_TIMEOUT_SECONDS + 2.0  # for the others to detect a lost owner and end


@dataclass(eq=False)
class GroupMembers:
    """The owners of a group: the worker and the task of each.

    exchanged: whether they have completed a round. From then on their own heartbeats decide, which
    are more reliable: a worker's event loop may be busy. patience: factor on the time limit before.
    """

    addresses: Sequence[str]
    tasks: list[Future[Any]] = field(default_factory=list)
    exchanged: bool = False
    patience: int = 1
    _heartbeats: dict[str, tuple[float, float]] = field(default_factory=dict)

    def find_lost(self, workers: Mapping[str, Any]) -> list[str]:
        """Addresses whose worker the scheduler does not have; before the first round also those
        without heartbeats. workers: the scheduler's current information."""
        now, lost = time.monotonic(), []
        limit = max(
            HEARTBEAT_TIMEOUT_SECONDS - CONNECT_SECONDS, 4 * heartbeat_interval(len(workers))
        )
        for address in self.addresses:
            if address not in workers:
                lost.append(address)
                continue
            heartbeat, before = workers[address]["last_seen"], self._heartbeats.get(address)
            if before is None or before[0] != heartbeat:
                self._heartbeats[address] = heartbeat, now
            elif not self.exchanged and self._is_silent(
                address, (now - before[1]) / self.patience, limit
            ):
                lost.append(address)
        return lost

    def _is_silent(self, address: str, seconds: float, limit: float) -> bool:
        # A worker that imports and compiles on a busy machine is slow but alive.
        return seconds > STOPPED_SECONDS or (seconds > limit and not accepts_connections(address))

    def has_failed(self) -> bool:
        """Whether a task failed or was cancelled."""
        return any(task.status not in ("pending", "finished") for task in self.tasks)

    def wait_until_ended(self, lost: Sequence[str] = ()) -> None:
        """Wait until all tasks except the lost ones have ended, or for some seconds: the next owner
        on a worker must not need memory in addition to this one's."""
        deadline = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < deadline and self._running_owners(lost):
            time.sleep(0.02)

    def find_unfinished(self, lost: Sequence[str] = ()) -> list[str]:
        """Addresses of the other owners that have not ended. Before the first round some still wait
        for each other: then only those that a peer reported lost."""
        lost_peers = {error.peer for error in self._errors() if isinstance(error, PeerLostError)}
        running = self._running_owners(lost)
        return [self.addresses[owner] for owner in running if self.exchanged or owner in lost_peers]

    def _running_owners(self, lost: Sequence[str]) -> list[int]:
        """Owners, except the lost ones, whose tasks have not ended."""
        pairs = enumerate(zip(self.addresses, self.tasks, strict=True))
        return [
            owner for owner, (address, task) in pairs if address not in lost and not task.done()
        ]

    def raise_own_error(self) -> None:
        """Raise an owner's own error, other than the loss of a peer, if there is one."""
        for error in self._errors():
            if not isinstance(error, PeerLostError):
                raise error

    def _errors(self) -> Iterator[Exception]:
        for task in self.tasks:
            if task.status == "error":
                error = task.exception(timeout=GRACE_SECONDS)
                if isinstance(error, Exception):
                    yield error


QUEUE_POLL_SECONDS, WAIT_SECONDS, CHECK_SECONDS, HEARTBEAT_SECONDS = 0.05, 0.2, 0.5, 5.0
ANSWER_SECONDS = 30.0  # for any answer of the scheduler
START_SECONDS = 20.0  # for a worker to start its task
LEAVE = -1  # an order to stop, as a worker was asked to close


class LostOwnersError(Exception):
    """Some owners are lost, and the others have ended. addresses: the workers of the lost
    owners."""

    def __init__(self, addresses: Sequence[str], reason: str = "") -> None:
        super().__init__((", ".join(addresses) or "one of them") + reason)
        self.addresses = tuple(addresses)


@dataclass(eq=False)
class WorkerGroup:
    """One attempt: it ends with all rows learned, with a stop, or with a lost owner.

    setups: one per address. on_message: called with each message of the leader. check: called
    periodically. patience: factor on the time without heartbeats before the first round.
    """

    client: Client
    setups: Sequence[OwnerSetup]
    addresses: Sequence[str]
    on_message: Callable[[dict[str, Any]], dict[str, Any]]
    check: Callable[[], dict[str, Any]]
    patience: int = 1
    _members: GroupMembers = field(init=False)
    _orders: dict[str, Any] = field(default_factory=dict)
    _leaving: dict[str, float] = field(default_factory=dict)
    _checked: float = 0.0
    _published: float = 0.0

    def run(self) -> str:
        """Run to the end: "done", or "stopped" after a commit, on request or because a worker was
        asked to close. Raises LostOwnersError, or what an owner raised."""
        topic = self.setups[0].topic
        queue = Queue(topic, client=self.client)
        variable = Variable(topic, client=self.client)
        self._members = GroupMembers(self.addresses, patience=self.patience)
        self._orders = {"places": None, "stop": 0, "committed": 0, "directory": "", "beat": 0}
        try:
            variable.set(self._orders, callback_timeout=ANSWER_SECONDS)
            self._submit_tasks()
            return self._watch(queue, variable)
        except OSError as error:
            refuse_lost(self.client, error)
            if isinstance(error, TimeoutError):
                raise SchedulerLostError(
                    f"the scheduler has not answered for {ANSWER_SECONDS:g} s"
                ) from error
            raise
        finally:
            self._clean_up(queue, variable)

    def _submit_tasks(self) -> None:
        for setup, address in zip(self.setups, self.addresses, strict=True):
            key = f"{setup.topic}-{setup.owner}"
            given: Any = {"waiting": self.check, "only": [address]}
            self._members.tasks.append(send_task(self.client, key, run_owner, setup, **given))

    def _watch(self, queue: Any, variable: Any) -> str:
        """Handles the owners' messages until they end; returns the last kind: "done" or
        "stopped"."""
        endpoints: dict[int, Any] = {}
        changes: dict[str, Any]
        started = time.monotonic()
        while True:
            message = self._next(queue)
            match message["kind"]:
                case "":
                    changes = {}
                case "here" if self._orders["places"]:  # a rerun task: too late
                    changes = {}
                case "here":
                    endpoints[message["owner"]] = message["endpoint"]
                    all_here = len(endpoints) == len(self.setups)
                    changes = (
                        {"places": [endpoints[owner] for owner in sorted(endpoints)]}
                        if all_here
                        else {}
                    )
                case "exchanged":
                    self._members.exchanged, changes = True, {}
                case "done" | "stopped":
                    # Their memory must be free before another group, or another run, starts there.
                    self._members.wait_until_ended([*self._leaving])
                    return str(message["kind"])
                case _:
                    changes = self.on_message(message)
            self._publish_orders(variable, {**changes, **self._check()})
            if len(endpoints) < len(self.setups) and time.monotonic() - started > START_SECONDS:
                late = [at for owner, at in enumerate(self.addresses) if owner not in endpoints]
                reason = f": not started in {START_SECONDS:g} s, busy with other tasks?"
                raise LostOwnersError(late, reason)

    def _next(self, queue: Any) -> dict[str, Any]:
        """The next message, or an empty one after a while."""
        deadline = time.monotonic() + WAIT_SECONDS
        # A get that times out would log an error on the scheduler.
        while not queue.qsize(callback_timeout=ANSWER_SECONDS):
            if time.monotonic() > deadline:
                return {"kind": ""}
            time.sleep(QUEUE_POLL_SECONDS)
        found: dict[str, Any] = queue.get(callback_timeout=ANSWER_SECONDS)
        return found

    def _publish_orders(self, variable: Any, changes: dict[str, Any]) -> None:
        """Publish changed orders, and periodically a heartbeat of the driver."""
        now = time.monotonic()
        changed = {key: value for key, value in changes.items() if self._orders[key] != value}
        if changed or now - self._published > HEARTBEAT_SECONDS:
            self._published = now
            self._orders |= {**changed, "beat": self._orders["beat"] + 1}
            variable.set(self._orders, callback_timeout=ANSWER_SECONDS)

    def _check(self) -> dict[str, Any]:
        """Raise LostOwnersError, or an owner's own error, if there is one."""
        if time.monotonic() - self._checked < CHECK_SECONDS and not self._members.has_failed():
            return {}
        refuse_lost(self.client)
        check_workers(self.client)
        workers = ask_workers(self.client)
        lost = self._find_lost(workers) if workers is not None else []
        if lost or self._members.has_failed():
            # Tasks are also cancelled if the scheduler is lost.
            refuse_lost(self.client, check=True)
            self._members.raise_own_error()
            # The next group does not use workers that were asked to close either.
            lost = [*{*lost, *self._leaving}]
            note("an owner was lost; the others end", "owner_lost", "warning")
            self._members.wait_until_ended(lost)
            self._members.raise_own_error()
            raise LostOwnersError([*lost, *self._members.find_unfinished(lost)])
        changes = self.check()
        self._checked = time.monotonic()
        return {"stop": LEAVE, **changes} if self._leaving else changes

    def _find_lost(self, workers: Mapping[str, Any]) -> list[str]:
        """Addresses of lost owners; one whose worker was asked to close is lost only if the group
        does not commit in time, or has not begun."""
        lost, now = self._members.find_lost(workers), time.monotonic()
        for address in {*self.addresses} - {*self._leaving}:
            known = workers.get(address)
            if is_leaving(known) if known else left_as_expected(self.client, address):
                self._leaving[address] = now + seconds("mind")
                text = f"worker {address} was asked to close: the owners commit first"
                note(text, "owner_leaves", "info", worker=address)
        if not self._members.exchanged:
            return [*{*lost, *self._leaving}]
        return [address for address in lost if self._leaving.get(address, now) <= now]

    def _clean_up(self, queue: Any, variable: Any) -> None:
        """Cancel running tasks and delete the queue and variable, which stops remaining owners."""
        if self.client.status != "running":
            return
        with suppress(OSError, TimeoutError):
            tasks = self._members.tasks
            self.client.cancel([task for task in tasks if not task.done()], force=True)
            tasks.clear()
            variable.delete()
            queue.close()
