"""Arrow streams from anyone: what is small and becomes large is refused, damage is an error."""

from __future__ import annotations

import datetime
import io
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamomd.core.errors import DataError
from streamomd.shards.formats.arrow_footer import TooManyRowsError, rows_of_stream


def stream(*batches: pa.RecordBatch, **options: Any) -> bytes:
    """Record batches as a stream."""
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def of(**columns: Any) -> bytes:
    """A stream of one batch."""
    return stream(pa.record_batch(columns))


def read(data: bytes, *columns: str, rows: int = 100, size: int = 1 << 20) -> Any:
    """The rows of a stream."""
    return rows_of_stream(data, columns, most_rows=rows, most_bytes=size)


def test_values() -> None:
    """Nulls are None, dictionaries their values, times lose what is below a microsecond."""
    data = of(
        a=[1, None],
        h=pa.array(["x", None]).dictionary_encode(),
        v=[[1.0, 2.0], []],
        f=pa.array([[1, 2], None], pa.list_(pa.int8(), 2)),
        t=pa.array([1_000_001, None], pa.timestamp("ns")),
        z=["not needed", "at all"],
    )
    first = datetime.datetime(1970, 1, 1, 0, 0, 0, 1000)
    assert read(data, "a", "h", "v", "f", "t", "other") == [
        {"a": 1, "h": "x", "v": [1.0, 2.0], "f": [1, 2], "t": first},
        {"a": None, "h": None, "v": [], "f": None, "t": None},
    ]
    assert read(data) == [{}, {}]


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compression_is_refused(codec: str) -> None:
    """In a batch, and in a dictionary of a column that is not even needed."""
    words = pa.array(["x"] * 100).dictionary_encode()
    for columns in ({"a": list(range(100))}, {"h": words}):
        with pytest.raises(DataError, match="without compression"):
            read(stream(pa.record_batch(columns), compression=codec), "a")


LONG = pa.DictionaryArray.from_arrays(pa.array([0] * 100, pa.int8()), pa.array(["x" * 100_000]))
WIDE = pa.FixedSizeListArray.from_arrays(pa.nulls(1 << 21), 1 << 21)
NESTED = pa.array([[[1]]])
VIEWS = pa.array(["x" * 100], pa.string_view())
RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([100], pa.int32()), pa.array([1]))
STRUCT = pa.array([{"a": 1}])


@pytest.mark.parametrize(
    ("column", "text"),
    [(LONG, "more than 1,048,576 bytes"), (WIDE, "more than"), (NESTED, "unsupported types"),
     (VIEWS, "unsupported types"), (RUNS, "unsupported types"), (STRUCT, "unsupported types")],
)  # fmt: skip
def test_what_unfolds_is_refused(column: pa.Array, text: str) -> None:
    """Few bytes that are many values."""
    with pytest.raises(DataError, match=text):
        read(of(a=column), "a")
    assert len(read(of(a=column), "b")) == len(column)


def test_rows_are_counted_before_they_are_read() -> None:
    """Over all batches; of a batch without buffers too."""
    batch = pa.record_batch({"a": pa.nulls(60)})
    with pytest.raises(TooManyRowsError, match="120 rows"):
        read(stream(batch, batch), "a")
    for column in (pa.nulls(60), pa.array(range(60))):
        rows, data = (60).to_bytes(8, "little"), of(a=column)
        assert rows in data
        with pytest.raises(TooManyRowsError, match="1,099,511,627,776 rows"):
            read(data.replace(rows, (1 << 40).to_bytes(8, "little")), "a")


def test_columns_are_named_once() -> None:
    """A second column of a name is refused where the name is needed."""
    data = stream(pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]))
    with pytest.raises(DataError, match="several columns 'a'"):
        read(data, "a")
    assert read(data, "b") == [{}]


def test_damage_is_an_error() -> None:
    """1,000 streams with one to four bytes changed, or truncated: rows, or DataError."""
    good = of(
        a=[1, None, 3], h=pa.array(["x", "yy", None]).dictionary_encode(), v=[[1.0], [], None]
    )
    draw, refused = np.random.default_rng(0), 0
    for _ in range(1000):
        data = bytearray(good)
        for at in draw.integers(0, len(data), draw.integers(1, 5)):
            data[at] = draw.integers(0, 256)
        if draw.random() < 0.2:
            del data[draw.integers(0, len(data)) :]
        try:
            assert isinstance(read(bytes(data), "a", "h", "v"), list)
        except DataError:
            refused += 1
    assert refused > 300
