"""Names: the column=value of each hashed coordinate, in a table of bounded size."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.checkpoint.sealed_json import canonical
from streamomd.core.scalars import hat_names
from streamomd.core.startup import arrow_cast, arrow_function, no_garbage_collection
from streamomd.features.buffers import buffers
from streamomd.features.name_table import NameTable, Watch
from streamomd.features.plan import Plan, number_name

_COORDINATES = 65_536
_EACH = 4
_MORE = "+"
_INDEX_BITS = 19
"""Bits of a name's place, of which there are up to (_EACH + 1) * _COORDINATES."""
SAMPLED = 8
"""Once no other coordinate gets a name, one value in eight is searched for names, of categories
those of one batch in eight: what is found then is a second name of a coordinate, and to search all
takes a sixth of the time of texts, a third of that of categories."""


@dataclass(frozen=True)
class AsciiValues:
    """ASCII values that are not copied: value k is ``data[starts[k]:stops[k]]``."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts)

    def to_pylist(self) -> list[bytes]:
        """Returns the values as a list of bytes, as an Arrow array does."""
        places = zip(self.starts.tolist(), self.stops.tolist(), strict=True)
        return [self.data[start:stop].tobytes() for start, stop in places]


class Names:
    """Names seen at hashed coordinates: at most 65,536 coordinates, 4 names each, then "+".

    Threads may add concurrently. Which names a full table contains depends on which came
    first, and values of a column with the same 32 bits of hash count as one. Only displayed names
    depend on it.
    """

    def __init__(self, seen: Mapping[int, tuple[str, ...]] | None = None) -> None:
        """seen: of another table, within the same bounds."""
        self._seen = dict(seen or {})
        self._written = sum(map(len, self._seen.values()))  # of the ledger's, those in the dict
        # Made by the first addition: look-ups alone need no numba.
        self._ledger: NameTable | None = None
        self._lock = threading.Lock()
        self._batches: dict[str, int] = {}

    @property
    def version(self) -> int:
        """Grows with each change, so that an unchanged table is not saved again."""
        return self._written if self._ledger is None else len(self._ledger)

    def __len__(self) -> int:
        return len(self._seen) if self._ledger is None else self._ledger.coordinates

    @property
    def is_full(self) -> bool:
        """Whether no other coordinate gets a name: those that have one may get a second."""
        return len(self) == _COORDINATES

    def is_due(self, column: str) -> bool:
        """Whether the next batch's categories of a column are searched for names."""
        if not self.is_full:
            return True
        # Columns take turns: no batch searches all of them.
        count = self._batches.get(column, len(self._batches))
        self._batches[column] = count + 1
        return count % SAMPLED == 0

    def watch(self, size: int) -> Watch:
        """The names settled so far, of ``size`` coordinates; callers note the others next."""
        with self._lock:
            return self._open().watch(size)

    def note(
        self,
        column: str,
        coordinates: Sequence[int] | NDArray[np.int32],
        values: Sequence[bytes | None] | pa.Array | AsciiValues,
        hashes: NDArray[np.uint32] | None = None,
    ) -> None:
        """Note which values of a column were hashed to which coordinates: each to one, always.

        values: large_binary, if they are an array. hashes: all their bits, where they are known.
        """
        prefix = f"{column}=".encode()
        if isinstance(values, AsciiValues):
            places = values.data, values.starts, values.stops
            with self._lock:
                self._open().add(np.asarray(coordinates, np.int32), prefix, *places, hashes)
            return
        if not isinstance(values, pa.Array):
            values = pa.array(values, pa.large_binary())
        if values.null_count:
            before = pa.scalar(prefix, values.type)
            import pyarrow.compute as pc  # late: it writes 300 docstrings first

            values = pc.binary_join_element_wise(before, values, pa.scalar(b"", values.type))
            values, prefix = values.fill_null(f"{column} is null".encode()), b""
        with self._lock:
            given = np.asarray(coordinates, np.int32), prefix, *_places(_utf8(values))
            self._open().add(*given, hashes)

    def add_names(self, coordinates: NDArray[np.int32], names: pa.Array) -> None:
        """Add names, valid UTF-8 strings, at coordinates."""
        with self._lock:
            self._open().add(coordinates, b"", *_places(names))

    def update(self, seen: Mapping[int, tuple[str, ...]]) -> None:
        """Add the names of another table, as ``seen`` gives it."""
        self.add_names(*_flat(seen))

    def since(self, version: int, until: int | None = None) -> tuple[NDArray[np.int32], pa.Array]:
        """Coordinates and names (large_binary) that were added since a version, in order.

        until: a later version; None: the last one.
        """
        with self._lock:
            return self._open().since(version, until)

    def _open(self) -> NameTable:
        if self._ledger is None:
            coordinates, names = _flat(self._seen)
            self._ledger = NameTable()
            self._ledger.add(coordinates, b"", *_places(names))
            self._written = len(self._ledger)
        return self._ledger

    def _by_coordinate(self) -> dict[int, tuple[str, ...]]:
        """All names, by coordinate."""
        with self._lock:
            if self._ledger is not None and self._written < len(self._ledger):
                coordinates, names = self._ledger.since(self._written)
                self._written = len(self._ledger)
                with no_garbage_collection():
                    for place, more in _by_coordinate(coordinates, names):
                        self._seen[place] = self._seen.get(place, ()) + more
            return self._seen

    def seen(self) -> dict[int, tuple[str, ...]]:
        """The names by coordinate, for another process."""
        return dict(self._by_coordinate())

    def at(self, coordinate: int) -> tuple[str, ...]:
        """The names seen there; "+" as the last one when there were more."""
        return self._by_coordinate().get(coordinate, ())

    def new(self, known: Self) -> dict[int, tuple[str, ...]]:
        """Names by coordinate, of those coordinates whose names differ in another table."""
        return {at: names for at, names in self.seen().items() if known.at(at) != names}

    def to_json(self) -> dict[str, tuple[str, ...]]:
        """What ``from_json`` reads back, ordered by coordinate."""
        seen = self._by_coordinate()
        return {str(place): seen[place] for place in sorted(seen)}

    def document(self) -> bytes:
        """Canonical JSON of ``to_json``."""
        if self._ledger is None:
            return canonical(self.to_json())
        with self._lock:
            coordinates, names = self._ledger.since(0)
            return _document(coordinates, names)

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Self:
        """The table that was saved; names beyond its bounds are dropped."""
        some = list(saved.items())[:_COORDINATES]
        return cls({int(at): tuple(str(name) for name in known[: _EACH + 1]) for at, known in some})


