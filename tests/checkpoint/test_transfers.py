"""Several parts in flight: order, bounds, errors, and what a commit leaves after a fault."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import safetensors.numpy
from checkpoint_helpers import begin, holds, load_all, numbers, plain
from hypothesis import given, settings
from hypothesis import strategies as st

from streamomd.checkpoint import Store, Writer, list_commits, open_store
from streamomd.checkpoint.parts import DTYPES, pack
from streamomd.checkpoint.stores import contract
from streamomd.checkpoint.stores.contract import in_flight
from streamomd.core.errors import CorruptionError, DivergedError, StorageError

pytest.importorskip("s3fs", reason="s3fs is not installed")
from s3_server import Answer, S3Server, hold

PARTS = 12
PART = ".safetensors"


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses between attempts, neither ours nor those of s3fs."""
    monkeypatch.setattr("streamomd.checkpoint.stores.remote.FIRST_PAUSE", 0.001)
    monkeypatch.setattr("s3fs.S3FileSystem.retries", 1)


@pytest.fixture
def server() -> Iterator[S3Server]:
    with S3Server() as running:
        yield running


def opened(server: S3Server) -> Store:
    return open_store("s3://bucket/run", server.options)


# The transfers themselves.

SIZES = st.lists(st.integers(0, 100), max_size=30)


@settings(max_examples=60, deadline=None)
@given(sizes=SIZES, limit=st.integers(2, 16), most=st.integers(1, 120))
def test_results_are_in_order_and_bytes_are_bounded(
    sizes: list[int], limit: int, most: int
) -> None:
    """Of any items: never more than the limit and the bytes, except one larger item alone."""
    lock, running, seen = threading.Lock(), dict[int, int](), list[tuple[int, int]]()

    def work(item: tuple[int, int]) -> int:
        at, size = item
        with lock:
            running[at] = size
            seen.append((len(running), sum(running.values())))
        time.sleep(0.0002 * (at % 3))
        with lock:
            del running[at]
        return at

    with mock.patch.object(contract, "BYTES_IN_FLIGHT", most):
        found = [*in_flight(work, enumerate(sizes), limit, lambda item: item[1])]
    assert found == [*range(len(sizes))]
    assert all(count <= limit and (total <= most or count == 1) for count, total in seen)


def test_items_are_taken_when_there_is_room() -> None:
    """A part is packed only when it can be sent: at most one waits."""
    taken, gate = [], threading.Event()

    def items() -> Iterator[int]:
        for at in range(10):
            taken.append(at)
            if at == 3:  # the next one would be taken within this time
                threading.Timer(0.2, gate.set).start()
            yield at

    found = in_flight(lambda at: gate.wait(60) and at, items(), 3, lambda _: 1)
    assert next(found) == 0
    assert taken == [0, 1, 2, 3]
    assert [*found] == [*range(1, 10)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["", "corrupt", "lost", "bug"]), max_size=12), st.integers(1, 5))
def test_errors_of_items_in_flight_are_raised_together(fates: list[str], limit: int) -> None:
    """After the first failed item no other is begun than those in flight, and all have ended."""
    kinds = {"corrupt": CorruptionError, "lost": StorageError, "bug": ZeroDivisionError}
    begun, ended = [], []

    def work(at: int) -> int:
        begun.append(at)
        try:
            if fates[at]:
                raise kinds[fates[at]](f"item {at}.")
            return at
        finally:
            ended.append(at)

    bad = [at for at, fate in enumerate(fates) if fate]
    transfer = in_flight(work, range(len(fates)), limit, lambda _: 0)
    if not bad:
        assert [*transfer] == [*range(len(fates))]
        return
    with pytest.raises((CorruptionError, StorageError, ZeroDivisionError)) as raised:
        list(transfer)
    assert sorted(begun) == sorted(ended)
    assert max(begun) < bad[0] + limit
    hit = {at: kinds[fates[at]] for at in bad if at in begun}
    order = (ZeroDivisionError, CorruptionError, StorageError)
    assert raised.type is next(kind for kind in order if kind in hit.values())
    if raised.type is not ZeroDivisionError:
        same = [at for at, kind in hit.items() if kind is raised.type]
        assert all(f"item {at}." in str(raised.value) for at in same)


