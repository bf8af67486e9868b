"""What a commit saves of a model: its description as JSON, and its numbers in parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.checkpoint import Part, Store, StoredParts, read_part, read_parts
from streamomd.checkpoint.documents import save_document
from streamomd.checkpoint.manifest import BACKTEST, HOLDOUT_BY, TREES, TRIED
from streamomd.checkpoint.sealed_json import canonical
from streamomd.core.finite import finite_parts, part_problem
from streamomd.engine.layout import MEANS, Layout
from streamomd.engine.state import Arrays, State
from streamomd.training.metrics import Metrics
from streamomd.training.model_data import ModelData


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


def save_trees(
    model: ModelData, store: Store, document: dict[str, Any], inline: dict[str, bytes]
) -> str:
    """Save the trees of a document's plan as a shared document, which it then refers to; their
    SHA-256, "" of none. inline: as in ``save_document``."""
    if model.plan.trees is None:
        return ""
    data = canonical(model.plan.trees.to_json())
    sha256 = save_document(store, TREES, data, inline)
    refer_to_trees(document, sha256)
    return sha256


def refer_to_trees(document: dict[str, Any], sha256: str) -> None:
    """Have a document refer to trees that are saved, in place of those of its plan."""
    document["plan"] = {key: one for key, one in document["plan"].items() if key != TREES}
    document[TREES] = sha256


def document_of(model: ModelData, **more: Any) -> dict[str, Any]:
    """The description of a model in a commit. more: what the commit refers to."""
    return {
        "job": model.recorded.add_to(model.spec.to_json()),
        "plan": model.plan.to_json(),
        "state_version": model.spec.rule.state.version,
        "cursor": model.cursor.to_json(),
        **({"teaching": model.teaching.to_json()} if model.teaches_later else {}),
        **({BACKTEST: True} if model.metrics.backtest else {}),
        **({TRIED: model.tried.to_json()} if model.tried else {}),
        **({"update": model.update.to_json()} if model.update.number else {}),
        **({"table_versions": model.table_versions} if model.table_versions else {}),
        **({"ordered_by": model.ordered_by} if model.ordered_by else {}),
        "rows": model.metrics.total_rows,
        "finished": model.finished,
        "finite": True,  # else its parts are not packed
        **({HOLDOUT_BY: "name"} if is_named(model) else {}),
        **({"filter": vars(model.unread)} if model.spec.data.where else {}),
        **more,
    }


def is_named(model: ModelData) -> bool:
    """Whether hold-out or sampled rows depend on shards' names, which the ledger then records."""
    data = model.spec.data
    return bool(data.holds_out or data.sample) and model.holdout_by == "name"


def parts_of(state: State, metrics: Metrics, nbytes: int = 0) -> Iterator[Part]:
    """The parts of a state, of at most ``nbytes`` (0: 4 MiB).

    The first has the counters of its metrics. Raises DivergedError at a part with a number that is
    not finite.
    """
    for low, high, arrays in finite_parts(state.parts(nbytes)):
        yield low, high, arrays | (metrics.arrays() if low == 0 else {})


def parts_to_commit(model: ModelData, nbytes: int) -> Iterator[Part] | StoredParts:
    """The parts of a model, or the names of those that are in the checkpoint already."""
    stored = model.state.stored if isinstance(model.state, RemoteState) else None
    return stored or parts_of(model.state, model.metrics, nbytes)
