"""Tables of any kinds of columns, drawn by hypothesis, with the job's table that names them."""

from __future__ import annotations

import datetime
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

WORDS = ["Good", "good", "bad", "ÉTÉ", "x_1", "don't", "语言", "ß", "İ", "", "—", "a b", "\x1c"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
FLOATS = st.floats(-1e3, 1e3, allow_nan=False).map(lambda x: 0.0 if abs(x) < 1e-3 else x)
FLOATS32 = FLOATS.map(lambda x: float(np.float32(x)))
DAYS = st.dates(datetime.date(1890, 1, 1), datetime.date(2100, 1, 1))
TIMES = st.datetimes(datetime.datetime(1890, 1, 1), datetime.datetime(2100, 1, 1))
UTC = TIMES.map(lambda one: one.replace(tzinfo=datetime.UTC))
CENTS = st.decimals(-(10**9), 10**9, places=2)
SPANS = st.timedeltas(datetime.timedelta(-9), datetime.timedelta(9))
LISTS = partial(st.lists, max_size=5)
FILLED = partial(st.lists, min_size=1, max_size=5)
VECTOR, VECTOR32 = pa.list_(pa.float64(), 3), pa.list_(pa.float32(), 3)
KINDS: dict[str, tuple[Any, Any, str]] = {
    "float": (FLOATS, pa.float64(), "numeric"),
    "float32": (FLOATS32, pa.float32(), "numeric"),
    "int": (st.integers(-9, 9), pa.int64(), "numeric"),
    "decimal": (CENTS, pa.decimal128(12, 2), "numeric"),
    "long": (st.decimals(-(10**13), 10**13, places=9), pa.decimal128(38, 9), "numeric"),
    "duration": (SPANS, pa.duration("us"), "numeric"),
    "duration_ns": (SPANS, pa.duration("ns"), "numeric"),
    "clock": (st.times(), pa.time64("us"), "numeric"),
    "int8": (st.integers(-9, 9), pa.int8(), "numeric"),
    "bool": (st.booleans(), pa.bool_(), "numeric"),
    "string": (st.sampled_from(["a", "b", "ü", "", "1"]), pa.string(), "hashed"),
    "large": (st.sampled_from(["a", "b"]), pa.large_string(), "hashed"),
    "binary": (st.sampled_from([b"a", b"\xff", b""]), pa.binary(), "hashed"),
    "category": (st.sampled_from(["a", "b"]), pa.dictionary(pa.int32(), pa.string()), "hashed"),
    "whole": (st.integers(-3, 3), pa.int64(), "hashed"),
    "unsigned": (st.integers(2**63, 2**63 + 2), pa.uint64(), "hashed"),
    "real": (st.sampled_from([0.0, -0.0, 0.1, 1e300]), pa.float64(), "hashed"),
    "real32": (st.sampled_from([0.5, 0.1]).map(lambda x: float(np.float32(x))), pa.float32(),
               "hashed"),
    "flag": (st.booleans(), pa.bool_(), "hashed"),
    "text": (TEXTS, pa.string(), "text"),
    "text2": (TEXTS, pa.string(), "text"),
    "day": (DAYS, pa.date32(), "dates"),
    "time": (TIMES, pa.timestamp("us"), "dates"),
    "utc": (UTC, pa.timestamp("ms", "Asia/Tokyo"), "dates"),
    "vector": (st.lists(FLOATS, min_size=3, max_size=3), VECTOR, "vectors"),
    "vector32": (st.lists(FLOATS32, min_size=3, max_size=3), VECTOR32, "vectors"),
    "tags": (LISTS(st.none() | st.sampled_from(["a", "b", ""])), pa.list_(pa.string()), "hashed"),
    "pair": (st.lists(st.sampled_from("ab") | st.none(), min_size=2, max_size=2),
             pa.list_(pa.string(), 2), "hashed"),
    "ids": (LISTS(st.none() | st.integers(-3, 3)), pa.large_list(pa.int16()), "hashed"),
    "blobs": (LISTS(st.sampled_from([b"a", b"\xff"])), pa.list_(pa.binary()), "hashed"),
    "flags": (LISTS(st.booleans()), pa.list_(pa.bool_()), "hashed"),
    "reals": (LISTS(FLOATS32), pa.list_(pa.float32()), "hashed"),
    "ragged": (FILLED(FLOATS), pa.list_(pa.float64()), "vectors"),
    "ragged32": (FILLED(FLOATS32), pa.large_list(pa.float32()), "vectors"),
    "ragged8": (FILLED(st.integers(-9, 9)), pa.list_(pa.int8()), "vectors"),
}  # fmt: skip
NULLABLE = {"hashed", "dates", "text"}
CROSSES = ["string", "binary", "whole", "flag", "day.weekday", "time.hour"]


@st.composite
def worlds(draw: Any) -> tuple[pa.Table, dict[str, Any]]:
    """Some columns with rows, and the job's table data that names them."""
    names = draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=6, unique=True))
    nested = draw(st.lists(st.sampled_from(names), unique=True)) if draw(st.booleans()) else []
    count = draw(st.integers(3, 12))

    def path(name: str) -> str:
        return f"geo.in.side.{name}" if name.partition(".")[0] in nested else name

    nulls = draw(st.sampled_from(["error", "zero", "indicator", "mean"]))
    data: dict[str, Any] = {"bits": draw(st.sampled_from([2, 5, 9])), "nulls": nulls}
    columns: dict[str, Any] = {}
    inside: dict[str, Any] = {}
    for name in names:
        values, kind, key = KINDS[name]
        some = st.none() | values if key in NULLABLE or nulls != "error" else values
        read = draw(st.lists(some, min_size=count, max_size=count))
        if name in nested:
            inside[name] = pa.array(read, kind)
        else:
            columns[name] = pa.array(read, kind)
        data.setdefault(key, []).append(path(name))
    if inside:
        deep = pa.StructArray.from_arrays(inside.values(), [*inside])
        gone = draw(st.lists(st.booleans(), min_size=count, max_size=count))
        may_be_null = nulls != "error" or all(KINDS[name][2] in NULLABLE for name in inside)
        mask = pa.array(gone) if may_be_null else None
        columns["geo"] = pa.StructArray.from_arrays([deep], ["in.side"], mask=mask)
    if draw(st.booleans()):
        sparse = draw(st.sampled_from([pa.float64(), pa.float32()]))
        number = FLOATS32 if sparse == pa.float32() else FLOATS
        lists = draw(st.lists(st.lists(st.tuples(st.integers(0, 9), number), max_size=90),
                              min_size=count, max_size=count))  # fmt: skip
        columns["i"] = pa.array([[i for i, _ in one] for one in lists], pa.list_(pa.int32()))
        columns["v"] = pa.array([[v for _, v in one] for one in lists], pa.list_(sparse))
        data["sparse"] = {"indices": "i", "values": "v", "size": 10}
    if "text" in data:
        ngrams, counts = draw(st.integers(1, 3)), st.sampled_from(["presence", "count", "log"])
        data["text"] = [
            {"column": name, "ngrams": ngrams, "counts": draw(counts)} for name in data["text"]
        ]
    parts = [path(name) for name in CROSSES if name.partition(".")[0] in names]
    if len(parts) > 1 and draw(st.booleans()):
        data["crosses"] = [parts[:2], parts[-2:]] if len(parts) > 2 else [parts]
    columns["y"] = pa.array(draw(st.lists(st.sampled_from([0, 1]), min_size=count, max_size=count)))
    return pa.table(columns), data
