"""State: every number a model is made of. Data only; the engine moves it.

A coordinate's cells lie side by side, ``[shared slots | own slot 0 of each learner | slot 1 …]``,
padded so that no coordinate straddles a cache line it could avoid. What a rule stores in
addition (``Rule.storage``) is an array of float64 with a row for each learner and coordinate.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import StoredRows, check_stored_rows
from streamomd.core.errors import TooLargeError
from streamomd.core.finite import is_finite, part_problem
from streamomd.core.message import Key, Message, Words
from streamomd.engine.layout import CACHE_LINE, MEANS, Layout
from streamomd.engine.loops.frozen import Chain, first_copy
from streamomd.rules.contract import Slot

CHUNK_BYTES = 4 << 20  # the hash of a state depends on it: see ``State.digest``

Arrays = dict[str, NDArray[Any]]


@dataclass(eq=False)
class State:
    """Slots, totals and clock of a model.

    cells: (size * width,) of the layout's dtype, 64-byte aligned. totals: float64 (learners, n).
    clock: rows seen. extra: empty, or {"matrix": float64 of shape ``layout.matrix``}, or the
    arrays of ``Layout.standardized`` and ``StoredRows`` by name. means: (2, columns), see
    ``engine.standardize``.
    """

    layout: Layout
    cells: NDArray[Any]
    totals: NDArray[np.float64]
    clock: int = 0
    extra: dict[str, NDArray[Any]] = field(default_factory=dict)
    means: NDArray[np.float64] = field(default_factory=lambda: np.zeros((2, 0)))

    @classmethod
    def start(cls, layout: Layout) -> State:
        """Slots and totals at their start values. Raises TooLargeError naming the GiB needed."""
        cells = start_cells(layout)
        with _memory_for(layout):
            extra = _start_extra(layout)
        return cls(layout, cells, _start_totals(layout), extra=extra, means=layout.start_means())

    @property
    def table(self) -> NDArray[Any]:
        """The cells as (size, width)."""
        return self.cells.reshape(self.layout.size, self.layout.width)

    @property
    def used_places(self) -> int:
        """Coordinates that the block has taken, the bias and the numeric columns included."""
        front = 1 + self.layout.numeric
        return front + int(np.count_nonzero(self.extra["places"][front:]))

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(array.nbytes for array in (*self._all, *self.extra.values()))

    @property
    def _all(self) -> tuple[NDArray[Any], ...]:
        return self.cells, self.totals, self.means

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes

    def copy(self) -> State:
        """The same numbers in memory of their own. Raises TooLargeError as ``start`` does."""
        with _memory_for(self.layout):
            cells = aligned(len(self.cells), self.layout.dtype)
            extra = {name: array.copy() for name, array in self.extra.items()}
        cells[...] = self.cells
        return State(self.layout, cells, self.totals.copy(), self.clock, extra, self.means.copy())

    def take(self, other: State) -> None:
        """Copy a state of the same layout into this one's memory."""
        self.cells[...] = other.cells
        self.totals[...] = other.totals
        self.means[...] = other.means
        self.clock = other.clock
        self._take_extra(other)

    def _take_extra(self, other: State) -> None:
        for name, array in other.extra.items():
            if self.extra[name].shape == array.shape:
                self.extra[name][...] = array
            else:  # stored rows, which grow in number
                self.extra[name] = array.copy()

    def joined(self) -> State:
        """The state with all learners side by side."""
        return self

    @contextlib.contextmanager
    def front(self, count: int) -> Iterator[State]:
        """The first coordinates at least as a state, which may be changed inside."""
        yield self

    def block(self, low: int, high: int) -> State:
        """Coordinates low … high − 1 as a state: views of cells and totals, no matrices."""
        cells = self.cells[low * self.layout.width : high * self.layout.width]
        return State(
            replace(self.layout, size=high - low, means=()), cells, self.totals, self.clock
        )

    def slot(self, name: str) -> NDArray[Any]:
        """A view of one slot: (size,) if shared, (size, learners) if own. KeyError if unknown."""
        shared = {slot.name for slot in self.layout.rule.shared_slots}
        for slot, columns in self.layout.columns():
            if slot.name == name:
                return self.table[:, columns.start] if name in shared else self.table[:, columns]
        raise KeyError(name)

    def parts(self, nbytes: int = 0) -> Iterator[tuple[int, int, Arrays]]:
        """(low, high, slots), in ranges of at most ``nbytes`` (0: 4 MiB).

        Totals and clock are in the first.
        """
        for low, high in self._ranges(nbytes):
            arrays = {
                f"slot.{slot.name}": self._copy(low, high, at) for slot, at in self._columns()
            }
            for name, array in self.extra.items():
                if name == "matrix":
                    arrays[f"extra.{name}"] = array[:, low:high]
                elif low == 0:
                    arrays[f"extra.{name}"] = array
            if low == 0 and self.layout.means:
                arrays[MEANS] = self.means
            if low == 0:
                arrays["totals"] = self.totals
                arrays["clock"] = np.array([self.clock], dtype=np.int64)
            yield low, high, arrays

    def fill(self, low: int, high: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Load what ``parts`` gave. Raises ValueError for other shapes, and for
        saved rows that the loops, which check nothing, could not walk."""
        for slot, columns in self._columns():
            cells, given = self.table[low:high, columns], arrays[f"slot.{slot.name}"]
            if given.shape != cells.shape:
                raise ValueError(f"{slot.name} of {given.shape}, expected {cells.shape}")
            cells[...] = given
        if "matrix" in self.extra:
            self.extra["matrix"][:, low:high] = arrays["extra.matrix"]
        for name in self.layout.standardized if low == 0 else ():
            self.extra[name][...] = arrays[f"extra.{name}"]
        if low == 0 and self.layout.block:
            _check_places(self.extra["places"], self.layout)
        for name in self.layout.copied if low == 0 else ():
            copies = np.array(arrays[f"extra.{name}"])
            shape = self.layout.size, self.layout.learners, 2
            if copies.shape != shape and len(copies):
                raise ValueError(f"{name} of {copies.shape}, expected {shape}")
            self.extra[name] = copies
        if low == 0 and self.layout.stored:
            rows = StoredRows(*(np.array(arrays[f"extra.{name}"]) for name in StoredRows._fields))
            check_stored_rows(rows, self.layout.size)
            self.extra |= rows._asdict()
        if low == 0:
            self.totals[...] = arrays["totals"]
            if self.layout.means:
                self.means[...] = arrays[MEANS]
            self.clock = int(arrays["clock"][0])

    def problem(self) -> str:
        """Which number is not finite; "" if all are."""
        if all(map(is_finite, (*self._all, *self.extra.values()))):
            return ""
        found = (part_problem(low, arrays) for low, _, arrays in self.parts())
        return next((problem for problem in found if problem), "")

    def digest(self, digest: hashlib._Hash) -> None:
        """Feed every slot, total and the clock to a hash, whatever the padding."""
        for _, _, arrays in self.parts():
            for name, array in arrays.items():
                digest.update(name.encode())
                digest.update(np.ascontiguousarray(array).data)

    def _columns(self) -> list[tuple[Slot, slice]]:
        return list(self.layout.columns())

    def _copy(self, low: int, high: int, columns: slice) -> NDArray[Any]:
        return np.ascontiguousarray(self.table[low:high, columns])

    def _ranges(self, nbytes: int) -> Iterator[tuple[int, int]]:
        layout = self.layout
        rows = max(1, nbytes // layout.saved_bytes if nbytes else CHUNK_BYTES // layout.row_bytes)
        for low in range(0, self.layout.size, rows):
            yield low, min(low + rows, self.layout.size)


def start_cells(layout: Layout) -> NDArray[Any]:
    """Cells with every slot at its start value. Raises TooLargeError naming the GiB needed."""
    with _memory_for(layout):
        cells = aligned(layout.size * layout.width, layout.dtype)
    table = cells.reshape(layout.size, layout.width)
    for slot, columns in layout.columns():
        if slot.start:
            table[:, columns] = slot.start
    return cells


@contextlib.contextmanager
def _memory_for(layout: Layout) -> Iterator[None]:
    try:
        yield
    except MemoryError:
        dtype = (Key("model.dtype"), ' = "float32"')
        remedy: Words = ("set ", dtype)
        if layout.rule.storage.matrices:
            remedy = "choose a rule without a matrix (the _diag ones)"
        if layout.block:
            remedy = ('choose rule = "nag", whose state is less than half as large, or ', dtype)
        found = (
            f"{layout.size:,} coordinates of {layout.rule.name} need "
            f"{layout.nbytes / 2**30:.1f} GiB, more than is available"
        )
        form, key = "{found}: lower {key}, or {remedy}", Key("data.bits")
        message = Message("out_of_memory", form, key=key, found=found, remedy=remedy)
        raise TooLargeError(message) from None


def _start_totals(layout: Layout) -> NDArray[np.float64]:
    starts = [slot.start for slot in layout.rule.total_slots]
    return np.tile(np.array(starts, dtype=np.float64), (layout.learners, 1))


def _start_extra(layout: Layout) -> dict[str, NDArray[Any]]:
    """A matrix starts as the identity; roots as 0; stored rows as none."""
    rows: dict[str, NDArray[Any]] = {}
    for name, (dtype, shape) in (layout.stored | layout.copied).items():
        rows[name] = np.zeros([1 if name == "indptr" else one or 0 for one in shape], dtype)
    if layout.standardized:
        return _start_standardized(layout) | rows
    if rows:
        return rows
    learners, size, columns = layout.matrix
    if not columns:
        return {}
    matrix = np.zeros((learners, size, columns))
    if layout.rule.storage.kind == "matrix":
        matrix[:, np.arange(size), np.arange(size)] = 1.0
    return {"matrix": matrix}


def _start_standardized(layout: Layout) -> dict[str, NDArray[Any]]:
    """Zeros: P is known from the first row on. The bias has scale 1; its place and those of the
    numeric columns are their coordinates."""
    arrays = {name: np.zeros(shape, dtype) for name, (dtype, shape) in layout.standardized.items()}
    arrays["reference"][3, 0] = 1.0
    if layout.frozen:
        arrays["chain"][: len(Chain())] = Chain()
        arrays["chain"][0] = first_copy(layout.size)
    if layout.block:
        arrays["places"][: 1 + layout.numeric] = np.arange(1 + layout.numeric)
    return arrays


def _check_places(places: NDArray[np.int64], layout: Layout) -> None:
    """Raises ValueError for places that the loops, which check nothing, could not walk."""
    front, later = places[: 1 + layout.numeric], places[1 + layout.numeric :]
    used = later[later != 0]
    if np.any(front != np.arange(len(front))) or np.any(later[len(used) :]):
        raise ValueError("saved places that do not begin with the bias and the numeric columns")
    if len(used) and not layout.numeric < used.min() <= used.max() < layout.size:
        raise ValueError(f"saved places outside of 0 … {layout.size - 1}")


def aligned(count: int, dtype: str) -> NDArray[Any]:
    """Zeros whose first byte lies on a cache line; pages untouched stay unallocated."""
    nbytes = count * np.dtype(dtype).itemsize
    raw = np.zeros(nbytes + CACHE_LINE, dtype=np.uint8)
    first = -raw.ctypes.data % CACHE_LINE
    return raw[first : first + nbytes].view(dtype)


def owner_of(cells: NDArray[Any]) -> tuple[NDArray[np.uint8], int]:
    """The bytes that ``aligned`` has allocated for cells, and the offset of the first cell."""
    owner = cells.view(np.uint8) if cells.base is None else cells.base
    return owner, cells.ctypes.data - owner.ctypes.data
