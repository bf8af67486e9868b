"""Checkpoints in Google Cloud Storage, as far as a server that honours its preconditions is it."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partialmethod
from pathlib import Path
from typing import Any
from unittest import mock

from checkpoint_helpers import DictStore
from gcs_server import Bucket, serving
from http_faults import peace, seeded
from kinds import Cases, Unavailable, Verdict, kind
from proxy import Proxy
from remote_life import HONEST, LIED_TO, Life, judged
from remote_race import Race, race
from remote_s3 import PATIENCE, PIECE, Hasty

from streamomd.checkpoint.stores.remote import RemoteStore

SEEDS = 300


def operation(method: str, target: str) -> str:
    """The name of a request, by what is done to S3's that is like it."""
    path, _, query = target.partition("?")
    if method == "GET":
        return "LIST" if path.endswith("/o") else "GET"
    if "upload_id=" in query:
        return "ABORT" if method == "DELETE" else "PART"
    return "START" if "uploadType=resumable" in query else {"POST": "PUT"}.get(method, method)


@contextmanager
def service() -> Iterator[tuple[Bucket, Proxy, Any]]:
    """A bucket, the proxy before it, and a file system that leads through the proxy."""
    try:
        import gcsfs.core
    except ImportError as error:
        raise Unavailable(f"no {error.name}") from None
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    bucket = Bucket()
    with ExitStack() as stack:
        proxy = Proxy(stack.enter_context(serving(bucket)), operation)
        stack.callback(proxy.stop)
        stack.enter_context(mock.patch("streamomd.checkpoint.stores.remote.FIRST_PAUSE", 0.001))
        stack.enter_context(mock.patch("streamomd.checkpoint.stores.remote.DEADLINE", 1.0))
        stack.enter_context(mock.patch.object(gcsfs.retry, "asyncio", Hasty()))
        # Not the class that asks another service of Google's what kind of bucket it is.
        fs = gcsfs.core.GCSFileSystem(
            project="p", token="anon", endpoint_url=proxy.endpoint, skip_instance_cache=True
        )
        yield bucket, proxy, fs


def taken_out(bucket: Bucket, folder: str) -> DictStore:
    """What the bucket holds below a folder, without a request."""
    store, start = DictStore(), f"{folder}/"
    store.objects = {
        name.removeprefix(start): data
        for name, (_, data) in bucket.objects.items()
        if name.startswith(start)
    }
    return store


@kind("gcs-seeded", quick=3)
@contextmanager
def gcs_seeded(folder: Path) -> Iterator[Cases]:
    """GCS, its preconditions honoured: errors, lost replies, resets, stalls, untrue replies."""
    with service() as (bucket, proxy, fs):
        import gcsfs.core

        whole = gcsfs.core.GCSFileSystem._pipe_file

        def run(seed: int) -> Verdict:
            draw, lying, name = random.Random(seed), seed % 3 == 0, f"life-{seed}"
            chance = draw.choice((0.02, 0.05, 0.15))
            proxy.schedule = seeded(random.Random(f"gcs {seed}"), chance, lying=lying)
            life = Life(
                lambda: RemoteStore(fs, f"bucket/{name}", f"gs://bucket/{name}"),
                draw,
                LIED_TO if lying else HONEST,
            )
            pieces = partialmethod(whole, chunksize=PIECE) if seed % 4 == 1 else whole
            with mock.patch.object(gcsfs.core.GCSFileSystem, "_pipe_file", pieces):
                try:
                    return judged(life, lambda: taken_out(bucket, name), count=3, untidy=lying)
                finally:
                    proxy.schedule = peace

        yield Cases(range(SEEDS), run, PATIENCE)


@kind("gcs-race", quick=3)
@contextmanager
def gcs_race(folder: Path) -> Iterator[Cases]:
    """GCS, its preconditions honoured: a second writer comes at every request of the first."""
    with service() as (bucket, _, fs):

        def run(seed: int) -> Verdict:
            name = f"race-{seed}"

            def store() -> RemoteStore:
                return RemoteStore(fs, f"bucket/{name}", f"gs://bucket/{name}")

            return race(Race(store), seed, lambda: taken_out(bucket, name))

        yield Cases(range(60), run, PATIENCE)
