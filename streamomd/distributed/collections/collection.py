"""A Dask collection as ordered rows: its partitions take the role of shards."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.base import optimize, tokenize
from dask.core import flatten
from dask.delayed import delayed
from dask.optimization import cull
from dask.utils import ensure_dict, is_arraylike, is_dataframe_like
from distributed import Client, Future

from streamomd.config.spec import Spec
from streamomd.core.errors import SchemaError, UsageError
from streamomd.core.wording import named_keywords
from streamomd.engine.state import State
from streamomd.features import check_schema, encode
from streamomd.features.arrow_types import root_among
from streamomd.shards.order import COLLECTION
from streamomd.shards.output_files import OWN
from streamomd.sources.memory.frames import (
    FEATURES,
    LABEL,
    WEIGHT,
    batches,
    frame_of,
    table_of,
    without_null_types,
)
from streamomd.training.model_data import ModelData, engine_of
from streamomd.training.predict import columns


def partition_url(number: int) -> str:
    """The name of a partition in errors, after the word "shard"."""
    return f"dask partition {number}"


@dataclass(frozen=True)
class Graph:
    """Tasks, and the keys of each partition's inputs."""

    tasks: dict[Any, Any]
    keys: list[tuple[Any, ...]]

    def of(self, number: int) -> tuple[dict[Any, Any], list[Any]]:
        """A partition's own tasks, and the keys of its inputs."""
        keys = list(self.keys[number])
        return cull(self.tasks, keys)[0], keys


class Collection:
    """A Dask DataFrame; or Dask arrays X (rows, columns), y (rows) and optionally weights (rows).

    Rows are in the order of the partitions (chunks of rows) and in their order within each. The
    number of rows may be unknown. Raises UsageError for anything else.
    """

    rows = 0  # unknown
    remedy = (
        "make the collection from the same data by the same steps: then Dask gives its partitions "
        "the same names. It does so for read_parquet, from_pandas, from_map and most others; what "
        "comes of delayed() needs pure=True or dask_key_name=, of a random source a seed or name=, "
        'arrays of read_parquet its filesystem="arrow", and persist() must be the last step'
    )

    def __init__(self, given: Any) -> None:
        self.parts: tuple[Any, ...] = tuple(given) if isinstance(given, tuple | list) else (given,)
        self.framed = len(self.parts) == 1 and is_dataframe_like(self.parts[0])
        if self.framed:
            _check_frame(self.parts[0])
        else:
            _check_arrays(self.parts)
        self._held = persisted_futures(self.parts)
        self.token = collection_token(self.parts, self._held)

    @property
    def name(self) -> str:
        """Its name in a job."""
        return f"{COLLECTION}{self.token}"

    @property
    def client(self) -> Client | None:
        """The client of the cluster that holds its persisted partitions."""
        return self._held[0].client if self._held else None

    @property
    def columns(self) -> dict[str, Any]:
        """The [data] keys of arrays; none for a DataFrame."""
        if self.framed:
            return {}
        weight = {"weight": WEIGHT} if len(self.parts) > 2 else {}
        return {"vectors": [FEATURES], "label": LABEL, **weight}

    def __len__(self) -> int:
        first = self.parts[0]
        return int(first.npartitions if self.framed else first.numblocks[0])

    def part_name(self, number: int) -> str:
        """For messages."""
        return f"partition {number} of the Dask collection"

    def fingerprint(self) -> list[dict[str, Any]]:
        """One dict per partition, in order: Dask's token of its contents, and its columns.

        Dask's token of data it reads is made from location, size and time; that of computed data
        from the functions and their arguments.
        """
        if self.framed:
            kinds = [[name, str(kind), True] for name, kind in self.parts[0].dtypes.items()]
        else:
            names = (FEATURES, LABEL, WEIGHT)
            named = zip(names, self.parts, strict=False)
            kinds = [[name, f"{part.dtype}{_width(part)}", False] for name, part in named]
        return [
            {"url": partition_url(i), "format": "dask", "key": f"{self.token}-{i}", "schema": kinds}
            for i in range(len(self))
        ]

    def graph(self, columns: Sequence[str] | None = None) -> Graph:
        """The optimised graph of all partitions; of a DataFrame with these columns only, or those
        that hold them as fields."""
        if not self.framed:
            arrays = optimize(*self.parts)
            tasks: dict[Any, Any] = {}
            for array in arrays:
                tasks |= ensure_dict(array.__dask_graph__())
            chunks = [flatten(array.__dask_keys__()) for array in arrays]
            return Graph(tasks, list(zip(*chunks, strict=True)))
        frame = self.parts[0]
        if columns is not None:
            frame = frame[frame_columns(frame, columns)]
        best = frame.optimize()
        if best.npartitions != len(self):
            # Small files were fused: the partitions would no longer match a saved cursor.
            best = frame.simplify()
        keys = [(key,) for key in best.__dask_keys__()]
        return Graph(ensure_dict(best.__dask_graph__()), keys)


