"""encode: one record batch of a shard to one batch of canonical rows, or to its first bad row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.core.batch import SHIFT, Batch, ColumnValues, DenseBatch, SparseBatch
from streamomd.core.profiling import Stage
from streamomd.core.scalars import hats_of
from streamomd.features.bad_rows import (
    BadRows,
    CheckedValues,
    Conflict,
    SkippedRows,
    note_conflicts,
)
from streamomd.features.buffers import empty
from streamomd.features.csr import Columns, Csr, canonical, counted_rows, indptr_of, joined
from streamomd.features.curves import PackedCurves, binned
from streamomd.features.grow_trees import Gone, values_of_trees, write_margins
from streamomd.features.hashed import (
    HashedValues,
    categories,
    cross_name,
    crossed,
    listed_categories,
)
from streamomd.features.labels import labels, weights
from streamomd.features.lists import of_one_length, sparse
from streamomd.features.names import Names
from streamomd.features.number_table import as_first, write_numbers
from streamomd.features.numeric import Numbers, missing, vectors
from streamomd.features.plan import Plan, number_at
from streamomd.features.text import counted, texts_of
from streamomd.features.times import date_parts, times


def category_columns(plan: Plan) -> tuple[str, ...]:
    """Names of what has categories, in the order of their keys: hashed columns, parts of dates and
    crosses, with one category a row; then hashed lists and texts."""
    listed = {*plan.hashed_lists}
    single = (name for name in plan.hashed if name not in listed)
    parts = (name for date in plan.dates for name in date.names)
    crosses = (cross_name(cross) for cross in plan.crosses)
    return (*single, *parts, *crosses, *plan.hashed_lists, *(text.column for text in plan.text))


def column_values(
    plan: Plan, columns: Mapping[str, pa.Array], table: Numbers, coordinates: Columns,
    lists: Sequence[Csr],
) -> ColumnValues:  # fmt: skip
    """Returns the values of rows that have been encoded. columns: numeric ones, as they are stored;
    table: their encoded numbers. coordinates: (features, rows), of those with one category a row,
    bias included; lists: of the others, bias not included."""
    rows = len(table)
    numbers = table[:, : len(plan.numeric)].astype(np.float64)
    for at, name in enumerate(plan.numeric):
        numbers[missing(columns[name]), at] = np.nan
    first, single = plan.hashed_offset, len(coordinates)
    places = np.arange(single, dtype=np.int64) << SHIFT
    keys = (coordinates.T + (places - first)).reshape(-1)
    if not lists:
        return ColumnValues(numbers, np.arange(rows + 1) * single, keys)
    row, values = [np.repeat(np.arange(rows), single)], [keys]
    for place, (indptr, indices, _) in enumerate(lists, single):
        row.append(np.repeat(np.arange(rows), np.diff(indptr)))
        values.append(indices + np.int64((place << SHIFT) + int(plan.bias) - first))
    every = np.concatenate(row)
    order = np.argsort(every, kind="stable")
    indptr = indptr_of(np.bincount(every, minlength=rows))
    return ColumnValues(numbers, indptr, np.concatenate(values)[order])


def encode(
    plan: Plan,
    batch: pa.RecordBatch,
    *,
    shard: str,
    row: int,
    labelled: bool = True,
    names: Names | None = None,
    conflicts: Sequence[Conflict] = (),
    dropped: NDArray[np.int64] | None = None,
    hashed: HashedValues | None = None,
) -> Batch:
    """The batch's rows as the engine learns them: all, or without the bad ones if the plan says so.

    batch: columns by name, of a shard that ``check_schema`` has accepted. row: the place of its
    first row in the shard, from 0. labelled False: no label or weight is read; y is 0, weight 1;
    and no row is skipped, because each needs a prediction.
    names: gets each hashed value. conflicts: rows that contradict their shard. dropped:
    places of rows that a filter dropped, which are not in ``batch`` and are counted as filtered.
    hashed: values that batches of the same row group had.
    Values are float32 if all numbers are stored so, else float64.
    Raises BadRowError for the first bad row, unless plan.on_bad_row is "skip"; in it label, weight,
    then features are checked.
    """
    skip = labelled and plan.on_bad_row == "skip"
    skipped_rows, error = SkippedRows(batch.num_rows, dropped), None
    growths = None
    while True:
        flaws = BadRows(batch.num_rows)
        note_conflicts(conflicts, flaws)
        conflicts = ()  # of the first time: their rows are skipped from then on
        if plan.learns and plan.trees is not None:
            growths = plan.trees.growth_of(shard, row + skipped_rows.places[: batch.num_rows])
        encoded = _encode(plan, batch, labelled, names, flaws, hashed, growths)
        if encoded is not None and not flaws:
            break
        if skip:
            batch = skipped_rows.filtered(batch, flaws.reasons)
        else:
            # Sums of lists are checked last: an earlier row may have one that is invalid.
            number = row + skipped_rows.place(flaws.first)
            error = flaws.error(shard, number, learning=labelled)
            batch = batch.slice(0, flaws.first)
    if error is not None:
        raise error
    return replace(encoded, skipped=skipped_rows.skipped) if skipped_rows else encoded


def empty_batch(plan: Plan, schema: pa.Schema) -> Batch:
    """A batch of no rows, of the kind that batches with this schema give; nothing is compiled."""
    dtype, none = _dtype(plan, schema), np.zeros(0)
    if plan.dense:
        width = plan.numbers + len(plan.indicators)
        return DenseBatch(np.zeros((0, width), dtype), none, none)
    return SparseBatch(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, dtype), none, none)


def _encode(
    plan: Plan, batch: pa.RecordBatch, labelled: bool, names: Names | None, flaws: BadRows,
    hashed: HashedValues | None, growths: NDArray[np.int64] | None,
) -> Batch | None:  # fmt: skip
    """The rows; None where ``flaws`` then has bad ones. growths: see ``write_margins``."""
    rows, dtype = batch.num_rows, _dtype(plan, batch.schema)
    with Stage("labels"):
        y = labels(batch.column(plan.label), plan, flaws) if labelled else np.zeros(rows)
        weighted = labelled and plan.weight
        weight = (
            weights(batch.column(plan.weight), plan.weight, flaws) if weighted else np.ones(rows)
        )
        timed = labelled and plan.time
        time = times(batch.column(plan.time), plan.time, flaws) if timed else None
    with Stage("numbers"):
        measured = {name: batch.column(name) for name in plan.measured}
        width = plan.numbers + (len(plan.indicators) if plan.dense else 0)
        table, gone = _numbers(
            plan, measured, empty(rows * width, dtype).reshape(rows, width), flaws
        )
        write_hats(plan, table, gone)
        if plan.dense:
            for at, which in enumerate(gone, plan.numbers):
                table[:, at] = which
            write_margins(plan, table, gone, growths=growths)
            values = _column_values(plan, measured, table, gone)
            return DenseBatch(table, y, weight, time=time, columns=values)
    with Stage("hash"):
        columns = {
            name: as_first(batch.column(name), plan.family(name), CheckedValues(flaws, name))
            for name in plan.categorical
        }  # lists as they are
    with Stage("texts"):
        texts = [
            texts_of(batch.column(text.column), CheckedValues(flaws, text.column))
            for text in plan.text
        ]
    with Stage("lists"):
        pair = None
        if plan.sparse is not None:
            lists = batch.column(plan.sparse.indices), batch.column(plan.sparse.values)
            offset = plan.sparse_offset - int(plan.bias)
            pair = sparse(*lists, plan.sparse, flaws, offset=offset, dtype=dtype, legal=plan.legal)
    if flaws:
        return None
    with Stage("gather"):
        with Stage("hash"):
            # Only now, so that names come from good rows alone.
            coordinates = _categories(plan, columns, binned(plan, table, gone), rows, names, hashed)
            listed = [
                listed_categories(columns[name], name, plan, names, dtype)
                for name in plan.hashed_lists
            ]
        with Stage("texts"):
            words = [
                counted(read, text, plan, dtype, names)
                for text, read in zip(plan.text, texts, strict=True)
            ]
        with Stage("numbers"):
            write_margins(plan, table, gone, coordinates, growths)
        blocks = _numbers_and_hashed(plan, table, words, coordinates, listed)
        blocks += [pair] if pair is not None else []
        blocks += [_indicators(plan, gone, dtype)] if gone else []
        values = _column_values(plan, measured, table, gone, coordinates, [*listed, *words])
        return SparseBatch(*joined(blocks), y, weight, time=time, columns=values)


def _column_values(
    plan: Plan, columns: Mapping[str, pa.Array], table: Numbers, gone: Gone,
    coordinates: Columns | None = None, lists: Sequence[Csr] = (),
) -> ColumnValues | None:  # fmt: skip
    """See ``column_values`` and ``values_of_trees``; None unless the plan asks for them."""
    if plan.tree_columns:
        values = values_of_trees(plan, table, gone, coordinates)
        return ColumnValues(values, np.zeros(len(table) + 1, np.int64), np.empty(0, np.int64))
    if not plan.column_values:
        return None
    if coordinates is None:
        coordinates = np.empty((0, len(table)), np.int32)
    coordinates = coordinates[: len(coordinates) - len(plan.pairs)]  # of columns that a user knows
    return column_values(plan, columns, table, coordinates, lists)


def _dtype(plan: Plan, schema: pa.Schema) -> Any:
    """float32 if there are stored numbers and all are float32; categories and counts fit either.
    A mean is a float64, and so are a hat and a margin.
    """
    if plan.means or plan.made:
        return np.float64
    columns = [*plan.numeric, *(vector.column for vector in plan.vectors)]
    columns += [plan.sparse.values] if plan.sparse else []
    if not columns or any(text.counts == "log" for text in plan.text):
        return np.float64
    kinds = (schema.field(name).type for name in columns)  # the first one usually says it
    return np.float32 if all(_element(kind) == pa.float32() for kind in kinds) else np.float64


def _element(kind: pa.DataType) -> pa.DataType:
    nested = pa.types.is_nested(kind)
    return kind.value_type if nested else kind


def _indicators(plan: Plan, gone: list[NDArray[np.bool_]], dtype: Any) -> Csr:
    """1 where a value is missing."""
    table = np.stack(gone, axis=1)
    indices = np.nonzero(table)[1] + (plan.indicator_offset - int(plan.bias))
    indptr = indptr_of(np.count_nonzero(table, axis=1))
    return indptr, indices.astype(np.int32), np.ones(len(indices), dtype)


def write_hats(plan: Plan, table: Numbers, gone: Sequence[NDArray[np.bool_]] = ()) -> None:
    """Write the hats of curves after the numbers of a matrix of rows. gone: where a value is
    missing, for each column with an indicator."""
    if not plan.curves:
        return
    from streamomd.features.kernels.write_columns import hat_writer  # late: it imports numba

    rows, width = table.shape
    packed = PackedCurves.of(plan.curves)
    hat_writer()(rows * len(plan.curves), *packed, width, plan.given_numbers, table.reshape(-1))
    if not gone:
        return
    missing_in = dict(zip(plan.indicators, gone, strict=True))
    for curve, places in hats_of(plan.curves, plan.given_numbers):
        column, _ = number_at(plan, curve.place)
        if column in missing_in:
            table[missing_in[column], places] = 0.0


def first_numbers(plan: Plan, batch: pa.RecordBatch) -> tuple[Numbers, NDArray[np.float64]]:
    """Numeric and vector coordinates of rows, NaN where one is missing, and the rows' weights, 0
    where one is invalid: what knots are chosen from. Bad values are not reported here."""
    rows, flaws = batch.num_rows, BadRows(batch.num_rows)
    table = np.empty((rows, plan.given_numbers))
    columns = {name: batch.column(name) for name in plan.measured}
    _numbers(replace(plan, nulls="mean", nulls_by=()), columns, table, flaws)
    weight = np.ones(rows)
    if plan.weight:
        weight = weights(batch.column(plan.weight), plan.weight, flaws)
    return table, np.where((weight > 0.0) & (weight < np.inf), weight, 0.0)


def _numbers(
    plan: Plan, columns: Mapping[str, pa.Array], table: Numbers, flaws: BadRows
) -> tuple[Numbers, list[NDArray[np.bool_]]]:
    """Write numbers and vectors to the first columns of a matrix (rows, …), and find where a value
    is missing, for each column with an indicator."""
    write_numbers(plan, [columns[name] for name in plan.numeric], table, flaws)
    wide = {
        name: of_one_length(columns[name], width, CheckedValues(flaws, name))
        for name, width in plan.vectors
    }
    at = len(plan.numeric)
    for name, array in wide.items():
        found = vectors(array, flaws, name, plan.nulls_of(name), plan.legal)
        table[:, at : at + found.shape[1]] = found
        at += found.shape[1]
    return table, [missing(wide.get(name, columns[name])) for name in plan.indicators]


def with_pairs_of_numbers(plan: Plan, table: Numbers) -> Csr:
    """Rows of numbers alone, their hats and margins written, with their pairs."""
    bins = binned(plan, table, ())
    return _numbers_counted(plan, table, _categories(plan, {}, bins, len(table), None, None))


def _numbers_counted(plan: Plan, table: Numbers, coordinates: Columns) -> Csr:
    """Rows of numbers, most of whose hats are 0, and of single categories."""
    hats, most = plan.numbers - plan.given_numbers, 2 * len(plan.curves) + plan.margins
    return counted_rows(table, coordinates, int(plan.bias), hats, most)


def _numbers_and_hashed(
    plan: Plan, table: Numbers, words: list[Csr], coordinates: Columns, lists: list[Csr]
) -> list[Csr]:
    """Blocks of numbers and of hashed features, where equal coordinates are summed:
    categories first, then texts in order.
    """
    bias = int(plan.bias)
    if not words and not lists:
        return (
            [_numbers_counted(plan, table, coordinates)] if plan.numbers or len(coordinates) else []
        )
    nothing = table[:, :0]
    hashed = [counted_rows(nothing, coordinates, bias)] if len(coordinates) else []
    hashed += [*lists, *words]
    block = canonical(*joined(hashed)) if lists or len(hashed) > 1 else hashed[0]
    return [_numbers_counted(plan, table, coordinates[:0]), block] if plan.numbers else [block]


def _categories(
    plan: Plan, columns: Mapping[str, pa.Array], bins: Mapping[str, pa.Array], rows: int,
    names: Names | None, hashed: HashedValues | None,
) -> Columns:  # fmt: skip
    """The coordinates of features with one category per row, (features, rows): columns, parts of
    dates, crosses, pairs. bins: numbers as categories."""
    parts: dict[str, pa.Array] = {}
    for date in plan.dates:
        parts |= date_parts(columns[date.column], date)
    listed = {*plan.hashed_lists}
    alone = {name: columns[name] for name in plan.hashed if name not in listed} | parts
    count = len(alone) + len(plan.crossed)
    found = empty(count * rows, np.int32).reshape(count, rows)
    for (name, array), out in zip(alone.items(), found, strict=False):
        categories(array, name, plan, names, out, hashed)
    given = {**columns, **parts, **bins}
    for cross, out in zip(plan.crossed, found[len(alone) :], strict=True):
        out[:] = crossed(cross, [given[name] for name in cross], plan, names)
    return found
