"""Frames and arrays in memory as batches for the engine: frames through Arrow, arrays directly.

These batches have no labels: y is 0, weight 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.core.batch import Batch, ColumnValues, DenseBatch, SparseBatch, check, joined_rows
from streamomd.core.errors import BadRowError, DataError, SchemaError, UsageError
from streamomd.core.message import Message, Words, joined
from streamomd.core.wording import it_or_them, missing_columns
from streamomd.features import Names, Plan, check_schema, encode
from streamomd.features.arrow_types import family, named
from streamomd.features.bad_rows import DROP, of_memory
from streamomd.features.csr import canonical
from streamomd.features.encode import first_numbers, with_pairs_of_numbers, write_hats
from streamomd.features.grow_trees import ROWS, write_margins
from streamomd.features.number_table import may_differ
from streamomd.features.numeric import ANYTHING, expected, unfit
from streamomd.sources.memory.frames import arrow_of, batches, names_of, without_null_types

UNIT_BYTES = 4 << 20
KINDS = (np.float64, np.float32)
TAKEN = (
    "a pandas or polars DataFrame, an Arrow table or record batch, a dict, a list of dicts, a "
    "SciPy CSR matrix or a numpy array (rows, columns)"
)


def batch_of_memory(
    plan: Plan, rows: Any, where: str = "rows", names: Names | None = None
) -> Batch:
    """A frame, a table, a matrix or a CSR matrix as a batch; names: records hashed values.

    Raises SchemaError for columns that are not the plan's, BadRowError for the first bad row,
    DataError for arrays of another shape or type, UsageError for anything else.
    """
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table) or names_of(rows):
        return batch_of_frame(plan, rows, names, where)
    # Any sparse matrix: rows are what is needed, and CSR has them.
    if hasattr(rows, "tocsr") and rows.format != "csr":
        rows = rows.tocsr()
    shape = getattr(rows, "shape", ())
    if len(shape) != 2 or not hasattr(rows, "dtype"):
        hint = "; an array has shape (rows, columns)" if len(shape) == 1 else ""
        raise UsageError(f"{where} is a {type(rows).__name__}, expected {TAKEN}{hint}")
    if not takes_arrays(plan):
        raise UsageError(
            f"{where} is a {type(rows).__name__}, and some columns are hashed or lists, which are "
            f"matched by name: pass a frame or dicts with columns {', '.join(plan.features)}"
        )
    return _checked(plan, rows, where)


def values_of_columns(plan: Plan, given: Mapping[str, Any], where: str) -> ColumnValues | None:
    """The values of columns, for alerts. given: those of each feature, None or NaN if missing.

    Raises DataError for a column of several types.
    """
    try:
        table = pa.table({name: pa.array(one, from_pandas=True) for name, one in given.items()})
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise DataError(
            f"{where}: [alert] compares columns, and one has values of several types: {error}; "
            "pass a DataFrame, or values of one type in each column"
        ) from None
    return batch_of_memory(plan, table, where).columns


def row_dicts(plan: Plan, rows: Any, where: str) -> list[dict[str, Any]]:
    """The rows that ``batch_of_memory`` takes as mappings from the plan's columns to values."""
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table) or names_of(rows):
        table = without_null_types(arrow_of(rows, where), plan.families)
        refuse_columns(plan, table.schema, where)
        found: list[dict[str, Any]] = table.select([*plan.features]).to_pylist()
        return found
    batch = batch_of_memory(plan, rows, where)
    some = [_entries(batch, row) for row in range(len(batch))]
    if plan.sparse is not None:
        return [dict(zip(plan.sparse[:2], pair, strict=True)) for pair in some]
    table = np.zeros((len(some), plan.size - int(plan.bias)))
    for row, (indices, values) in enumerate(some):
        table[row, indices] = values
    table = table[:, : plan.given_numbers]
    if plan.vectors:
        return [{plan.vectors[0].column: values} for values in table]
    return [dict(zip(plan.numeric, values, strict=True)) for values in table.tolist()]


def _entries(batch: Batch, row: int) -> tuple[Any, Any]:
    """The columns and values of a row that are not 0."""
    if isinstance(batch, DenseBatch):
        used = np.flatnonzero(batch.values[row])
        return used, batch.values[row, used]
    at = slice(batch.indptr[row], batch.indptr[row + 1])
    return batch.indices[at], batch.values[at]


