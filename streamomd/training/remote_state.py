"""A state that stays in a checkpoint, in parts that its owners wrote, until it is needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.checkpoint import Store, StoredParts, read_part, read_parts
from streamomd.core.finite import part_problem
from streamomd.engine.layout import MEANS, Layout
from streamomd.engine.state import Arrays, State


class RemoteState(State):
    """A state whose cells are read when they are first needed; its hash needs none.

    stored: where its parts are; None once its cells are here, for then they may have moved.
    """

    def __init__(self, layout: Layout, store: Store, stored: StoredParts) -> None:
        self.layout, self.store = layout, store
        self.stored: StoredParts | None = stored
        self._loaded: State | None = None
        _, _, first = read_part(store, stored, stored.entries[0])
        self.extra = {
            name: np.array(first[f"extra.{name}"])
            for name in (*layout.standardized, *layout.stored, *layout.copied)
        }
        self.totals = np.array(first["totals"], dtype=np.float64)
        self.clock = int(first["clock"][0])
        self.means = np.array(first[MEANS]) if layout.means else layout.start_means()

    def load(self) -> State:
        """The state in memory, which it takes as much of as it has."""
        if self._loaded is None:
            state = State.start(self.layout)
            for low, high, arrays in self._read():
                state.fill(low, high, arrays)
            self._loaded, self.stored = state, None
            self.extra = state.extra
        return self._loaded

    @property
    def cells(self) -> NDArray[Any]:  # type: ignore[override]
        """All cells: as much memory as the whole state."""
        return self.load().cells

    def parts(self, nbytes: int = 0) -> Iterator[tuple[int, int, Arrays]]:
        """Yields what ``State.parts`` does, in the same ranges, however the parts in the checkpoint
        are cut."""
        if self._loaded is not None:
            yield from super().parts(nbytes)
            return
        held: list[tuple[int, int, Arrays]] = []
        coming = self._read()
        for low, high in self._ranges(nbytes):
            while not held or held[-1][1] < high:
                held.append(next(coming))
            arrays: Arrays = {
                f"slot.{slot.name}": np.concatenate(
                    [
                        given[f"slot.{slot.name}"][max(low, lo) - lo : high - lo]
                        for lo, hi, given in held
                        if hi > low
                    ]
                )
                for slot, _ in self.layout.columns()
            }
            if low == 0:
                arrays |= {f"extra.{name}": array for name, array in self.extra.items()}
                arrays["totals"] = self.totals
                arrays["clock"] = np.array([self.clock], dtype=np.int64)
            yield low, high, arrays
            held = [one for one in held if one[1] > high]

    def problem(self) -> str:
        """Returns what ``State.problem`` does; part by part, where its cells are not here."""
        if self._loaded is not None:
            return super().problem()
        found = (part_problem(low, arrays) for low, _, arrays in self._read())
        return next((problem for problem in found if problem), "")

    def _read(self) -> Iterator[tuple[int, int, Arrays]]:
        assert self.stored is not None
        return read_parts(self.store, self.stored)
