"""The state that a round of averaged mode starts from, and how the workers get it.

The first worker of a round has it: as the result of the last merge, which is in its memory, or from
the commit in the store. The others copy it from each other, in a tree (``placement.source_of``).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
from distributed import get_worker
from numpy.typing import NDArray

from streamomd.config.data_table import Data
from streamomd.config.run_tables import Alert
from streamomd.config.spec import Spec
from streamomd.core.errors import ClusterError, NoCommitError
from streamomd.core.urls import shown
from streamomd.engine import Engine
from streamomd.engine.layout import Layout
from streamomd.engine.state import State
from streamomd.features import Names, Plan
from streamomd.shards.open_readers import OpenReaders
from streamomd.shards.shard import Found
from streamomd.training.column_statistics import PartRows
from streamomd.training.load_model import load_model
from streamomd.training.metrics import Metrics
from streamomd.training.model_data import engine_of

SeenNames = dict[int, tuple[str, ...]]
"""Names by coordinate."""


@dataclass(frozen=True)
class RoundStart:
    """The commit a round starts from. run: unique to this round and driver, so that rounds are not
    confused.

    previous: the run of the round that ended with this commit; "" if another process made it.
    data: of the driver's job, for its storage options and cache, which a commit must not choose.
    new_pass: the commit is the end of an epoch, so that the round begins another pass. first:
    see ``Metrics.count_first``. alert: the driver's table, if rows are watched.
    """

    run: str
    url: str
    sequence: int
    options: Mapping[str, Any] = field(repr=False)
    data: Data = field(repr=False)
    new_pass: bool = False
    previous: str = ""
    first: bool = False
    alert: Alert | None = None


@dataclass(frozen=True, eq=False)
class PartialState:
    """A state to transfer, and the metrics of what it learned since the round started.

    spec, plan: of the commit, without settings of a machine and credentials. names: those that the
    start has not; of the start and of a round's result, all. metrics: of one epoch, as a checkpoint
    saves them; most bins are empty. classes: of the whole run so far, see ``Metrics.classes``.
    watched: of the parts that it consists of, in the order of their rows.
    """

    spec: Spec
    plan: Plan
    cells: NDArray[Any]
    totals: NDArray[np.float64]
    clock: int
    extra: dict[str, NDArray[Any]]
    names: SeenNames
    rows: int = 0
    metrics: dict[str, NDArray[Any]] = field(default_factory=dict)
    digests: list[Found] = field(default_factory=list)
    classes: NDArray[np.float64] | None = None
    watched: tuple[PartRows, ...] = ()

    def __sizeof__(self) -> int:
        # For Dask, which would count it as a few bytes and never spill it.
        arrays = (self.cells, self.totals, *self.extra.values(), *self.metrics.values())
        sizes = sum(array.nbytes for array in arrays) + sum(one.nbytes for one in self.watched)
        return object.__sizeof__(self) + sizes

    def state(self, layout: Layout) -> State:
        """The state, sharing these arrays."""
        return State(layout, self.cells, self.totals, self.clock, self.extra)

    def holding(self, state: State) -> PartialState:
        """With the numbers of another state, whose arrays it shares."""
        return replace(
            self, cells=state.cells, totals=state.totals, clock=state.clock, extra=state.extra
        )

    def after(
        self,
        metrics: Metrics,
        names: SeenNames,
        digests: list[Found],
        watched: tuple[PartRows, ...],
    ) -> PartialState:
        """What was learned from this state, without cells: see ``holding``."""
        return replace(
            self,
            cells=self.cells[:0].copy(),
            extra={},
            names=names,
            rows=metrics.total_rows,
            metrics=metrics.arrays(),
            digests=digests,
            classes=_sum(self.classes, metrics.classes),
            watched=watched,
        )


@dataclass(frozen=True, eq=False)
class StartModel:
    """What a worker makes of a round's start, once for all of its tasks. Read-only."""

    engine: Engine
    state: State
    names: Names