def _by_coordinate(
    coordinates: NDArray[np.int32], names: pa.Array
) -> Iterable[tuple[int, tuple[str, ...]]]:
    """The names of each coordinate, in their order."""
    order = np.argsort(coordinates, kind="stable")
    names = arrow_function()("take", [names, pa.array(order)])
    # Not to_pylist, which makes a scalar of each.
    texts = tuple(arrow_cast(names, pa.large_string()).to_numpy(zero_copy_only=False))
    places, begins = np.unique(coordinates[order], return_index=True)
    edges = [*begins.tolist(), len(texts)]
    return zip(places.tolist(), map(texts.__getitem__, map(slice, edges, edges[1:])), strict=True)


def _document(coordinates: NDArray[np.int32], names: pa.Array) -> bytes:
    """Canonical JSON of the names of each coordinate, in their order: a fifth of the time that
    Python's own encoder takes, most of it to make and sort tuples."""
    if not len(names):
        return b"{}"
    place = coordinates.astype(np.int64)
    digits = np.searchsorted(10 ** np.arange(1, 10), place, side="right") + 1
    # Keys are ordered as text: digits from the left, then shorter before longer.
    keys = ((place * 10 ** (10 - digits) * 16 + digits) << _INDEX_BITS) + np.arange(len(place))
    order = np.sort(keys) & ((1 << _INDEX_BITS) - 1)
    place = coordinates[order]
    first = np.diff(place, prepend=-1) != 0
    call, kind, none = arrow_function(), pa.large_binary(), pa.scalar(b"", pa.large_binary())
    texts = _escaped(call("take", [names, pa.array(order)]))
    labels = arrow_cast(arrow_cast(pa.array(place[first]), pa.large_string()), kind)
    ends = pa.scalar(b'"],"', kind), pa.scalar(b'":["', kind)
    heads = call("binary_join_element_wise", [ends[0], labels, ends[1], none])
    befores = pa.concat_arrays([heads, pa.array([b'","'], kind)])
    which = np.where(first, np.cumsum(first) - 1, len(heads))
    parts = call("take", [befores, pa.array(which)])
    data, offsets = buffers(call("binary_join_element_wise", [parts, texts, none]))
    return b"{" + data[offsets[0] + len(b'"],') : offsets[-1]].tobytes() + b'"]}'


