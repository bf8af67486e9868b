"""encode: one record batch of a shard to one batch of canonical rows, or to its first bad row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.batch import Batch, DenseBatch, Floats, SparseBatch
from streamomd.features.bad import Bad
from streamomd.features.canonical import Csr, canonical
from streamomd.features.hashed import categories
from streamomd.features.labels import labels, weights
from streamomd.features.names import Names
from streamomd.features.numeric import matrix, numbers, vectors
from streamomd.features.plan import Plan
from streamomd.features.sparse import sparse


def encode(
    plan: Plan,
    batch: pa.RecordBatch,
    *,
    shard: str,
    row: int,
    labelled: bool = True,
    names: Names | None = None,
) -> Batch:
    """The batch's rows as the engine learns them: all of them, or none.

    batch: columns by name, of a shard that ``check_schema`` has accepted. row: the place of its
    first row in the shard, from 0. labelled False: no label or weight is read; y is 0, weight 1.
    names: told of each hashed value. Values are float32 if all numbers are stored so, else float64.
    Raises BadRowError for the first bad row; in it label, weight, then features are looked at.
    """
    bad: Bad | None = None
    while True:
        try:
            encoded = _encode(plan, batch, labelled, names)
        except Bad as found:
            # One column at a time finds its first bad row; only rows before that one can be
            # earlier, so look at those alone until they are all good.
            bad, batch = found, batch.slice(0, found.row)
            continue
        if bad is not None:
            raise bad.told(shard, row) from None
        return encoded


def _encode(plan: Plan, batch: pa.RecordBatch, labelled: bool, names: Names | None) -> Batch:
    y, weight = _targets(plan, batch, labelled)
    dtype = _dtype(plan, batch)
    values = _dense(plan, batch, dtype)
    if plan.dense:
        return DenseBatch(values, y, weight)
    blocks = []
    if values.shape[1]:
        blocks.append(_uniform(values, np.arange(values.shape[1], dtype=np.int32)))
    if plan.hashed:
        blocks.append(_hashed(plan, batch, dtype, names))
    if plan.sparse:
        lists = (batch.column(plan.sparse.indices), batch.column(plan.sparse.values))
        blocks.append(
            sparse(*lists, plan.sparse, plan.sparse_offset - int(plan.bias), dtype, plan.largest)
        )
    return SparseBatch(*_joined(blocks), y, weight)


def _targets(plan: Plan, batch: pa.RecordBatch, labelled: bool) -> tuple[Floats, Floats]:
    rows = batch.num_rows
    if not labelled:
        return np.zeros(rows), np.ones(rows)
    y = labels(batch.column(plan.label), plan)
    if not plan.weight:
        return y, np.ones(rows)
    return y, weights(batch.column(plan.weight), plan.weight)


def _dtype(plan: Plan, batch: pa.RecordBatch) -> Any:
    """float32 if there are stored numbers and all are float32; categories fit either."""
    kinds = [batch.column(name).type for name in plan.numeric]
    kinds += [batch.column(vector.column).type.value_type for vector in plan.vectors]
    kinds += [batch.column(plan.sparse.values).type.value_type] if plan.sparse else []
    return np.float32 if kinds and all(kind == pa.float32() for kind in kinds) else np.float64


def _dense(plan: Plan, batch: pa.RecordBatch, dtype: Any) -> NDArray[Any]:
    rule = (plan.nulls, plan.largest)
    parts = [numbers(batch.column(name), name, *rule) for name in plan.numeric]
    parts += [vectors(batch.column(v.column), v.column, *rule) for v in plan.vectors]
    return matrix(parts, batch.num_rows, dtype)


def _hashed(plan: Plan, batch: pa.RecordBatch, dtype: Any, names: Names | None) -> Csr:
    columns = [categories(batch.column(name), name, plan, names) for name in plan.hashed]
    indices = np.sort(matrix(columns, batch.num_rows, np.int32), axis=1) - np.int32(plan.bias)
    rows = _uniform(np.ones(indices.shape, dtype), indices)
    return canonical(*rows) if (indices[:, 1:] == indices[:, :-1]).any() else rows


def _uniform(values: NDArray[Any], indices: NDArray[np.int32]) -> Csr:
    """Rows of one length as CSR; indices (n, w), or (w,) for all rows."""
    rows, width = values.shape
    places = np.broadcast_to(indices, (rows, width)).reshape(-1)
    return np.arange(rows + 1, dtype=np.int64) * width, places, values.reshape(-1)


def _joined(blocks: list[Csr]) -> Csr:
    """Blocks of ascending coordinates side by side, row by row."""
    if len(blocks) == 1:
        return blocks[0]
    indptr = sum((block[0] for block in blocks[1:]), blocks[0][0])
    indices = np.empty(indptr[-1], np.int32)
    values = np.empty(indptr[-1], blocks[0][2].dtype)
    for place, block in zip(_places(indptr, [b[0] for b in blocks]), blocks, strict=True):
        indices[place], values[place] = block[1], block[2]
    return indptr, indices, values


def _places(
    indptr: NDArray[np.int64], parts: list[NDArray[np.int64]]
) -> Iterable[NDArray[np.int64]]:
    """Where the entries of each block go."""
    start = indptr[:-1]
    for part in parts:
        counts = np.diff(part)
        yield np.arange(part[-1]) + np.repeat(start - part[:-1], counts)
        start = start + counts
