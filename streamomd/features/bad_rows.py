"""Find the bad rows of a batch and their reasons, column by column.

Each check notes all bad rows that it finds, as arrays; the first note of a row counts. ``encode``
then raises the first bad row, or skips all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.core.batch import FILTERED, REASONS, Skipped
from streamomd.core.errors import BadRowError
from streamomd.core.message import Message, PerReader, Words
from streamomd.core.urls import printable
from streamomd.features.csr import row_of

MOVE = 'move the rows to the directory of their value, or set data.partitions = "none"'
MADE = "the model was made for such columns: drop the row, or write a value that it takes"
BAD_ROW = "{shard}, row {row}, column {column!r}: found {found}, expected {expected}; {remedy}"
DROP = "drop the row, or replace the value"
IN_MEMORY = PerReader(BAD_ROW, BAD_ROW.replace("; ", ": "))
Places = NDArray[np.int64]


class Finding(NamedTuple):
    """What one check found: rows, ascending, and for each the place of the value that is bad."""

    cells: CheckedValues
    reason: str
    rows: Places
    places: Places
    found: Callable[[int], str]
    expected: str
    remedy: Words


class Conflict(NamedTuple):
    """Rows whose value of a column contradicts what is known of the shard: its directory, or its
    schema's metadata.

    rows: offsets in the batch, ascending. found: shows a row's value. expected: in words.
    """

    column: str
    rows: Places
    found: Callable[[int], str]
    expected: str
    reason: str = "partition"
    remedy: str = MOVE


class BadRows:
    """What is wrong with the rows of a batch; false if nothing is."""

    def __init__(self, rows: int) -> None:
        self._notes: list[Finding] = []
        self._of = np.full(rows, -1, np.int32)  # each row's note

    def __bool__(self) -> bool:
        return bool(self._notes)

    def add(self, note: Finding) -> None:
        """Mark the rows of a note that have no earlier note."""
        rows = note.rows[self._of[note.rows] < 0]
        self._of[rows] = len(self._notes)
        self._notes.append(note)

    @property
    def reasons(self) -> NDArray[np.int8]:
        """Each row's index in REASONS; −1 for a good row."""
        known = [REASONS.index(note.reason) for note in self._notes]
        return np.array([*known, -1], np.int8)[self._of]

    @property
    def first(self) -> int:
        """The first bad row."""
        return int(np.argmax(self._of >= 0))

    def error(self, shard: str, number: int, *, learning: bool = True) -> BadRowError:
        """The error of the first bad row: where, what was found and expected, what to do.

        number: of that row in the shard. learning: False when a trained model predicts, so that no
        key of its job may change.
        """
        row = self.first
        note = self._notes[self._of[row]]
        place = int(note.places[np.searchsorted(note.rows, row)])
        message = Message(
            note.reason,
            BAD_ROW,
            shard=PerReader(f"shard {printable(shard)}", f"X {printable(shard)}"),
            row=number,
            column=note.cells.named(place),
            found=note.found(place),
            expected=note.expected,
            remedy=note.remedy if learning else _of_model(note.remedy),
        )
        return BadRowError(message)

    def in_memory(self, where: str) -> BadRowError:
        """The same of rows in memory, which are no shard."""
        return of_memory(self.error(where, self.first, learning=False), where)


def _of_model(remedy: Words) -> Words:
    """What to do about a row for a trained model: its job cannot change, but a fit be repeated."""
    return PerReader(MADE, remedy.estimator if isinstance(remedy, PerReader) else DROP)


def of_memory(error: BadRowError, where: str) -> BadRowError:
    """An error of a shard as one of rows in memory, which are no shard."""
    return BadRowError(replace(error.message, shard=where, form=IN_MEMORY))


def note_conflicts(conflicts: Sequence[Conflict], flaws: BadRows) -> None:
    """Note the rows that contradict what is known of their shard."""
    for column, rows, found, expected, reason, remedy in conflicts:
        CheckedValues(flaws, column).note(reason, rows, found, expected, remedy)


class SkippedRows:
    """Rows of a batch that were skipped so far; false if none.

    rows: how many are left. dropped: offsets, ascending, of rows that a filter dropped before.
    """

    def __init__(self, rows: int, dropped: Places | None = None) -> None:
        self._rows = rows
        self._left: Places | None = None  # rows not skipped
        self._reasons = np.empty(0, np.int8)
        if dropped is not None:
            self._reasons = np.full(rows + len(dropped), -1, np.int8)
            self._reasons[dropped] = FILTERED
            self._left = np.flatnonzero(self._reasons < 0)

    def __bool__(self) -> bool:
        return self._left is not None

    def filtered(self, batch: pa.RecordBatch, reasons: NDArray[np.int8]) -> pa.RecordBatch:
        """The rows of ``batch``, which earlier filters returned, without the bad ones."""
        if self._left is None:
            self._left = np.arange(self._rows)
            self._reasons = np.full(self._rows, -1, np.int8)
        self._reasons[self._left] = reasons
        self._left = self._left[reasons < 0]
        return batch.filter(pa.array(reasons < 0))

    @property
    def places(self) -> Places:
        """The offsets, among all rows, of those that are left."""
        return np.arange(self._rows) if self._left is None else self._left

    def place(self, row: int) -> int:
        """The offset, among all rows, of one that is left."""
        return row if self._left is None else int(self._left[row])

    @property
    def skipped(self) -> Skipped:
        """Their places and reasons."""
        places = np.flatnonzero(self._reasons >= 0)
        return Skipped(places, self._reasons[places])


class CheckedValues(NamedTuple):
    """Values of a column under check, and where bad ones are noted.

    width: values a row; 0: one, which is the row's own. indptr: of lists, where each row's begin.
    """

    flaws: BadRows
    column: str
    width: int = 0
    indptr: Places | None = None

    def note(
        self, reason: str, places: Any, found: Callable[[int], str], expected: str, remedy: Words
    ) -> None:
        """Note that the values at ``places``, ascending, are bad; ``found`` shows one of them."""
        if len(places):
            rows, first = np.unique(self._rows(places), return_index=True)
            self.flaws.add(Finding(self, reason, rows, places[first], found, expected, remedy))

    def named(self, place: int) -> str:
        """The column's name in messages."""
        return f"{self.column}[{place % self.width}]" if self.width else self.column

    def _rows(self, places: Places) -> Places:
        if self.indptr is not None:
            rows: Places = row_of(self.indptr, places)
            return rows
        return places // self.width if self.width else places
