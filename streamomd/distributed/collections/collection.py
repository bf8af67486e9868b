"""A Dask collection as ordered rows: its partitions take the role of shards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dask.base import optimize, tokenize
from dask.core import flatten
from dask.optimization import cull
from dask.utils import ensure_dict, is_arraylike, is_dataframe_like
from distributed import Client, Future

from streamomd.core.errors import UsageError
from streamomd.features.nested import root_among
from streamomd.shards.order import COLLECTION
from streamomd.sources.memory.frames import FEATURES, LABEL, WEIGHT


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
