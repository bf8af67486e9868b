"""Numeric columns read by compiled code: every type, every way to store it, every kind of null."""

from __future__ import annotations

import decimal
import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamomd.config.data_table import Data
from streamomd.config.model_table import Model
from streamomd.core.batch import REASONS
from streamomd.core.errors import BadRowError
from streamomd.features import encode, make_plan, number_table
from streamomd.features.csr import counted_rows
from streamomd.features.kernels import write_columns
from streamomd.features.kernels.csr_passes import exchanges

ROWS = 200
WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
TYPES = [getattr(pa, name)() for name in (*WHOLE, "float16", "float32", "float64", "bool_")]
TYPES += [pa.decimal128(9, 2), pa.dictionary(pa.int8(), pa.int64()), pa.duration("ms")]
POLICIES = ("error", "zero", "indicator", "mean")
ALWAYS, NEVER = 0, 1 << 60


def drawn(kind: pa.DataType, rng: np.random.Generator, rows: int) -> list[Any]:
    """Values of a type, most of them ordinary, some null or at the type's ends."""
    some = rng.integers(0, 100, rows).tolist()
    if pa.types.is_boolean(kind):
        made = [value % 2 == 0 for value in some]
    elif pa.types.is_decimal(kind):
        made = [decimal.Decimal(value) / 4 for value in some]
    elif pa.types.is_floating(kind):
        odd = [math.nan, math.inf, -math.inf, -0.0, float(np.finfo(kind.to_pandas_dtype()).max)]
        made = [odd[value] if value < len(odd) else value / 8 - 5 for value in some]
    elif str(kind) in WHOLE:
        ends = np.iinfo(str(kind))
        odd = [int(ends.max), int(ends.min), 2**53, 2**53 + 1, -(2**53) - 1, 2**53 + 2]
        odd = [value for value in odd if ends.min <= value <= ends.max]
        made = [odd[value] if value < len(odd) else value for value in some]
    else:
        made = some
    return [None if null else value for value, null in zip(made, rng.random(rows) < 0.05, strict=1)]


def judged(value: Any, policy: str, plan: Any, *, in_seconds: bool) -> tuple[float, str]:
    """The number that a value becomes, or the reason why its row is bad: from the definition."""
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    if missing and policy == "mean":
        return math.nan, ""
    if missing and policy == "indicator":
        return 0.0, ""
    if value is None:
        return 0.0, "null" if policy == "error" else ""
    if missing:
        return 0.0, "nan"
    if isinstance(value, float) and math.isinf(value):
        return 0.0, "inf"
    if isinstance(value, int) and int(float(value)) != value:
        return 0.0, "overflow"
    if value and not plan.limits.least <= abs(value) <= plan.limits.most:
        return 0.0, "out_of_range"
    return float(value) / (1000.0 if in_seconds else 1.0), ""


def stored(kind: pa.DataType, values: list[Any], offset: int) -> pa.Array:
    """The values as a slice of a longer array."""
    if pa.types.is_floating(kind):
        padded = [1.0] * offset + values
        plain = np.array([0 if v is None else v for v in padded], kind.to_pandas_dtype())
        return pa.array(plain, mask=np.array([v is None for v in padded], bool)).slice(offset)
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    padded = pa.array([None] * offset + values, inner)
    return (padded if inner == kind else padded.dictionary_encode().cast(kind)).slice(offset)


