"""A scheduler that no command should connect to, and checkpoints that name it."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distributed.comm import listen
from distributed.protocol.serialize import ToPickle

from streamomd.checkpoint.sealed_json import seal, unseal


class Payload:
    """Makes a directory in the process that unpickles it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@dataclass
class Rogue:
    """A TCP server that greets as Dask's scheduler does, then answers with a pickled payload."""

    trace: Path
    """The directory that exists once the payload was unpickled."""
    address: str = ""
    messages: list[Any] = field(default_factory=list)
    """What clients sent."""
    connections: int = 0

    async def answer(self, comm: Any) -> None:
        """Called for each connection whose greeting is over."""
        with suppress(OSError):
            self.messages.append(await comm.read())
            await comm.write([{"op": "stream-start", "answer": ToPickle(Payload(self.trace))}])
            await comm.read()


@contextmanager
def rogue(trace: Path) -> Iterator[Rogue]:
    """A rogue scheduler on a port of the loopback address, in a thread of its own."""
    found, ready, loop = Rogue(trace), threading.Event(), asyncio.new_event_loop()
    over = asyncio.Event()

    async def serve() -> None:
        listener = await listen("tcp://127.0.0.1:0", found.answer, deserialize=False)
        accept = listener.tcp_server.handle_stream

        async def counted(*given: Any) -> None:
            found.connections += 1  # also of those that greet wrongly, or not at all
            await accept(*given)

        listener.tcp_server.handle_stream = counted
        found.address = listener.contact_address
        ready.set()
        await over.wait()
        listener.stop()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield found
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(30)


def forge(kept: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Change the document of every commit of a checkpoint, as its author may; the checkpoint."""
    hashes: dict[int, str] = {}
    for manifest in sorted((kept / "commits").iterdir()):
        fields, _ = unseal(manifest.read_bytes())
        change(fields["document"])
        if fields["parent"] and fields["parent"]["sequence"] in hashes:
            fields["parent"]["sha256"] = hashes[fields["parent"]["sequence"]]
        manifest.write_bytes(seal(fields))
        hashes[fields["sequence"]] = unseal(manifest.read_bytes())[1]
    return kept


def forged(kept: Path, to: Path, **job: dict[str, Any]) -> Path:
    """A copy of a checkpoint whose manifests have other keys in the tables of their job."""
    shutil.copytree(kept, to)

    def change(document: dict[str, Any]) -> None:
        for table, keys in job.items():
            document["job"].setdefault(table, {}).update(keys)

    for folder in [to, *sorted(to.glob("learners/*")), *sorted(to.glob("best"))]:
        forge(folder, lambda document: change(document) if "job" in document else None)
    return to
