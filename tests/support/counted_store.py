"""A bucket (moto's) behind a proxy that counts requests."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

sys.path.append(str(Path(__file__).parents[1] / "faults"))

BUCKET = "counted"
KEY = {"key": "id", "secret": "canary", "client_kwargs": {"region_name": "eu-west-1"}}


@dataclass
class CountedBucket:
    """``options`` lead through the proxy; ``put`` goes past it."""

    options: dict[str, Any]
    requests: list[tuple[str, str]]
    """Operation (GET, HEAD, LIST) and key, or prefix, of each request since ``clear``."""
    fs: Any = field(repr=False)

    def url(self, name: str = "") -> str:
        return f"s3://{BUCKET}/{name}"

    def put(self, name: str, data: bytes) -> str:
        self.fs.pipe_file(f"{BUCKET}/{name}", data)
        return self.url(name)

    def remove(self, name: str) -> None:
        self.fs.rm_file(f"{BUCKET}/{name}")

    def clear(self) -> None:
        """Forget requests, and what this process has in memory of objects."""
        from streamomd.shards import stored_object

        self.requests.clear()
        stored_object.forget_recent()

    def of(self, name: str) -> Counter[str]:
        """Requests of one object, by operation."""
        return Counter(operation for operation, key in self.requests if key == name)

    @property
    def by_key(self) -> dict[str, int]:
        """Requests of each object."""
        return dict(Counter(key for operation, key in self.requests if operation != "LIST"))


@contextmanager
def counted_bucket() -> Iterator[CountedBucket]:
    import s3fs
    from proxy import Proxy
    from remote_s3 import backend, moto, operation

    with ExitStack() as stack:
        address = stack.enter_context(moto())
        found: list[tuple[str, str]] = []

        def noted(method: str, target: str) -> str:
            name, parts = operation(method, target), urlsplit(target)
            key = unquote(parts.path).removeprefix(f"/{BUCKET}").strip("/")
            found.append((name, key or parse_qs(parts.query).get("prefix", [""])[0]))
            return name

        proxy = Proxy(address, noted)
        stack.callback(proxy.stop)
        backend().reset()
        fs = s3fs.S3FileSystem(
            **KEY, endpoint_url="http://{}:{}".format(*address), skip_instance_cache=True
        )
        fs.mkdir(BUCKET)
        yield CountedBucket({**KEY, "endpoint_url": proxy.endpoint}, found, fs)
