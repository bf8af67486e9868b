"""Bad rows: each is told by shard, row, column, what was found and what to do; none is mended."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from streamomd.config.data_table import Data
from streamomd.config.model_table import Model
from streamomd.core.errors import BadRowError
from streamomd.features import encode, make_plan

NAN, INF = float("nan"), float("inf")
SHARD, FIRST = "data/part-3.parquet", 1000
LISTS = {"i": pa.list_(pa.int64()), "v": pa.list_(pa.float64())}
GOOD = {
    "y": pa.array([0, 1, 0, 1], pa.float64()),
    "w": pa.array([1, 0, 2, 0.5], pa.float64()),
    "n": pa.array([1.0, 2.0, 3.0, 4.0]),
    "k": pa.array([1, 2, 3, 4], pa.int64()),
    "e": pa.array([[1.0, 2.0]] * 4, pa.list_(pa.float64(), 2)),
    "h": pa.array(["a", None, "b", "a"]),
    "i": pa.array([[0, 9], [], None, [3]], LISTS["i"]),
    "v": pa.array([[1.0, 2.0], [], [], [0.0]], LISTS["v"]),
}
JOB = {
    "label": "y",
    "weight": "w",
    "numeric": ["n", "k"],
    "vectors": ["e"],
    "hashed": ["h"],
    "sparse": {"indices": "i", "values": "v", "size": 10},
}


def encoded(columns, *, loss="logistic", classes=(0, 1), rule="ogd", dtype="float64", **job):
    """OGD takes any finite number."""
    batch = pa.RecordBatch.from_pydict({**GOOD, **columns})
    described = Data.model_validate({**JOB, **job})
    model = Model.model_validate({"rule": rule, "dtype": dtype, "loss": loss, "classes": classes})
    plan = make_plan(described, model, batch.schema, list)
    return encode(plan, batch, shard=SHARD, row=FIRST)


def with_row(name, row, value, kind=None):
    """The good column with one value replaced."""
    values = GOOD[name].to_pylist()
    values[row] = value
    return {name: pa.array(values, kind or GOOD[name].type)}


def both(row, indices, values, index_kind=None):
    return {
        **with_row("i", row, indices, index_kind),
        **with_row("v", row, values),
    }


LABEL = ["'y'", "one of the classes [0, 1]", "--on-bad-row skip"]
CLASS = [*LABEL, "model.classes"]
BAD = [
    (with_row("y", 2, None), 2, "null", ["label null", *LABEL]),
    (with_row("y", 2, NAN), 2, "nan", ["label nan", *LABEL]),
    (with_row("y", 0, -INF), 0, "inf", ["label -inf", *LABEL]),
    (with_row("y", 3, 2.0), 3, "label", ["label 2.0", *CLASS]),
    (with_row("y", 1, -1.0), 1, "label", ["label -1.0", *CLASS]),
    (with_row("w", 1, None), 1, "null", ["'w'", "null"]),
    (with_row("w", 1, -0.5), 1, "negative_weight", ["'w'", "-0.5", "0 or more"]),
    (with_row("w", 2, NAN), 2, "nan", ["'w'", "nan"]),
    (with_row("w", 3, INF), 3, "inf", ["'w'", "inf"]),
    (with_row("n", 1, None), 1, "null", ["'n'", "null", "--nulls mean"]),
    (with_row("n", 0, NAN), 0, "nan", ["'n'", "nan", "finite"]),
    (with_row("n", 3, INF), 3, "inf", ["'n'", "inf", "finite"]),
    (with_row("k", 2, None), 2, "null", ["'k'", "null"]),
    (with_row("k", 2, 2**53 + 1), 2, "overflow", ["'k'", "9007199254740993", "double"]),
    (with_row("k", 1, -(2**63) + 1), 1, "overflow", ["'k'", "-9223372036854775807"]),
    (with_row("k", 0, 2**64 - 1, pa.uint64()), 0, "overflow", ["'k'", "18446744073709551615"]),
    (with_row("e", 2, None), 2, "null", ["'e'", "null"]),
    (with_row("e", 2, [1.0, None]), 2, "null", ["'e[1]'", "null"]),
    (with_row("e", 3, [NAN, 1.0]), 3, "nan", ["'e[0]'", "nan"]),
    (with_row("e", 1, [1.0, INF]), 1, "inf", ["'e[1]'", "inf"]),
    (both(3, [1, None], [1.0, 2.0]), 3, "null", ["'i'", "null at place 1"]),
    (both(3, [1, 2], [1.0, None]), 3, "null", ["'v'", "null at place 1"]),
    (both(0, [1, 2], [1.0, NAN]), 0, "nan", ["'v'", "nan"]),
    (both(3, [1, 2], [-INF, 1.0]), 3, "inf", ["'v'", "-inf"]),
    (both(1, [4, -1], [1.0, 2.0]), 1, "negative_index", ["'i'", "index -1", "0 … 9", "size 10"]),
    (both(3, [10], [1.0]), 3, "index", ["'i'", "index 10", "size 10", "data.sparse.size"]),
    (both(3, [2**40], [1.0]), 3, "index", ["'i'", "index 1099511627776"]),
    (both(0, [-1], [1.0], pa.list_(pa.int8())), 0, "negative_index", ["'i'", "index -1"]),
    (both(0, [-1], [1.0], pa.list_(pa.int32())), 0, "negative_index", ["'i'", "index -1"]),
    (
        both(0, [2**64 - 1], [1.0], pa.list_(pa.uint64())),
        0,
        "index",
        ["index 18446744073709551615"],
    ),
    (both(1, [1, 2], [1.0]), 1, "ragged", ["2 indices and 1 values in 'v'", "as many"]),
    (both(3, None, [1.0]), 3, "ragged", ["0 indices and 1 values"]),
    (both(0, [5, 5], [1.7e308, 1.7e308]), 0, "overflow", ["'v'", "equal indices"]),
]


@pytest.mark.parametrize("columns, row, reason, words", BAD)
def test_bad_row_is_told(columns, row, reason, words):
    """The error counts by a reason and names shard, absolute row, column, value and remedy."""
    with pytest.raises(BadRowError) as caught:
        encoded(columns)
    assert caught.value.reason == reason
    for word in (f"shard {SHARD}, row {FIRST + row}, column", "expected", *words):
        assert word in str(caught.value)
    assert ("model.classes" in str(caught.value)) == ("model.classes" in words)


def test_good_rows_pass():
    """The batch that the bad ones are made from is itself good: weight 0, nulls of categories."""
    made = encoded({})
    assert len(made) == 4
    assert made.weight.tolist() == [1, 0, 2, 0.5]


def test_float32_sums_overflow_too():
    """Equal indices whose sum float32 cannot hold are bad, not infinite."""
    kinds = {"i": GOOD["i"], "v": pa.array([[1, 2], [], [], [3]], pa.list_(pa.float32()))}
    columns = {**kinds, **with_row("i", 0, [4, 4])}
    columns["v"] = pa.array([[3e38, 3e38], [], [], [3]], pa.list_(pa.float32()))
    with pytest.raises(BadRowError, match="equal indices") as caught:
        encoded(columns, numeric=[], vectors=[])
    assert caught.value.reason == "overflow"


def test_integers_that_float64_holds_are_good():
    """Integers beyond 2^53 that are exact in float64 are taken as they are."""
    column = with_row("k", 2, 2**60)
    assert 2.0**60 in encoded(column).values


def test_large_finite_numbers_are_good():
    """Values whose sum overflows are still finite one by one, subnormals and −0.0 too."""
    column = {"n": pa.array([1.7e308, 1.7e308, 5e-324, -0.0])}
    made = encoded(column, hashed=[], sparse=None)
    assert made.values[:, 0].tolist() == [1.7e308, 1.7e308, 5e-324, -0.0]


@pytest.mark.parametrize("value", [NAN, INF, None])
def test_regression_labels_must_be_finite(value):
    """In regression, too, a label that is null, NaN or infinite is a bad row."""
    with pytest.raises(BadRowError) as caught:
        encoded(with_row("y", 2, value), loss="square", classes=())
    assert place(caught) == (FIRST + 2, "y")


def test_string_labels_outside_the_classes():
    """A string label that is no class is told with its text, cut short when it is long."""
    kind = {"y": pa.array(["no", "yes", "maybe" * 100, "no"])}
    with pytest.raises(BadRowError, match=r"label 'maybemaybe.*\(502 characters\)") as caught:
        encoded(kind, classes=("no", "yes"))
    assert caught.value.reason == "label"


def test_null_in_a_coded_label():
    """A dictionary that holds a null gives bad labels where it is used, and only there."""
    coded = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 2, 0], pa.int8()), pa.array(["no", "yes", None])
    )
    with pytest.raises(BadRowError) as caught:
        encoded({"y": coded}, classes=("no", "yes"))
    assert (*place(caught), caught.value.reason) == (FIRST + 2, "y", "null")


ORDER = ["y", "w", "n", "k", "e", "i", "v"]
SPOILT = {
    "y": 7.0, "w": -1.0, "n": NAN, "k": 2**53 + 1, "e": [NAN, 1.0], "i": [77], "v": [NAN]
}  # fmt: skip


NAMED = {"e": "e[0]"}
"""A vector's element that is bad."""


