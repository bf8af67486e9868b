"""Record batches to batches of canonical rows: each kind, and every way to cut and store them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from streamomd.config.data_table import Data
from streamomd.config.model_table import Model
from streamomd.core.batch import DenseBatch, SparseBatch
from streamomd.core.errors import UsageError
from streamomd.features import Names, decode_labels, encode, make_plan
from streamomd.features.hashed import category, coordinate

pytestmark = pytest.mark.smoke


def table(**columns):
    return pa.RecordBatch.from_pydict(columns)


def plan_of(batch, *, labels=(0, 1), model=None, **data):
    described = Data.model_validate({"label": "y", **data})
    return make_plan(
        described,
        Model.model_validate({"loss": "logistic", **(model or {})}),
        batch.schema,
        lambda: list(labels),
    )


def encoded(plan, batch, **how):
    return encode(plan, batch, shard="s.parquet", row=0, **how)


def dicts(batch, row_offset=0):
    """Rows as {coordinate: value}, with y and weight; explicit zeros are kept."""
    if isinstance(batch, DenseBatch):
        rows = [dict(enumerate(row.tolist(), 1)) for row in batch.values]
    else:
        cuts = zip(batch.indptr[:-1], batch.indptr[1:], strict=True)
        rows = [
            dict(zip((batch.indices[a:b] + 1).tolist(), batch.values[a:b].tolist(), strict=True))
            for a, b in cuts
        ]
    return list(zip(rows, batch.y.tolist(), batch.weight.tolist(), strict=True))


def mixed(rows=200, seed=0):
    """A batch of every kind of column, with nulls where they are legal."""
    draw = np.random.default_rng(seed)
    counts = draw.integers(0, 5, rows)
    lists = [draw.integers(0, 50, k).tolist() for k in counts]
    return table(
        y=draw.integers(0, 2, rows),
        w=draw.random(rows),
        a=draw.integers(-9, 9, rows),
        b=draw.random(rows) < 0.5,
        e=pa.FixedSizeListArray.from_arrays(pa.array(draw.random(rows * 3)), 3),
        job=pa.array([None if v == 0 else f"job{v}" for v in draw.integers(0, 9, rows)]),
        code=pa.array(draw.integers(0, 9, rows)),
        i=pa.array(lists, pa.list_(pa.int32())),
        v=pa.array([draw.random(k).tolist() for k in counts], pa.list_(pa.float32())),
    )


MIXED = {
    "weight": "w",
    "numeric": ["a", "b"],
    "vectors": ["e"],
    "hashed": ["job", "code"],
    "sparse": {"indices": "i", "values": "v", "size": 50},
    "bits": 3,
}


def test_dense_columns_become_a_matrix():
    """Integers, floats, booleans and vectors stand side by side as float64, in plan order."""
    batch = table(
        y=[0, 1],
        a=pa.array([1, 2], pa.int8()),
        b=[True, False],
        c=[0.5, -0.0],
        e=pa.array([[1, 2], [3, 4]], pa.list_(pa.int16(), 2)),
    )
    plan = plan_of(batch, numeric=["c", "a", "b"], vectors=["e"])
    made = encoded(plan, batch)
    assert isinstance(made, DenseBatch)
    assert made.values.flags.c_contiguous
    assert made.values.dtype == np.float64
    assert made.values.tolist() == [[0.5, 1, 1, 1, 2], [0, 2, 0, 3, 4]]
    assert np.signbit(made.values[1, 0])
    assert (made.y.tolist(), made.weight.tolist()) == ([-1, 1], [1, 1])


def test_float32_stays_float32_only_when_all_are():
    """Values are stored float32 if every number is, else float64, exactly."""
    narrow = pa.array([0.1, 0.2], pa.float32())
    batch = table(y=[0, 1], a=narrow, b=narrow, c=[1, 2], h=["x", "y"])
    assert encoded(plan_of(batch, numeric=["a", "b"]), batch).values.dtype == np.float32
    assert encoded(plan_of(batch, numeric=["a"], hashed=["h"]), batch).values.dtype == np.float32
    assert encoded(plan_of(batch, hashed=["h"]), batch).values.dtype == np.float64
    wide = encoded(plan_of(batch, numeric=["a", "c"]), batch).values
    assert wide.dtype == np.float64
    assert wide[:, 0].tolist() == narrow.to_pylist()


def test_many_rows_fill_block_by_block():
    """A matrix of more rows than a block holds every value in its place."""
    columns = {f"x{j}": np.arange(5000) * 10 + j for j in range(4)}
    batch = table(y=np.zeros(5000), **columns)
    made = encoded(plan_of(batch, model={"loss": "square"}), batch)
    assert np.array_equal(made.values, np.stack(list(columns.values()), axis=1))


def test_every_kind_in_one_row():
    """A row of all kinds is the union of its blocks, ascending, with collisions summed."""
    batch = mixed()
    plan = plan_of(batch, **MIXED)
    made = encoded(plan, batch)
    assert isinstance(made, SparseBatch)
    assert (made.indptr.dtype, made.indices.dtype) == (np.int64, np.int32)
    for (row, y, weight), raw in zip(dicts(made), batch.to_pylist(), strict=True):
        expected = {1: raw["a"], 2: float(raw["b"])}
        expected |= dict(enumerate(raw["e"], 3))
        for name in ("job", "code"):
            value = None if raw[name] is None else str(raw[name]).encode()
            place = 6 + coordinate(category(name, value), 0, 3)
            expected[place] = expected.get(place, 0) + 1
        for index, value in zip(raw["i"], raw["v"], strict=True):
            expected[14 + index] = expected.get(14 + index, 0) + value
        assert list(row) == sorted(expected)
        assert row == expected
        assert (y, weight) == (2 * raw["y"] - 1, raw["w"])


@pytest.mark.parametrize("data", [MIXED, {"numeric": ["a", "b"], "vectors": ["e"]}])
@pytest.mark.parametrize("step", [1, 7, 64])
def test_split_batch_is_the_whole(data, step):
    """Slices encoded alone, put side by side, are the whole batch encoded at once."""
    batch = mixed()
    plan = plan_of(batch, **data)
    parts = [
        row for low in range(0, 200, step) for row in dicts(encoded(plan, batch.slice(low, step)))
    ]
    assert parts == dicts(encoded(plan, batch))


def test_slice_equals_copy():
    """A slice that shares buffers encodes as the same rows copied out."""
    batch = mixed()
    plan = plan_of(batch, **MIXED)
    cut = batch.slice(33, 90)
    copy = pa.RecordBatch.from_pylist(cut.to_pylist(), schema=batch.schema)
    assert dicts(encoded(plan, cut)) == dicts(encoded(plan, copy))


@pytest.mark.parametrize("rows", [0, 1])
def test_hardly_any_rows(rows):
    """No row and one row encode to batches of no row and one row, with both kinds of batch."""
    batch = mixed().slice(5, rows)
    assert len(encoded(plan_of(batch, **MIXED), batch)) == rows
    assert len(encoded(plan_of(batch, numeric=["a"]), batch)) == rows


def test_how_strings_are_stored_does_not_matter():
    """Strings, large strings, string views and dictionaries of them encode alike, slices too."""
    words = pa.array(["a", None, "b", "a", "ä", ""])
    batch = table(y=[0, 1, 0, 1, 0, 1], h=words)
    plan = plan_of(batch, hashed=["h"])
    expected = dicts(encoded(plan, batch))
    kinds = [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
    for kind in kinds:
        other = batch.set_column(1, "h", words.cast(kind))
        assert dicts(encoded(plan, other)) == expected
        assert dicts(encoded(plan, other.slice(2, 3))) == expected[2:5]
    unused = pa.DictionaryArray.from_arrays(
        pa.array([3, None, 1, 3, 0, 4], pa.int8()), pa.array(["ä", "b", "zz", "a", ""])
    )
    assert dicts(encoded(plan, batch.set_column(1, "h", unused))) == expected


def test_a_null_inside_a_dictionary_is_a_null():
    """A code that points to a null is the null category, as a null code is."""
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array(["a", None]))
    batch = table(y=[0, 1, 1], h=coded)
    rows = dicts(encoded(plan_of(batch, hashed=["h"]), batch))
    assert rows[1] == rows[2]
    assert rows[0][0] != rows[1][0]


def test_hashed_numbers_have_one_text():
    """Numbers and booleans are hashed by one text each, whatever their width."""
    batch = table(
        y=[0, 1], i=[7, -7], b=[True, False], f=pa.array([0.5, -0.0], pa.float64()), z=[0.5, 0.0]
    )
    plan = plan_of(batch, hashed=["i", "b", "f"], bits=30)
    narrow = batch.set_column(1, "i", batch["i"].cast(pa.int8())).set_column(
        3, "f", batch["f"].cast(pa.float32())
    )
    assert dicts(encoded(plan, narrow)) == dicts(encoded(plan, batch))
    texts = [b"i=7", b"b=true", b"f=0.5"], [b"i=-7", b"b=false", b"f=0.0"]
    for (row, *_), expected in zip(dicts(encoded(plan, batch)), texts, strict=True):
        assert set(row) == {1 + coordinate(text, 0, 30) for text in expected}


def test_bytes_that_are_not_utf8_are_hashed_as_bytes():
    """A binary column, and a string column that is not UTF-8, are hashed by their bytes."""
    raw = pa.array([b"\xff\xfe", b"ok"])
    plan = plan_of(table(y=[0, 1], h=["p", "q"]), hashed=["h"], bits=30)
    broken = pa.StringArray.from_buffers(2, raw.buffers()[1], raw.buffers()[2])
    binary_plan = plan_of(table(y=[0, 1], h=raw), hashed=["h"], bits=30)
    for one, column in ((plan, broken), (binary_plan, raw)):
        names = Names()
        made = encoded(one, table(y=[0, 1], h=column), names=names)
        assert made.indices[0] == coordinate(b"h=\xff\xfe", 0, 30)
        assert names.at(1 + int(made.indices[0])) == ("h=\\xff\\xfe",)


def test_seed_moves_every_category():
    """Another hash seed gives other coordinates, the same as mmh3 with that seed."""
    batch = table(y=[0, 1], h=["x", "y"])
    made = encoded(plan_of(batch, hashed=["h"], hash_seed=9, bits=30), batch)
    assert made.indices.tolist() == [coordinate(b"h=" + v, 9, 30) for v in (b"x", b"y")]


def test_nulls_can_be_zero():
    """With nulls = "zero" a null number, element or vector is 0; a null label is still bad."""
    vectors = pa.array([[1.0, None], None, [3.0, 4.0]], pa.list_(pa.float64(), 2))
    batch = table(y=[0, 1, 0], a=[None, 2, 3], b=[None, True, None], e=vectors)
    plan = plan_of(batch, numeric=["a", "b"], vectors=["e"], nulls="zero")
    rows = [[0, 0, 1, 0], [2, 1, 0, 0], [3, 0, 3, 4]]
    assert encoded(plan, batch).values.tolist() == rows
    assert encoded(plan, batch.slice(1)).values.tolist() == rows[1:]


def test_sparse_pairs_of_every_width():
    """Any integer indices, any float values and both list widths give the same rows."""
    rows = [[5, 99], [], [0]], [[0.5, 0.25], [], [2.0]]
    expected = [({6: 0.5, 100: 0.25}, -1.0, 1.0), ({}, 1.0, 1.0), ({1: 2.0}, -1.0, 1.0)]
    for lists in (pa.list_, pa.large_list):
        for index in (pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64()):
            for value in (pa.float16(), pa.float32(), pa.float64()):
                pair = pa.array(rows[0], lists(index)), pa.array(rows[1], lists(value))
                batch = table(y=[0, 1, 0], i=pair[0], v=pair[1])
                plan = plan_of(batch, sparse={"indices": "i", "values": "v", "size": 100})
                assert dicts(encoded(plan, batch)) == expected


def test_a_null_list_is_empty():
    """A null list has no coordinates, also when bytes lie under it, and must match its pair."""
    under = pa.ListArray.from_arrays(
        pa.array([0, 2, 3], pa.int32()),
        pa.array([7, 8, 9], pa.int32()),
        mask=pa.array([True, False]),
    )
    batch = table(y=[0, 1], i=under, v=pa.array([[], [1.0]], pa.list_(pa.float32())))
    plan = plan_of(batch, sparse={"indices": "i", "values": "v", "size": 10})
    assert dicts(encoded(plan, batch)) == [({}, -1.0, 1.0), ({10: 1.0}, 1.0, 1.0)]


def test_values_are_not_copied():
    """Canonical rows keep the column's own values in memory, and its indices, bias or none."""
    batch = table(
        y=[0, 1],
        i=pa.array([[1, 2], [0]], pa.list_(pa.int32())),
        v=pa.array([[1, 2], [3]], pa.list_(pa.float32())),
    )
    pair = {"indices": "i", "values": "v", "size": 3}
    for bias in (False, True):
        made = encoded(plan_of(batch, sparse=pair, model={"bias": bias}), batch)
        for array, name in ((made.indices, "i"), (made.values, "v")):
            assert array.ctypes.data == batch[name].values.buffers()[1].address


