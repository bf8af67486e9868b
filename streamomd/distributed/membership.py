"""Who of a gang is lost: told by the scheduler, by the others, or by not having ended with them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distributed import Future
from distributed.scheduler import heartbeat_interval

from streamomd.distributed.allreduce_zmq import SILENT_SECONDS, PeerLostError
from streamomd.distributed.handshake import KNOCK_SECONDS, answers

STOPPED_SECONDS = 20.0  # without a heartbeat from a machine that answers
GRACE_SECONDS = SILENT_SECONDS + 2.0  # for the others to notice that one is lost, and to end


@dataclass(eq=False)
class Members:
    """A gang's owners: on which worker each is, and its task.

    met: whether they have made a round together. From then on they hear each other, which is surer:
    a worker may be busy with what Dask does. patience: how often the usual time until then.
    """

    addresses: Sequence[str]
    tasks: list[Future[Any]] = field(default_factory=list)
    met: bool = False
    patience: int = 1
    _heard: dict[str, tuple[float, float]] = field(default_factory=dict)

    def gone(self, workers: Mapping[str, Any]) -> list[str]:
        """Those whose worker the scheduler has not; until they have met, also those it does not
        hear: cut off, or stopped. workers: what it says of them now."""
        now, found = time.monotonic(), []
        usual = max(SILENT_SECONDS - KNOCK_SECONDS, 4 * heartbeat_interval(len(workers)))
        for at in self.addresses:
            if at not in workers:
                found.append(at)
                continue
            said, before = workers[at]["last_seen"], self._heard.get(at)
            if before is None or before[0] != said:
                self._heard[at] = said, now
            elif not self.met and self._is_silent(at, (now - before[1]) / self.patience, usual):
                found.append(at)
        return found

    def _is_silent(self, at: str, seconds: float, usual: float) -> bool:
        # One that imports and compiles on a busy machine is slow, and no less alive.
        return seconds > STOPPED_SECONDS or (seconds > usual and not answers(at))

    def failed(self) -> bool:
        """Whether a task has ended ill, or was taken back."""
        return any(task.status not in ("pending", "finished") for task in self.tasks)

    def settle(self, gone: Sequence[str] = ()) -> None:
        """Wait until all have ended but those who are gone, or for some seconds: the next owner on
        a worker is not to hold its share beside this one's."""
        deadline = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < deadline and self._unended(gone):
            time.sleep(0.02)

    def late(self, gone: Sequence[str] = ()) -> list[str]:
        """Of the others, who has not ended. Before they have met some still wait for one another:
        then only those whom somebody has missed."""
        missed = {error.peer for error in self._errors() if isinstance(error, PeerLostError)}
        unended = self._unended(gone)
        return [self.addresses[owner] for owner in unended if self.met or owner in missed]

    def _unended(self, gone: Sequence[str]) -> list[int]:
        """Owners, of those who are not gone, whose tasks have not ended."""
        pairs = enumerate(zip(self.addresses, self.tasks, strict=True))
        return [owner for owner, (at, task) in pairs if at not in gone and not task.done()]

    def raise_own(self) -> None:
        """Raise an owner's own error, which is not that it has lost another; if there is one."""
        for error in self._errors():
            if not isinstance(error, PeerLostError):
                raise error

    def _errors(self) -> Iterator[Exception]:
        for task in self.tasks:
            if task.status == "error":
                error = task.exception(timeout=GRACE_SECONDS)
                if isinstance(error, Exception):
                    yield error