def place(caught):
    """The row and the column of an error."""
    message = caught.value.message
    return message.row, message.column


def spoil(places):
    """Spoil each named column at its row."""
    columns = {name: array.to_pylist() for name, array in GOOD.items()}
    for name, row in places.items():
        columns[name][row] = SPOILT[name]
        if name in "iv":
            other = "v" if name == "i" else "i"
            columns[other][row] = SPOILT[other] if places.get(other) == row else [2]
    return {name: pa.array(values, GOOD[name].type) for name, values in columns.items()}


@pytest.mark.parametrize("early", ORDER)
@pytest.mark.parametrize("late", ORDER)
def test_first_bad_row_wins(early, late):
    """Of several bad rows the first is told, whatever columns they are bad in."""
    with pytest.raises(BadRowError) as caught:
        encoded(spoil({late: 3, early: 1}))
    assert place(caught) == (FIRST + 1, NAMED.get(early, early))


@pytest.mark.parametrize("first", range(len(ORDER) - 1))
def test_in_one_row_label_weight_then_features(first):
    """In one row the label is told first, then the weight, then features in plan order."""
    columns = spoil(dict.fromkeys(ORDER[first:], 1))
    with pytest.raises(BadRowError) as caught:
        encoded(columns)
    assert place(caught) == (FIRST + 1, NAMED.get(ORDER[first], ORDER[first]))


