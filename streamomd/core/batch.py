"""Batches of canonical rows, the output of ``features`` and the input of ``engine``."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamomd.core.errors import DataError

Keys = NDArray[np.int64]
SHIFT = 32
"""A key of a category is its column's place times 2^32, plus its hashed coordinate, from 0."""


@dataclass(frozen=True, slots=True, eq=False)
class ColumnValues:
    """Values of n rows. numbers: float64 (n, numeric columns), NaN where a value is missing.
    categories: the keys of each row's categories, row after row; indptr: int64 (n + 1,), from 0,
    where the keys of a row begin."""

    numbers: NDArray[np.float64]
    indptr: NDArray[np.int64]
    categories: Keys

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.numbers.nbytes + self.indptr.nbytes + self.categories.nbytes

    def rows(self, low: int, high: int) -> ColumnValues:
        """Rows low … high − 1, without a copy of the values."""
        first, last = self.indptr[low], self.indptr[high]
        begins = self.indptr[low : high + 1] - first
        return ColumnValues(self.numbers[low:high], begins, self.categories[first:last])

    def taken(self, order: NDArray[np.int64]) -> ColumnValues:
        """A selection of rows, in the given order."""
        lengths = np.diff(self.indptr)[order]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        at = np.arange(indptr[-1]) + np.repeat(self.indptr[order] - indptr[:-1], lengths)
        return ColumnValues(self.numbers[order], indptr, self.categories[at])


def joined_values(parts: Sequence[ColumnValues | None]) -> ColumnValues | None:
    """Rows one after the other; None unless all have values."""
    given = [part for part in parts if part is not None]
    if not given or len(given) < len(parts):
        return None
    lengths = np.concatenate([np.diff(part.indptr) for part in given])
    return ColumnValues(
        np.concatenate([part.numbers for part in given]),
        np.concatenate([[0], np.cumsum(lengths)]),
        np.concatenate([part.categories for part in given]),
    )


Floats = NDArray[np.float64]
Times = NDArray[np.int64]
LoopArrays = tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[Any]]
REASONS = (
    "null", "nan", "inf", "overflow", "label", "negative_weight", "ragged", "negative_index",
    "index", "utf8", "out_of_range", "partition", "filtered", "fraction", "binary_list",
    "sampled",
)  # fmt: skip
"""Why rows are not learned. Checkpoints count by index in this list: only append to it."""
FILTERED = REASONS.index("filtered")
"""The reason of rows that ``data.where`` drops, which are no bad rows."""
SAMPLED = REASONS.index("sampled")
"""The reason of rows that ``data.sample`` drops, which are no bad rows either."""


@dataclass(frozen=True, slots=True, eq=False)
class Skipped:
    """Skipped rows between the rows of a batch.

    places: int64 (n,), ascending, row offsets from the batch's start in its shard, counting all
    rows. reasons: int8 (n,), index of each in REASONS.

    >>> skipped = Skipped(np.array([0, 2, 3]), np.array([1, 1, 0], np.int8))
    >>> [skipped.before(row) for row in (0, 1, 2)], skipped.counts(0, 2)[:3].tolist()
    ([1, 3, 3], [0, 2, 0])
    """

    places: NDArray[np.int64]
    reasons: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.places)

    def before(self, row: int) -> int:
        """The number skipped before row ``row`` of the batch; at its end: all."""
        if not len(self.places):
            return 0  # searchsorted would release the GIL and wait for the prefetching threads
        kept_before = self.places - np.arange(len(self.places))
        return int(np.searchsorted(kept_before, row, side="right"))

    def counts(self, low: int, high: int) -> NDArray[np.int64]:
        """Number of skipped rows by reason among offsets low … high − 1, (reasons,)."""
        return np.bincount(self.reasons[low:high], minlength=len(REASONS))


NONE_SKIPPED = Skipped(np.empty(0, np.int64), np.empty(0, np.int8))


