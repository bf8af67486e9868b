"""Which columns become which coordinates, and what is refused before a row is read."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from streamomd.config.data_table import Data
from streamomd.config.model_table import Model
from streamomd.core.errors import DataError, SchemaError, UsageError
from streamomd.features import Names, Plan, check_schema, describe, make_plan, name_of

pytestmark = pytest.mark.smoke

EVERY = pa.schema(
    {
        "y": pa.int64(),
        "w": pa.float64(),
        "age": pa.int32(),
        "old": pa.bool_(),
        "job": pa.string(),
        "city": pa.dictionary(pa.int32(), pa.string()),
        "e": pa.list_(pa.float32(), 3),
        "i": pa.list_(pa.int32()),
        "v": pa.list_(pa.float32()),
        "when": pa.timestamp("us"),
    }
)
PAIR = {"indices": "i", "values": "v", "size": 1000}


def plan_of(schema=EVERY, *, labels=(0, 1), model=None, **data):
    described = Data.model_validate({"label": "y", **data})
    return make_plan(
        described, Model.model_validate(model or {"loss": "logistic"}), schema, lambda: list(labels)
    )


def whole_plan():
    return plan_of(
        weight="w",
        numeric=["age", "old"],
        vectors=["e"],
        hashed=["job", "city"],
        sparse=PAIR,
        bits=4,
    )


def test_blocks_follow_each_other():
    """Bias, numeric, vectors, hashed and sparse coordinates lie side by side without overlap."""
    plan = whole_plan()
    blocks = (plan.vector_offset, plan.hashed_offset, plan.sparse_offset, plan.size)
    assert blocks == (3, 6, 22, 1022)
    assert plan.columns == ("y", "w", "age", "old", "e", "job", "city", "i", "v")
    assert plan.dictionary == ("job", "city")
    assert not plan.dense
    assert plan_of(numeric=["age"], model={"loss": "square", "bias": False}).size == 1


def test_columns_choose_themselves_by_type():
    """With no feature named, numbers and booleans are numeric, strings and dictionaries hashed."""
    plan = plan_of(weight="w", ignore=["e", "i", "v", "when"])
    assert (plan.numeric, plan.hashed) == (("age", "old"), ("job", "city"))


def test_dense_needs_no_csr():
    """Numeric and vector columns alone make dense batches."""
    assert plan_of(numeric=["age"], vectors=["e"]).dense
    assert not plan_of(numeric=["age"], hashed=["job"]).dense


def test_columns_that_are_not_named_are_not_read():
    """Once a feature is named, other columns of any type are left alone."""
    assert plan_of(numeric=["age"]).columns == ("y", "age")


@pytest.mark.parametrize(
    "data, error, words",
    [
        ({}, SchemaError, ["'e'", "fixed_size_list", "vectors", "ignore"]),
        ({"ignore": ["e", "i", "v"]}, SchemaError, ["'when'", "timestamp", "name it in dates or"]),
        ({"label": ""}, UsageError, ["data.label", "'age'"]),
        ({"numeric": ["agee"]}, SchemaError, ["'agee'", "did you mean 'age'?"]),
        ({"ignore": ["whem"]}, SchemaError, ["'whem'", "'when'"]),
        ({"weight": "ww"}, SchemaError, ["'ww'", "'w'"]),
        ({"numeric": ["age"], "hashed": ["age"]}, UsageError, ["'age'", "twice"]),
        ({"numeric": ["age", "age"]}, UsageError, ["'age'", "twice"]),
        ({"numeric": ["y"]}, UsageError, ["'y'", "twice"]),
        ({"numeric": ["job"]}, SchemaError, ["'job'", "string", "hashed"]),
        ({"numeric": ["when"]}, SchemaError, ["'when'", "timestamp"]),
        ({"hashed": ["when"]}, SchemaError, ["'when'", "timestamp", "ignore"]),
        ({"vectors": ["i"]}, SchemaError, ["'i'", "fixed-size lists"]),
        ({"weight": "job", "numeric": ["age"]}, SchemaError, ["'job'", "weight"]),
        ({"sparse": {**PAIR, "indices": "v", "values": "i"}}, SchemaError, ["'v'", "integers"]),
        ({"sparse": {**PAIR, "values": "job"}}, SchemaError, ["'job'", "lists of numbers"]),
        ({"sparse": {**PAIR, "size": 0}}, SchemaError, ["data.sparse.size", "streamomd.size"]),
        ({"sparse": {**PAIR, "size": 2**31 - 2}, "hashed": ["job"]}, UsageError, ["data.bits"]),
    ],
)
def test_jobs_that_cannot_be_meant_are_refused(data, error, words):
    """Each wrong job is refused by an error that names the column, its type and the remedy."""
    with pytest.raises(error) as caught:
        plan_of(**data)
    for word in words:
        assert word in str(caught.value)


def test_refuses_two_columns_of_one_name():
    """A schema that names two columns alike is refused."""
    schema = pa.schema([("y", pa.int64()), ("a", pa.int64()), ("a", pa.int64())])
    with pytest.raises(SchemaError, match="more than one column is named 'a'"):
        plan_of(schema)


def test_refuses_a_table_of_labels_alone():
    """Without any feature column there is nothing to learn from."""
    with pytest.raises(SchemaError, match="no feature column"):
        plan_of(pa.schema({"y": pa.int64()}))


@pytest.mark.parametrize("saved, size", [(b"77", 77), (b"0", None), (b"x", None), (b"-3", None)])
def test_sparse_size_comes_from_the_metadata(saved, size):
    """Without a size in the job the schema's metadata gives it, if it is a positive number."""
    schema = EVERY.with_metadata({b"streamomd.size": saved})
    job = {"sparse": {"indices": "i", "values": "v"}}
    if size is None:
        with pytest.raises(SchemaError, match=r"data\.sparse\.size"):
            plan_of(schema, **job)
    else:
        assert plan_of(schema, **job).sparse.size == size
    assert plan_of(schema, sparse=PAIR).sparse.size == 1000


