"""Delta tables for tests: written by deltalake, or as a log of JSON lines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}


def rows(first: int, count: int = 4) -> pa.Table:
    """Rows with consecutive numbers in x, which say where they were learned."""
    x = range(first, first + count)
    return pa.table({"y": [n % 2 for n in x], "x": [float(n) for n in x]})


def metadata(
    partitions: Sequence[str] = (), columns: Sequence[str] = ("y", "x"), **configuration: str
) -> dict[str, Any]:
    """A metaData action."""
    fields = [
        {"name": name, "type": "double", "nullable": True, "metadata": {}} for name in columns
    ]
    return {
        "metaData": {
            "id": "11111111-2222-3333-4444-555555555555",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": list(partitions),
            "configuration": {
                key.replace("__", "."): value for key, value in configuration.items()
            },
        }
    }


def add(
    path: str,
    *,
    changes: bool = True,
    partitions: Mapping[str, str | None] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """An add action."""
    fields = {
        "path": path,
        "partitionValues": dict(partitions or {}),
        "size": 1000,
        "modificationTime": 5,
        "dataChange": changes,
    }
    return {"add": {**fields, **more}}


def remove(path: str, *, changes: bool = True, **more: Any) -> dict[str, Any]:
    """A remove action."""
    return {"remove": {"path": path, "deletionTimestamp": 5, "dataChange": changes, **more}}


def commit(root: Path, version: int, *actions: Mapping[str, Any] | str) -> Path:
    """Write a commit; a text is a line as it is."""
    path = root / "_delta_log" / f"{version:020d}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [one if isinstance(one, str) else json.dumps(one) for one in actions]
    path.write_text("\n".join(lines) + "\n")
    return path


def shard(root: Path, name: str, first: int = 0) -> str:
    """Write a data file; its name."""
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows(first), str(root / name))
    return name


def table(root: Path, *actions: Mapping[str, Any] | str, **configuration: str) -> Path:
    """A table of one commit with these actions."""
    commit(root, 0, PROTOCOL, metadata(**configuration), *actions)
    return root