def batch_of(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    rows = len(next(iter(columns.values())))
    return pa.RecordBatch.from_pydict({"y": pa.array(np.arange(rows) % 2), **columns})


def plan_of(batch: pa.RecordBatch, policy: str, bad: str, **data: Any) -> Any:
    named = {"label": "y", "numeric": ["a", "b", "c"], "nulls": policy, "on_bad_row": bad, **data}
    model = Model.model_validate({"loss": "logistic"})
    return make_plan(Data.model_validate(named), model, batch.schema, lambda: [0, 1])


def message_of(plan: Any, batch: pa.RecordBatch) -> str:
    try:
        encode(plan, batch, shard="s", row=7)
    except BadRowError as error:
        return f"{error.reason}: {error}"
    return ""


def check_type(kind: pa.DataType, policy: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are those of the definition; messages are those of numpy's slower way."""
    rng = np.random.default_rng([len(str(kind)), len(policy), rows])
    values = {name: drawn(kind, rng, rows) for name in "abc"}
    if pa.types.is_float16(kind) or pa.types.is_float32(kind):
        narrow = kind.to_pandas_dtype()
        values = {
            name: [None if value is None else float(narrow(value)) for value in column]
            for name, column in values.items()
        }
    offsets = {"a": 0, "b": 3, "c": 9}
    batch = batch_of({name: stored(kind, values[name], offsets[name]) for name in "abc"})
    skipping = plan_of(batch, policy, "skip")
    monkeypatch.setattr(number_table, "COMPILED_FROM", ALWAYS)
    made = encode(skipping, batch, shard="s", row=0)
    expected, bad, seconds = [], {}, pa.types.is_duration(kind)
    for row, three in enumerate(zip(*values.values(), strict=True)):
        found = [judged(one, policy, skipping, in_seconds=seconds) for one in three]
        if reasons := [reason for _, reason in found if reason]:
            bad[row] = reasons[0]
            continue
        missing = [one is None or one != one for one in three] if policy == "indicator" else []
        expected.append([number for number, _ in found] + [float(one) for one in missing])
    assert np.array_equal(made.values, np.array(expected).reshape(made.values.shape), True)
    signs = np.signbit(np.array(expected).reshape(made.values.shape))
    assert np.array_equal(
        np.signbit(np.nan_to_num(made.values)), signs & (made.values == made.values)
    )
    assert made.values.dtype == (np.float32 if kind == pa.float32() and policy != "mean" else float)
    assert dict(zip(made.skipped.places.tolist(), made.skipped.reasons.tolist(), strict=True)) == {
        row: REASONS.index(reason) for row, reason in bad.items()
    }
    raising = plan_of(batch, policy, "error")
    message = message_of(raising, batch)
    monkeypatch.setattr(number_table, "COMPILED_FROM", NEVER)
    assert message == message_of(raising, batch)
    assert bool(message) == bool(bad)
    slow = encode(skipping, batch, shard="s", row=0)
    assert (slow.values.dtype, slow.values.shape) == (made.values.dtype, made.values.shape)
    assert np.array_equal(slow.values, made.values, equal_nan=True)


def uncompiled(stored: str, made: str) -> Any:
    return write_columns.write_columns


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_type_and_its_nulls(
    kind: pa.DataType, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every type in slices with nulls, NaN and infinities: the rows of the definition."""
    monkeypatch.setattr(write_columns, "column_writer", uncompiled)
    for rows in (1, ROWS):
        check_type(kind, policy, rows, monkeypatch)


@pytest.mark.slow  # a loop for each type is compiled
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_type_and_its_nulls_compiled(
    kind: pa.DataType, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, by the compiled loop, in batches of every length around a tile's."""
    for rows in (0, 1, 63, 64, 65, 1000):
        check_type(kind, policy, rows, monkeypatch)


def test_columns_of_all_types_stand_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """More columns than a tile has, of types in turn, with a vector and a category after them."""
    monkeypatch.setattr(number_table, "COMPILED_FROM", ALWAYS)
    monkeypatch.setattr(write_columns, "column_writer", uncompiled)
    rng, rows = np.random.default_rng(0), 130
    kinds = [pa.int64(), pa.float32(), pa.bool_(), pa.int8()]
    columns = {
        f"x{k}": pa.array(rng.integers(0, 2, rows)).cast(kinds[k % len(kinds)]) for k in range(150)
    }
    columns["v"] = pa.FixedSizeListArray.from_arrays(pa.array(rng.normal(size=2 * rows)), 2)
    batch = batch_of(columns | {"h": pa.array(["h"] * rows)})
    names = [name for name in columns if name != "v"]
    expected = np.stack(
        [*(columns[name].cast(pa.float64()).to_numpy() for name in names),
         *columns["v"].flatten().to_numpy().reshape(rows, 2).T], axis=1,
    )  # fmt: skip
    dense = plan_of(batch, "error", "error", numeric=names, vectors=["v"], ignore=["h"])
    assert np.array_equal(encode(dense, batch, shard="s", row=0).values, expected)
    mixed = plan_of(batch, "error", "error", numeric=names, vectors=["v"], hashed=["h"])
    made = encode(mixed, batch, shard="s", row=0)
    assert np.array_equal(made.values.reshape(rows, -1)[:, :-1], expected)


def test_values_that_are_not_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers at an odd address are read as others are."""
    monkeypatch.setattr(number_table, "COMPILED_FROM", ALWAYS)
    monkeypatch.setattr(write_columns, "column_writer", uncompiled)
    values = np.arange(9.0)
    odd = pa.py_buffer(b"?" + values.tobytes()).slice(1)
    column = pa.Array.from_buffers(pa.float64(), 9, [None, odd])
    batch = batch_of({"a": column, "b": column, "c": pa.array(values)})
    made = encode(plan_of(batch, "error", "error"), batch, shard="s", row=0)
    assert np.array_equal(made.values, np.stack([values] * 3, axis=1))


@pytest.mark.parametrize("size", [*range(1, 18), 26, 39])
def test_exchanges_sort(size: int) -> None:
    """A network that sorts all rows of zeros and ones sorts all rows (the 0-1 principle)."""
    rng = np.random.default_rng(size)
    rows = np.array([*itertools.product([0, 1], repeat=size)] if size < 11 else 0)
    if size >= 11:
        rows = rng.integers(0, 2, (3000, size))
    rows = rows.reshape(-1, size).copy()
    for a, b in exchanges(size).reshape(-1, 2).tolist():
        rows[:, a], rows[:, b] = rows[:, [a, b]].min(axis=1), rows[:, [a, b]].max(axis=1)
    assert (np.diff(rows, axis=1) >= 0).all()


@pytest.mark.parametrize("rows", [0, 1, 64, 150])
@pytest.mark.parametrize(("wide", "many"), [(0, 7), (3, 26), (2, 0), (0, 1)])
def test_counted_rows(rows: int, wide: int, many: int) -> None:
    """A row's numbers, then each of its coordinates once, with how often it is there."""
    rng = np.random.default_rng([rows, wide, many])
    numbers = rng.normal(size=(rows, wide))
    columns = rng.integers(wide + 1, wide + 40, (many, rows)).astype(np.int32)
    begins, indices, values = counted_rows(numbers, columns, 1)
    assert (begins.dtype, indices.dtype, values.dtype) == (np.int64, np.int32, np.float64)
    assert (len(begins), begins[0], begins[-1]) == (rows + 1, 0, len(indices))
    for row in range(rows):
        counts = Counter((columns[:, row] - 1).tolist())
        expected = [*enumerate(numbers[row].tolist()), *sorted(counts.items())]
        low, high = begins[row], begins[row + 1]
        assert [
            *zip(indices[low:high].tolist(), values[low:high].tolist(), strict=True)
        ] == expected