def is_framed(plan: Plan) -> bool:
    """Whether rows of this plan need named columns instead of one array."""
    several = len(plan.vectors) + (plan.sparse is not None) > 1
    return bool(plan.numeric or plan.categorical or plan.text or several)


def takes_arrays(plan: Plan) -> bool:
    """Whether column c of an array is coordinate c, or c + 1 with a bias."""
    numeric = not (plan.categorical or plan.text or plan.sparse or plan.vectors)
    return not is_framed(plan) or (numeric and not plan.indicators)


def batch_of_frame(plan: Plan, frame: Any, names: Names | None = None, where: str = "X") -> Batch:
    """A frame with rows, or a table made of one, encoded as ``streamomd.train`` does its Parquet.

    Raises SchemaError for columns that are not the plan's, BadRowError for the first bad row.
    """
    return batch_of_table(
        plan, without_null_types(arrow_of(frame, where), plan.families), where, names
    )


def batch_of_table(plan: Plan, table: pa.Table, where: str, names: Names | None = None) -> Batch:
    """A table of Arrow's, encoded; other columns than the plan's features are ignored."""
    refuse_columns(plan, table.schema, where)
    check_schema(plan, table.schema, where, labelled=False)
    table = table.select([*plan.features])
    units = batches(table, 0, UNIT_BYTES) if table.num_rows else [(0, _no_rows(table))]
    try:
        return joined_rows(
            [
                encode(plan, rows, shard=where, row=row, labelled=False, names=names)
                for row, rows in units
            ]
        )
    except BadRowError as error:
        raise of_memory(error, where) from None


def refuse_columns(plan: Plan, schema: pa.Schema, where: str) -> None:
    """Raises SchemaError that names all missing columns and all of another type."""
    features = dict.fromkeys(plan.features)
    types = {column.name: column for column in plan.types if column.name in features}
    missing = [name for name in types if name not in schema.names]
    if missing:
        text = missing_columns(missing, schema.names, where)
        form = "{found}: rename or add what is missing"
        raise SchemaError(Message("missing_column", form, column=missing[0], found=text))
    wrong: dict[str, Words] = {}
    for name, column in types.items():
        kind = schema.field(name).type if schema.names.count(name) == 1 else None
        # Two columns of one name are reported elsewhere, with the name.
        if kind is None or family(kind) == column.family:
            continue
        if not may_differ(plan, name, column.family, family(kind)):
            pair = named(kind), named(column.type)
            wrong[name] = (f"column {name!r} is ", pair[0], ", the model was trained on ", pair[1])
    if wrong:
        them, every = it_or_them(len(wrong)), joined(wrong.values(), "; ")
        form = f"{{shard}}: {{found}}: convert {them} to that type"
        raise SchemaError(
            Message("wrong_type", form, shard=where, column=next(iter(wrong)), found=every)
        )


def batch_of_array(plan: Plan, X: Any, where: str = "X") -> Batch:
    """A matrix or CSR matrix of finite float32 or float64, equal indices of a row summed; curves
    get their hats, trees their margins.

    Raises DataError for numbers that the plan's slots cannot hold, or out of the rule's range.
    """
    blank = np.zeros(X.shape[0]), np.ones(X.shape[0])
    if plan.made or plan.pairs:
        X = X.toarray() if hasattr(X, "indptr") else X
    batch: Batch
    if hasattr(X, "indptr"):
        places = X.indptr.astype(np.int64, copy=False), X.indices.astype(np.int32, copy=False)
        batch = SparseBatch(*canonical(*places, X.data), *blank)
    else:
        batch = DenseBatch(_without_missing(plan, np.ascontiguousarray(X)), *blank)
    if batch.values is X.data and plan.legal == ANYTHING:
        return _with_made(plan, batch, where)  # the caller has checked that they are finite
    values = batch.values.reshape(-1)
    # The engine puts means in their place; all other NaN were refused before.
    values = values[~np.isnan(values)] if plan.means else values
    for reason, bad in unfit(values, plan.legal):
        if len(bad):
            wanted = f"a number that {plan.dtype} can hold"
            wanted = expected(plan.legal) if reason == "out_of_range" else wanted
            other = 'take dtype="float64"' if plan.dtype == "float32" else "choose another rule"
            value = values[bad[0]].item()
            raise DataError(
                f"{where} holds {value!r}, expected {wanted}: scale that column, or {other}"
            )
    return _with_made(plan, batch, where)