_lock = threading.Lock()
_models: WeakKeyDictionary[PartialState, StartModel] = WeakKeyDictionary()
_merged: WeakValueDictionary[str, PartialState] = WeakValueDictionary()
"""Results of rounds, by their runs, while Dask holds them on this worker."""
_readers: WeakKeyDictionary[PartialState, OpenReaders] = WeakKeyDictionary()
"""What reads a round's rows, by its start, and by its result: the start of the next one."""


def start_state(start: RoundStart) -> PartialState:
    """The state of that commit: from this worker's memory, or from the store.

    It depends on no other task, so Dask does not remember the rounds before, and a lost one is
    loaded from the store by whichever worker runs the task again: the result is bit-identical.
    """
    merged = _merged.get(start.previous)
    if merged is None:
        merged = _load_commit(start)
    # What the last round learned is in its commit, and would be counted again.
    begin = replace(merged, rows=0, metrics={}, digests=[], watched=())
    with _lock:
        # What the last round has opened serves this one, too.
        _readers[begin] = _readers.get(merged) or OpenReaders()
    if start.new_pass:  # which changes totals only
        begin = replace(begin, totals=begin.totals.copy())
        model = model_of(begin)
        model.engine.begin_pass(model.state)
    return begin


def _load_commit(start: RoundStart) -> PartialState:
    try:
        model = load_model(start.url, storage_options=start.options, at=start.sequence)[0]
    except NoCommitError as error:
        raise ClusterError(
            f"worker {get_worker().address} cannot find commit {start.sequence} in "
            f"{shown(start.url)}: averaged mode needs a checkpoint URL that all workers can read, "
            f"on a shared disk or in a bucket ({error})"
        ) from None
    state = model.state
    arrays = (state.cells, state.totals, state.clock, state.extra)
    found = PartialState(model.spec, model.plan, *arrays, model.names.seen())
    return replace(found, classes=model.metrics.classes)


def _sum(
    classes: NDArray[np.float64] | None, more: NDArray[np.float64] | None
) -> NDArray[np.float64] | None:
    return more if classes is None else classes if more is None else classes + more


def copy_state(start: PartialState) -> PartialState:
    """The start, which Dask has copied to this worker from the one that it depends on."""
    return start


def model_of(start: PartialState) -> StartModel:
    """The model of a round's start, made once per worker."""
    with _lock:
        model = _models.get(start)
        if model is None:
            # Under the lock: two tasks that begin together would both compile and both copy.
            engine = engine_of(start.spec, start.plan)
            model = StartModel(engine, start.state(engine.layout), Names(start.names))
            _models[start] = model
        return model


def readers_of(start: PartialState) -> OpenReaders:
    """What reads the rows of a round on this worker."""
    with _lock:
        return _readers.setdefault(start, OpenReaders())


def merge_names(tables: Sequence[SeenNames]) -> SeenNames:
    """Merge tables of names, within the size limit of one."""
    first, *others = tables
    names = Names(first)
    for table in others:
        names.update(table)
    return names.seen()


def merge_about(a: PartialState, b: PartialState) -> PartialState:
    """All but the numbers of two states that were learned from the same start. Spec and plan are
    those of the first one."""
    classifies = a.spec.model.classifies
    metrics, other = (Metrics.from_arrays(part.metrics, classifies=classifies) for part in (a, b))
    metrics.add(other)
    return replace(
        a,
        names=merge_names((a.names, b.names)),
        rows=metrics.total_rows,
        metrics=metrics.arrays(),
        # The driver compares the digests of a row group that both have read.
        digests=a.digests + b.digests,
        classes=_sum(a.classes, other.classes),
        watched=a.watched + b.watched,
    )


def add_start_names(start: PartialState, result: PartialState) -> PartialState:
    """The last state of a round, with all names."""
    return replace(result, names=merge_names((start.names, result.names)))


def register_result(run: str, result: PartialState) -> PartialState:
    """The last state of a round, which stays in this worker's memory as the start of the next round
    as long as the driver holds its future."""
    _merged[run] = result
    return result


def round_result(run: str, start: PartialState, result: PartialState) -> PartialState:
    """The last state of a round, with all names, registered; the next round reads on from it."""
    found = register_result(run, add_start_names(start, result))
    readers = readers_of(start)
    with _lock:
        _readers[found] = readers
    return found
