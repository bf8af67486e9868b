"""How many requests the shards of a store take, counted at a proxy."""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from counted_store import CountedBucket, counted_bucket
from shard_rows import readers

import streamomd
from streamomd.core.errors import ChangedDataError
from streamomd.shards import fetch_ahead
from streamomd.shards.reader import read_batches
from streamomd.shards.shard import Digests, ShardSet
from streamomd.sources.find import find

pytest.importorskip("moto.server", reason="moto[server] is not installed")
MIB = 1 << 20


@pytest.fixture(scope="module")
def bucket() -> Iterator[CountedBucket]:
    with counted_bucket() as found:
        yield found


def rows(count: int, columns: int, seed: int = 0) -> pa.Table:
    """Numbers that do not compress, and a label."""
    draw = np.random.default_rng(seed)
    values = {f"x{at:03}": draw.normal(size=count) for at in range(columns - 1)}
    return pa.table({**values, "y": (draw.random(count) < 0.5).astype("i8")})


def parquet(table: pa.Table, group: int, **options: object) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=group, **options)
    return out.getvalue()


def arrow(table: pa.Table, batch: int) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=batch)
    return out.getvalue()


def read(shards: ShardSet, columns: list[str], **options: object) -> pa.Table:
    found = read_batches(shards, places=range(len(shards)), columns=columns, **options)
    return pa.Table.from_batches([one.batch for one in found])


def train(shards: str, options: dict[str, object] | None = None) -> str:
    """The state's digest of a model that has learned these shards."""
    data = {"shards": shards, "label": "y", "storage_options": options or {}}
    return streamomd.train({"data": data, "checkpoint": {"url": "none"}}).state_sha256


@pytest.mark.slow
def test_an_object_of_many_row_groups(bucket: CountedBucket, tmp_path) -> None:
    """2.5 MB, 8 row groups of 55 columns: found, looked at for labels, learned in one request; and
    the model is that of the file on the disk."""
    data = parquet(rows(5_600, 55), 700)
    assert 2.4e6 < len(data) < 3e6
    bucket.put("one/a.parquet", data)
    bucket.clear()
    state = train(bucket.url("one/a.parquet"), bucket.options)
    assert bucket.of("one/a.parquet")["GET"] == 1
    assert bucket.of("one/a.parquet").total() <= 2
    (tmp_path / "a.parquet").write_bytes(data)
    assert train(str(tmp_path)) == state


@pytest.mark.parametrize("count", [50, pytest.param(500, marks=pytest.mark.slow)])
def test_many_small_objects(bucket: CountedBucket, count: int) -> None:
    """Shards of 20 rows and 55 columns: at most 2 requests each, in every epoch 1."""
    for at in range(count):
        bucket.put(f"many/{at:03}.parquet", parquet(rows(20, 55, at), 20))
    bucket.clear()
    train(bucket.url("many/"), bucket.options)
    each = {key: count for key, count in bucket.by_key.items() if key.endswith(".parquet")}
    assert len(each) == count
    assert max(each.values()) <= 2
    shards = find(bucket.url("many/"), storage_options=bucket.options)
    bucket.clear()
    assert read(shards, ["y"]).num_rows == 20 * count
    assert sorted(set(bucket.by_key.values())) == [1]
    assert readers() == []


KINDS = {
    # name: the object, columns that are read, most requests to read it once it was found
    "small": (lambda: parquet(rows(1_000, 10), 100), ["x000", "y"], 1),
    "many small row groups": (lambda: parquet(rows(40_000, 30), 400), None, 3),
    "large": (lambda: parquet(rows(200_000, 9), 50_000), None, 1 + 4),
    "one row group": (lambda: parquet(rows(200_000, 9), 200_000), None, 1 + 2),
    "adjacent columns": (lambda: parquet(rows(100_000, 16), 50_000), ["x003", "x004"], 1 + 2),
    "columns far apart": (lambda: parquet(rows(200_000, 16), 200_000), ["x000", "x014"], 1 + 2),
    "gaps of less than 1 MiB": (
        lambda: parquet(rows(100_000, 16), 50_000), ["x000", "x002", "x004"], 1 + 2,
    ),
    "arrow, small": (lambda: arrow(rows(10_000, 10), 500), ["x000", "y"], 1),
    "arrow, large": (lambda: arrow(rows(200_000, 9), 50_000), None, 1 + 4),
    "arrow, few columns": (lambda: arrow(rows(200_000, 16), 100_000), ["x003", "x004"], 1 + 2 * 2),
}  # fmt: skip


