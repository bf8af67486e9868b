"""Checkpoints in S3 (moto's server), through a proxy that breaks requests and replies."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partialmethod
from pathlib import Path
from typing import Any
from unittest import mock

from checkpoint_helpers import DictStore
from http_faults import LYING, SUITED, Schedule, directed, peace, seeded
from kinds import Cases, Unavailable, Verdict, kind
from proxy import Proxy
from remote_life import HONEST, LIED_TO, Life, judged

from streamomd.checkpoint import Store, open_store

SHORT = {"read_timeout": 0.2, "connect_timeout": 2, "retries": {"max_attempts": 0}}
"""Of a client that notices a stall within a test's patience, and leaves retries to others."""
PIECE = 100
"""Bytes: what is twice as large is uploaded in such pieces, where a case asks for pieces."""
FOREVER = 10**6
PATIENCE = 180.0
"""Seconds for a case: each waits for many stalls, and the machine may be busy."""
SEEDS = 1_200
DIRECTED = [
    (operation, fault, first, times)
    for operation in sorted(SUITED)
    if operation != "ABORT"  # which follows upon another fault alone
    for fault in SUITED[operation]
    for first, times in ((0, 1), (1, 1), (1, FOREVER))
]


def operation(method: str, target: str) -> str:
    """The name of a request of S3's."""
    query = target.partition("?")[2]
    if method == "GET":
        return "LIST" if "list-type=" in query else "GET"
    if query == "delete":
        return "DELETE"
    if "uploadId=" in query:
        return {"PUT": "PART", "POST": "COMPLETE", "DELETE": "ABORT"}[method]
    return "START" if method == "POST" else method


class Hasty:
    """asyncio for a client that waits between its retries: twenty times as short."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 20)


@dataclass(frozen=True)
class S3:
    """A bucket behind a proxy: ``options`` lead through it, ``calm`` past it."""

    proxy: Proxy
    options: dict[str, Any]
    calm: dict[str, Any]

    def case(self, schedule: Schedule, draw: random.Random, lying: bool, keep: int) -> Verdict:
        """A life in a folder of its own."""
        folder = f"{draw.randrange(1 << 60):x}/"
        self.proxy.struck.clear()
        self.proxy.schedule = schedule
        life = Life(
            lambda: open_store(f"s3://struck/{folder}", self.options),
            draw,
            LIED_TO if lying else HONEST,
            keep,
        )
        try:
            return judged(life, lambda: taken_out(folder), count=keep + 1, untidy=lying)
        finally:
            self.proxy.schedule = peace


def backend() -> Any:
    """What moto holds."""
    from moto.s3.models import s3_backends

    return s3_backends["123456789012"]["aws"]


def taken_out(folder: str) -> Store:
    """What moto holds below a folder, without a request."""
    from moto.s3.models import s3_backends

    keys = s3_backends["123456789012"]["aws"].buckets["struck"].keys
    store = DictStore()
    store.objects = {
        name.removeprefix(folder): key.value
        for name, key in keys.items()
        if name.startswith(folder)
    }
    return store


@contextmanager
def moto() -> Iterator[tuple[str, int]]:
    """moto's S3 on a port: without the dispatcher, which takes as long as S3 itself."""
    try:
        from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
        from werkzeug.serving import make_server
    except ImportError as error:
        raise Unavailable(f"no {error.name}") from None
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    app = create_backend_app("s3")
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=MotoRequestHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[:2]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def bucket() -> Iterator[S3]:
    """moto with one bucket, the proxy before it, and clients without long pauses."""
    try:
        import s3fs
    except ImportError as error:
        raise Unavailable(f"no {error.name}") from None
    with ExitStack() as stack:
        address = stack.enter_context(moto())
        proxy = Proxy(address, operation)
        stack.callback(proxy.stop)
        known = {"key": "id", "secret": "canary", "client_kwargs": {"region_name": "eu-west-1"}}
        calm = {**known, "endpoint_url": "http://{}:{}".format(*address)}
        options = {**known, "endpoint_url": proxy.endpoint, "config_kwargs": SHORT}
        stack.enter_context(mock.patch("streamomd.checkpoint.stores.remote.FIRST_PAUSE", 0.001))
        stack.enter_context(mock.patch("streamomd.checkpoint.stores.remote.DEADLINE", 1.0))
        stack.enter_context(mock.patch.object(s3fs.core, "asyncio", Hasty()))
        stack.enter_context(mock.patch.object(s3fs.S3FileSystem, "retries", 2))
        stack.enter_context(mock.patch("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 1))
        # moto's buckets are the process's, whichever server asks for them.
        backend().reset()
        s3fs.S3FileSystem(**calm).mkdir("struck")
        yield S3(proxy, options, calm)


@contextmanager
def in_pieces(wanted: bool) -> Iterator[None]:
    """Uploads go in pieces, however small."""
    from s3fs import S3FileSystem

    whole = S3FileSystem._pipe_file
    with mock.patch.object(
        S3FileSystem, "_pipe_file", partialmethod(whole, chunksize=PIECE) if wanted else whole
    ):
        yield


@kind("s3-seeded", quick=2)
@contextmanager
def s3_seeded(folder: Path) -> Iterator[Cases]:
    """S3 through a proxy: errors, lost replies, resets, stalls, untrue replies."""
    with bucket() as s3:

        def run(seed: int) -> Verdict:
            draw, lying = random.Random(seed), seed % 3 == 0
            chance = draw.choice((0.02, 0.05, 0.15))
            # The proxy's thread draws from its own.
            schedule = seeded(random.Random(f"schedule {seed}"), chance, lying=lying)
            with in_pieces(seed % 4 == 1):
                return s3.case(schedule, draw, lying, keep=2)

        yield Cases(range(SEEDS), run, PATIENCE)


@kind("s3-directed", quick=4)
@contextmanager
def s3_directed(folder: Path) -> Iterator[Cases]:
    """S3: each fault at each kind of request, once and permanently."""
    with bucket() as s3:

        def run(seed: int) -> Verdict:
            asked, fault, first, times = DIRECTED[seed]
            # What never passes is not awaited four times; half of the clients try once themselves.
            tries = mock.patch(
                "streamomd.checkpoint.stores.remote.ATTEMPTS", 2 if times == FOREVER else 4
            )
            client = mock.patch("s3fs.S3FileSystem.retries", 1 + seed % 2)
            # What is uploaded in pieces is looked up and read again: such answers prove nothing.
            with in_pieces(asked in ("START", "PART", "COMPLETE", "HEAD", "GET")), tries, client:
                schedule = directed(asked, fault, first, times)
                verdict = s3.case(schedule, random.Random(seed), fault in LYING, keep=1)
            assert s3.proxy.struck, "the fault never came"
            return verdict

        yield Cases(range(len(DIRECTED)), run, PATIENCE)