def test_an_error_of_the_items_waits_for_those_in_flight() -> None:
    """A model that diverged, found while parts are in flight: nothing is written afterwards."""
    ended = []

    def items() -> Iterator[int]:
        yield from range(3)
        raise DivergedError("coordinate 7 is nan")

    def work(at: int) -> None:
        time.sleep(0.02)
        ended.append(at)

    with pytest.raises(DivergedError, match="coordinate 7"):
        [*in_flight(work, items(), 8, lambda _: 0)]
    assert sorted(ended) == [0, 1, 2]


def test_many_failures_are_counted() -> None:
    """A message names ten, and counts the others."""

    def work(at: int) -> None:
        time.sleep(0.01)
        raise StorageError(f"part {at}")

    with pytest.raises(StorageError, match=r"part 9; and 4 more$"):
        [*in_flight(work, range(30), 14, lambda _: 0)]


# The bytes of a part.

ARRAYS = st.dictionaries(
    st.text(min_size=1, max_size=8).filter(lambda name: name != "__metadata__"),
    st.tuples(st.sampled_from([*DTYPES.values()]), st.lists(st.integers(0, 3), max_size=3)),
    max_size=6,
)


@given(ARRAYS)
def test_a_part_is_what_safetensors_would_save(described: dict[str, Any]) -> None:
    """Bit for bit, whatever the names, types and shapes."""
    draw = np.random.default_rng(len(described))
    arrays = {
        name: draw.integers(0, 255, (*shape, 8), np.uint8).view(dtype)[..., 0].copy()
        for name, (dtype, shape) in described.items()
    }
    assert pack((0, 1, arrays))[1] == safetensors.numpy.save(arrays)


# A commit at a store.


def test_parts_are_in_flight_and_the_manifest_is_last(server: S3Server) -> None:
    """8 to 16 parts are on their way at a time, and the manifest follows all of them."""
    writer = begin(opened(server))
    server.count()
    server.fault = hold(8)
    writer.commit({"rows": 10}, numbers(1, ranges=24))
    assert 8 <= server.most_in_flight() <= 16
    puts = [one for one in server.log if one[0] == "PUT"]
    (manifest,) = (one for one in puts if "/commits/" in one[1])
    assert manifest[2] > max(end for _, key, _, end in puts if key.endswith(PART))
    server.count()
    server.fault = hold(8)
    loaded, parts = load_all(opened(server))
    assert 8 <= server.most_in_flight() <= 16
    assert parts == plain(numbers(1, ranges=24))
    assert loaded.rejected == ()


def failing(server: S3Server, doomed: set[int], times: int) -> Callable[..., Any]:
    """A fault: PUTs of these parts fail the first ``times`` times."""
    left = dict.fromkeys((f"p{4 * at:012d}-" for at in doomed), times)

    async def fault(operation: str, key: str) -> Answer | None:
        name = key.rpartition("/")[2][:14]
        if operation != "PUT" or not left.get(name):
            return None
        left[name] -= 1
        return 500, {}, b""

    return fault


def test_a_part_that_fails_once_is_written_again(server: S3Server) -> None:
    """Whichever it is, the commit is made."""
    store = opened(server)
    writer = begin(store, keep=1)
    for at in range(PARTS):
        server.fault = failing(server, {at}, 1)
        writer.commit({"rows": 10 * at}, numbers(at, ranges=PARTS))
        assert load_all(store)[1] == plain(numbers(at, ranges=PARTS))
        assert len(data_of(server)) == PARTS


@pytest.mark.slow
def test_parts_that_fail_are_named_and_deleted_later(server: S3Server) -> None:
    """No manifest is written; the error names every part in flight that failed; the next commit
    deletes what the failed one left."""
    store = opened(server)
    writer = begin(store, keep=1)
    for number, doomed in enumerate([*({at} for at in range(PARTS)), {0, 3, 5}, {*range(PARTS)}]):
        server.fault = failing(server, doomed, 10**6)
        with pytest.raises(StorageError) as error:
            writer.commit({"rows": 1}, numbers(99, ranges=PARTS))
        named = {at for at in range(PARTS) if f"p{4 * at:012d}-" in str(error.value)}
        assert min(doomed) in named
        assert named <= doomed
        assert named >= {at for at in doomed if at < 8} or min(doomed) >= 8
        holds(store, number)
        server.fault = failing(server, set(), 0)
        writer.commit({"rows": 10 * number + 10}, numbers(number + 1))
        holds(store, number + 1)
        assert len(data_of(server)) == 2


