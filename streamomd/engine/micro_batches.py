"""A micro-batch is learned in three calls, between which owners of partitions exchange numbers.

Each owner senses the rows with its own coordinates; the sum of what the partitions add to each row
decides the steps; each owner applies them.

A row has entries in few partitions, and only owners of these need its steps. A message is 8-byte
words: the round, flags, bits (padded to words), numbers. An owner's has a bit for each cell
(partition, row), whether the row has an entry there, and the numbers of the touched cells. The
leader's has a bit for each learner of each touched row, whether it moves; totals and sums of the
run, and the numbers of the steps that move.

The functions are compiled: each is one call, because 30 small ones took half of a round.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Batch, DenseBatch, LoopArrays
from streamomd.core.jit import compiled, int64, read, written
from streamomd.engine.state import State

if TYPE_CHECKING:
    from streamomd.engine import Engine

Floats = NDArray[np.float64]


class Sensed(NamedTuple):
    """What each partition adds to the rows of a micro-batch.

    numbers: (partitions, rows, n). touched: uint8 (partitions, rows), 1 where a row has an entry in
    the partition; all other numbers are 0.0.
    """

    numbers: Floats
    touched: NDArray[np.uint8]


def sense(engine: Engine, state: State, edges: NDArray[np.int64], batch: Batch) -> Sensed:
    """Observe a micro-batch; what each partition adds to its rows.

    edges: the coordinates between the partitions, from 0 to the state's last and one.
    """
    cells = len(edges) - 1, len(batch)
    numbers = np.zeros((*cells, engine.row_numbers))
    touched = np.zeros(cells, dtype=np.uint8)
    rows = batch.arrays
    loop = engine.loop("sense", isinstance(batch, DenseBatch), _value_name(rows))
    given = (state.cells, state.totals.reshape(-1), engine.hyper, float(state.clock))
    loop(*given, edges, batch.weight, *rows, numbers.reshape(-1), touched.reshape(-1))
    return Sensed(numbers, touched)


def decide(
    engine: Engine, state: State, sums: Floats, batch: Batch, numbers: Floats
) -> tuple[Floats, Floats]:
    """The steps of the micro-batch just sensed, (rows, learners, n), and its margins.

    Moves the totals of ``state`` and adds to ``sums`` as ``Engine.learn``. numbers: of all
    partitions, or their sum, (1 or partitions, rows, n).
    """
    learners = engine.layout.learners
    moves = np.empty((len(batch), learners, engine.step_numbers))
    margins = np.empty((len(batch), learners))
    given = (state.totals.reshape(-1), sums, engine.hyper, float(state.clock))
    loop = engine.loop("decide")
    loop(*given, numbers.reshape(-1), batch.y, batch.weight, moves.reshape(-1), margins)
    return moves, margins


def apply(engine: Engine, state: State, batch: Batch, moves: Floats) -> None:
    """Take the steps of the micro-batch just sensed."""
    rows = batch.arrays
    loop = engine.loop("apply", isinstance(batch, DenseBatch), _value_name(rows))
    given = (state.cells, engine.hyper, float(state.clock), len(batch))
    loop(*given, *rows, moves.reshape(-1))
    state.clock += len(batch)


def _value_name(rows: LoopArrays) -> str:
    """The dtype of a batch's values; ``dtype.name`` takes microseconds, which rounds notice."""
    return "float64" if rows[2].itemsize == 8 else "float32"


Flags = NDArray[np.uint8]
HEAD = 2
"""Words before the bits: round and flags."""
OTHER_ROUND = -1
"""In place of flags: a message does not fit the round."""


