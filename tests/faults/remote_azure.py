"""Checkpoints in Azure's blob storage (Azurite), through a proxy that breaks requests and replies.

Azurite is node's; CONTRIBUTING.md tells how to have it. Without it these kinds are not run.
"""

from __future__ import annotations

import asyncio
import base64
import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from http_faults import peace, seeded
from kinds import Cases, Unavailable, Verdict, kind
from proxy import Proxy
from remote_life import HONEST, LIED_TO, Life, judged
from remote_race import Race, race

from streamomd.checkpoint.stores.remote import RemoteStore

SEEDS = 200
ACCOUNT, KEY = "streamomd", base64.b64encode(b"canary").decode()
PATIENCE = 180.0
"""Seconds for Azurite to start or to end, and for a case."""


def operation(method: str, target: str) -> str:
    """The name of a request, by what is done to S3's that is like it."""
    query = target.partition("?")[2]
    if method == "GET" and "comp=list" in query:
        return "LIST"
    if method == "PUT" and "comp=block" in query:
        return "COMPLETE" if "comp=blocklist" in query else "PART"
    return method


@contextmanager
def azurite(folder: Path) -> Iterator[tuple[str, int]]:
    """Azurite's blob service on a free port."""
    program = shutil.which("azurite-blob")
    if program is None:
        raise Unavailable("no azurite-blob on PATH (npm install azurite)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = probe.getsockname()
    words = [program, "--blobPort", str(address[1]), "--inMemoryPersistence", "--silent"]
    words += ["--skipApiVersionCheck", "--disableTelemetry"]
    env = {**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}
    process = subprocess.Popen(words, env=env, cwd=folder, stdout=subprocess.DEVNULL)
    try:
        last = time.monotonic() + PATIENCE
        while not _answers(address):
            assert process.poll() is None, "Azurite did not start"
            assert time.monotonic() < last, "Azurite does not answer"
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _answers(address: tuple[str, int]) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(address) == 0


def connected(endpoint: str, **options: Any) -> Any:
    """adlfs at an endpoint."""
    import adlfs

    place = f"BlobEndpoint={endpoint}/{ACCOUNT};AccountName={ACCOUNT};AccountKey={KEY}"
    whole = f"DefaultEndpointsProtocol=http;{place};"
    return adlfs.AzureBlobFileSystem(connection_string=whole, skip_instance_cache=True, **options)


async def hasty(transport: Any, seconds: float) -> None:
    """The pause between the client's own retries, of 15 seconds and more."""
    await asyncio.sleep(seconds / 1000)


@contextmanager
def container(folder: Path) -> Iterator[tuple[Proxy, Any, Any]]:
    """A container; the proxy before it; file systems that lead through it, and past it."""
    try:
        import adlfs  # noqa: F401 (whether it is there)
        from azure.core.pipeline.transport import AsyncHttpTransport
    except ImportError as error:
        raise Unavailable(f"no {error.name}") from None
    with ExitStack() as stack:
        address = stack.enter_context(azurite(folder))
        proxy = Proxy(address, operation)
        stack.callback(proxy.stop)
        stack.enter_context(mock.patch("streamomd.checkpoint.stores.remote.FIRST_PAUSE", 0.001))
        stack.enter_context(mock.patch("streamomd.checkpoint.stores.remote.DEADLINE", 3.0))
        stack.enter_context(mock.patch.object(AsyncHttpTransport, "sleep", hasty))
        calm = connected("http://{}:{}".format(*address))
        calm.mkdir("container")
        yield proxy, connected(proxy.endpoint, read_timeout=0.5, connection_timeout=2), calm


def store(fs: Any, name: str) -> RemoteStore:
    """A checkpoint in the container."""
    return RemoteStore(fs, f"container/{name}", f"abfs://container/{name}")


@kind("azure-seeded", quick=0)
@contextmanager
def azure_seeded(folder: Path) -> Iterator[Cases]:
    """Azure: errors, lost replies, resets, stalls, untrue replies."""
    with container(folder) as (proxy, fs, calm):

        def run(seed: int) -> Verdict:
            draw, lying, name = random.Random(seed), seed % 3 == 0, f"life-{seed}"
            chance = draw.choice((0.02, 0.05, 0.15))
            proxy.schedule = seeded(random.Random(f"azure {seed}"), chance, lying=lying)
            life = Life(lambda: store(fs, name), draw, LIED_TO if lying else HONEST)
            try:
                return judged(life, lambda: store(calm, name), count=3, untidy=lying)
            finally:
                proxy.schedule = peace

        yield Cases(range(SEEDS), run, PATIENCE)


@kind("azure-race", quick=0)
@contextmanager
def azure_race(folder: Path) -> Iterator[Cases]:
    """Azure: a second writer comes at every request of the first."""
    with container(folder) as (_, _, calm):

        def run(seed: int) -> Verdict:
            name = f"race-{seed}"
            assert store(calm, name).exclusive
            return race(Race(lambda: store(calm, name)), seed, lambda: store(calm, name))

        yield Cases(range(60), run, PATIENCE)
