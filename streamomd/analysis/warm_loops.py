"""Compile all loops that a job needs, into the disk cache, before it runs; nothing is saved."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from streamomd.analysis.preview import read_unit
from streamomd.config.spec import Spec
from streamomd.core.batch import Batch, DenseBatch
from streamomd.core.errors import UsageError
from streamomd.core.jit import recording
from streamomd.core.run_events import phase
from streamomd.core.wording import counted
from streamomd.engine.merge import merge
from streamomd.engine.state import State
from streamomd.features.plan import Plan
from streamomd.runs.session import Session
from streamomd.shards.encoded_rows import encode_rows
from streamomd.shards.formats.parquet import FLAT_VALUES
from streamomd.shards.order import jobs_of, places
from streamomd.shards.shard import ShardSet
from streamomd.training.microbatch_rounds import Share
from streamomd.training.model_data import ModelData
from streamomd.training.training_threads import classes_divided

SMALL = 1 << 12
"""Coordinates of a state that is merged: loops do not depend on how many there are."""


def warm(
    job: str | Sequence[str] | Mapping[str, Any] | Spec | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    sets: Mapping[str, Any] | None = None,
    **flags: Any,
) -> dict[str, Any]:
    """Compile what ``train`` and ``predict`` of a job would compile; what is cached is loaded.

    Arguments as in ``streamomd.train``. Reads footers and a unit of rows, which a temporary state
    learns: loops depend on rule, loss, classes, dtypes and kinds of columns. Raises what ``train``
    raises for a job, its shards, and those rows, and UsageError where loops cannot be saved.
    """
    started = time.perf_counter()
    session = Session.open(job, {**flags, "storage_options": storage_options}, sets)
    with recording() as compilations:
        model, shards, data = session.new_model(), session.shards, session.spec.data
        unit = read_unit(
            jobs_of(shards, places(data.order, data.seed, len(shards), 0)), model.plan, session.spec
        )
        with phase("compiling"):
            _load_kernels(model.plan, shards)
            rows = (encode_rows(model.plan, rows, names=model.names) for rows in unit)
            _learn(model, [one.value.batch for one in rows], shards.rows)
    unsaved = sum(not one.saved for one in compilations)
    if unsaved:
        raise UsageError(
            f"{counted(unsaved, 'compiled loop')} cannot be saved on disk: set NUMBA_CACHE_DIR to "
            "a directory that can be written"
        )
    return {
        "loops": len(compilations),
        "compiled": sum(not one.loaded for one in compilations),
        "seconds": time.perf_counter() - started,
        "folder": os.path.commonpath([one.folder for one in compilations]) if compilations else "",
    }


def _load_kernels(plan: Plan, shards: ShardSet) -> None:
    """Load what decodes large row groups of strings, or of lists stored as binary; the unit that is
    read here may be small."""
    largest = max((max(shard.groups, default=0) for shard in shards), default=0)
    strings = bool(plan.dictionary) and largest * len(plan.columns) >= FLAT_VALUES
    if strings or any(shard.binary_lists for shard in shards):
        from streamomd.shards.formats.flat_groups import load_kernels  # late: it imports numba

        load_kernels()


def _learn(model: ModelData, batches: list[Batch], rows: int) -> None:
    """Call every loop that a run of the model's mode calls, and those of predictions.

    rows: of an epoch.
    """
    with classes_divided(model, rows * model.spec.train.epochs):
        _learn_in_mode(model, batches)
    model.engine.warm(model.state, batches[0].rows(0, 0), learning=False)


def _learn_in_mode(model: ModelData, batches: list[Batch]) -> None:
    engine, state, spec = model.engine, model.state, model.spec
    sums = np.zeros(3)
    if spec.train.mode == "sharded":
        share = Share.whole(engine, state, spec.train.parts)
        for batch in batches[:1]:
            some = share.cut(batch.rows(0, min(len(batch), spec.train.batch_rows)))
            moves, _ = share.decide(some, sums, share.sense(some).numbers)
            share.apply(some, moves)
    else:
        for batch in batches:
            if spec.rule.looks(spec.model.params):
                engine.look(state, batch)
            engine.learn(state, sums, batch)
        row = batches[0].rows(0, 1)
        if isinstance(row, DenseBatch):  # the loop for rows mostly of zeros, and the other
            for fill in (np.zeros_like, np.ones_like):
                engine.learn(state, sums, replace(row, values=fill(row.values)))
    if spec.train.mode == "averaged":
        small = replace(engine.layout, size=min(engine.layout.size, SMALL))
        start = State.start(small)
        merge(replace(engine, layout=small), (start, start.copy()), start, (1, 1))