class Words(NamedTuple):
    """Memory as words, as bytes and as numbers."""

    words: NDArray[np.int64]
    bits: Flags
    numbers: Floats

    @classmethod
    def of(cls, data: Any) -> Words:
        """A message; its last bytes are ignored if they are no word."""
        # Three views of one memory: no number is copied to be read as another type.
        words = np.frombuffer(data, np.int64, len(data) // 8)
        return cls(words, words.view(np.uint8), words.view(np.float64))

    @classmethod
    def room(cls, bits: int, numbers: int) -> Words:
        """For a message of this size."""
        return cls.of(np.empty(8 * (HEAD + bits // 64 + 1 + numbers), np.uint8))


def pack_shares(number: int, touched: Flags, numbers: Floats, room: Words) -> tuple[bytes, Flags]:
    """An owner's message of round ``number``: numbers (partitions, rows, n) of the cells that are
    touched, (partitions, rows). Also the rows that are touched."""
    here = np.zeros(touched.shape[1], np.uint8)
    given = touched.reshape(-1), numbers.reshape(-1), numbers.shape[2], here
    return room.words[: _kernel(_pack_shares)(number, *given, *room)].tobytes(), here


def add_shares(number: int, data: bytes, partitions: int, total: Floats) -> Flags | None:
    """Add an owner's numbers to ``total``, (rows, n), partition by partition. The rows that it
    touches, or None if the message does not fit.

    To add 0.0 for the others would change nothing: no number is -0.0.
    """
    here = np.zeros(len(total), np.uint8)
    given = partitions, total.shape[1], total.reshape(-1), here
    return here if _kernel(_add_shares)(number, *Words.of(data), *given) else None


def add_partitions(numbers: Floats) -> Floats:
    """The sum of numbers (partitions, rows, n), partition by partition."""
    total = np.empty(numbers.shape[1:])
    _kernel(_add_partitions)(numbers.reshape(-1), total.reshape(-1))
    return total


def pack_steps(
    number: int, flags: int, here: Flags, totals: Floats, sums: Floats, steps: Floats, room: Words
) -> bytes:
    """The leader's message to an owner: steps (rows, learners, n) of the rows that it touches."""
    given = here, totals.reshape(-1), sums, *steps.shape[1:], steps.reshape(-1)
    return room.words[: _kernel(_pack_steps)(number, flags, *given, *room)].tobytes()


def unpack_steps(
    number: int, data: bytes, here: Flags, totals: Floats, sums: Floats, steps: Floats
) -> int:
    """Write totals, sums and steps of the leader's message; of other rows, that they do not move.

    The flags, or OTHER_ROUND if the message does not fit.
    """
    given = here, totals.reshape(-1), sums, *steps.shape[1:], steps.reshape(-1)
    return int(_kernel(_unpack_steps)(number, *Words.of(data), *given))


def _pack_shares(
    number: int,
    touched: Any,
    shares: Any,
    n: int,
    here: Any,
    words: Any,
    bits: Any,
    numbers: Any,
) -> int:
    words[0] = number
    words[1] = 0
    at = 2 + (len(touched) + 63) // 64
    for word in range(2, at):
        words[word] = 0
    for cell in range(len(touched)):
        if touched[cell] != 0:
            # Cells are partition after partition: the rest is the row.
            here[cell % len(here)] = 1
            bits[16 + cell // 8] |= 1 << (cell % 8)
            for m in range(n):
                numbers[at + m] = shares[cell * n + m]
            at += n
    return at


def _add_shares(
    number: int,
    words: Any,
    bits: Any,
    numbers: Any,
    partitions: int,
    n: int,
    total: Any,
    here: Any,
) -> bool:
    rows = len(here)
    cells = partitions * rows
    at = 2 + (cells + 63) // 64
    if len(words) < at or words[0] != number:
        return False
    count = 0
    for cell in range(cells):
        count += 1 if (bits[16 + cell // 8] >> (cell % 8)) & 1 != 0 else 0
    # A damaged message must not be read beyond its end.
    if len(words) != at + n * count:
        return False
    for first in range(0, cells, max(1, rows)):
        for i in range(rows):
            if (bits[16 + (first + i) // 8] >> ((first + i) % 8)) & 1 != 0:
                here[i] = 1
                for m in range(n):
                    total[i * n + m] += numbers[at + m]
                at += n
    return True


def _add_partitions(numbers: Any, total: Any) -> None:
    size = len(total)
    for m in range(size):
        total[m] = numbers[m]
    # Not pairwise, as numpy would: the order is that of any number of owners.
    for first in range(size, len(numbers), max(1, size)):
        for m in range(size):
            total[m] += numbers[first + m]


def _pack_steps(
    number: int,
    flags: int,
    here: Any,
    totals: Any,
    sums: Any,
    learners: int,
    n: int,
    steps: Any,
    words: Any,
    bits: Any,
    numbers: Any,
) -> int:
    words[0] = number
    words[1] = flags
    rows = 0
    for i in range(len(here)):
        rows += 1 if here[i] != 0 else 0
    at = 2 + (rows * learners + 63) // 64
    for word in range(2, at):
        words[word] = 0
    for m in range(len(totals)):
        numbers[at + m] = totals[m]
    at += len(totals)
    for m in range(len(sums)):
        numbers[at + m] = sums[m]
    at += len(sums)
    bit = 0
    for i in range(len(here)):
        if here[i] == 0:
            continue
        for k in range(learners):
            first = (i * learners + k) * n
            if steps[first] != 0.0:
                bits[16 + bit // 8] |= 1 << (bit % 8)
                for m in range(1, n):
                    numbers[at + m - 1] = steps[first + m]
                at += n - 1
            bit += 1
    return at


def _unpack_steps(
    number: int,
    words: Any,
    bits: Any,
    numbers: Any,
    here: Any,
    totals: Any,
    sums: Any,
    learners: int,
    n: int,
    steps: Any,
) -> int:
    rows = 0
    for i in range(len(here)):
        rows += 1 if here[i] != 0 else 0
    at = 2 + (rows * learners + 63) // 64
    if len(words) < at or words[0] != number:
        return -1
    moves = 0
    for bit in range(rows * learners):
        moves += 1 if (bits[16 + bit // 8] >> (bit % 8)) & 1 != 0 else 0
    if len(words) != at + len(totals) + len(sums) + moves * (n - 1):
        return -1
    for m in range(len(totals)):
        totals[m] = numbers[at + m]
    at += len(totals)
    for m in range(len(sums)):
        sums[m] = numbers[at + m]
    at += len(sums)
    bit = 0
    for i in range(len(here)):
        for k in range(learners):
            first = (i * learners + k) * n
            moved = here[i] != 0 and (bits[16 + bit // 8] >> (bit % 8)) & 1 != 0
            # Also of rows without a step: the array is that of the round before.
            steps[first] = 1.0 if moved else 0.0
            bit += 1 if here[i] != 0 else 0
            if moved:
                for m in range(1, n):
                    steps[first + m] = numbers[at + m - 1]
                at += n - 1
    return int(words[1])


@functools.cache
def _kernel(function: Callable[..., Any]) -> Any:
    return compiled(function, *_SIGNATURES[function])


_FLAGS, _NUMBERS, _WRITTEN = read("uint8"), read("float64"), written("float64")
_MESSAGE = read("int64"), _FLAGS, _NUMBERS
_ROOM = written("int64"), written("uint8"), _WRITTEN
_SIGNATURES: dict[Callable[..., Any], tuple[Any, ...]] = {
    _pack_shares: (int64, _FLAGS, _NUMBERS, int64, written("uint8"), *_ROOM),
    _add_shares: (int64, *_MESSAGE, int64, int64, _WRITTEN, written("uint8")),
    _add_partitions: (_NUMBERS, _WRITTEN),
    _pack_steps: (
        int64, int64, _FLAGS, _NUMBERS, _NUMBERS, int64, int64, _NUMBERS, *_ROOM,
    ),
    _unpack_steps: (
        int64, *_MESSAGE, _FLAGS, _WRITTEN, _WRITTEN, int64, int64, _WRITTEN,
    ),
}  # fmt: skip
