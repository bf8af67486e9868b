"""A gang of owners as their driver sees it: placed, introduced to each other, watched, ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from distributed import Client, Queue, Variable

from streamomd.core.errors import SchedulerLostError
from streamomd.distributed.cluster import sent
from streamomd.distributed.membership import Members
from streamomd.distributed.partition_owner import OwnerSetup, own
from streamomd.distributed.scheduler import refuse_lost, workers_of
from streamomd.distributed.worker_monitor import look_out
from streamomd.training.progress import note

PAUSE_SECONDS, WAIT_SECONDS, LOOK_SECONDS, BEAT_SECONDS = 0.05, 0.2, 0.5, 5.0
ANSWER_SECONDS = 30.0  # for the scheduler to answer, whatever it is asked
MEET_SECONDS = 20.0  # for a worker to begin


class LostOwnersError(Exception):
    """Some owners are lost, and the others have ended; ``addresses``: the lost ones' workers."""

    def __init__(self, addresses: Sequence[str], why: str = "") -> None:
        super().__init__((", ".join(addresses) or "one of them") + why)
        self.addresses = tuple(addresses)


@dataclass(eq=False)
class WorkerGroup:
    """One attempt: it ends with all rows learned, with a stop, or with a lost owner.

    orders: one an address. hear: told of each message of the leader's. look: called now and then.
    patience: the larger, the longer a worker may be silent before its owner has made a round.
    """

    client: Client
    orders: Sequence[OwnerSetup]
    addresses: Sequence[str]
    hear: Callable[[dict[str, Any]], dict[str, Any]]
    look: Callable[[], dict[str, Any]]
    patience: int = 1
    _members: Members = field(init=False)
    _told: dict[str, Any] = field(default_factory=dict)
    _looked: float = 0.0
    _beaten: float = 0.0

    def run(self) -> str:
        """How it ended: "done" or "stopped". Raises LostOwnersError, or what an owner raised."""
        topic = self.orders[0].topic
        queue = Queue(topic, client=self.client)
        variable = Variable(topic, client=self.client)
        self._members = Members(self.addresses, patience=self.patience)
        self._told = {"places": None, "stop": 0, "committed": 0, "directory": "", "beat": 0}
        try:
            variable.set(self._told, callback_timeout=ANSWER_SECONDS)
            self._place()
            return self._watched(queue, variable)
        except OSError as error:
            refuse_lost(self.client, error)
            if isinstance(error, TimeoutError):
                raise SchedulerLostError(
                    f"the scheduler has not answered for {ANSWER_SECONDS:g} s"
                ) from error
            raise
        finally:
            self._leave(queue, variable)

    def _place(self) -> None:
        for order, address in zip(self.orders, self.addresses, strict=True):
            key = f"{order.topic}-{order.owner}"
            given: Any = {"waiting": self.look, "on": [address]}
            self._members.tasks.append(sent(self.client, key, own, order, **given))

    def _watched(self, queue: Any, variable: Any) -> str:
        places: dict[int, Any] = {}
        more: dict[str, Any]
        begun = time.monotonic()
        while True:
            message = self._next(queue)
            match message["kind"]:
                case "":
                    more = {}
                case "here" if self._told["places"]:  # a task that runs again: too late
                    more = {}
                case "here":
                    places[message["owner"]] = message["place"]
                    all_here = len(places) == len(self.orders)
                    more = {"places": [places[at] for at in sorted(places)]} if all_here else {}
                case "met":
                    self._members.met, more = True, {}
                case "done" | "stopped":
                    self._members.settle()
                    return str(message["kind"])
                case _:
                    more = self.hear(message)
            self._tell(variable, {**more, **self._look()})
            if len(places) < len(self.orders) and time.monotonic() - begun > MEET_SECONDS:
                late = [at for n, at in enumerate(self.addresses) if n not in places]
                busy = f": not begun in {MEET_SECONDS:g} s, busy with other tasks?"
                raise LostOwnersError(late, busy)

    def _next(self, queue: Any) -> dict[str, Any]:
        """The next message, or none in some time."""
        deadline = time.monotonic() + WAIT_SECONDS
        # Of a wait that ends without one the scheduler would log an error.
        while not queue.qsize(callback_timeout=ANSWER_SECONDS):
            if time.monotonic() > deadline:
                return {"kind": ""}
            time.sleep(PAUSE_SECONDS)
        found: dict[str, Any] = queue.get(callback_timeout=ANSWER_SECONDS)
        return found

    def _tell(self, variable: Any, more: dict[str, Any]) -> None:
        """Tell the owners what is new, and now and then that the driver is there."""
        now = time.monotonic()
        new = {key: value for key, value in more.items() if self._told[key] != value}
        if new or now - self._beaten > BEAT_SECONDS:
            self._beaten = now
            self._told |= {**new, "beat": self._told["beat"] + 1}
            variable.set(self._told, callback_timeout=ANSWER_SECONDS)

    def _look(self) -> dict[str, Any]:
        """Raise LostOwnersError, or an owner's own error, if there is one."""
        if time.monotonic() - self._looked < LOOK_SECONDS and not self._members.failed():
            return {}
        refuse_lost(self.client)
        look_out(self.client)
        there = workers_of(self.client)
        gone = self._members.gone(there) if there else []
        if gone or self._members.failed():
            # Tasks are taken back, too, when the scheduler is lost.
            refuse_lost(self.client, ask=True)
            self._members.raise_own()
            note("an owner was lost; the others end")
            self._members.settle(gone)
            self._members.raise_own()
            raise LostOwnersError([*gone, *self._members.late(gone)])
        more = self.look()
        self._looked = time.monotonic()
        return more

    def _leave(self, queue: Any, variable: Any) -> None:
        """Whoever still runs finds the driver gone; nothing stays on the scheduler."""
        if self.client.status != "running":
            return
        with suppress(OSError, TimeoutError):
            tasks = self._members.tasks
            self.client.cancel([task for task in tasks if not task.done()], force=True)
            tasks.clear()
            variable.delete()
            queue.close()
