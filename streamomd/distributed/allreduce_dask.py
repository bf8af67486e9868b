"""The same exchange through the workers' own ports: slower, and as safe as Dask's connections.

With tls:// only members of the cluster connect. With tcp:// everybody may, as to every worker.
"""

from __future__ import annotations

import asyncio
import queue
import time
from contextlib import suppress
from typing import Any

from distributed import Worker
from distributed.comm.core import connect
from distributed.core import Status

from streamomd.distributed.allreduce_zmq import (
    BEAT_SECONDS,
    JOIN_SECONDS,
    LINGER_SECONDS,
    LOOK_SECONDS,
    SILENT_SECONDS,
    STUCK_SECONDS,
    PeerLostError,
    greet,
    others,
)

OPERATION = "omd_stream"
_MESHES: dict[tuple[str, int], StreamMesh] = {}


class StreamMesh:
    """A connection to each other owner's worker, as Dask itself would make one."""

    def __init__(self, worker: Worker, gang: bytes, owner: int, owners: int) -> None:
        self.owner, self.owners, self.place = owner, owners, worker.address
        self._gang, self._worker = gang, worker
        self._loop: Any = worker.loop.asyncio_loop  # type: ignore[attr-defined]
        self._patience = STUCK_SECONDS
        self._heard = dict.fromkeys(others(self), time.monotonic())
        self._inbox: dict[int, queue.SimpleQueue[bytes | None]] = {
            peer: queue.SimpleQueue() for peer in others(self)
        }
        self._outbox: dict[int, asyncio.Queue[bytes | None]] = {}
        self._senders: dict[int, Any] = {}
        self._lost: set[int] = set()
        _MESHES[gang.hex(), owner] = self
        worker.handlers[OPERATION] = _take_in

    def join(self, places: list[Any]) -> None:
        """Connect to all others."""
        for peer in others(self):
            self._heard[peer] = time.monotonic()
            coming = asyncio.run_coroutine_threadsafe(
                self._connected(peer, places[peer]), self._loop
            )
            try:
                coming.result(JOIN_SECONDS)
            except (OSError, TimeoutError) as error:
                coming.cancel()
                raise PeerLostError(peer, f"no connection: {error}") from None
        self._patience = JOIN_SECONDS
        greet(self, self._gang)
        self._patience = STUCK_SECONDS

    async def _connected(self, peer: int, address: str) -> None:
        comm = await connect(address, timeout=JOIN_SECONDS, **self._worker.connection_args)
        told = {"gang": self._gang.hex(), "sender": self.owner, "receiver": peer}
        await comm.write({"op": OPERATION, "reply": False, **told})
        self._outbox[peer] = asyncio.Queue()
        self._senders[peer] = asyncio.ensure_future(self._pass_on(comm, self._outbox[peer]))

    async def _pass_on(self, comm: Any, outbox: asyncio.Queue[bytes | None]) -> None:
        """Write what is to be sent, and a sign of life where there is nothing, until None."""
        try:
            while True:
                data: bytes | None = b""
                with suppress(TimeoutError):
                    data = await asyncio.wait_for(outbox.get(), BEAT_SECONDS)
                if data is None:
                    break
                await comm.write({"data": data})
        except OSError:
            return  # who waits for the other will miss its signs of life
        finally:
            await comm.close()

    def send(self, peer: int, data: bytes) -> None:
        """Send to one; what it does not take yet waits in memory."""
        self._loop.call_soon_threadsafe(self._outbox[peer].put_nowait, data)

    def receive(self, peer: int) -> bytes:
        """What one has sent, in its order."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                data = self._inbox[peer].get(timeout=LOOK_SECONDS)
            except queue.Empty:
                if time.monotonic() - self._heard[peer] > SILENT_SECONDS:
                    why = f"no sign of life in {SILENT_SECONDS:g} s"
                    self._lost.add(peer)
                    raise PeerLostError(peer, why) from None
                if time.monotonic() > deadline:
                    why = f"alive, but silent for {self._patience:g} s"
                    raise PeerLostError(peer, why) from None
                continue
            if data is None:
                raise PeerLostError(peer, "its connection closed")
            return data

    def hear(self, peer: int, data: bytes | None) -> None:
        """From one: what it has sent, a sign of life (nothing), or that it is gone (None)."""
        self._heard[peer] = time.monotonic()
        if data != b"":
            self._inbox[peer].put(data)

    def close(self) -> None:
        """Leave; the others lose this one, once they have heard what it said."""
        _MESHES.pop((self._gang.hex(), self.owner), None)
        for outbox in self._outbox.values():
            self._loop.call_soon_threadsafe(outbox.put_nowait, None)
        deadline = time.monotonic() + LINGER_SECONDS
        senders = [one for peer, one in self._senders.items() if peer not in self._lost]
        while time.monotonic() < deadline and not all(one.done() for one in senders):
            time.sleep(0.01)


async def _take_in(comm: Any, gang: str, sender: int, receiver: int) -> Any:
    """On the worker's loop, for each connection that another owner has made."""
    mesh = _MESHES.get((gang, receiver))
    if mesh is None or sender not in others(mesh):
        comm.abort()
        return Status.dont_reply
    try:
        while True:
            mesh.hear(sender, (await comm.read())["data"])
    except OSError:
        mesh.hear(sender, None)
    return Status.dont_reply
