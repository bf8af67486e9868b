"""Slices of decoded row groups: without zeros where that is smaller, waiting for other owners."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import DenseBatch
from streamomd.core.jit import compiled, int64, read, written
from streamomd.shards.encoded_rows import Rows
from streamomd.shards.prefetch import LEAST_BYTES
from streamomd.shards.reader import Piece

MOST = 1 << 31  # values of a matrix whose places are int32


@dataclass(frozen=True, slots=True, eq=False)
class CompactRows:
    """A dense batch: the values of its matrix that are not 0, and their places in it, ascending.

    rows: the batch with no column.
    """

    columns: int
    places: NDArray[np.int32]
    values: NDArray[Any]
    rows: DenseBatch

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.places.nbytes + self.values.nbytes + self.rows.nbytes

    def restored(self) -> DenseBatch:
        """The batch. Of -0.0 it has 0.0: loops pass over both."""
        matrix = np.zeros((len(self.rows), self.columns), dtype=self.values.dtype)
        _kernel(_spread, self.values.dtype.name)(self.places, self.values, matrix.reshape(-1))
        return replace(self.rows, values=matrix)


def compacted(batch: DenseBatch, first: int, last: int) -> CompactRows | None:
    """The columns first … last − 1 of a batch; None if a matrix takes no more bytes."""
    values, width = batch.values, last - first
    size, each = len(batch) * width, values.itemsize
    most = size * each // (each + 4)
    if size >= MOST:
        return None
    # The kernel notices only after a row that there are too many.
    room = most + width + 1
    places, found = np.empty(room, np.int32), np.empty(room, values.dtype)
    given = values.reshape(-1), len(batch), values.shape[1], first, last
    count = _kernel(_compact, values.dtype.name)(*given, most, places, found)
    if count > most:
        return None
    none = np.empty((len(batch), 0), values.dtype)
    # Copies: the room of the kernel is as large as the matrix.
    rows = replace(batch, values=none)
    return CompactRows(width, places[:count].copy(), found[:count].copy(), rows)


def _compact(
    values: Any, rows: int, columns: int, first: int, last: int, most: int, places: Any, found: Any
) -> int:
    """Values that are not 0; it ends after the row in which they are more than ``most``."""
    at = 0
    for i in range(rows):
        for j in range(first, last):  # no branch: it would often be predicted wrong
            x = values[i * columns + j]
            places[at] = i * (last - first) + j - first
            found[at] = x
            at += x != 0.0
        if at > most:
            break
    return at


def _spread(places: Any, values: Any, matrix: Any) -> None:
    for at in range(len(places)):
        matrix[places[at]] = values[at]


@functools.cache
def _kernel(function: Any, dtype: str) -> Any:
    if function is _spread:
        return compiled(_spread, read("int32"), read(dtype), written(dtype))
    given = read(dtype), int64, int64, int64, int64, int64
    return compiled(_compact, *given, written("int32"), written(dtype))


Slice = Piece[Rows]
Key = tuple[int, int, int]
"""A row group: the epoch, the place of its shard in that epoch's order, its number in the shard."""


class ReadingEnded(Exception):
    """Nothing more is taken: the reading of the epoch has ended."""


@dataclass(eq=False)
class _Group:
    """Slices of one group by receiver, and how the group ended. A receiver is removed with its last
    slice."""

    slices: dict[int, list[Slice]]
    ended: bool = False
    error: Exception | None = None


class SliceOutbox:
    """Threads put slices and wait while more than ``budget`` bytes are not taken; the event loop
    takes them.

    A slice of a group may always be put if no slice of that group or an earlier one waits: so the
    receiver that is furthest behind always gets its next slice, and there is no deadlock.
    """

    def __init__(self, receivers: Sequence[int], budget: int, loop: Any) -> None:
        self._receivers, self._budget, self._loop = [*receivers], budget, loop
        self._changed = threading.Condition()
        self._groups: dict[Key, _Group] = {}
        self._arrivals: dict[tuple[Key, int], asyncio.Event] = {}
        self._closed_epochs: set[int] = set()
        self._closed = False
        self.waiting = self.most_waiting = 0

    def put(self, key: Key, slices: Mapping[int, Slice]) -> None:
        """Add a slice for each receiver. Raises ReadingEnded when the epoch is no longer read."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over(key) or self._has_room(key))
            if self._is_over(key):
                raise ReadingEnded
            group = self._group(key)
            for receiver, one in slices.items():
                # A receiver's slices stay in order, which is that of the rows.
                group.slices[receiver].append(one)
                self.waiting += _size(one)
            self.most_waiting = max(self.most_waiting, self.waiting)
        self._wake(key)

    def end(self, key: Key, error: Exception | None = None) -> None:
        """The group has no more slices; error: why, if it could not be read to its end."""
        with self._changed:
            group = self._group(key)
            group.ended, group.error = True, error
        self._wake(key)

    async def take(self, key: Key, receiver: int) -> tuple[list[Slice], bool, Exception | None]:
        """The slices that wait for a receiver, at least one or the end; whether it is the end, and
        the error. Runs on the event loop. Raises ReadingEnded when this owner ends."""
        while True:
            with self._changed:
                if self._closed:
                    raise ReadingEnded
                group = self._groups.get(key)
                if group is not None and (group.slices[receiver] or group.ended):
                    return self._taken(key, group, receiver)
            arrival = self._arrivals.setdefault((key, receiver), asyncio.Event())
            await arrival.wait()

    def _taken(
        self, key: Key, group: _Group, receiver: int
    ) -> tuple[list[Slice], bool, Exception | None]:
        slices, group.slices[receiver] = group.slices[receiver], []
        self.waiting -= sum(map(_size, slices))
        if group.ended:
            del group.slices[receiver]
            # All receivers have had its end.
            if not group.slices:
                del self._groups[key]
        self._changed.notify_all()
        return slices, group.ended, group.error

    def close_epoch(self, epoch: int) -> None:
        """Threads of an epoch no longer wait; what was put can still be taken."""
        with self._changed:
            self._closed_epochs.add(epoch)
            self._changed.notify_all()

    def close(self) -> None:
        """No more is put or taken."""
        with self._changed:
            self._closed = True
            self._groups.clear()
            self._changed.notify_all()
        self._loop.call_soon_threadsafe(self._wake_all)

    def _group(self, key: Key) -> _Group:
        return self._groups.setdefault(key, _Group({one: [] for one in self._receivers}))

    def _is_over(self, key: Key) -> bool:
        return self._closed or key[0] in self._closed_epochs

    def _has_room(self, key: Key) -> bool:
        return self.waiting < self._budget or not any(
            any(group.slices.values()) for at, group in self._groups.items() if at <= key
        )

    def _wake(self, key: Key) -> None:
        # Events of asyncio may only be set from their loop.
        self._loop.call_soon_threadsafe(self._wake_receivers, key)

    def _wake_receivers(self, key: Key) -> None:
        for receiver in self._receivers:
            arrival = self._arrivals.pop((key, receiver), None)
            if arrival is not None:
                arrival.set()

    def _wake_all(self) -> None:
        for arrival in self._arrivals.values():
            arrival.set()
        self._arrivals.clear()


def _size(one: Slice) -> int:
    return max(LEAST_BYTES, one.nbytes)