def test_duplicates_equal_rows_summed_before():
    """Equal indices are summed in order of appearance, as a row summed beforehand."""
    keys, numbers = [[3, 1, 3, 1, 3]], [[1e16, 2.0, 1.0, 0.5, -1e16]]
    kinds = {"i": pa.list_(pa.int32()), "v": pa.list_(pa.float64())}
    pair = {"indices": "i", "values": "v", "size": 4}
    twice = table(y=[1], i=pa.array(keys, kinds["i"]), v=pa.array(numbers, kinds["v"]))
    once = table(
        y=[1], i=pa.array([[1, 3]], kinds["i"]), v=pa.array([[2.5, 1e16 + 1.0 - 1e16]], kinds["v"])
    )
    plan = plan_of(once, sparse=pair)
    assert dicts(encoded(plan, twice)) == dicts(encoded(plan, once))


@pytest.mark.parametrize(
    "kind, classes, labels, y",
    [
        (pa.int8(), (0, 1), [0, 1], [-1, 1]),
        (pa.float64(), (-1, 1), [1.0, -1.0], [1, -1]),
        (pa.bool_(), (), [True, False], [1, -1]),
        (pa.bool_(), (0, 1), [True, False], [1, -1]),
        (pa.string(), ("no", "yes"), ["yes", "no"], [1, -1]),
        (pa.string(), ("yes", "no"), ["yes", "no"], [-1, 1]),
        (pa.string(), ("a", "b", "c"), ["c", "a"], [2, 0]),
        (pa.dictionary(pa.int8(), pa.string()), ("a", "b", "c"), ["c", "a"], [2, 0]),
        (pa.int64(), (10, 20, 30), [30, 20], [2, 1]),
    ],
)
def test_labels_become_numbers_and_come_back(kind, classes, labels, y):
    """Two classes are −1 and 1, more are 0 … K − 1; decoding gives the label column's values."""
    batch = table(y=pa.array(labels).cast(kind), x=[1.0, 2.0])
    plan = plan_of(batch, numeric=["x"], model={"classes": classes})
    assert encoded(plan, batch).y.tolist() == y
    places = [plan.classes.index(label) for label in labels]
    back = decode_labels(plan, np.array(places))
    assert back.to_pylist() == labels
    assert str(back.type) == plan.label_type


