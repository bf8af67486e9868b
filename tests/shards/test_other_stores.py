"""Shards in stores that do not refuse to read another version, and whose answers may be wrong."""

from __future__ import annotations

import hashlib
import io
import itertools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec import AbstractFileSystem
from shard_rows import readers

from streamomd.core.errors import ChangedDataError, IncompleteShardError
from streamomd.shards.reader import read_batches
from streamomd.shards.shard import ShardSet
from streamomd.shards.stored_object import WHOLE_BYTES, forget_recent
from streamomd.sources.find import find

SMALL, LARGE = 2_000, 600_000
"""Rows of objects on either side of ``WHOLE_BYTES``."""


def etag(data: bytes) -> dict[str, Any]:
    return {"ETag": hashlib.sha256(data).hexdigest()}


def generation(data: bytes) -> dict[str, Any]:
    """As gcsfs has it."""
    return {"generation": str(int(hashlib.sha256(data).hexdigest()[:12], 16)), "updated": "now"}


def blob_id(data: bytes) -> dict[str, Any]:
    """As hf:// has it."""
    return {"blob_id": hashlib.sha1(data).hexdigest(), "last_commit": None}


def mtime(data: bytes) -> dict[str, Any]:
    """As a store without ETags has it."""
    return {"mtime": float(int(hashlib.sha256(data).hexdigest()[:6], 16))}


class TaggedStore(AbstractFileSystem):
    """A store with ETags that are not conditions of a request. change: what an answer becomes."""

    protocol: ClassVar = "tagged"
    cachable = False
    objects: ClassVar[dict[str, bytes]] = {}
    change: ClassVar[Callable[[bytes], bytes]] = bytes
    facts: ClassVar[Callable[[bytes], dict[str, Any]]] = etag

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        if path not in self.objects:
            raise FileNotFoundError(path)
        data = self.objects[path]
        facts = TaggedStore.facts(data)
        return {"name": path, "type": "file", "size": len(data), **facts}

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        raise FileNotFoundError(path)

    def cat_file(self, path: str, start: Any = None, end: Any = None, **_: Any) -> bytes:
        return TaggedStore.change(self.objects[path][start:end])


@pytest.fixture(autouse=True)
def store() -> Iterator[None]:
    fsspec.register_implementation("tagged", TaggedStore, clobber=True)
    TaggedStore.change, TaggedStore.facts = bytes, etag
    TaggedStore.objects.clear()
    forget_recent()
    yield
    assert readers() == []


def parquet(count: int, seed: int) -> bytes:
    """Of any seed: the same size and the same footer."""
    draw, out = np.random.default_rng(seed), io.BytesIO()
    table = pa.table({"x": draw.normal(size=count), "y": draw.normal(size=count)})
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(table, out, row_group_size=count // 4, **plain)
    return out.getvalue()


def read(shards: ShardSet) -> pa.Table:
    found = read_batches(shards, places=[0], columns=["x"])
    return pa.Table.from_batches([one.batch for one in found])


@pytest.mark.parametrize("epochs", [0, 1])
def test_another_version_of_the_same_size_is_refused(epochs: int) -> None:
    """Also while the end of the version that was found is in memory."""
    before, after = parquet(LARGE, 1), parquet(LARGE, 2)
    assert len(before) == len(after) > WHOLE_BYTES
    assert before[-300:] == after[-300:]
    TaggedStore.objects["a.parquet"] = before
    shards = find("tagged://a.parquet")
    for _ in range(epochs):
        assert read(shards).equals(pq.read_table(pa.BufferReader(before), columns=["x"]))
    TaggedStore.objects["a.parquet"] = after
    with pytest.raises(ChangedDataError, match=r"a\.parquet was replaced while it was in use"):
        read(shards)


@pytest.mark.parametrize(
    ("count", "facts"),
    [(SMALL, generation), (SMALL, blob_id), (SMALL, mtime), (LARGE, etag), (LARGE, mtime)],
)
def test_another_version_between_two_requests_is_refused(count: int, facts: Any) -> None:
    """After any request of the reader: rows of another version are never returned."""
    before, after = parquet(count, 1), parquet(count, 2)
    expected = pq.read_table(pa.BufferReader(before), columns=["x"])["x"].to_numpy()
    TaggedStore.facts = facts
    refused = []
    for last in itertools.count():
        forget_recent()
        TaggedStore.objects["a.parquet"] = before
        shards, requests, got = find("tagged://a.parquet"), itertools.count(), list[float]()

        def overwrite(data: bytes, at: Any = requests, last: int = last) -> bytes:
            if next(at) == last:
                TaggedStore.objects["a.parquet"] = after
            return data

        TaggedStore.change = overwrite
        try:
            for one in read_batches(shards, places=[0], columns=["x"]):
                got += one.batch.column("x").to_pylist()
            refused.append(False)
        except ChangedDataError as error:
            refused.append("a.parquet was replaced while it was in use" in str(error))
        TaggedStore.change = bytes
        assert got == expected[: len(got)].tolist()
        if next(requests) <= last:  # nothing was overwritten
            break
    assert refused[-1] is False
    assert all(refused[:-1])


def halved(data: bytes) -> bytes:
    return data[: len(data) // 2]


def longer(data: bytes) -> bytes:
    return data + b"more"


def require_named(error: Exception) -> None:
    """The message names the shard, and what is wrong."""
    assert "a.parquet" in str(error)
    assert "truncated" in str(error)


@pytest.mark.parametrize("change", [halved, longer])
@pytest.mark.parametrize("count", [SMALL, LARGE])
def test_an_answer_of_another_length(count: int, change: Callable[[bytes], bytes]) -> None:
    """It is an error that names the shard, at each request; the next request is right."""
    data = parquet(count, 1)
    TaggedStore.objects["a.parquet"] = data
    expected = pq.read_table(pa.BufferReader(data), columns=["x"])
    for wrong in itertools.count():
        requests = itertools.count()
        TaggedStore.change = lambda data, at=requests, it=wrong: (
            change(data) if next(at) == it else data
        )
        forget_recent()
        try:
            # A reader asks again for what was not fetched ahead.
            assert read(find("tagged://a.parquet")).equals(expected)
        except (IncompleteShardError, ChangedDataError) as error:
            require_named(error)
        if next(requests) <= wrong:
            break
    assert wrong >= 1