@pytest.mark.parametrize(
    "kind, labels, classes",
    [
        (pa.int64(), [1, -1], (-1, 1)),
        (pa.int64(), [-1], (-1, 1)),
        (pa.int64(), [0, 1], (0, 1)),
        (pa.int64(), [1], (0, 1)),
        (pa.float64(), [1.0, 0.0, float("nan"), None], (0, 1)),
        (pa.float64(), [1.5, 0.0], (0, 1.5)),
        (pa.int8(), [3, 1, 2], (1, 2, 3)),
        (pa.string(), ["yes", "no"], ("no", "yes")),
        (pa.dictionary(pa.int8(), pa.string()), ["b", "a", "c"], ("a", "b", "c")),
        (pa.bool_(), [], (False, True)),
    ],
)
def test_classes_from_labels(kind, labels, classes):
    """Classes not given are -1 and 1, 0 and 1, the booleans, or the values seen, sorted."""
    plan = plan_of(pa.schema({"y": kind, "x": pa.float64()}), labels=labels)
    assert plan.classes == classes
    assert [type(value) for value in plan.classes] == [type(value) for value in classes]


@pytest.mark.parametrize("labels", [[], [None], [7], range(1001)])
def test_labels_that_make_no_classes(labels):
    """No label, one label or more than 1000 ask for model.classes."""
    with pytest.raises(DataError, match=r"model\.classes"):
        plan_of(pa.schema({"y": pa.int64(), "x": pa.float64()}), labels=labels)


@pytest.mark.parametrize(
    "kind, model, error, words",
    [
        (pa.int64(), {"loss": "hinge", "classes": [1]}, UsageError, "two or more"),
        (pa.int64(), {"loss": "hinge", "classes": [1, 1.0]}, UsageError, "two or more"),
        (pa.int64(), {"loss": "hinge", "classes": [False, 2]}, UsageError, "all booleans"),
        (pa.int64(), {"loss": "hinge", "classes": ["a", "b"]}, UsageError, "as numbers"),
        (pa.string(), {"loss": "hinge", "classes": [0, 1]}, UsageError, "as strings"),
        (pa.string(), {"loss": "square"}, SchemaError, "label column 'y' is string"),
        (pa.decimal128(5, 2), {"loss": "hinge"}, SchemaError, "cast it to double"),
        (pa.timestamp("s"), {"loss": "square"}, SchemaError, "label column 'y' is timestamp"),
        (pa.list_(pa.string()), {}, SchemaError, "; name another column in label$"),
        (pa.struct([("a", pa.int64())]), {}, SchemaError, "; name another column in label$"),
        (pa.null(), {}, SchemaError, "; it has no values; write it with the type of its labels$"),
    ],
)
def test_labels_of_the_wrong_type(kind, model, error, words):
    """Label columns and classes that do not fit the task or each other are refused."""
    with pytest.raises(error, match=words):
        plan_of(pa.schema({"y": kind, "x": pa.float64()}), model=model)


def test_given_classes_stand():
    """Classes that are given keep their order and their types; regression has none."""
    schema = pa.schema({"y": pa.string(), "x": pa.float64()})
    given = {"loss": "hinge", "classes": ["yes", "no"]}
    assert plan_of(schema, model=given).classes == ("yes", "no")
    assert plan_of(EVERY, numeric=["age"], model={"loss": "square"}).classes == ()


def test_plan_survives_json():
    """A plan read back from JSON text equals the plan that was written."""
    for plan in (whole_plan(), plan_of(numeric=["age"], model={"loss": "square"})):
        assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


