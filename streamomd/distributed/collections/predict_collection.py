"""Predictions of a Dask collection as a lazy Dask DataFrame."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from dask.base import tokenize
from dask.delayed import delayed
from dask.utils import is_arraylike, is_dataframe_like

from streamomd.config.spec import Spec
from streamomd.core.errors import SchemaError, UsageError
from streamomd.core.wording import named_keywords
from streamomd.distributed.collections.collection import frame_columns
from streamomd.engine.state import State
from streamomd.features import check_schema, encode
from streamomd.shards.output_files import OWN
from streamomd.sources.memory.frames import batches, frame_of, table_of, without_null_types
from streamomd.training.build_engine import engine_of
from streamomd.training.model_data import ModelData
from streamomd.training.predict import columns

UNIT_BYTES = 4 << 20
PREFIX = "omd-predict"


class Predictor:
    """The data a model needs to predict: one task of a graph, which the others depend on."""

    def __init__(self, model: ModelData) -> None:
        self.job, self.plan = model.spec.to_json(), model.plan
        state = model.state.copy()  # the model may continue to learn before anything is computed
        self.cells, self.totals, self.clock = state.cells, state.totals, state.clock
        self.extra, self.means = state.extra, state.means
        self.calibration = model.calibration
        self.token = tokenize(self.job, self.plan.to_json(), model.state_sha256)

    def __dask_tokenize__(self) -> str:
        return self.token

    def __sizeof__(self) -> int:
        arrays = (self.cells, self.totals, *self.extra.values())
        return object.__sizeof__(self) + sum(array.nbytes for array in arrays)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_learned"}

    @functools.cached_property
    def _learned(self) -> tuple[Any, State]:
        """The engine and the state, once per process."""
        engine = engine_of(Spec.parse(self.job), self.plan)
        cells = np.require(self.cells, requirements="W")  # as the compiled loops expect
        extra = {name: np.require(array, requirements="W") for name, array in self.extra.items()}
        return engine, State(engine.layout, cells, self.totals, self.clock, extra, self.means)

    def predictions(self, margins: Any) -> dict[str, Any]:
        """The columns of rows with these margins."""
        return columns(self.plan, *self._learned, margins, self.calibration)

    def margins(self, part: Any, where: str) -> Any:
        """(rows, learners) of a pandas frame, or of the array X."""
        engine, state = self._learned
        families = {column.name: column.family for column in self.plan.types}
        table = without_null_types(table_of([part], where), families)
        check_schema(self.plan, table.schema, where, labelled=False)
        found = [np.empty((0, engine.layout.learners))]
        for row, some in batches(table.select([*self.plan.features]), 0, UNIT_BYTES):
            rows = encode(self.plan, some, shard=where, row=row, labelled=False)
            found.append(engine.predict(state, np.zeros(3), rows))
        return np.concatenate(found)


def predict_partition(part: Any, predictor: Predictor, keep: Sequence[str] = ()) -> Any:
    """Runs on a worker: one partition's predictions, as a pandas frame."""
    index: Any = part.index if is_dataframe_like(part) else None
    first = f" whose first row is {index[0]!r}" if index is not None and len(index) else ""
    frame = frame_of(
        predictor.predictions(predictor.margins(part, f"dask partition{first}")), index
    )
    # By position: an index may have duplicates.
    return frame.assign(**{name: part[name].array for name in keep})


@named_keywords
def predict_collection(model: ModelData, collection: Any, *, keep: Sequence[str] = ()) -> Any:
    """Predictions of a Dask DataFrame, or of a Dask array X, as a lazy Dask DataFrame.

    Columns, of Arrow's types: ``prediction``, ``score``, ``probability`` as in
    ``Model.predict``, and the columns of ``keep`` unchanged. There is no ``row``: the index is that
    of the DataFrame; each chunk of an array counts from 0. Partitions are the collection's.

    Nothing is computed here. The current model is copied into the graph once; for a model above
    about 100 MB use ``Model.predict`` on shards.

    Raises UsageError, SchemaError for a missing column, DivergedError for a model that is not
    finite; on computation, what ``Model.predict`` raises for rows.
    """
    model.refuse_non_finite()
    predictor = Predictor(model)
    learners = model.engine.layout.learners
    none = frame_of(predictor.predictions(np.empty((0, learners))), None)
    send_task = delayed(predictor, name=f"omd-model-{predictor.token}", traverse=False)
    if is_dataframe_like(collection) and hasattr(collection, "__dask_graph__"):
        _check_columns(model, collection, keep)
        sample = collection._meta
        meta = none.set_axis(sample.index, axis=0)
        meta = meta.assign(**{name: sample[name].array for name in keep})
        needed = frame_columns(collection, (*model.plan.features, *keep))
        return collection[needed].map_partitions(
            predict_partition, send_task, keep=tuple(keep), meta=meta, token=PREFIX
        )
    if is_arraylike(collection) and hasattr(collection, "__dask_graph__") and not keep:
        return _of_array(collection, send_task, none)
    raise UsageError(
        "predict_collection takes a Dask DataFrame, or a Dask array X (and then keeps no columns); "
        f"got {type(collection).__name__}: for shards there is Model.predict"
    )


def _of_array(features: Any, send_task: Any, meta: Any) -> Any:
    import dask.dataframe as dd  # slow; making meta has already required pandas

    if features.ndim != 2 or features.numblocks[1] != 1:
        raise UsageError(
            f"X has {features.ndim} dimensions in {features.numblocks} chunks: expected rows and "
            "columns, cut by rows alone (X.rechunk({1: -1}))"
        )
    chunks = [chunk for row in features.to_delayed() for chunk in row]
    call = delayed(predict_partition, pure=True)
    return dd.from_delayed(
        [call(chunk, send_task) for chunk in chunks], meta=meta, verify_meta=False
    )


def _check_columns(model: ModelData, frame: Any, keep: Sequence[str]) -> None:
    for name in (*model.plan.features, *keep):
        held = frame_columns(frame, [name]) if name in model.plan.features else [name]
        if held[0] not in frame.columns:
            known = ", ".join(map(str, frame.columns[:20]))
            raise SchemaError(f"the DataFrame has no column {name!r}; it has {known}")
    for name in keep:
        if name in OWN:
            raise UsageError(f"keep {name!r}: predictions have a column of that name themselves")
