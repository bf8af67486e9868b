"""encode: one record batch of a shard to one batch of canonical rows, or to its first bad row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.core.batch import Batch, DenseBatch, Floats, SparseBatch
from streamomd.core.profiling import Stage
from streamomd.features.bad_rows import BadRows, CheckedValues, SkippedRows
from streamomd.features.canonical import Csr, canonical
from streamomd.features.crosses import crossed
from streamomd.features.csr import counted_rows, indptr_of, joined
from streamomd.features.dates import date_parts
from streamomd.features.hashed import categories
from streamomd.features.labels import labels, weights
from streamomd.features.names import Names
from streamomd.features.numeric import Numbers, matrix, missing, numbers, vectors
from streamomd.features.plan import Plan
from streamomd.features.sparse_pairs import sparse
from streamomd.features.text import Texts, counted, texts_of


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
    left_out, error = SkippedRows(batch.num_rows), None
    while True:
        flaws = BadRows(batch.num_rows)
        encoded = _encode(plan, batch, labelled, names, flaws)
        if encoded is not None and not flaws:
            break
        if skip:
            batch = left_out.filtered(batch, flaws.reasons)
        else:
            # What shows only once lists are summed may be wrong with a row before.
            error, batch = flaws.told(shard, row, learning=labelled), batch.slice(0, flaws.first)
    if error is not None:
        raise error
    return replace(encoded, skipped=left_out.skipped) if left_out else encoded


def _encode(
    plan: Plan, batch: pa.RecordBatch, labelled: bool, names: Names | None, flaws: BadRows
) -> Batch | None:
    """None where flaws were noted on the way."""
    with Stage("labels"):
        y, weight = _targets(plan, batch, labelled, flaws)
    dtype = _dtype(plan, batch)
    with Stage("numbers"):
        parts = _numbers(plan, batch, flaws)
    if plan.dense:
        with Stage("gather"):
            return DenseBatch(matrix(parts, batch.num_rows, dtype), y, weight)
    with Stage("texts"):
        texts = [
            texts_of(batch.column(text.column), CheckedValues(flaws, text.column))
            for text in plan.text
        ]
    with Stage("lists"):
        pair = _pair(plan, batch, dtype, flaws)
    if flaws:
        return None
    with Stage("gather"):
        blocks = _numbers_and_hashed(plan, batch, parts, texts, dtype, names)
        blocks += [pair] if pair is not None else []
        blocks += [_indicators(plan, batch, dtype)] if plan.indicators else []
        return SparseBatch(*joined(blocks), y, weight)


def _targets(
    plan: Plan, batch: pa.RecordBatch, labelled: bool, flaws: BadRows
) -> tuple[Floats, Floats]:
    rows = batch.num_rows
    if not labelled:
        return np.zeros(rows), np.ones(rows)
    y = labels(batch.column(plan.label), plan, flaws)
    if not plan.weight:
        return y, np.ones(rows)
    return y, weights(batch.column(plan.weight), plan.weight, flaws)


def _dtype(plan: Plan, batch: pa.RecordBatch) -> Any:
    """float32 if there are stored numbers and all are float32; categories and counts fit either."""
    kinds = [batch.column(name).type for name in plan.numeric]
    kinds += [batch.column(vector.column).type.value_type for vector in plan.vectors]
    kinds += [batch.column(plan.sparse.values).type.value_type] if plan.sparse else []
    kinds += [pa.float64() for text in plan.text if text.counts == "log"]
    return np.float32 if kinds and all(kind == pa.float32() for kind in kinds) else np.float64


def _numbers(plan: Plan, batch: pa.RecordBatch, flaws: BadRows) -> list[Numbers]:
    rule = (plan.nulls, plan.legal)
    parts = [
        numbers(batch.column(name), CheckedValues(flaws, name), *rule) for name in plan.numeric
    ]
    parts += [vectors(batch.column(v.column), flaws, v.column, *rule) for v in plan.vectors]
    return parts + (_missing(plan, batch) if plan.dense else [])


def _missing(plan: Plan, batch: pa.RecordBatch) -> list[NDArray[np.bool_]]:
    return [missing(batch.column(name)) for name in plan.indicators]


def _indicators(plan: Plan, batch: pa.RecordBatch, dtype: Any) -> Csr:
    """1 where a value is missing."""
    gone = np.stack(_missing(plan, batch), axis=1)
    indices = np.nonzero(gone)[1] + (plan.indicator_offset - int(plan.bias))
    indptr = indptr_of(np.count_nonzero(gone, axis=1))
    return indptr, indices.astype(np.int32), np.ones(len(indices), dtype)


def _pair(plan: Plan, batch: pa.RecordBatch, dtype: Any, flaws: BadRows) -> Csr | None:
    if plan.sparse is None:
        return None
    lists = (batch.column(plan.sparse.indices), batch.column(plan.sparse.values))
    offset = plan.sparse_offset - int(plan.bias)
    return sparse(*lists, plan.sparse, flaws, offset=offset, dtype=dtype, legal=plan.legal)


def _numbers_and_hashed(
    plan: Plan, batch: pa.RecordBatch, parts: list[Numbers], texts: list[Texts], dtype: Any,
    names: Names | None,
) -> list[Csr]:  # fmt: skip
    """Blocks of numbers and of all that is hashed, of which equal coordinates are summed:
    categories first, then texts in order.
    """
    of = batch.num_rows, dtype, int(plan.bias)
    with Stage("hash"):
        columns = _categories(plan, batch, names)
    if not texts:
        return [counted_rows(parts, columns, *of)] if parts or columns else []
    hashed = [counted_rows([], columns, *of)] if columns else []
    for text, read in zip(plan.text, texts, strict=True):
        with Stage("texts"):
            hashed.append(counted(read, text, plan, dtype, names))
    block = canonical(*joined(hashed)) if len(hashed) > 1 else hashed[0]
    return [counted_rows(parts, [], *of), block] if parts else [block]


def _categories(plan: Plan, batch: pa.RecordBatch, names: Names | None) -> list[NDArray[np.int32]]:
    """The coordinates of what is one category a row: columns, parts of dates, crosses."""
    parts: dict[str, pa.Array] = {}
    for date in plan.dates:
        parts |= date_parts(batch.column(date.column), date)
    alone = {name: batch.column(name) for name in plan.hashed} | parts
    found = [categories(array, name, plan, names) for name, array in alone.items()]
    for cross in plan.crosses:
        arrays = [parts[name] if name in parts else batch.column(name) for name in cross]
        found.append(crossed(cross, arrays, plan, names))
    return found