@dataclass(frozen=True, slots=True, eq=False)
class SparseBatch:
    """Rows as CSR; in a row the coordinates ascend and are distinct.

    The bias is not among them: the engine adds it as coordinate 0 with value 1, so that index i is
    coordinate i, or i + 1 in a model with a bias. Decoded indices are then used unchanged.

    indptr: int64 (n + 1,), from 0. indices: int32 (nnz,), 0 or above.
    values: float32 or float64 (nnz,). y, weight: float64 (n,). skipped: of a decoded batch;
    a slice of a batch has none. time: int64 (n,), nanoseconds since 1970, of a job with data.time.
    columns: of a plan with column_values.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[Any]
    y: Floats
    weight: Floats
    skipped: Skipped = NONE_SKIPPED
    time: Times | None = None
    columns: ColumnValues | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def passed(self) -> int:
        """Rows of the shard that it covers, including skipped ones."""
        return len(self.y) + len(self.skipped)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        arrays = (self.indptr, self.indices, self.values, self.y, self.weight)
        return sum(array.nbytes for array in arrays) + _nbytes(self.time, self.columns)

    @property
    def arrays(self) -> LoopArrays:
        """indptr, indices and values as the compiled loops take them."""
        return self.indptr, self.indices.view(np.uint32), self.values

    def first_columns(self, count: int, rows: int) -> Floats:
        """The first columns of the first rows, (rows, count), with zeros."""
        some = self.rows(0, min(rows, len(self)))
        front = some.indices < count
        row = np.repeat(np.arange(len(some)), np.diff(some.indptr))
        found = np.zeros((len(some), count))
        found[row[front], some.indices[front]] = some.values[front]
        return found

    def rows(self, low: int, high: int) -> SparseBatch:
        """Rows low … high − 1, without a copy of the non-zeros."""
        first, last = self.indptr[low], self.indptr[high]
        return SparseBatch(
            self.indptr[low : high + 1] - first,
            self.indices[first:last],
            self.values[first:last],
            self.y[low:high],
            self.weight[low:high],
            time=None if self.time is None else self.time[low:high],
            columns=None if self.columns is None else self.columns.rows(low, high),
        )


@dataclass(frozen=True, slots=True, eq=False)
class DenseBatch:
    """Rows as a matrix: column c is coordinate c, or c + 1 in a model with a bias.

    values: float32 or float64 (n, m), C order. y, weight: float64 (n,). skipped, time,
    columns: as SparseBatch's.
    """

    values: NDArray[Any]
    y: Floats
    weight: Floats
    skipped: Skipped = NONE_SKIPPED
    time: Times | None = None
    columns: ColumnValues | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def passed(self) -> int:
        """Rows of the shard that it covers, including skipped ones."""
        return len(self.y) + len(self.skipped)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        own = self.values.nbytes + self.y.nbytes + self.weight.nbytes
        return own + _nbytes(self.time, self.columns)

    @property
    def arrays(self) -> LoopArrays:
        """The number of columns, no indices, and the values as the compiled loops take them."""
        return _indptr_of(self.values.shape[1]), _NO_INDICES, self.values.reshape(-1)

    def first_columns(self, count: int, rows: int) -> Floats:
        """The first columns of the first rows, (rows, count)."""
        return np.asarray(self.values[:rows, :count], np.float64)

    def rows(self, low: int, high: int) -> DenseBatch:
        """Rows low … high − 1, without a copy."""
        return DenseBatch(
            self.values[low:high],
            self.y[low:high],
            self.weight[low:high],
            time=None if self.time is None else self.time[low:high],
            columns=None if self.columns is None else self.columns.rows(low, high),
        )


def _nbytes(*given: Times | ColumnValues | None) -> int:
    return sum(one.nbytes for one in given if one is not None)


_NO_INDICES = np.empty(0, np.uint32)


@functools.cache
def _indptr_of(columns: int) -> NDArray[np.int64]:
    """Returns where the row of a dense batch ends, (1,). Cached: micro-batches need it twice
    each."""
    return np.array([columns], np.int64)


Batch = SparseBatch | DenseBatch


def taken(batch: Batch, order: NDArray[np.int64]) -> Batch:
    """A selection of rows, in the given order."""
    y, weight = batch.y[order], batch.weight[order]
    more: Any = {
        "time": None if batch.time is None else batch.time[order],
        "columns": None if batch.columns is None else batch.columns.taken(order),
    }
    if isinstance(batch, DenseBatch):
        return DenseBatch(batch.values[order], y, weight, **more)
    lengths = np.diff(batch.indptr)[order]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    at = np.arange(indptr[-1]) + np.repeat(batch.indptr[order] - indptr[:-1], lengths)
    return SparseBatch(indptr, batch.indices[at], batch.values[at], y, weight, **more)


def joined_rows(batches: Sequence[Batch]) -> Batch:
    """Rows one after the other, without what was skipped."""
    if len(batches) == 1:
        return batches[0]
    y = np.concatenate([batch.y for batch in batches])
    weight = np.concatenate([batch.weight for batch in batches])
    values = np.concatenate([batch.values for batch in batches])
    times = [batch.time for batch in batches if batch.time is not None]
    time = np.concatenate(times) if times else None
    sparse = [batch for batch in batches if isinstance(batch, SparseBatch)]
    columns = joined_values([batch.columns for batch in batches])
    if not sparse:
        return DenseBatch(values, y, weight, time=time, columns=columns)
    indptr, before = [np.zeros(1, dtype=np.int64)], 0
    for batch in sparse:
        indptr.append(batch.indptr[1:] + before)
        before += len(batch.indices)
    indices = np.concatenate([batch.indices for batch in sparse])
    return SparseBatch(
        np.concatenate(indptr), indices, values, y, weight, time=time, columns=columns
    )


def check(batch: Batch, size: int, *, bias: bool) -> None:
    """Raise DataError unless a user's batch is valid: the engine itself checks nothing.

    size: coordinates of the model, the bias included.
    """
    columns = size - int(bias)
    problem = _problem(batch, columns)
    if not problem and not all(np.isfinite(part).all() for part in (batch.values, batch.weight)):
        problem = "a value or weight that is not finite"
    if problem:
        raise DataError(f"expected canonical rows of {columns} columns: {problem}")


def _problem(batch: Batch, columns: int) -> str:
    if batch.values.dtype not in (np.float32, np.float64):
        return f"values are {batch.values.dtype}"
    if batch.y.dtype != np.float64 or batch.weight.dtype != np.float64:
        return "y and weight are float64"
    if batch.y.shape != batch.weight.shape or batch.y.ndim != 1:
        return f"y has shape {batch.y.shape}, weight {batch.weight.shape}"
    if isinstance(batch, DenseBatch):
        wanted = (len(batch), columns)
        return "" if batch.values.shape == wanted else f"values have shape {batch.values.shape}"
    return _sparse_problem(batch, columns)


def _sparse_problem(batch: SparseBatch, columns: int) -> str:
    indptr, indices = batch.indptr, batch.indices
    if indptr.dtype != np.int64 or indices.dtype != np.int32:
        return f"indptr is {indptr.dtype}, indices are {indices.dtype}"
    if len(indptr) != len(batch) + 1 or indptr[0] != 0 or np.any(np.diff(indptr) < 0):
        return "indptr does not ascend from 0 over the rows"
    if indptr[-1] != len(indices) or len(indices) != len(batch.values):
        return f"indptr ends at {indptr[-1]} of {len(indices)} indices, {len(batch.values)} values"
    if len(indices) and not (indices.min() >= 0 and indices.max() < columns):
        return f"indices go from {indices.min()} to {indices.max()}"
    descends = np.diff(indices.astype(np.int64)) <= 0
    inner = indptr[1:-1]
    descends[inner[(inner > 0) & (inner < len(indices))] - 1] = False
    return "indices of a row do not ascend" if descends.any() else ""


class StoredRows(NamedTuple):
    """CSR rows that a rule stores, including the bias entry, with multipliers (rows, learners).

    y and importance as in a batch. alpha: each row's multiplier for each learner.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int64]
    values: NDArray[np.float64]
    y: Floats
    importance: Floats
    alpha: Floats

    @classmethod
    def none(cls, learners: int) -> Self:
        """An empty buffer."""
        none = np.empty(0)
        indptr, indices = np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int64)
        return cls(indptr, indices, none, none, none, np.empty((0, learners)))


def check_stored_rows(rows: StoredRows, size: int) -> None:
    """Raise ValueError unless these are valid rows of ``size`` coordinates."""
    indptr, indices = rows.indptr, rows.indices
    count = len(indptr) - 1
    lengths = {len(rows.y), len(rows.importance), len(rows.alpha)}
    if count < 0 or lengths != {count} or len(rows.values) != len(indices):
        raise ValueError("saved rows whose arrays have different lengths")
    if indptr[0] != 0 or indptr[-1] != len(indices) or np.any(np.diff(indptr) < 0):
        raise ValueError("saved rows whose indptr does not ascend from 0 to the last index")
    if len(indices) and not 0 <= indices.min() <= indices.max() < size:
        raise ValueError(f"saved rows with indices outside of 0 … {size - 1}")