def _escaped(names: pa.Array) -> pa.Array:
    """The names as JSON in ASCII has them between quotes."""
    data, offsets = buffers(names)
    letters = data[offsets[0] : offsets[-1]]
    strange = (letters - 0x20 >= 0x5F) | (letters == ord('"')) | (letters == ord("\\"))
    places = np.flatnonzero(strange) + offsets[0]
    if not len(places):
        return names
    which = np.zeros(len(names), np.bool_)
    which[np.searchsorted(offsets, places, side="right") - 1] = True
    some = names.filter(pa.array(which)).to_pylist()
    made = pa.array([json.dumps(name.decode())[1:-1].encode() for name in some], names.type)
    return arrow_function()("replace_with_mask", [names, pa.array(which), made])


def _flat(seen: Mapping[int, tuple[str, ...]]) -> tuple[NDArray[np.int32], pa.Array]:
    """Each name's coordinate, and the names."""
    places = np.fromiter(seen, np.int32, len(seen))
    texts = [name.encode(errors="backslashreplace") for names in seen.values() for name in names]
    return places.repeat([*map(len, seen.values())]), pa.array(texts, pa.large_binary())


def _places(values: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """The bytes of values, and where each begins and ends."""
    data, offsets = buffers(values)
    return data, offsets[:-1], offsets[1:]


def _utf8(values: pa.Array) -> pa.Array:
    """Binary values as text; bytes that are not UTF-8 become backslash escapes."""
    data, offsets = buffers(values)
    if data[offsets[0] : offsets[-1]].tobytes().isascii():
        return values
    try:
        return arrow_cast(values, pa.large_string())
    except pa.ArrowInvalid:
        texts = [value.decode(errors="backslashreplace") for value in values.to_pylist()]
        return pa.array(texts, pa.large_string())


def name_of(plan: Plan, names: Names, coordinate: int) -> str:
    """The readable name of a coordinate: bias, age, embedding[3], age[35..42], job=admin. |
    job=nurse, i:17, age is null.

    Raises IndexError outside 0 … plan.size − 1.
    """
    if not 0 <= coordinate < plan.size:
        raise IndexError(f"coordinate {coordinate} is not in 0 … {plan.size - 1}")
    if coordinate >= plan.indicator_offset:
        return f"{plan.indicators[coordinate - plan.indicator_offset]} is null"
    if plan.sparse and coordinate >= plan.sparse_offset:
        return f"{plan.sparse.indices}:{coordinate - plan.sparse_offset}"
    if coordinate >= plan.hashed_offset:
        seen = " | ".join(names.at(coordinate)).replace(f"| {_MORE}", "| …")
        return seen or f"hashed[{coordinate - plan.hashed_offset}]"
    return _dense_name(plan, coordinate)


def column_of(plan: Plan, names: Names, coordinate: int) -> str:
    """The column of a coordinate, of shared ones that of the first value; "" of the bias."""
    if plan.bias and coordinate == 0:
        return ""
    if coordinate >= plan.indicator_offset:
        return plan.indicators[coordinate - plan.indicator_offset]
    if plan.sparse and coordinate >= plan.sparse_offset:
        return plan.sparse.indices
    if coordinate >= plan.hashed_offset:
        seen = names.at(coordinate)
        return seen[0].partition("=")[0].removesuffix(" is null") if seen else "(unnamed)"
    return _dense_name(plan, coordinate).partition("[")[0]


def _dense_name(plan: Plan, coordinate: int) -> str:
    if plan.bias and coordinate == 0:
        return "bias"
    if coordinate < plan.hat_offset:
        return number_name(plan, coordinate - int(plan.bias))
    if coordinate >= plan.tree_offset:
        return f"trees[{coordinate - plan.tree_offset}]" if plan.margins > 1 else "trees"
    curve, places = next(one for one in plan.hats_of_curves if coordinate < one[1].stop)
    hat = [*hat_names(curve.knots)][coordinate - places.start]
    return f"{number_name(plan, curve.place)}[{hat}]"