@functools.cache
def made(kind: str) -> bytes:
    """The object of a kind."""
    return KINDS[kind][0]()


@pytest.mark.parametrize("digests", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sample(6)
def test_requests_by_layout(kind: str, digests: bool, bucket: CountedBucket) -> None:
    """A row group of a large object is one request for each 8 MiB or so of its columns, with gaps
    of up to 1 MiB; the footer is one more; an object of up to 8 MiB is one in all. Rows are those
    that were written, with and without digests."""
    _, columns, most = KINDS[kind]
    name = f"layout/{kind}"
    data = made(kind)
    suffix = "arrow" if kind.startswith("arrow") else "parquet"
    bucket.put(f"{name}.{suffix}", data)
    shards = find(bucket.url(f"{name}.{suffix}"), storage_options=bucket.options)
    bucket.clear()
    columns = columns or shards.shards[0].schema.names
    known = Digests() if digests else None
    found = read(shards, columns, digests=known)
    assert {operation for operation, _ in bucket.requests} == {"GET"}
    assert len(bucket.requests) <= most, bucket.requests
    source = pa.BufferReader(data)
    whole = pq.read_table(source) if suffix == "parquet" else pa.ipc.open_file(source).read_all()
    assert found.equals(whole.select(columns))
    if digests:
        bucket.clear()
        assert read(shards, columns, digests=known).equals(found)
    assert readers() == []


@pytest.mark.parametrize("budget", [1, 4 * MIB, 64 * MIB])
def test_what_is_in_flight_is_bounded(
    budget: int, bucket: CountedBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requested bytes that wait are at most what is allowed, or one row group."""
    data = parquet(rows(100_000, 20), 5_000)
    bucket.put("bounded/a.parquet", data)
    shards = find(bucket.url("bounded/"), storage_options=bucket.options)
    budgets = []
    begin = fetch_ahead.OrderedBudget.__init__

    def noted(self, most):
        budgets.append(self)
        begin(self, most)

    monkeypatch.setattr(fetch_ahead.OrderedBudget, "__init__", noted)
    found = read(shards, ["x000", "x018"], budget_bytes=budget)
    assert found.num_rows == 100_000
    group = max(len(data) / 20 * 1.5, 1)
    assert budgets[-1].most_held <= max(budget, group)
    assert budgets[-1].held == 0


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("change", ["replaced", "removed", "same size"])
@pytest.mark.sample(3)
def test_an_object_that_changes_is_refused(change: str, size: str, bucket: CountedBucket) -> None:
    """Without a request of its own: the store refuses to give another version."""
    count = 500 if size == "small" else 200_000
    name = f"changing/{size} {change}.parquet"
    bucket.put(name, parquet(rows(count, 10), count // 4, compression="none"))
    shards = find(bucket.url(name), storage_options=bucket.options)
    bucket.clear()
    batches = iter(read_batches(shards, places=[0], columns=["x000", "y"]))
    if change == "removed":
        bucket.remove(name)
    elif change == "replaced":
        bucket.put(name, parquet(rows(count + 1, 10, seed=1), count, compression="none"))
    else:
        bucket.put(name, parquet(rows(count, 10, seed=1), count // 4, compression="none"))
    expected = "no such file" if change == "removed" else "was replaced while it was"
    with pytest.raises(Exception, match=expected) as caught:
        list(batches)
    assert name in str(caught.value)
    if change != "removed":
        assert isinstance(caught.value, ChangedDataError)
