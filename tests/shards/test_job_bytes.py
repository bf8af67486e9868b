"""What the jobs of a reader request, whichever of its threads asks first."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamomd.shards.fetch_ahead import Need
from streamomd.shards.formats.contract import ReadRequest
from streamomd.shards.io_costs import JobBytes
from streamomd.shards.order import Job, jobs_of
from streamomd.shards.shard import ShardSet
from streamomd.shards.stored_object import WHOLE_BYTES, StoredObject
from streamomd.sources.find import find

GROUPS, ROWS, COLUMNS = 4, 20_000, 16
URL = "memory://job-bytes/a.parquet"


@pytest.fixture(scope="module")
def shards() -> Iterator[ShardSet]:
    """An object too large for one request, of four row groups; 160 kB a column of each."""
    draw = np.random.default_rng(0)
    table = pa.table({f"x{at:02}": draw.normal(size=GROUPS * ROWS) for at in range(COLUMNS)})
    fs = fsspec.filesystem("memory")
    fs.makedirs("/job-bytes", exist_ok=True)
    with fs.open("/job-bytes/a.parquet", "wb") as file:
        pq.write_table(table, file, row_group_size=ROWS)
    found = find(URL)
    assert found.shards[0].size > WHOLE_BYTES
    assert len(found.shards[0].groups) == GROUPS
    yield found
    fs.rm("/job-bytes", recursive=True)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Offset and length of each request from here on."""
    found: list[tuple[int, int]] = []
    own = StoredObject.fetch

    def noted(stored: StoredObject, offset: int, length: int) -> bytes:
        found.append((offset, length))
        return own(stored, offset, length)

    monkeypatch.setattr(StoredObject, "fetch", noted)
    return found


@pytest.fixture(scope="module")
def small() -> Iterator[ShardSet]:
    """An object that is one request, of a store without ETags."""
    fs = fsspec.filesystem("memory")
    fs.makedirs("/small", exist_ok=True)
    with fs.open("/small/a.parquet", "wb") as file:
        pq.write_table(pa.table({"x00": np.arange(400.0)}), file, row_group_size=100)
    yield find("memory://small/a.parquet")
    fs.rm("/small", recursive=True)


def test_a_small_object_is_one_request(small: ShardSet, requests: list[tuple[int, int]]) -> None:
    """Even where the thread of its last row group asks before others."""
    for order in itertools.permutations(range(GROUPS)):
        requests.clear()
        asked(small, ("x00",), order)
        assert requests == [(0, small.shards[0].size)], order


def asked(
    shards: ShardSet, columns: tuple[str, ...], order: tuple[int, ...], first: int = 0
) -> list[Need]:
    """What jobs need whose threads ask in this order, each of which then requests it."""
    needs = JobBytes(shards.fs, ReadRequest(columns, (), 1 << 20, 1 << 20), 64 << 20)
    begin = sum(shards.shards[0].groups[:first])
    jobs: list[Job] = list(needs.announced(jobs_of(shards, [0], (0, begin))))
    found = [needs.need(jobs[at]) for at in order]
    for need in found:
        if need.load.begin():
            need.load.run()
        need.load.spans.result()
    return found


@pytest.mark.parametrize("columns", [("x03", "x04"), ("x00", "x02", "x15")])
@pytest.mark.parametrize("first", [0, 2])
def test_requests_do_not_depend_on_the_order_of_threads(
    columns: tuple[str, ...], first: int, shards: ShardSet, requests: list[tuple[int, int]]
) -> None:
    """Jobs are given in order to threads that ask in any order: each range is requested once, and
    they are the ranges of jobs that ask in order; all jobs together hold their bytes."""
    numbers = tuple(range(GROUPS - first))
    in_order = asked(shards, columns, numbers, first)
    expected, held = sorted(requests), sum(need.nbytes for need in in_order)
    for order in itertools.permutations(numbers):
        requests.clear()
        found = asked(shards, columns, order, first)
        assert sorted(requests) == expected, order
        assert sum(need.nbytes for need in found) == held


def test_cached_row_groups_are_not_requested(
    shards: ShardSet, requests: list[tuple[int, int]]
) -> None:
    """Where the rows of a row group are cached, the requests of the others are those without it."""
    columns, cached = ("x03", "x04"), 1
    request = ReadRequest(columns, (), 1 << 20, 1 << 20)
    found = []
    for order in itertools.permutations(range(GROUPS)):
        requests.clear()
        needs = JobBytes(shards.fs, request, 64 << 20, lambda job: job.group.number == cached)
        jobs = list(needs.announced(jobs_of(shards, [0])))
        for need in [needs.need(jobs[at]) for at in order]:
            if need.load.begin():
                need.load.run()
        found.append(sorted(requests))
    assert found == found[:1] * len(found)
    begin, end = group_bytes(shards, cached)
    assert not [one for one in found[0] if begin <= one[0] < end]


def group_bytes(shards: ShardSet, number: int) -> tuple[int, int]:
    """Where a row group begins and ends in the object."""
    with shards.fs.open(shards.shards[0].path, "rb") as file:
        metadata = pq.ParquetFile(file).metadata.row_group(number)
    chunks = [metadata.column(at) for at in range(COLUMNS)]
    ends = [chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks]
    last = chunks[-1]
    return min(ends), max(ends) + last.total_compressed_size
