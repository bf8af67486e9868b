"""Buffers that are used again: never while anything refers to them."""

from __future__ import annotations

import gc
import random
import threading
from typing import Any

import numpy as np
import pyarrow as pa

from streamomd.features.buffers import (
    MOST_BYTES,
    MOST_ONES,
    SMALLEST_BYTES,
    STEP_BYTES,
    BufferPool,
    ones,
)

LENGTH = SMALLEST_BYTES * 3


def filled(pool: BufferPool, value: int, length: int = LENGTH) -> pa.Buffer:
    """A buffer of the pool, full of one value."""
    buffer = pool.take(length)
    np.frombuffer(memoryview(buffer), np.uint8)[:] = value
    return buffer


def test_a_buffer_is_used_again_after_its_last_reference_is_gone() -> None:
    """The address of a freed buffer comes again, for a shorter one too."""
    pool = BufferPool()
    first = filled(pool, 1)
    address = first.address
    assert filled(pool, 2).address != address
    del first
    assert pool.take(LENGTH - 64).address == address


def test_a_buffer_is_aligned_writable_and_of_the_length_asked_for() -> None:
    """Short, long, and longer than all that the pool retains."""
    pool = BufferPool()
    for length in (0, 1, SMALLEST_BYTES - 1, SMALLEST_BYTES, STEP_BYTES + 1, MOST_BYTES + 1):
        buffer = pool.take(length)
        assert (buffer.size, buffer.address % 64) == (length, 0)
        assert buffer.is_mutable


def test_every_view_of_a_buffer_holds_it() -> None:
    """A slice, a decoded column, a NumPy array and a view of it each keep the memory unchanged."""
    column = np.arange(LENGTH // 8)
    data = pa.record_batch({"x": column}).serialize()
    holders: list[Any] = [
        lambda buffer: buffer.slice(128, 1024),
        lambda buffer: memoryview(buffer)[8:],
        lambda buffer: np.frombuffer(buffer, np.uint8)[5:][::2],
        lambda buffer: pa.Array.from_buffers(pa.int64(), 8, [None, buffer]).to_numpy()[2:],
        lambda buffer: pa.ipc.read_record_batch(buffer, pa.schema({"x": pa.int64()})).column(0),
    ]
    for hold in holders:
        pool = BufferPool()
        buffer = pool.take(data.size)
        np.frombuffer(memoryview(buffer), np.uint8)[:] = np.frombuffer(data, np.uint8)
        address, held = buffer.address, hold(buffer)
        before = np.array(held, copy=True)
        del buffer
        for _ in range(4):
            assert filled(pool, 255, data.size).address != address
        assert np.array_equal(np.asarray(held), before)
        del held, before
        gc.collect()
        assert address in [buffer.address for buffer in [pool.take(data.size) for _ in range(3)]]


def test_no_more_than_the_bound_is_retained() -> None:
    """Buffers beyond the bound are lent as well, and are no part of the pool."""
    pool = BufferPool(most_bytes=2 * STEP_BYTES)
    held = [filled(pool, value, STEP_BYTES) for value in range(5)]
    assert [np.frombuffer(one, np.uint8).max() for one in held] == list(range(5))
    assert len({one.address for one in held}) == 5
    assert pool.retained == 2 * STEP_BYTES
    del held
    assert pool.take(2 * STEP_BYTES).size == 2 * STEP_BYTES
    assert pool.retained == 2 * STEP_BYTES  # the shorter ones made room


def test_threads_never_share_a_buffer() -> None:
    """Threads that fill, hand over and drop buffers find in each what they wrote."""
    pool, wrong, held = BufferPool(), [], [None] * 8

    def work(number: int) -> None:
        draw = random.Random(number)
        for turn in range(200):
            value = (number * 50 + turn) % 256
            buffer = filled(pool, value, draw.randrange(SMALLEST_BYTES, 4 * SMALLEST_BYTES))
            array = np.frombuffer(buffer, np.uint8)
            del buffer
            other, held[draw.randrange(8)] = held[draw.randrange(8)], (array, value)
            for found in ((array, value), other):
                if found is not None and not (found[0] == found[1]).all():
                    wrong.append(found[1])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_ones_are_shared_and_cannot_be_written() -> None:
    """Arrays of any length, of both types; long ones are not held."""
    for dtype in (np.float32, np.float64):
        for length in (0, 1, 7, STEP_BYTES, 3, MOST_ONES + 1):
            found = ones(length, dtype)
            assert found.dtype == dtype
            assert not found.flags.writeable
            assert len(found) == np.count_nonzero(found == 1) == length
        assert np.shares_memory(ones(5, dtype), ones(7, dtype))
        assert not np.shares_memory(ones(5, dtype), ones(MOST_ONES + 1, dtype))
