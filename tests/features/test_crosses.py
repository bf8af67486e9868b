"""Crosses and parts of dates: what they are called, what is refused, how often they are hashed."""

from __future__ import annotations

import itertools
import json

import pyarrow as pa
import pytest
from slow_features import cross

from streamomd.config.data_table import Data
from streamomd.config.model_table import Model
from streamomd.config.spec import Spec
from streamomd.core.errors import SchemaError, UsageError
from streamomd.features import Names, Plan, check_schema, describe, encode, make_plan, name_of
from streamomd.features.hashed import cross_name
from streamomd.features.plan_columns import Date
from streamomd.features.times import date_parts, parts_of

SCHEMA = pa.schema(
    {
        "y": pa.int64(),
        "w": pa.float64(),
        "age": pa.int32(),
        "job": pa.string(),
        "city": pa.dictionary(pa.int32(), pa.string()),
        "old": pa.bool_(),
        "income": pa.float64(),
        "review": pa.string(),
        "day": pa.date32(),
        "when": pa.timestamp("us"),
        "at": pa.timestamp("ms", "UTC"),
        "clock": pa.time64("us"),
        "e": pa.list_(pa.float32(), 3),
    }
)
NAMED = {"label": "y", "weight": "w", "hashed": ["job"]}


def plan_of(schema=SCHEMA, **data):
    model = Model.model_validate({"loss": "square"})
    return make_plan(Data.model_validate({**NAMED, **data}), model, schema, list)


def encoded(plan, columns, names=None):
    return encode(plan, pa.RecordBatch.from_pydict(columns), shard="s", row=0, names=names)


AWKWARD = ["", "a", "^", "\\", "\\N", "\\^", "a^", "^a", "a\\", "N", None]


@pytest.mark.parametrize("size", [2, 3])
def test_different_values_have_different_texts(size):
    """Whatever is in the values, and where there are nulls: no two rows are told alike."""
    columns = [f"c{k}" for k in range(size)]
    rows = list(itertools.product(AWKWARD, repeat=size))
    assert len({cross(columns, row) for row in rows}) == len(rows)
    table = {name: [row[at] for row in rows] for at, name in enumerate(columns)}
    given = {"y": [0] * len(rows), "w": [1.0] * len(rows), "job": ["x"] * len(rows), **table}
    schema = pa.RecordBatch.from_pydict(given).schema
    plan = plan_of(schema, crosses=[columns], bits=24)
    names = Names()
    encoded(plan, given, names)
    told = {name for at in names.seen() for name in names.at(at)} - {"job=x", "+"}
    assert told == {cross(columns, row).decode() for row in rows}


def test_names_of_columns_are_escaped_too():
    """Columns that have the separator in their names cross to names of their own."""
    assert cross_name(["a^b", "c"]) != cross_name(["a", "b^c"])
    assert cross_name(["job", "marital"]) == "job^marital"


