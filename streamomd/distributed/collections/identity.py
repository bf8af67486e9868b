"""A token that identifies a collection in any process: Dask's own token where possible.

Two of Dask's tokens are valid in one process only: those of futures, and (seen in 2026.8) that of
``read_parquet``, which includes its caches of the files.
"""

from __future__ import annotations

from typing import Any

from dask.base import tokenize
from dask.core import flatten
from dask.utils import ensure_dict
from distributed import Future

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
