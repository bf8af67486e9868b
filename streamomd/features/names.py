"""Names: which column=value stands behind a hashed coordinate, as far as a bounded table tells."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Self

from streamomd.features.plan import Plan

_COORDINATES = 65_536
_EACH = 4
_MORE = "+"


class Names:
    """Names seen at hashed coordinates: at most 65,536 coordinates, 4 names each, then "+".

    Threads may add at once. Which names are kept when the table is full depends on which came
    first; nothing but what a person is shown depends on it.
    """

    def __init__(self, seen: Mapping[int, tuple[str, ...]] | None = None) -> None:
        """seen: of another table, within the same bounds."""
        self._seen = dict(seen or {})
        self._noted: dict[str, set[bytes | None]] = {}  # values by column, as they came
        self.version = 0  # grows with each change, so that an unchanged table is not saved again
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._seen)

    def note(self, column: str, coordinates: Sequence[int], values: Sequence[bytes | None]) -> None:
        """Note which values of a column were hashed to which coordinates: each to one, always."""
        with self._lock:
            noted = self._noted.setdefault(column, set())
            for coordinate, value in zip(coordinates, values, strict=True):
                # First what is quick: most of a stream was noted, or finds its coordinate full, or
                # the table.
                if value in noted:
                    continue
                known = self._seen.get(coordinate, ())
                if len(known) <= _EACH and (known or len(self._seen) < _COORDINATES):
                    self._add(coordinate, known, (_name(column, value),))
                    noted.add(value)

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
        self._seen[coordinate] = added if len(added) <= _EACH else (*added[:_EACH], _MORE)
        self.version += 1

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
