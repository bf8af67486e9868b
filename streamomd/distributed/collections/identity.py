"""What tells a collection from others, in any process: Dask's own name for it, where that will do.

Two of Dask's names are of one process alone: those of futures, and (seen in 2026.8) that of
``read_parquet``, which takes what it has cached of the files for a part of the question.
"""

from __future__ import annotations

from typing import Any

from dask.base import tokenize
from dask.core import flatten
from dask.utils import ensure_dict
from distributed import Future

CACHES = ("_dataset_info_cache", "_pq_length_stats", "_division_info_cache")


def held_by(parts: tuple[Any, ...]) -> list[Future[Any]]:
    """The futures of what is persisted on a cluster."""
    graphs = (ensure_dict(part.__dask_graph__()) for part in parts)
    return [task for graph in graphs for task in graph.values() if isinstance(task, Future)]


def token_of(parts: tuple[Any, ...], held: list[Future[Any]]) -> str:
    """A name of the contents; what is persisted as a whole goes by the keys of its futures."""
    keys = _persisted(parts) if held else None
    if keys is not None:
        return tokenize(keys)
    return tokenize([_told(part.expr, {}) if hasattr(part, "expr") else part for part in parts])


def _persisted(parts: tuple[Any, ...]) -> list[Any] | None:
    keys = []
    for part in parts:
        graph = ensure_dict(part.__dask_graph__())
        for key in flatten(part.__dask_keys__()):
            task = graph[key]
            while (target := getattr(task, "target", None)) is not None:  # another name of it
                task = graph[target]
            if not isinstance(task, Future):
                return None
            keys.append(task.key)
    return keys


def _told(expr: Any, seen: dict[str, str]) -> str:
    """A name of an expression: its kind, what it is given, and the files' own checksum."""
    name = expr._name
    if name not in seen:
        kind = type(expr)
        # Operands beyond the parameters are further inputs.
        names = [*expr._parameters, *[""] * (len(expr.operands) - len(expr._parameters))]
        given = [
            _told(operand, seen) if hasattr(type(operand), "_parameters") else operand
            for parameter, operand in zip(names, expr.operands, strict=True)
            if parameter not in CACHES
        ]
        files = expr.checksum if hasattr(kind, "checksum") else None
        seen[name] = tokenize(kind.__qualname__, given, files)
    return seen[name]
