"""Names: which column=value stands behind a hashed coordinate, as far as a bounded table tells."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamomd.features.plan import Plan

_COORDINATES = 65_536
_EACH = 4
_MORE = "+"
_LEAST, _MOST = 1 << 12, 1 << 20
_HIGH = 12  # a hash is looked for at its higher bits: the lower ones are its coordinate
_BITS = 1 << 21  # 256 KiB, which stays in a processor's own cache


class Watch(NamedTuple):
    """What compiled hashing passes over without a word: see ``engine.hashing.unsettled``.

    hashes: of values that were told of. closed: a bit a coordinate, at its lowest bits: no name is
    taken there any more.
    """

    hashes: NDArray[np.uint32]
    closed: NDArray[np.uint8]


NOBODY = Watch(np.empty(0, np.uint32), np.empty(0, np.uint8))
"""Nothing is to be told."""


class Names:
    """Names seen at hashed coordinates: at most 65,536 coordinates, 4 names each, then "+".

    Threads may add at once. Which names are kept when the table is full depends on which came
    first, and values of a column with the same 32 bits of hash count as one; nothing but what a
    person is shown depends on it.
    """

    def __init__(self, seen: Mapping[int, tuple[str, ...]] | None = None) -> None:
        """seen: of another table, within the same bounds."""
        self._seen = dict(seen or {})
        self.version = 0  # grows with each change, so that an unchanged table is not saved again
        self._lock = threading.Lock()
        self._watch = NOBODY
        self._full: list[int] = []  # coordinates that the watch does not know to be so
        self._told = 0  # values since its hashes were made
        self._ended = False  # it knows that there will be no more coordinates

    def __len__(self) -> int:
        return len(self._seen)

    def watch(self, size: int) -> Watch:
        """What is settled by now, of ``size`` coordinates; what is not is to be noted next."""
        with self._lock:
            hashes, closed = self._watch
            if 8 * self._told >= len(hashes):
                hashes, self._told = _grown(hashes), 0
            ended = len(self._seen) >= _COORDINATES
            if not len(closed) or ended > self._ended:
                closed, self._ended = _closed(self._seen, size, ended), ended
            elif self._full and size <= _BITS:
                full = np.array(self._full)
                np.bitwise_or.at(closed, full >> 3, np.uint8(1) << (full & 7).astype(np.uint8))
            self._full.clear()
            self._watch = Watch(hashes, closed)
            return self._watch

    def note(self, column: str, coordinates: Sequence[int], values: Sequence[bytes | None]) -> None:
        """Note which values of a column were hashed to which coordinates: each to one, always."""
        with self._lock:
            self._told += len(values)
            for coordinate, value in zip(coordinates, values, strict=True):
                known = self._seen.get(coordinate, ())
                if len(known) <= _EACH and (known or len(self._seen) < _COORDINATES):
                    self._add(coordinate, known, (_name(column, value),))

    def update(self, seen: Mapping[int, tuple[str, ...]]) -> None:
        """Add the names of another table, as ``seen`` gives it."""
        with self._lock:
            for coordinate, more in seen.items():
                known = self._seen.get(coordinate, ())
                if known != more and (known or len(self._seen) < _COORDINATES):
                    self._add(coordinate, known, more)

    def _add(self, coordinate: int, known: tuple[str, ...], more: tuple[str, ...]) -> None:
        if not known:
            self._seen[coordinate] = more
            self.version += 1
            return
        if len(known) > _EACH or all(name in known for name in more):
            return
        added = tuple(dict.fromkeys((*known, *more)))
        self.version += 1
        if len(added) > _EACH:
            added = (*added[:_EACH], _MORE)
            self._full.append(coordinate)
        self._seen[coordinate] = added

    def seen(self) -> dict[int, tuple[str, ...]]:
        """The names by coordinate, for another process."""
        with self._lock:
            return dict(self._seen)

    def at(self, coordinate: int) -> tuple[str, ...]:
        """The names seen there; "+" as the last one when there were more."""
        return self._seen.get(coordinate, ())

    def new(self, known: Self) -> dict[int, tuple[str, ...]]:
        """Names by coordinate, of those coordinates of which another table tells otherwise."""
        return {at: names for at, names in self.seen().items() if known.at(at) != names}

    def to_json(self) -> dict[str, tuple[str, ...]]:
        """What ``from_json`` reads back, ordered by coordinate."""
        with self._lock:
            return {str(place): self._seen[place] for place in sorted(self._seen)}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Self:
        """The table that was saved; what goes beyond the bounds is left out."""
        names = cls()
        for place, known in list(saved.items())[:_COORDINATES]:
            names._seen[int(place)] = tuple(str(name) for name in known[: _EACH + 1])
        return names


def _grown(hashes: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The same hashes where there is room for more; none, where they would be too many."""
    known = hashes[hashes > 0]
    known = known if 2 * len(known) < _MOST else known[:0]
    made = np.zeros(max(_LEAST, 1 << (2 * len(known)).bit_length()), np.uint32)
    _put(made, known, known >> _HIGH)
    return made


def _closed(seen: Mapping[int, tuple[str, ...]], size: int, ended: bool) -> NDArray[np.uint8]:
    """Bits of ``Watch``. Where coordinates share one they keep each other open."""
    closed = np.full(min(_BITS, 1 << size.bit_length()), ended)
    places = np.fromiter(seen, np.int64, len(seen)) % len(closed)
    full = np.array([len(names) > _EACH for names in seen.values()], np.bool_)
    if not ended and size <= _BITS:
        closed[places[full]] = True
    closed[places[~full]] = False
    return np.packbits(closed, bitorder="little")


def _put(table: NDArray[np.uint32], wanted: NDArray[np.uint32], at: NDArray[Any]) -> None:
    """Put numbers into a table of 2^k that holds 0 where nothing is, each where it is free next."""
    while len(wanted):
        at = at & (len(table) - 1)
        free = table[at] == 0
        table[at[free]] = wanted[free]
        away = table[at] != wanted
        wanted, at = wanted[away], at[away] + 1


def _name(column: str, value: bytes | None) -> str:
    if value is None:
        return f"{column} is null"
    return f"{column}={value.decode(errors='backslashreplace')}"


def name_of(plan: Plan, names: Names, coordinate: int) -> str:
    """What a person calls a coordinate: bias, age, embedding[3], job=admin. | job=nurse, i:17,
    age is null.

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


def _dense_name(plan: Plan, coordinate: int) -> str:
    if plan.bias and coordinate == 0:
        return "bias"
    if coordinate < plan.vector_offset:
        return plan.numeric[coordinate - int(plan.bias)]
    place = coordinate - plan.vector_offset
    for vector in plan.vectors:
        if place < vector.width:
            break
        place -= vector.width
    return f"{vector.column}[{place}]"
