"""Reading ahead: bounded, in order, and what was delivered is let go."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shard_rows import read_ids, read_pieces, readers, table, whole, write_parquet

from streamomd.core.errors import ChangedDataError, DataError
from streamomd.core.profiling import profiled
from streamomd.shards import chunks, reader
from streamomd.shards.fetch_ahead import JOBS_AT_ONCE, FetchAhead, Load, Need
from streamomd.shards.order import Group, Job
from streamomd.shards.prefetch import LEAST_BYTES, Prefetcher, Run
from streamomd.shards.reader import Piece
from streamomd.shards.shard import Digests
from streamomd.shards.stored_object import ChangedWhileReadError
from streamomd.sources.find import find


def numbers(jobs: int, each: int, size: int) -> Prefetcher[int, Piece[None]]:
    """Jobs that each give the next ``each`` numbers, as rows of some bytes."""

    def run(job: int) -> Iterator[Piece[None]]:
        return (Piece(0, job * each + i, 1, None, nbytes=size) for i in range(each))

    @contextmanager
    def session() -> Iterator[Run[int, Piece[None]]]:
        yield run

    return Prefetcher(iter(range(jobs)), session, threads=3, budget=3 * size)


def test_waiting_bytes_stay_within_the_budget() -> None:
    """At most one result a thread waits beyond the budget, and the order holds."""
    size = 4 * LEAST_BYTES
    ahead = numbers(50, 7, size)
    assert [piece.row for piece in ahead.results()] == list(range(350))
    assert size <= ahead.most_waiting <= 3 * size + 2 * size
    assert ahead.waiting == 0


def test_a_reading_thread_may_close_the_results() -> None:
    """As the collector does with a generator that an error left behind: the thread ends itself."""
    suspended, closed = threading.Event(), threading.Event()

    def run(job: int) -> Iterator[Piece[None]]:
        if job:
            assert suspended.wait(30)
            results.close()
            closed.set()
        yield Piece(0, job, 1, None)

    @contextmanager
    def session() -> Iterator[Run[int, Piece[None]]]:
        yield run

    ahead = Prefetcher(iter(range(2)), session, threads=1, budget=1 << 20)
    results = ahead.results()
    assert next(results).row == 0
    suspended.set()
    assert closed.wait(30)
    assert not [*results]


def test_an_error_of_the_jobs_comes_after_their_results() -> None:
    """No thread is left that waits for a job."""

    def jobs() -> Iterator[int]:
        yield from range(2)
        raise RuntimeError("no more jobs")

    @contextmanager
    def session() -> Iterator[Run[int, Piece[None]]]:
        yield lambda job: iter([Piece(0, job, 1, None)])

    for threads in (1, 3):
        results = Prefetcher(jobs(), session, threads=threads, budget=1 << 20).results()
        assert [next(results).row, next(results).row] == [0, 1]
        with pytest.raises(RuntimeError, match="no more jobs"):
            next(results)
    assert readers() == []


@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_fewer_threads_than_wanted(allowed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system allows no more, those that run fetch all; without any there is an error."""
    start, places = threading.Thread.start, range(40)

    def limited(thread: threading.Thread) -> None:
        if thread.name.startswith("streamomd-fetch") and len(readers()) >= allowed:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    group = Group(None, 0, 0, 1)  # type: ignore[arg-type]
    ahead = FetchAhead((Job(at, group, 0) for at in places), lambda job: Need(nbytes=7), most=10)
    if not allowed:
        with pytest.raises(RuntimeError, match="new thread"):
            next(ahead)
    else:
        for place, job in zip(places, ahead, strict=True):
            claim = ahead.claim(job)
            assert (job.position, claim.wait().nbytes) == (place, 7)
            claim.release()
        assert len(readers()) == allowed
    ahead.close()
    assert readers() == []