def data_of(server: S3Server) -> list[str]:
    return [key for key in server.objects if "/data/" in key]


def test_other_bytes_are_not_a_commit(server: S3Server) -> None:
    """A store that proves other bytes than were sent: the commit fails."""
    writer = begin(opened(server))

    async def other(operation: str, key: str) -> Answer | None:
        digest = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="  # of nothing
        if operation == "PUT" and key.endswith(PART):
            return 200, {"ETag": '"0"', "x-amz-checksum-sha256": digest}, b""
        return None

    server.fault = other
    with pytest.raises(StorageError, match="received other bytes"):
        writer.commit({"rows": 10}, numbers(1))
    holds(opened(server), 0)


def test_a_store_that_proves_nothing_is_asked(server: S3Server) -> None:
    """An answer without a checksum, and no object: the commit fails, as a HEAD finds."""
    server.proof = ""
    writer = begin(opened(server))

    async def lost(operation: str, key: str) -> Answer | None:
        return (200, {"ETag": '"0"'}, b"") if operation == "PUT" and key.endswith(PART) else None

    server.fault = lost
    with pytest.raises(StorageError, match="was not written completely"):
        writer.commit({"rows": 10}, numbers(1))
    holds(opened(server), 0)


def test_damaged_parts_are_all_reported(server: S3Server) -> None:
    """Each part is verified when it is read. The reason for the older commit names them all."""
    writer = begin(opened(server))
    writer.commit({"rows": 10}, numbers(1, ranges=PARTS))
    newest = [
        key for key in data_of(server) if "/000000000001-" in key and re.search("/p0+(4|12)-", key)
    ]
    assert len(newest) == 2
    for key in newest:
        server.objects[key] = server.objects[key][:-1] + b"?"
    loaded, parts = load_all(opened(server))
    assert parts == plain(numbers(0))
    ((sequence, reason),) = loaded.rejected
    assert sequence == 1
    assert all(key.rpartition("/")[2] in reason for key in newest)
    [_, one] = list_commits(opened(server), deep=True)
    assert all(key.rpartition("/")[2] in one["problem"] for key in newest)


def test_truncated_and_longer_parts_are_damage(server: S3Server) -> None:
    """An empty object, which has no range, and one that grew: never a store that fails."""
    store = opened(server)
    begin(store).commit({"rows": 10}, numbers(1))
    (key,) = (k for k in data_of(server) if "/000000000001-" in k and "/p000000000000-" in k)
    whole = server.objects[key]
    for other in (b"", whole[:-1], whole + b"?", whole * 2):
        server.objects[key] = other
        holds(store, 0, rejected=[1])
    server.objects[key] = whole
    holds(store, 1)


CHILD = """
import json, sys
sys.path.insert(0, sys.argv[1])
from checkpoint_helpers import load_all, numbers
from streamomd.checkpoint import Writer, open_store
store = open_store("s3://bucket/run", json.loads(sys.argv[2]))
writer = Writer.take_over(store, load_all(store)[0])
print("ready", flush=True)
writer.commit({"rows": 20}, numbers(2, ranges=30))
"""


@pytest.mark.parametrize(
    "how",
    [
        signal.SIGKILL,
        *(pytest.param(one, marks=pytest.mark.slow) for one in (signal.SIGINT, signal.SIGTERM)),
    ],
)
@pytest.mark.slow
def test_a_process_that_ends_with_parts_in_flight(server: S3Server, how: signal.Signals) -> None:
    """No manifest: the commit before is loaded, and another process continues."""
    begin(opened(server)).commit({"rows": 10}, numbers(1))
    support = str(Path(__file__).parents[1] / "support")
    words = [sys.executable, "-c", CHILD, support, json.dumps(server.options)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        server.latency = 60.0
        server.count()
        deadline = time.monotonic() + 60
        while server.requests["PUT"] < 8 and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(child.pid, how)
        child.wait(45)  # it does not wait for what is in flight
    assert child.returncode != 0
    server.latency = 0.0
    loaded = holds(opened(server), 1)
    writer = Writer.take_over(opened(server), loaded)
    writer.commit({"rows": 30}, numbers(3))
    holds(opened(server), 3)
