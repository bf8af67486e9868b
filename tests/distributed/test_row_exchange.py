"""Row groups are decoded once: by one owner each, for all; what waits for the others is bounded."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from clustered import ROWS, long, sized
from distributed import Client, LocalCluster
from sharded_jobs import sharded_job

import streamomd
from streamomd.core.batch import DenseBatch
from streamomd.core.errors import DataError
from streamomd.distributed.exchange import DECODERS, EpochRows
from streamomd.distributed.slice_outbox import Key, ReadingEnded, Slice, SliceOutbox
from streamomd.shards.encoded_rows import Rows
from streamomd.shards.order import Group, Job
from streamomd.shards.prefetch import LEAST_BYTES
from streamomd.shards.reader import Piece

GROUP_ROWS = 900  # of the fixture ``data``
# Dask's own warnings of workers that are restarted.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def loop() -> Iterator[Any]:
    """An event loop in a thread, as a worker has one."""
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever)
    thread.start()
    yield made
    made.call_soon_threadsafe(made.stop)
    thread.join()
    made.close()


def piece(number: int) -> Slice:
    """A row that is a number."""
    rows = DenseBatch(np.full((1, 1), float(number)), np.zeros(1), np.ones(1))
    return Piece(0, number, 1, Rows(rows, None), rows.nbytes)


def take_all(outbox: SliceOutbox, loop: Any, key: Key, receiver: int) -> list[int]:
    """The rows of a group, as a receiver gets them. Raises the group's error."""
    found: list[int] = []
    ended = False
    while not ended:
        taking = asyncio.run_coroutine_threadsafe(outbox.take(key, receiver), loop)
        slices, ended, error = taking.result(20)
        found += [one.row for one in slices]
        if error is not None:
            raise error
    return found


@pytest.mark.parametrize("budget", [1, 3 * LEAST_BYTES, 1 << 30])
def test_slices_arrive_in_order_and_what_waits_is_bounded(loop: Any, budget: int) -> None:
    """Two receivers, of which one is late; two threads that decode a group each."""
    outbox = SliceOutbox([1, 2], budget, loop)
    keys: list[Key] = [(0, 0, 0), (0, 0, 1)]

    def decode(key: Key) -> None:
        for number in range(20):
            outbox.put(key, {receiver: piece(number) for receiver in (1, 2)})
        outbox.end(key)

    def receive(receiver: int) -> list[list[int]]:
        return [take_all(outbox, loop, key, receiver) for key in keys]

    with ThreadPoolExecutor(4) as pool:
        decoding = [pool.submit(decode, key) for key in keys]
        receiving = [pool.submit(receive, receiver) for receiver in (1, 2)]
        assert [one.result(20) for one in receiving] == [[[*range(20)]] * 2] * 2
        assert [one.result(20) for one in decoding] == [None, None]
    assert outbox.waiting == 0
    # Each thread may put the slices of one piece beyond the budget.
    assert outbox.most_waiting <= budget + 2 * 2 * LEAST_BYTES
    assert not outbox._groups


def test_an_error_comes_after_the_rows_before_it(loop: Any) -> None:
    """To each receiver, in the place where it happened."""
    outbox, key = SliceOutbox([1, 2], 1 << 20, loop), (0, 3, 1)
    outbox.put(key, {1: piece(0), 2: piece(0)})
    outbox.end(key, DataError("row 1"))
    for receiver in (1, 2):
        taking = asyncio.run_coroutine_threadsafe(outbox.take(key, receiver), loop)
        slices, ended, error = taking.result(20)
        assert [one.row for one in slices] == [0]
        assert ended
        assert str(error) == "row 1"


def test_who_waits_ends_with_the_epoch_and_with_the_owner(loop: Any) -> None:
    """A thread that waits to put, and a receiver that waits for rows."""
    outbox = SliceOutbox([1], 1, loop)
    outbox.put((0, 0, 0), {1: piece(0)})
    with ThreadPoolExecutor(2) as pool:
        putting = pool.submit(outbox.put, (0, 0, 0), {1: piece(1)})
        outbox.close_epoch(0)
        with pytest.raises(ReadingEnded):
            putting.result(20)
        taking = asyncio.run_coroutine_threadsafe(outbox.take((0, 0, 1), 1), loop)
        outbox.close()
        with pytest.raises(ReadingEnded):
            taking.result(20)


@pytest.mark.parametrize("owners", [1, 2, 3, 40])
def test_each_group_has_one_decoder_in_every_epoch(owners: int) -> None:
    """All owners agree, in any order of the shards, and the groups are divided evenly."""
    shards: Any = [SimpleNamespace(groups=(5,) * count) for count in (1, 4, 3, 90)]
    found: list[dict[tuple[int, int], int]] = []
    for order in ([0, 1, 2, 3], [2, 3, 1, 0]):
        firsts = [sum(len(one.groups) for one in shards[:at]) for at in order]
        rows = EpochRows(SimpleNamespace(decoders=min(owners, DECODERS)), 0, firsts)  # type: ignore
        jobs = {
            (at, number): Job(place, Group(shards[at], number, 5 * number, 5), 0)
            for place, at in enumerate(order)
            for number in range(len(shards[at].groups))
        }
        found.append({which: rows.decoder(job) for which, job in jobs.items()})
    assert found[0] == found[1]
    counts = Counter(found[0].values())
    assert set(counts) == set(range(min(owners, DECODERS)))
    assert max(counts.values()) - min(counts.values()) <= 1


def record_reads(path: str) -> None:
    """On a worker: each group that is decoded from its shard is a line of a file."""
    from streamomd.shards.reader import Reader

    read = getattr(Reader, "plain_read", Reader.read)
    Reader.plain_read = read  # type: ignore[attr-defined]

    def recorded(self: Any, job: Any) -> Any:
        with open(path, "a") as file:
            file.write(f"{job.group.shard.url} {job.group.number} {job.begin - job.group.row}\n")
        return read(self, job)

    Reader.read = recorded  # type: ignore[method-assign]


@pytest.mark.parametrize("owners", [2, *long(3, 4)])
@pytest.mark.parametrize("order", ["shuffled", *long("sorted")])
def test_each_group_is_read_once_per_epoch(
    data: Path,
    client: Client,
    workers: LocalCluster,
    tmp_path: Path,
    owners: int,
    order: str,
) -> None:
    """By all owners together, and whole: the store sends the data once. The result is that of one
    process."""
    sized(workers, owners)
    table = sharded_job(data, tmp_path / "run")
    table["data"] |= {"order": order, "seed": 3}
    client.run(record_reads, str(tmp_path / "reads"))
    there = streamomd.train(table, client=client, quiet=True)
    alone = streamomd.train({**table, "checkpoint": {"url": "none"}}, quiet=True)
    assert there.state_sha256 == alone.state_sha256
    assert there.result()["epochs"] == alone.result()["epochs"]
    reads = Counter((tmp_path / "reads").read_text().splitlines())
    assert set(reads.values()) == {table["train"]["epochs"]}
    assert len(reads) == 4 * -(-ROWS // GROUP_ROWS)
    sized(workers, 2)