def test_requests_of_several_jobs_are_in_flight_at_the_same_time() -> None:
    """Ten small row groups are one request: sixteen requests are in flight, not sixteen jobs."""
    each, group = 10, Group(None, 0, 0, 1)  # type: ignore[arg-type]
    together, begun = threading.Barrier(JOBS_AT_ONCE), []

    def request(at: int) -> tuple[()]:
        begun.append(at)
        if at < JOBS_AT_ONCE:
            together.wait(30)
        return ()

    loads = [Load(lambda at=at: request(at)) for at in range(20)]
    ahead = FetchAhead(
        (Job(at, group, 0) for at in range(each * len(loads))),
        lambda job: Need(nbytes=1, load=loads[job.position // each]),
        most=1 << 20,
    )
    for job in ahead:
        claim = ahead.claim(job)
        assert claim.wait().nbytes == 1
        claim.release()
    assert sorted(begun) == list(range(20))  # each once
    ahead.close()
    assert ahead.budget.held == 0


@pytest.mark.parametrize("most", [1, 25, 1 << 20])
def test_a_request_that_fails_holds_nothing(most: int) -> None:
    """Its jobs get no bytes, and their share of the budget is free for those after."""

    def request(at: int) -> tuple[()]:
        if at % 2:
            raise OSError("no answer")
        return ()

    loads = [Load(lambda at=at: request(at)) for at in range(30)]
    group = Group(None, 0, 0, 1)  # type: ignore[arg-type]
    ahead = FetchAhead(
        (Job(at, group, 0) for at in range(90)),
        lambda job: Need(nbytes=10, load=loads[job.position // 3]),
        most,
    )
    for job in ahead:
        claim = ahead.claim(job)
        assert claim.wait().nbytes == (0 if job.position // 3 % 2 else 10)
        claim.release()
    assert ahead.budget.held == 0
    ahead.close()


def test_budget_counts_decoded_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefetched batches are limited by their bytes, not by their number."""
    many = pa.table({"id": pa.array(range(60_000), pa.int64())})
    write_parquet(str(tmp_path / "a.parquet"), many, 20_000)
    made: list[Prefetcher[object, object]] = []

    class Watched(Prefetcher):  # type: ignore[type-arg]
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)  # type: ignore[arg-type]
            made.append(self)

    monkeypatch.setattr("streamomd.shards.reader.Prefetcher", Watched)
    shards = find(str(tmp_path))
    got = read_ids(shards, budget_bytes=50_000, unit_bytes=10_000)
    assert got == list(range(60_000))
    assert 0 < made[0].most_waiting <= 50_000 + 2 * 40_000


def test_delivered_batches_are_let_go(tmp_path: Path) -> None:
    """Reading a shard of many units leaves no more Arrow memory than its last pieces."""
    lists = pa.FixedSizeListArray.from_arrays(np.zeros(4_000_000, np.float32), 100)
    write_parquet(str(tmp_path / "a.parquet"), pa.table({"x": lists}), 40_000)
    shards = find(str(tmp_path))
    del lists
    before = pa.total_allocated_bytes()
    options = {"columns": ["x"], "function": whole, "unit_bytes": 1 << 20, "threads": 1}
    most = 0
    for piece in read_pieces(shards, places=[0], budget_bytes=2 << 20, **options):
        assert isinstance(piece, Piece)
        most = max(most, pa.total_allocated_bytes() - before)
        del piece
    assert most < 12 << 20
    assert pa.total_allocated_bytes() - before < 1 << 20


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each row group that pyarrow reads, whether by a thread a column."""
    found, decode = [], pq.ParquetFile.iter_batches

    def record(file: pq.ParquetFile, *given: Any, use_threads: bool, **options: Any) -> Any:
        found.append(use_threads)
        return decode(file, *given, use_threads=use_threads, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", record)
    return found


FLAT: dict[str, Any] = {"places": [0], "columns": ["id", "word"], "unit_bytes": 1 << 10}


@pytest.mark.parametrize("held", [0, 1 << 20])
def test_a_row_group_larger_than_what_may_wait_is_decoded_by_a_thread_a_column(
    held: int, tmp_path: Path, decoded: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the same rows in the same slices; smaller row groups, a single thread and a profile have
    one thread for all columns."""
    monkeypatch.setattr(reader, "LOCAL_HELD", held)
    write_parquet(str(tmp_path / "a.parquet"), table(0, 4000), 2000)
    shards = find(str(tmp_path))

    def rows(**options: Any) -> list[pa.RecordBatch]:
        decoded.clear()
        given = FLAT | {"columns": ["id", "list", "word"], "digests": Digests()} | options
        return [piece.value for piece in read_pieces(shards, function=whole, **given)]

    expected = rows(threads=1, budget_bytes=1 << 10)
    assert True not in decoded
    assert rows(threads=2, budget_bytes=1 << 10) == expected
    assert decoded.count(True) == 2
    assert rows(threads=2, budget_bytes=1 << 20) == expected
    assert True not in decoded
    with profiled():
        assert rows(threads=2, budget_bytes=1 << 10) == expected
    assert True not in decoded


def test_threads_of_columns_raise_what_one_thread_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that cannot be decoded are named; so is a shard that changes between two readings."""
    monkeypatch.setattr(reader, "LOCAL_HELD", 0)
    write_parquet(str(tmp_path / "a.parquet"), table(0, 4000), 2000)
    shards = find(str(tmp_path))
    given: Any = FLAT | {"threads": 2, "budget_bytes": 1 << 10}
    with monkeypatch.context() as patch, pytest.raises(ChangedDataError, match="being read"):
        patch.setattr(chunks._Windowed, "_read_again", _changed)
        [*read_pieces(shards, digests=Digests(), **given)]
    path = tmp_path / "a.parquet"
    chunk = pq.read_metadata(str(path)).row_group(1).column(0)
    before, data = path.stat(), bytearray(path.read_bytes())
    data[chunk.dictionary_page_offset + chunk.total_compressed_size // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(DataError, match=r"a\.parquet, rows \d+ to 3999 cannot be decoded"):
        [*read_pieces(find(str(tmp_path)), **given)]


def _changed(*given: Any) -> memoryview:
    raise ChangedWhileReadError("other bytes than those that were hashed")