def _with_made(plan: Plan, batch: Batch, where: str) -> Batch:
    if not (plan.made or plan.pairs) or not isinstance(batch, DenseBatch):
        return batch
    table = np.empty((len(batch), plan.numbers))
    table[:, : plan.given_numbers] = batch.values
    write_hats(plan, table)
    growths = None
    if plan.learns and plan.trees is not None:
        # Rows that are learned: each has the trees of earlier rows.
        growths = plan.trees.growth_of(where, np.arange(len(batch)))
    write_margins(plan, table, growths=growths)
    if not plan.pairs:
        return replace(batch, values=table)
    return SparseBatch(*with_pairs_of_numbers(plan, table), batch.y, batch.weight)


def numbers_of_memory(plan: Plan, rows: Any) -> NDArray[np.float64]:
    """Numeric and vector coordinates of a table or matrix, NaN where one is missing."""
    if not isinstance(rows, pa.Table):
        return np.asarray(rows, np.float64)
    some = rows.select([*plan.measured])
    return np.concatenate(
        [first_numbers(plan, part)[0] for _, part in batches(some, 0, UNIT_BYTES)]
    )


def first_values_of_trees(plan: Plan, rows: Any) -> NDArray[np.float64]:
    """What trees read of the first rows of a table or matrix, see ``values_of_trees``."""
    if not isinstance(rows, pa.Table):
        return _without_missing(plan, np.asarray(rows[:ROWS], np.float64))
    some = batch_of_table(replace(plan, tree_columns=True), rows.slice(0, ROWS), "X")
    assert some.columns is not None
    return some.columns.numbers


def _without_missing(plan: Plan, X: NDArray[Any]) -> NDArray[Any]:
    """NaN is 0 with nulls="zero"; with "mean" it stays, and the engine knows the mean."""
    if plan.means:
        return X.astype(np.float64, copy=False)
    return np.where(np.isnan(X), X.dtype.type(0), X) if plan.nulls == "zero" else X


def _checked(plan: Plan, rows: Any, where: str) -> Batch:
    """An array as a batch, its shape, type and numbers checked."""
    width = plan.given_numbers + (plan.sparse.size if plan.sparse else 0)
    if rows.shape[1] != width:
        raise DataError(f"{where} has {rows.shape[1]} columns, the model was trained on {width}")
    if rows.dtype not in KINDS:
        if rows.dtype.kind not in "biuf":
            raise DataError(f"{where} is of {rows.dtype}, expected numbers: float64 or float32")
        # Whole numbers and booleans, which float32 might round.
        rows = rows.astype(np.float64)
    if hasattr(rows, "indptr"):
        bad = ~np.isfinite(rows.data)
    else:
        bad = ~np.isfinite(rows) & ~_missing_allowed(plan, rows)
    if bad.any():
        raise _not_finite(plan, rows, bad, where)
    batch = batch_of_array(plan, rows, where)
    known = np.nan_to_num(batch.values, nan=0.0) if plan.means else batch.values
    check(replace(batch, values=known), plan.size, bias=plan.bias)
    return batch


def _missing_allowed(plan: Plan, rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Where NaN is a missing value that the model fills in, (rows, columns)."""
    filled = np.zeros(rows.shape[1], np.bool_)
    filled[list(plan.means)] = True
    found: NDArray[np.bool_] = np.isnan(rows) & (filled | (plan.nulls == "zero"))
    return found


def _not_finite(plan: Plan, rows: Any, bad: NDArray[np.bool_], where: str) -> BadRowError:
    """The error of the first number that is NaN or infinite."""
    if hasattr(rows, "indptr"):
        at = int(np.flatnonzero(bad)[0])
        row, column = int(np.searchsorted(rows.indptr, at, side="right")) - 1, int(rows.indices[at])
        value = rows.data[at].item()
    else:
        row, column = np.argwhere(bad)[0].tolist()
        value = rows[row, column].item()
    name = f", {plan.numeric[column]!r}" if plan.numeric else ""
    return BadRowError(
        Message(
            "nan" if np.isnan(value) else "inf",
            "{shard}, row {row}, column {column}: found {found}, expected {expected}: {remedy}",
            shard=where,
            row=row,
            column=f"{column}{name}",
            found=repr(value),
            expected="a finite number",
            remedy=DROP,
        )
    )


def _no_rows(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=table.schema)