def test_classes_wider_than_the_column_still_decode():
    """Classes the label column's type cannot hold are told in a type that can."""
    batch = table(y=pa.array([0, 1], pa.int8()), x=[1.0, 2.0])
    plan = plan_of(batch, numeric=["x"], model={"classes": [0, 1000]})
    assert decode_labels(plan, np.array([1, 0])).to_pylist() == [1000, 0]


def test_regression_takes_labels_as_they_are():
    """In regression y is the label; there are no classes to decode."""
    batch = table(y=[0.5, -3.0], x=[1.0, 2.0])
    plan = plan_of(batch, numeric=["x"], model={"loss": "square"})
    assert encoded(plan, batch).y.tolist() == [0.5, -3.0]
    with pytest.raises(UsageError):
        decode_labels(plan, np.array([0]))


def test_prediction_reads_neither_label_nor_weight():
    """Unlabelled rows encode without label and weight columns, to the same features."""
    batch = mixed()
    plan = plan_of(batch, **MIXED)
    bare = encoded(plan, batch.select(plan.features), labelled=False)
    assert [row for row, *_ in dicts(bare)] == [row for row, *_ in dicts(encoded(plan, batch))]
    assert set(bare.y) == {0.0}
    assert set(bare.weight) == {1.0}


def test_collisions_add_up():
    """Two columns that fall on one coordinate give it the value 2."""
    batch = table(y=[0, 1], **{f"h{k}": ["x", "z"] for k in range(5)})
    plan = plan_of(batch, bits=1)
    for row, *_ in dicts(encoded(plan, batch)):
        assert sum(row.values()) == 5
        assert len(row) <= 2
