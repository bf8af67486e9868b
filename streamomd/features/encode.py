"""encode: one record batch of a shard to one batch of canonical rows, or to its first bad row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.batch import Batch, DenseBatch, Floats, SparseBatch
from streamomd.features.bad import Cells, Flaws, LeftOut
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
    """The batch's rows as the engine learns them: all, or without the bad ones if the plan says so.

    batch: columns by name, of a shard that ``check_schema`` has accepted. row: the place of its
    first row in the shard, from 0. labelled False: no label or weight is read; y is 0, weight 1;
    and no row is left out, for each is to be answered.
    names: told of each hashed value. Values are float32 if all numbers are stored so, else float64.
    Raises BadRowError for the first bad row, unless plan.on_bad_row is "skip"; in it label, weight,
    then features are looked at.
    """
    skip = labelled and plan.on_bad_row == "skip"
    left_out, error = LeftOut(batch.num_rows), None
    while True:
        flaws = Flaws(batch.num_rows)
        encoded = _encode(plan, batch, labelled, names, flaws)
        if encoded is not None and not flaws:
            break
        if skip:
            batch = left_out.filtered(batch, flaws.reasons)
        else:
            # What shows only once lists are summed may be wrong with a row before.
            error, batch = flaws.told(shard, row), batch.slice(0, flaws.first)
    if error is not None:
        raise error
    return replace(encoded, skipped=left_out.skipped) if left_out else encoded


def _encode(
    plan: Plan, batch: pa.RecordBatch, labelled: bool, names: Names | None, flaws: Flaws
) -> Batch | None:
    """None where flaws were noted on the way."""
    y, weight = _targets(plan, batch, labelled, flaws)
    dtype = _dtype(plan, batch)
    values = _dense(plan, batch, dtype, flaws)
    if plan.dense:
        return DenseBatch(values, y, weight)
    pair = _pair(plan, batch, dtype, flaws)
    if flaws:
        return None
    blocks = []
    if values.shape[1]:
        blocks.append(_uniform(values, np.arange(values.shape[1], dtype=np.int32)))
    if plan.hashed:
        blocks.append(_hashed(plan, batch, dtype, names))
    blocks += [pair] if pair is not None else []
    return SparseBatch(*_joined(blocks), y, weight)


def _targets(
    plan: Plan, batch: pa.RecordBatch, labelled: bool, flaws: Flaws
) -> tuple[Floats, Floats]:
    rows = batch.num_rows
    if not labelled:
        return np.zeros(rows), np.ones(rows)
    y = labels(batch.column(plan.label), plan, flaws)
    if not plan.weight:
        return y, np.ones(rows)
    return y, weights(batch.column(plan.weight), plan.weight, flaws)


def _dtype(plan: Plan, batch: pa.RecordBatch) -> Any:
    """float32 if there are stored numbers and all are float32; categories fit either."""
    kinds = [batch.column(name).type for name in plan.numeric]
    kinds += [batch.column(vector.column).type.value_type for vector in plan.vectors]
    kinds += [batch.column(plan.sparse.values).type.value_type] if plan.sparse else []
    return np.float32 if kinds and all(kind == pa.float32() for kind in kinds) else np.float64


def _dense(plan: Plan, batch: pa.RecordBatch, dtype: Any, flaws: Flaws) -> NDArray[Any]:
    rule = (plan.nulls, plan.largest)
    parts = [numbers(batch.column(name), Cells(flaws, name), *rule) for name in plan.numeric]
    parts += [vectors(batch.column(v.column), flaws, v.column, *rule) for v in plan.vectors]
    return matrix(parts, batch.num_rows, dtype)


def _pair(plan: Plan, batch: pa.RecordBatch, dtype: Any, flaws: Flaws) -> Csr | None:
    if plan.sparse is None:
        return None
    lists = (batch.column(plan.sparse.indices), batch.column(plan.sparse.values))
    offset = plan.sparse_offset - int(plan.bias)
    return sparse(*lists, plan.sparse, flaws, offset=offset, dtype=dtype, largest=plan.largest)


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