def test_a_pair_is_hashed_once(monkeypatch):
    """A thousand rows of six pairs: six texts are hashed."""
    from streamomd.features import hashed as module

    hashed = []
    inner = module.places
    monkeypatch.setattr(
        module,
        "places",
        lambda texts, column, *given: (
            hashed.extend([len(texts)] * (column == "job^old")) or inner(texts, column, *given)
        ),
    )
    rows = [{"job": "abc"[k % 3], "old": bool(k // 3 % 2)} for k in range(1000)]
    columns = {name: [row[name] for row in rows] for name in ("job", "old")}
    encoded(plan_of(crosses=[["job", "old"]]), {"y": [0] * 1000, "w": [1.0] * 1000, **columns})
    assert hashed == [6]


def test_a_crossed_column_is_read_once():
    """It may be hashed or numeric too, or neither; strings come as dictionaries."""
    plan = plan_of(numeric=["age"], crosses=[["job", "city"], ["age", "job", "review"]])
    assert plan.columns == ("y", "w", "age", "job", "city", "review")
    assert plan.dictionary == ("job", "city", "review")
    assert [column.name for column in plan.types] == [*plan.columns]


def test_columns_still_choose_themselves():
    """Crosses, texts and dates are no list of all columns: the others are used, as without them."""
    ignored = ["clock", "e", "at"]
    more = {"text": ["review"], "dates": ["day", "when"], "crosses": [["job", "old"]]}
    plan = plan_of(hashed=[], ignore=ignored, **more)
    assert plan.numeric == ("age", "old", "income")
    assert plan.hashed == ("job", "city")


REFUSED = [
    ({"crosses": [["job", "jobb"]]}, SchemaError, ["'jobb'", "did you mean 'job'?"]),
    ({"crosses": [["job", "y"]]}, UsageError, ["'y'", "the label"]),
    ({"crosses": [["job", "w"]]}, UsageError, ["'w'", "weight"]),
    (
        {"crosses": [["job", "income"]]},
        SchemaError,
        ["'income'", "double", "crosses takes", "remove it from crosses"],
    ),
    ({"crosses": [["job", "e"]]}, SchemaError, ["'e'", "fixed_size_list"]),
    ({"crosses": [["job", "day"]], "dates": ["day"]}, UsageError, ["'day'", "cross its parts"]),
    ({"crosses": [["job", "day.hour"]], "dates": ["day"]}, SchemaError, ["'day.hour'", "day."]),
    ({"crosses": [["job", "old"], ["job", "old"]]}, UsageError, ["'job^old'", "two features"]),
    ({"text": ["age"]}, SchemaError, ["'age'", "int32", "text takes string"]),
    ({"text": ["revue"]}, SchemaError, ["'revue'", "'review'"]),
    ({"text": ["review", "review"]}, UsageError, ["'review'", "twice"]),
    ({"text": ["job"]}, UsageError, ["'job'", "twice"]),
    ({"dates": ["review"]}, SchemaError, ["'review'", "string", "dates takes date"]),
    ({"dates": ["clock"]}, SchemaError, ["'clock'", "time64"]),
    ({"numeric": ["when"]}, SchemaError, ["'when'", "name it in dates"]),
    ({"hashed": []}, SchemaError, ["'day'", "name it in dates or add it to ignore"]),
]


@pytest.mark.parametrize("data, error, words", REFUSED)
def test_what_cannot_be_meant_is_refused(data, error, words):
    """Before a row is read, by the column, its type, and what to do."""
    with pytest.raises(error) as caught:
        plan_of(**data)
    for word in words:
        assert word in str(caught.value)


FORMS = [
    ({"crosses": ["job", "old"]}, "crosses contains 'job'"),
    ({"crosses": [["job"]]}, "two or more different columns"),
    ({"crosses": [["job", "job"]]}, "two or more different columns"),
    ({"text": [{"column": "review", "ngrams": 0}]}, "data.text.0.ngrams = 0"),
    ({"text": [{"column": "review", "counts": "tfidf"}]}, "'presence', 'count' or 'log'"),
    ({"text": [{"column": "review", "ngram": 2}]}, "did you mean 'ngrams'?"),
]


@pytest.mark.parametrize("data, words", FORMS)
def test_wrong_forms_are_told(data, words):
    """A job's keys are checked where they stand, and the remedy is shown."""
    with pytest.raises(UsageError) as caught:
        Spec.parse({"data": data})
    assert words in str(caught.value)


def test_a_plain_list_of_texts_is_words():
    """The short forms are the long ones."""
    long = {"column": "review", "ngrams": 1, "counts": "presence"}
    for short in ("review", ["review"], long, [long]):
        assert Spec.parse({"data": {"text": short}}) == Spec.parse({"data": {"text": [long]}})


def test_the_plan_travels_and_tells():
    """It survives JSON, an old one reads as one without what is new, and it names every feature."""
    text = [{"column": "review", "ngrams": 2, "counts": "log"}]
    more = {"text": text, "dates": ["when"], "crosses": [["job", "when.hour"]]}
    plan = plan_of(numeric=["age"], nulls="indicator", **more)
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    told = "\n".join(describe(plan))
    for words in (
        "text 'review': words and runs of up to 2, log(1 + count)",
        "date 'when': year, month, weekday, hour",
        "cross 'job' × 'when.hour'",
        "a null or NaN is 0, and 1 in its column's indicator: 1 more coordinate",
    ):
        assert words in told
    old = plan_of().to_json()
    for key in ("text", "crosses", "dates"):
        del old[key]
    assert Plan.from_json(old) == plan_of()


def test_indicators_move_no_other_coordinate():
    """All other coordinates stay where they are without them; these come last."""
    plain, told = (plan_of(numeric=["age"], nulls=nulls) for nulls in ("zero", "indicator"))
    assert plain.size == 2 + 2**18  # the bias, age, and what is hashed
    assert plain.size == told.indicator_offset == told.size - 1
    assert name_of(told, Names(), plain.size) == "age is null"


MOMENTS = [
    (pa.date32(), 0, (1970, 1, 4)),
    (pa.date32(), -1, (1969, 12, 3)),
    (pa.date64(), -86_400_000, (1969, 12, 3)),
    (pa.timestamp("s"), -1, (1969, 12, 3, 23)),
    (pa.timestamp("ms"), 951_782_400_000, (2000, 2, 2, 0)),
    (pa.timestamp("us"), 951_868_799_999_999, (2000, 2, 2, 23)),
    (pa.timestamp("ns"), -(2**63) + 1, (1677, 9, 2, 0)),
    (pa.timestamp("s", "Asia/Tokyo"), 1_700_000_000, (2023, 11, 2, 22)),
    (pa.timestamp("s"), 253_402_300_800, (10_000, 1, 6, 0)),
    (pa.timestamp("s"), -62_135_596_801, (0, 12, 7, 23)),
]


@pytest.mark.parametrize("kind, ticks, parts", MOMENTS)
def test_parts_of_moments(kind, ticks, parts):
    """Before 1970, at the ends of days, beyond what Python's dates hold; zones are taken in UTC."""
    whole = pa.int32() if kind == pa.date32() else pa.int64()
    array = pa.array([ticks, None], whole).view(kind)
    found = dict(date_parts(array, Date("d", parts_of(kind))))
    assert tuple(part.to_pylist()[0] for part in found.values()) == parts
    assert all(part.to_pylist()[1] is None for part in found.values())


@pytest.mark.parametrize(
    "name, kind, refused",
    [
        ("when", pa.timestamp("ns"), False),
        ("at", pa.timestamp("us", "Europe/Paris"), False),
        ("day", pa.date64(), False),
        ("when", pa.timestamp("us", "UTC"), True),
        ("when", pa.date32(), True),
        ("day", pa.timestamp("us"), True),
    ],
)
def test_later_shards_keep_their_dates(name, kind, refused):
    """Another unit or zone is the same kind of date; a zone where there was none is not."""
    plan = plan_of(dates=["day", "when", "at"])
    other = SCHEMA.set(SCHEMA.get_field_index(name), pa.field(name, kind))
    if refused:
        with pytest.raises(SchemaError, match=f"column '{name}' is"):
            check_schema(plan, other, "b.parquet")
    else:
        check_schema(plan, other, "b.parquet")
