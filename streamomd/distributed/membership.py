"""Which owners of a group are lost, by the scheduler's heartbeats, the peers and the tasks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distributed import Future
from distributed.scheduler import heartbeat_interval

from streamomd.distributed.connection_errors import CONNECT_SECONDS, accepts_connections
from streamomd.distributed.star import HEARTBEAT_TIMEOUT_SECONDS, PeerLostError

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
        now, found = time.monotonic(), []
        limit = max(
            HEARTBEAT_TIMEOUT_SECONDS - CONNECT_SECONDS, 4 * heartbeat_interval(len(workers))
        )
        for address in self.addresses:
            if address not in workers:
                found.append(address)
                continue
            heartbeat, before = workers[address]["last_seen"], self._heartbeats.get(address)
            if before is None or before[0] != heartbeat:
                self._heartbeats[address] = heartbeat, now
            elif not self.exchanged and self._is_silent(
                address, (now - before[1]) / self.patience, limit
            ):
                found.append(address)
        return found

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
