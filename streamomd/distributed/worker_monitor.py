"""A cluster's workers as one client sees them: usable ones, and those that fall silent."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from distributed import Client, Future

from streamomd.config.settings import seconds
from streamomd.core.errors import ClusterError
from streamomd.core.urls import scrub
from streamomd.distributed.scheduler import address_of, ask_workers, on_the_loop, refuse_lost
from streamomd.distributed.worker_probe import VERSION, send_probe
from streamomd.training.progress import note

PAUSE_SECONDS, LOOK_SECONDS = 0.05, 0.5
Waiting = Callable[[], object]


class WorkerMonitor:
    """Looks at the workers every few seconds, over all that is waited for with one client.

    A worker is usable once it has answered the probe with this version of streamomd; one that joins
    later is probed when it is first seen. One that is not heard of is taken off the scheduler's
    list, so that its tasks run elsewhere: Dask itself waits five minutes for a machine that was
    stopped or cut off.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, float]] = {}  # what the scheduler said last, and when
        self._looked = self._company = self._asked = time.monotonic()
        self._probes: dict[str, tuple[Future[Any], float]] = {}  # not answered yet, and since when
        self._answers: dict[str, str] = {}  # why a worker is unusable; "": it is usable
        self._late: set[str] = set()
        self._met = False
        self.there: dict[str, Any] = {}
        """The workers, as the scheduler described them last."""

    @property
    def usable(self) -> dict[str, Any]:
        """Of the workers that were there last, those that may get tasks."""
        return {at: self.there[at] for at, why in [*self._answers.items()] if not why}

    @property
    def unusable(self) -> dict[str, str]:
        """Why each of the others may not."""
        why = {at: why for at, why in [*self._answers.items()] if why}
        late = f"no answer in {seconds('probe'):.0f} s: busy or unreachable"
        return why | dict.fromkeys(self._probes, late)

    def meet(self, client: Client, waiting: Waiting) -> None:
        """Once: probe the workers that are there, and wait until all have answered, or
        ``probe-seconds`` have passed; the others are then listed."""
        if self._met:
            return
        deadline = time.monotonic() + seconds("probe")
        self.ask(client)
        while self._probes and time.monotonic() < deadline:
            refuse_lost(client)
            waiting()
            time.sleep(PAUSE_SECONDS)
            self._collect(client)
        self._met = True
        self._note_late()

    def ask(self, client: Client) -> bool:
        """Ask the scheduler for its workers, probe those not seen before; whether it answers."""
        found = ask_workers(client)
        self._asked = time.monotonic()
        self._update(client, found)
        return found is not None

    def some_usable(self, client: Client, waiting: Waiting) -> list[str]:
        """Addresses of the usable workers, waiting until there is one.

        Raises ClusterError when none is usable for minutes.
        """
        self.meet(client, waiting)
        while True:
            stale = time.monotonic() - self._asked > seconds("look")
            if stale or not self.usable:
                self.ask(client)
            if found := sorted(self.usable):
                return found
            refuse_lost(client)
            waiting()
            self.look(client)
            time.sleep(LOOK_SECONDS)

    def refuse_unusable(self, client: Client) -> None:
        """Raise ClusterError if there are workers, and all have answered that they are unusable."""
        if self.usable or self._probes or not self._answers:
            return
        lines = "".join(f"\n{at}: {why}" for at, why in sorted(self._answers.items()))
        raise ClusterError(
            f"no worker of the cluster at {address_of(client)} is usable; install streamomd "
            f'{VERSION} on them, or pass --scheduler "" to run without a cluster:{lines}'
        )

    def look(self, client: Client) -> list[str]:
        """Those given up just now; see ``look_out``."""
        now = time.monotonic()
        if now - self._looked < seconds("look"):
            return []
        if now - self._looked > 2 * seconds("silent"):  # nothing was waited for meanwhile
            self._seen.clear()
            self._company = now
        self._looked = now
        answered = ask_workers(client)
        self._update(client, answered)
        found = answered or {}
        self._seen = {address: self._heard(address, found[address], now) for address in found}
        silent = [
            address for address, (_, since) in self._seen.items() if now - since > seconds("silent")
        ]
        for address in silent:
            _give_up(client, address)
        what = f"no {'usable ' if found else ''}worker at {address_of(client)}"
        if found and (self.usable or self._probes):
            self._company = now
        elif now - self._company > seconds("lonely"):
            raise ClusterError(f"{what} for {now - self._company:.0f} s")
        if not (found and self.usable):
            note(f"{what}: waiting")
        return silent

    def _heard(self, address: str, worker: dict[str, Any], now: float) -> tuple[float, float]:
        before = self._seen.get(address)
        heard = worker["last_seen"]
        return before if before is not None and before[0] == heard else (heard, now)

    def _update(self, client: Client, found: dict[str, Any] | None) -> None:
        if found is None:  # no answer: that says nothing of the workers
            return
        self.there = found
        for address in {*self._probes, *self._answers} - {*found}:
            self._probes.pop(address, None)
            self._answers.pop(address, None)
            self._late.discard(address)
        for address in found:
            if address not in self._probes and address not in self._answers:
                try:
                    self._probes[address] = send_probe(client, address), time.monotonic()
                except Exception as error:
                    refuse_lost(client, error)
                    raise
        self._collect(client)
        self._note_late()

    def _collect(self, client: Client) -> None:
        """Take the probes' answers that have come."""
        for address, (probe, _) in [*self._probes.items()]:
            if probe.status == "pending":
                continue
            self._probes.pop(address, None)
            with suppress(OSError, TimeoutError, CancelledError):  # lost on the way: probed again
                why = scrub(_answer(client, probe))
                self._answers[address] = why
                if why:
                    note(f"worker {address} is not used: {why}")

    def _note_late(self) -> None:
        now, limit = time.monotonic(), seconds("probe")
        for address, (_, since) in [*self._probes.items()]:
            if now - since >= limit and address not in self._late:
                self._late.add(address)
                note(
                    f"worker {address} did not answer in {limit:.0f} s (busy or unreachable): "
                    "it is not used until it does"
                )


