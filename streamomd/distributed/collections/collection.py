"""A Dask collection as rows in an order: its partitions take the place of shards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dask.base import optimize
from dask.core import flatten
from dask.optimization import cull
from dask.utils import ensure_dict, is_arraylike, is_dataframe_like
from distributed import Client

from streamomd.core.errors import UsageError
from streamomd.distributed.collections.identity import held_by, token_of
from streamomd.shards.dataset import COLLECTION
from streamomd.shards.memory.frames import FEATURES, LABEL, WEIGHT


def url_of(number: int) -> str:
    """What a partition is called in errors, after the word "shard"."""
    return f"dask partition {number}"


@dataclass(frozen=True)
class Graph:
    """Tasks, and of each partition the keys of its parts."""

    tasks: dict[Any, Any]
    keys: list[tuple[Any, ...]]

    def of(self, number: int) -> tuple[dict[Any, Any], list[Any]]:
        """A partition's own tasks, and the keys of its parts."""
        keys = list(self.keys[number])
        return cull(self.tasks, keys)[0], keys


class Collection:
    """A Dask DataFrame; or Dask arrays X (rows, columns), y (rows) and perhaps weights (rows).

    The order is that of the partitions (of the chunks of rows), and in each of its rows as they
    are. How many rows they have need not be known. Raises UsageError for anything else.
    """

    rows = 0  # not known

    def __init__(self, given: Any) -> None:
        self.parts: tuple[Any, ...] = tuple(given) if isinstance(given, tuple | list) else (given,)
        self.framed = len(self.parts) == 1 and is_dataframe_like(self.parts[0])
        if self.framed:
            _check_frame(self.parts[0])
        else:
            _check_arrays(self.parts)
        self._held = held_by(self.parts)
        self.token = token_of(self.parts, self._held)

    @property
    def name(self) -> str:
        """What a job says of it."""
        return f"{COLLECTION}{self.token}"

    @property
    def client(self) -> Client | None:
        """The client of the cluster that holds what is persisted of it."""
        return self._held[0].client if self._held else None

    @property
    def columns(self) -> dict[str, Any]:
        """What [data] must say of arrays; nothing of a DataFrame."""
        if self.framed:
            return {}
        weight = {"weight": WEIGHT} if len(self.parts) > 2 else {}
        return {"vectors": [FEATURES], "label": LABEL, **weight}

    def __len__(self) -> int:
        first = self.parts[0]
        return int(first.npartitions if self.framed else first.numblocks[0])

    def fingerprint(self) -> list[dict[str, Any]]:
        """One dict a partition, in order: the name that Dask gives its contents, and its columns.

        Dask names what it reads by where it lies, its size and its time, what it computes by the
        functions and what they are given.
        """
        if self.framed:
            kinds = [[name, str(kind), True] for name, kind in self.parts[0].dtypes.items()]
        else:
            names = (FEATURES, LABEL, WEIGHT)
            told = zip(names, self.parts, strict=False)
            kinds = [[name, f"{part.dtype}{_width(part)}", False] for name, part in told]
        return [
            {"url": url_of(i), "format": "dask", "key": f"{self.token}-{i}", "schema": kinds}
            for i in range(len(self))
        ]

    def graph(self, columns: Sequence[str] | None = None) -> Graph:
        """The optimised graph, once for all partitions; of a DataFrame with these columns only."""
        if not self.framed:
            arrays = optimize(*self.parts)
            tasks: dict[Any, Any] = {}
            for array in arrays:
                tasks |= ensure_dict(array.__dask_graph__())
            chunks = [flatten(array.__dask_keys__()) for array in arrays]
            return Graph(tasks, list(zip(*chunks, strict=True)))
        frame = self.parts[0] if columns is None else self.parts[0][list(columns)]
        best = frame.optimize()
        if best.npartitions != len(self):
            # Small files were joined: the partitions would no longer be those a cursor names.
            best = frame.simplify()
        keys = [(key,) for key in best.__dask_keys__()]
        return Graph(ensure_dict(best.__dask_graph__()), keys)


def _check_frame(frame: Any) -> None:
    odd = [name for name in frame.columns if not isinstance(name, str)]
    if odd:
        raise UsageError(
            f"column {odd[0]!r} of the DataFrame is named by a {type(odd[0]).__name__}: give its "
            "columns names (ddf.rename(columns=str))"
        )


def _check_arrays(parts: tuple[Any, ...]) -> None:
    if len(parts) not in (2, 3) or not all(
        is_arraylike(part) and hasattr(part, "__dask_graph__") for part in parts
    ):
        kinds = ", ".join(type(part).__name__ for part in parts)
        raise UsageError(
            "shards are names, a Dask DataFrame, or Dask arrays (X, y) or (X, y, weights); "
            f"got {kinds} (of arrays that are no Dask's: da.from_array)"
        )
    dimensions = [part.ndim for part in parts]
    if dimensions != [2, 1, 1][: len(parts)]:
        raise UsageError(
            f"arrays of {dimensions} dimensions: X has 2 (rows, columns), y and the weights 1"
        )
    features = parts[0]
    if features.numblocks[1] != 1:
        raise UsageError(
            f"X is cut into {features.numblocks[1]} chunks of columns: X.rechunk({{1: -1}})"
        )
    if math.isnan(features.shape[1]):
        raise UsageError("it is not known how many columns X has: X.compute_chunk_sizes()")
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