@pytest.mark.parametrize("change", [{"sparse": [1]}, {"more": 1}, {"types": 3}])
def test_plan_that_is_none_is_refused(change):
    """A saved plan of another shape is a DataError, not a crash."""
    with pytest.raises(DataError, match="feature plan"):
        Plan.from_json({**whole_plan().to_json(), **change})


def test_describe_tells_every_column():
    """What is printed before the first row names every column and the classes."""
    text = "\n".join(describe(whole_plan()))
    for name in whole_plan().columns:
        assert name in text
    assert "negative 0, positive 1" in text
    assert "2^4" in text
    assert "1,022 coordinates with the bias" in text


def test_coordinates_have_names():
    """Every kind of coordinate is called by what stands in its column."""
    names = Names()
    names.note("job", [6], [b"admin."])
    names.note("city", [6], [b"Oslo"])
    told = [name_of(whole_plan(), names, c) for c in (0, 1, 2, 3, 5, 6, 7, 22, 39)]
    dense = ["bias", "age", "old", "e[0]", "e[2]"]
    assert told == [*dense, "job=admin. | city=Oslo", "hashed[1]", "i:0", "i:17"]
    with pytest.raises(IndexError):
        name_of(whole_plan(), names, 1022)


WIDER = [
    ("age", pa.int64()),
    ("age", pa.int8()),
    ("e", pa.list_(pa.float64(), 3)),
    ("w", pa.float32()),
    ("job", pa.large_string()),
    ("job", pa.dictionary(pa.int16(), pa.string())),
    ("city", pa.string()),
    ("i", pa.large_list(pa.int64())),
    ("v", pa.list_(pa.float64())),
]
RETYPED = [
    ("age", pa.string(), "string", "int32"),
    ("old", pa.int8(), "int8", "bool"),
    ("y", pa.string(), "string", "int64"),
    ("w", pa.int64(), "int64", "double"),
    ("job", pa.int64(), "int64", "string"),
    ("job", pa.binary(), "binary", "string"),
    ("e", pa.list_(pa.float32(), 4), "[4]", "[3]"),
    ("e", pa.list_(pa.float32()), "list<", "fixed_size_list"),
    ("i", pa.list_(pa.float64()), "double", "int32"),
    ("i", pa.list_view(pa.int32()), "list_view", "list<"),
]


def retyped(name, kind):
    return EVERY.set(EVERY.get_field_index(name), pa.field(name, kind))


@pytest.mark.parametrize("name, kind", WIDER)
def test_later_shards_may_widen(name, kind):
    """A later shard may have another width, or strings coded another way."""
    check_schema(whole_plan(), retyped(name, kind), "b.parquet")


@pytest.mark.parametrize("name, kind, found, had", RETYPED)
def test_later_shards_may_not_change_type(name, kind, found, had):
    """A column of another family is refused, told with shard, column and both types."""
    with pytest.raises(SchemaError) as caught:
        check_schema(whole_plan(), retyped(name, kind), "b.parquet")
    for word in ("shard b.parquet", f"column {name!r} is", "the first shard had", found, had):
        assert word in str(caught.value)


def test_later_shards_may_have_more_and_other_order():
    """Order and additional columns of a later shard do not matter."""
    fields = [*reversed(list(EVERY)), pa.field("more", pa.date32())]
    check_schema(whole_plan(), pa.schema(fields), "b.parquet")


@pytest.mark.parametrize("name", whole_plan().columns)
def test_missing_column_is_named(name):
    """A column that a later shard lacks is named with the shard."""
    schema = EVERY.remove(EVERY.get_field_index(name)).append(pa.field(name + "_x", pa.int64()))
    with pytest.raises(SchemaError, match=f"shard b.parquet: column '{name}' .* is missing"):
        check_schema(whole_plan(), schema, "b.parquet")


def test_prediction_needs_no_label():
    """Label and weight may be missing where rows are only predicted."""
    schema = EVERY.remove(0).remove(0)
    check_schema(whole_plan(), schema, "b.parquet", labelled=False)
    with pytest.raises(SchemaError, match="'y'"):
        check_schema(whole_plan(), schema, "b.parquet")


def test_duplicate_column_in_a_later_shard():
    """Two columns of a needed name make a later shard unreadable."""
    with pytest.raises(SchemaError, match=r"shard b\.parquet: more than one column is named 'age'"):
        check_schema(whole_plan(), EVERY.append(pa.field("age", pa.int32())), "b.parquet")


def test_names_of_shards_cannot_forge_lines():
    """A line feed in a shard's name is escaped in the message."""
    with pytest.raises(SchemaError) as caught:
        check_schema(whole_plan(), EVERY.remove(0), "a\nb\x1b[31m.parquet")
    assert "shard a\\nb\\x1b[31m.parquet" in str(caught.value)