_lookouts: WeakKeyDictionary[Client, WorkerMonitor] = WeakKeyDictionary()


def lookout_of(client: Client) -> WorkerMonitor:
    """The one of a client."""
    return _lookouts.setdefault(client, WorkerMonitor())


def look_out(client: Client) -> list[str]:
    """While something is waited for: workers that have just been given up.

    Raises ClusterError when no usable worker has been there for minutes.
    """
    return lookout_of(client).look(client)


def usable_workers(client: Client, waiting: Waiting = lambda: None) -> dict[str, Any]:
    """What the scheduler knows of each usable worker, by address, now."""
    lookout = lookout_of(client)
    lookout.meet(client, waiting)
    return lookout.usable if lookout.ask(client) else {}


def introduce(client: Client, waiting: Waiting) -> None:
    """Probe all workers, and report those that are unusable.

    Raises ClusterError if there are workers and none is usable.
    """
    lookout = lookout_of(client)
    lookout.meet(client, waiting)
    lookout.refuse_unusable(client)


def forget(client: Client) -> None:
    """Drop what is known of a client's workers; probes that have not answered are released."""
    _lookouts.pop(client, None)


def _answer(client: Client, probe: Future[Any]) -> str:
    if probe.status == "error":
        error = probe.exception(timeout=seconds("answer"))
        return f"the probe failed: {type(error).__name__}: {error}"

    async def gather() -> Any:
        return await client.gather([probe], asynchronous=True)

    return str(on_the_loop(client, gather()).result(seconds("answer"))[0])


def _give_up(client: Client, address: str) -> None:
    note(f"worker {address} does not answer: its tasks run elsewhere")
    scheduler: Any = client.scheduler
    leave = scheduler.unregister(address=address, stimulus_id="streamomd-silent")
    with suppress(OSError, TimeoutError):
        on_the_loop(client, leave).result(seconds("answer"))