def frame_columns(frame: Any, columns: Sequence[str]) -> list[str]:
    """The columns of a DataFrame that are, or hold as structs, these ones, each once."""
    return [*dict.fromkeys(root_among([*frame.columns], name) for name in columns)]


def _check_frame(frame: Any) -> None:
    odd = [name for name in frame.columns if not isinstance(name, str)]
    if odd:
        raise UsageError(
            f"column {odd[0]!r} of the DataFrame has a name of type {type(odd[0]).__name__}: "
            "rename the columns to text (ddf.rename(columns=str))"
        )


def _check_arrays(parts: tuple[Any, ...]) -> None:
    if len(parts) not in (2, 3) or not all(
        is_arraylike(part) and hasattr(part, "__dask_graph__") for part in parts
    ):
        kinds = ", ".join(type(part).__name__ for part in parts)
        raise UsageError(
            "shards must be names, a Dask DataFrame, or Dask arrays (X, y) or (X, y, weights); "
            f"got {kinds} (convert other arrays with da.from_array)"
        )
    dimensions = [part.ndim for part in parts]
    if dimensions != [2, 1, 1][: len(parts)]:
        raise UsageError(
            f"arrays of {dimensions} dimensions: X has 2 (rows, columns), y and the weights 1"
        )
    features = parts[0]
    if features.numblocks[1] != 1:
        raise UsageError(
            f"X has {features.numblocks[1]} chunks of columns, expected 1: X.rechunk({{1: -1}})"
        )
    if math.isnan(features.shape[1]):
        raise UsageError("the number of columns of X is unknown: X.compute_chunk_sizes()")
    for name, part in zip(("y", "weights"), parts[1:], strict=False):
        ours, theirs = features.chunks[0], part.chunks[0]
        unknown = any(math.isnan(rows) for rows in (*ours, *theirs))
        if len(ours) != len(theirs) or not (unknown or ours == theirs):
            raise UsageError(
                f"X has {len(ours)} chunks of rows {ours[:5]}, {name} {len(theirs)} "
                f"{theirs[:5]}: they must agree ({name}.rechunk(X.chunks[0]))"
            )


def _width(part: Any) -> str:
    return f"[{part.shape[1]}]" if part.ndim == 2 else ""


CACHES = ("_dataset_info_cache", "_pq_length_stats", "_division_info_cache")


def persisted_futures(parts: tuple[Any, ...]) -> list[Future[Any]]:
    """The futures of persisted partitions."""
    graphs = (ensure_dict(part.__dask_graph__()) for part in parts)
    return [task for graph in graphs for task in graph.values() if isinstance(task, Future)]


def collection_token(parts: tuple[Any, ...], inputs: list[Future[Any]]) -> str:
    """A token of the contents; a completely persisted collection uses the keys of its futures."""
    keys = _persisted(parts) if inputs else None
    if keys is not None:
        return tokenize(keys)
    return tokenize(
        [_expression_token(part.expr, {}) if hasattr(part, "expr") else part for part in parts]
    )


def _persisted(parts: tuple[Any, ...]) -> list[Any] | None:
    keys = []
    for part in parts:
        graph = ensure_dict(part.__dask_graph__())
        for key in flatten(part.__dask_keys__()):
            task = graph[key]
            while (target := getattr(task, "target", None)) is not None:  # an alias
                task = graph[target]
            if not isinstance(task, Future):
                return None
            keys.append(task.key)
    return keys


def _expression_token(expr: Any, seen: dict[str, str]) -> str:
    """A token of an expression: its type, its operands, and the checksum of its files."""
    name = expr._name
    if name not in seen:
        kind = type(expr)
        # Operands after the parameters are additional inputs.
        names = [*expr._parameters, *[""] * (len(expr.operands) - len(expr._parameters))]
        given = [
            _expression_token(operand, seen) if hasattr(type(operand), "_parameters") else operand
            for parameter, operand in zip(names, expr.operands, strict=True)
            if parameter not in CACHES
        ]
        files = expr.checksum if hasattr(kind, "checksum") else None
        seen[name] = tokenize(kind.__qualname__, given, files)
    return seen[name]


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
        table = without_null_types(table_of([part], where), self.plan.families)
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