def test_a_sum_that_overflows_early_beats_a_late_null():
    """A row that is bad only once it is summed is found before later rows of other columns."""
    columns = {
        "i": pa.array([[5, 5], [], [], [-1]], LISTS["i"]),
        "v": pa.array([[1.7e308, 1.7e308], [], [], [1.0]], LISTS["v"]),
    }
    with pytest.raises(BadRowError) as caught:
        encoded(columns)
    assert place(caught) == (FIRST, "v")


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_bad_rows_of_slices_keep_their_place(cut):
    """A slice tells the same absolute row as the whole batch does."""
    batch = pa.RecordBatch.from_pydict({**GOOD, **with_row("e", 2, [1.0, NAN])})
    model = Model.model_validate({"loss": "logistic", "classes": [0, 1]})
    plan = make_plan(Data.model_validate(JOB), model, batch.schema, list)
    with pytest.raises(BadRowError) as caught:
        encode(plan, batch.slice(cut), shard=SHARD, row=FIRST + cut)
    assert place(caught) == (FIRST + 2, "e[1]")


def test_zero_nulls_do_not_hide_other_faults():
    """With nulls = "zero" NaN, a null weight and a null list element are still bad."""
    for columns in (with_row("n", 1, NAN), with_row("w", 1, None), both(1, [None], [1.0])):
        with pytest.raises(BadRowError) as caught:
            encoded(columns, nulls="zero")
        assert place(caught)[0] == FIRST + 1


def test_values_under_null_vectors_are_not_looked_at():
    """NaN that lies under a null vector is no fault when nulls are zero."""
    under = pa.FixedSizeListArray.from_arrays(
        pa.array([1.0, 1, NAN, INF, 1, 1, 1, 1]), 2, mask=pa.array([False, True, False, False])
    )
    made = encoded({"e": under}, nulls="zero", hashed=[], sparse=None)
    assert made.values[1, 2:].tolist() == [0, 0]
    assert np.isfinite(made.values).all()


def test_a_count_below_zero_is_refused() -> None:
    """The Poisson loss learns counts: a negative label is told, not learned."""
    with pytest.raises(BadRowError, match=r"label -1.*0 or more"):
        encoded(with_row("y", 2, -1.0), loss="poisson", classes=())
    assert encoded({}, loss="poisson", classes=()).y.tolist() == [0.0, 1.0, 0.0, 1.0]
