"""A model and rows in memory: predictions, explanations, learning, and what is refused."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import some_pairs
from in_memory import learn, learned, new_model
from scipy.sparse import coo_matrix, csr_array, csr_matrix

import streamomd
from streamomd.core.errors import (
    BadRowError,
    DataError,
    DivergedError,
    SchemaError,
    UsageError,
)
from streamomd.losses import all_losses
from streamomd.rules import all_rules
from streamomd.training.model import Model

ROWS = 60
DAY = datetime.date(2024, 2, 28)


def rows(count: int = ROWS, seed: int = 2) -> pa.Table:
    draw = np.random.default_rng(seed)
    age, job = draw.uniform(18.0, 80.0, count), draw.choice(["nurse", "clerk", "cook"], count)
    return pa.table(
        {
            "id": np.arange(count),
            "age": age,
            "income": draw.integers(0, 90_000, count),
            "job": job,
            "day": [DAY + datetime.timedelta(int(k)) for k in draw.integers(0, 40, count)],
            "note": draw.choice(["good good year", "bad year", ""], count),
            "y": np.where((age > 45) ^ (draw.random(count) < 0.2), "yes", "no"),
        }
    )


DATA: dict[str, Any] = {
    "numeric": ["age", "income"],
    "hashed": ["job"],
    "dates": ["day"],
    "text": ["note"],
    "crosses": [["job", "day.weekday"]],
    "bits": 8,
}


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return rows()


@pytest.fixture(scope="module")
def model(table: pa.Table) -> Model:
    return learned(table, data=DATA, model={"rule": "auto"})


def numbers(kind: str) -> tuple[Model, Any]:
    """A model of numbers, of a vector or of a pair of lists, and its rows as a matrix."""
    draw = np.random.default_rng(3)
    x = draw.standard_normal((ROWS, 3)) * (draw.random((ROWS, 3)) < 0.7)
    y = pa.array((x[:, 0] > 0).astype(int))
    columns: dict[str, Any] = dict(zip("abc", x.T, strict=True))
    data: dict[str, Any] = {"numeric": list("abc")}
    if kind == "vector":
        columns, data = {"X": pa.FixedSizeListArray.from_arrays(x.ravel(), 3)}, {"vectors": ["X"]}
    if kind == "pair":
        lists = [(row.nonzero()[0], row[row != 0.0]) for row in x]
        columns = {"i": [i for i, _ in lists], "v": [v for _, v in lists]}
        data = {"sparse": {"indices": "i", "values": "v", "size": 3}}
    return learned(pa.table({**columns, "y": y}), data=data), x


def test_rows_of_every_kind(model: Model, table: pa.Table) -> None:
    """Frames, tables, batches and dicts of the same rows have the same labels, to the bit."""
    expected = model.decision_function(table)
    dicts = table.to_pylist()
    pandas = table.to_pandas()
    kinds: list[Any] = [
        table.to_batches()[0], pandas, pandas.astype({"job": "category", "age": "Float64"}),
        pandas.sample(frac=1.0, random_state=0).sort_index(), pl.from_arrow(table), dicts,
        tuple(dicts), table.drop_columns(["y"]), table.select(table.column_names[::-1]),
        pa.concat_tables([table.slice(0, 7), table.slice(7)]),
    ]  # fmt: skip
    for given in kinds:
        assert model.decision_function(given).tobytes() == expected.tobytes()
        assert model.predict(given).tolist() == np.where(expected > 0.0, "yes", "no").tolist()
    assert model.decision_function(dicts[3]).tolist() == [expected[3]]
    assert model.predict_proba(table).shape == (ROWS, 2)
    np.testing.assert_allclose(model.predict_proba(table).sum(axis=1), 1.0, rtol=1e-15)
    assert model.classes == ("no", "yes")
    for empty in (table.slice(0, 0), []):
        assert model.predict(empty).shape == (0,)
        assert model.predict_proba(empty).shape == (0, 2)
        assert model.explain(empty) == []


@pytest.mark.parametrize("kind", ["numbers", "vector", "pair"])
def test_matrices(kind: str) -> None:
    """Matrices have the margins of their rows as dicts and, explained, their parts."""
    model, x = numbers(kind)
    given = [x, csr_matrix(x), csr_array(x), coo_matrix(x), np.asfortranarray(x)]
    named = [dict(zip("abc", row, strict=True)) for row in x]
    if kind == "vector":
        named = [{"X": row} for row in x]
    if kind == "pair":
        named = [{"i": row.nonzero()[0], "v": row[row != 0.0]} for row in x]
    expected = model.decision_function(named)
    assert model.decision_function(x.astype(np.float32)).shape == (ROWS,)
    for rows in given:
        assert model.decision_function(rows).tobytes() == expected.tobytes()
        explained = model.explain(rows)
        assert explained[1].margin == expected[1]
    with pytest.raises(DataError, match="has 2 columns, the model was trained on 3"):
        model.predict(x[:, :2])
    with pytest.raises(BadRowError, match=r"rows, row 4, column 1.*found nan, expected a finite"):
        x[4, 1] = math.nan
        model.predict(x)
    with pytest.raises(UsageError, match=r"an array has shape \(rows, columns\)"):
        model.predict(x[0])


@pytest.mark.parametrize("rule", ["auto", "nag", "sop"])
def test_predictions_of_a_run(rule: str, tmp_path: Path) -> None:
    """After training, commit and load: what ``predict`` writes is what a scorer returns."""
    table, path = rows(), tmp_path / "rows.parquet"
    pq.write_table(table, path)
    sets = {f"data.{key}": value for key, value in DATA.items()}
    flags: dict[str, Any] = {"label": "y", "rule": rule, "checkpoint": str(tmp_path / "run")}
    streamomd.train(str(path), **flags, sets=sets, quiet=True)
    model = streamomd.load(str(tmp_path / "run"))
    (file,) = model.predict(str(path), to=str(tmp_path / "out"))
    assert model.predict([str(path)], str(tmp_path / "again"), shards=()) == [
        str(tmp_path / "again" / "rows.parquet")
    ]
    written, scorer = pq.read_table(file), model.scorer()
    given = table.to_pylist()
    assert [scorer.score(row) for row in given] == written.column("score").to_pylist()
    assert [scorer(row) for row in given] == written.column("prediction").to_pylist()
    assert model.decision_function(table).tolist() == written.column("score").to_pylist()
    assert model.predict(table.to_pandas()).tolist() == written.column("prediction").to_pylist()
    if rule != "sop":
        assert [scorer.proba(row) for row in given] == written.column("probability").to_pylist()
    with pytest.raises(UsageError, match="pass to= with a directory"):
        model.predict(str(path))


def test_explanations(model: Model, table: pa.Table) -> None:
    """Every feature has a name and a value, and what they add sums to the margin."""
    row = table.to_pylist()[0] | {"note": "Good good year"}
    (explained,) = model.explain([row])
    total = sum(contribution for _, _, contribution in explained.contributions)
    assert explained.margin == model.decision_function(row)[0]
    assert total == pytest.approx(explained.margin, rel=1e-9)
    found = {name: value for name, value, _ in explained.contributions}
    day = row["day"]
    assert found == {
        "bias": None, "age": row["age"], "income": row["income"], f"job={row['job']}": row["job"],
        f"day.year={day.year}": str(day.year), f"day.month={day.month}": str(day.month),
        f"day.weekday={day.isoweekday()}": str(day.isoweekday()),
        f"job^day.weekday={row['job']}^{day.isoweekday()}": f"{row['job']}^{day.isoweekday()}",
        "note=good": 2, "note=year": 1,
    }  # fmt: skip
    sizes = [abs(contribution) for _, _, contribution in explained.contributions]
    assert sizes == sorted(sizes, reverse=True)
    assert [one.margin for one in model.explain(table)] == model.decision_function(table).tolist()


def test_an_explanation_a_class() -> None:
    """With a margin for each class there are contributions for each."""
    table = rows().append_column("z", pa.array(np.arange(ROWS) % 3)).drop_columns(["y"])
    table = table.rename_columns([*table.column_names[:-1], "y"])
    model = learned(table, data=DATA, model={"rule": "auto", "loss": "softmax"})
    (explained,) = model.explain(table.slice(0, 1))
    assert len(explained.contributions) == len(explained.margin) == 3
    for contributions, margin in zip(explained.contributions, explained.margin, strict=True):
        total = math.fsum(contribution for _, _, contribution in contributions)
        assert total == pytest.approx(margin, rel=1e-9)
    assert model.predict_proba(table).shape == model.decision_function(table).shape == (ROWS, 3)


@pytest.mark.parametrize(("rule", "loss"), list(some_pairs()))
@pytest.mark.sample(3)
def test_learning_continues_training(rule: str, loss: str) -> None:
    """Rows learned in memory leave the state and the counters of one more shard, to the bit."""
    bound = all_rules()[rule].losses.lipschitz
    params = {bound: 100.0} if bound and all_losses()[loss].lipschitz is None else {}
    classifies = all_losses()[loss].classifies
    table = rows(30)
    if not classifies:
        table = table.set_column(6, "y", pa.array(np.abs(np.sin(np.arange(1.0, 31.0)))))
    small = table.set_column(1, "age", pa.array(np.asarray(table.column("age")) / 100.0))
    data = {"numeric": ["age"], "hashed": ["job"], "bits": 2}
    job: dict[str, Any] = {"data": data, "model": {"rule": rule, "loss": loss}, "params": params}
    if classifies:
        job["model"]["classes"] = ["no", "yes"]
    whole, parts = new_model(small, **job), new_model(small, **job)
    learn(whole, small)
    first, then = small.slice(0, 11), small.slice(11)
    learn(parts, first)
    features, y = then.drop_columns(["y"]), then.column("y")
    assert parts.learn(features.slice(0, 5), y.slice(0, 5)) is parts
    parts.learn(features.slice(5, 6).to_pandas(), y.slice(5, 6).to_pandas())
    parts.learn(features.slice(11).to_pylist(), y.slice(11).to_pylist())
    assert parts.state_sha256 == whole.state_sha256
    assert parts.names.seen() == whole.names.seen()


def test_weights_of_rows(table: pa.Table) -> None:
    """A row of weight 2 counts as one of a weight column."""
    weighed = table.append_column("w", pa.array(np.arange(ROWS) % 3 + 0.5))
    whole = learned(weighed, data={**DATA, "weight": "w"})
    parts = new_model(table, data=DATA)
    parts.learn(table, table.column("y"), sample_weight=np.asarray(weighed.column("w")))
    assert parts.state.cells.tobytes() == whole.state.cells.tobytes()
    assert parts.result()["loss"] == whole.result()["loss"]


def test_labels_that_are_refused(table: pa.Table) -> None:
    """A label that is no class names its row; then nothing has been learned."""
    model = learned(table, data=DATA)
    before = model.state_sha256
    y = table.column("y").to_pylist()
    wrong = (
        r"rows, row 7, column 'y': found label 'maybe', expected one of the classes \['no', 'yes'\]"
    )
    with pytest.raises(BadRowError, match=wrong):
        model.learn(table, [*y[:7], "maybe", *y[8:]])
    with pytest.raises(BadRowError, match="row 1, column 'y': found label null"):
        model.learn(table, [y[0], None, *y[2:]])
    with pytest.raises(BadRowError, match=r"row 2, column 'sample_weight': found -1\.0"):
        model.learn(table, y, [1.0, 1.0, -1.0, *[1.0] * (ROWS - 3)])
    with pytest.raises(BadRowError, match="row 0, column 'sample_weight': found null"):
        model.learn(table, y, [math.nan] * ROWS)
    with pytest.raises(BadRowError, match="row 0, column 'y': found label null"):
        model.learn(table, [None] * ROWS)
    with pytest.raises(DataError, match="rows has 60 rows and y has 59 values"):
        model.learn(table, y[1:])
    with pytest.raises(DataError, match="y is not a column of values"):
        model.learn(table, np.zeros((ROWS, 2)))
    with pytest.raises(UsageError, match=r"needs the labels: learn\(rows, y\)"):
        model.learn(table)
    with pytest.raises(SchemaError, match="column 'age' is missing"):
        model.learn(table.drop_columns(["age"]), y)
    assert model.state_sha256 == before


def test_missing_columns_in_one_message(model: Model, table: pa.Table) -> None:
    """All missing columns are named, with the names that are near, of every kind of rows."""
    fewer = table.drop_columns(["age", "job", "day"]).append_column("jobs", table.column("job"))
    expected = r"columns 'age', 'job', 'day' are missing; did you mean 'jobs' for 'job'\?"
    for given in (fewer, fewer.to_pandas(), fewer.to_pylist(), fewer.to_pylist()[0]):
        with pytest.raises(SchemaError, match=expected):
            model.predict(given)
    scorer = model.scorer()
    for ask in (scorer, scorer.score, scorer.proba, scorer.explain):
        with pytest.raises(SchemaError, match=f"the row: {expected}"):
            ask(fewer.to_pylist()[0])
    good = table.to_pylist()
    with pytest.raises(SchemaError, match=f"row 2: {expected}"):
        scorer.many([*good[:2], *fewer.to_pylist()])


def test_wrong_types_in_one_message(model: Model, table: pa.Table) -> None:
    """All columns of another type are named at once."""
    other = table.set_column(1, "age", pa.array(["x"] * ROWS))
    other = other.set_column(3, "job", pa.array([1.5] * ROWS))
    with pytest.raises(
        SchemaError,
        match=r"column 'age' is string, the model was .* double; column 'job' is double",
    ):
        model.predict(other)
    row = table.to_pylist()[0] | {"age": "x", "job": 1.5, "day": "soon", "note": 3}
    expected = (
        r"column 'age': found 'x' \(str\), expected a number; column 'job': found 1\.5 \(float\), "
        r"expected text; column 'day': found 'soon' \(str\), expected a date.*; "
        r"column 'note': .*3 \(int\)"
    )
    with pytest.raises(SchemaError, match=f"rows, row 1: {expected}"):
        model.predict([table.to_pylist()[0], row])
    with pytest.raises(SchemaError, match=f"the row: {expected}"):
        model.scorer().score(row)


BAD: list[tuple[str, Any, str]] = [
    ("age", None, r"a missing value, expected a number.*data\.nulls"),
    ("age", math.nan, "a missing value"),
    ("age", pd.NA, "a missing value"),
    ("age", math.inf, "found inf, expected a finite number"),
    ("age", True, r"found True \(bool\), expected a number"),
    ("age", 2**53 + 1, "an integer float64 can hold"),
    ("age", 10**400, "an integer float64 can hold"),
    ("job", Decimal(1), r"\(Decimal\), expected text"),
    ("age", datetime.timedelta(1), r"\(timedelta\), expected a number"),
    ("age", [1.0], r"\(list\), expected a number"),
    ("job", 3, r"\(int\), expected text"),
    ("job", ["nurse"], r"\(list\), expected text"),
    ("job", "\ud800", "expected text in UTF-8"),
    ("note", b"\xff", "expected text in UTF-8"),
    ("day", datetime.datetime(2024, 1, 1), "expected a date"),
    ("day", 20_000, "expected a date"),
]


@pytest.mark.parametrize(("column", "value", "message"), BAD, ids=lambda value: repr(value)[:20])
def test_bad_values(model: Model, table: pa.Table, column: str, value: Any, message: str) -> None:
    """A value that a column cannot take names the column, the value and what was expected."""
    row = table.to_pylist()[0] | {column: value}
    for _ in range(2):
        with pytest.raises((SchemaError, BadRowError), match=f"column '{column}': .*{message}"):
            model.scorer().score(row)
    with pytest.raises((SchemaError, BadRowError), match=rf"rows, row 0: column '{column}'"):
        model.predict(row)


EQUAL: list[tuple[str, Any, Any]] = [
    ("age", 41, np.int8(41)),
    ("age", 41, Decimal("41.00")),
    ("age", 0.5, np.float32(0.5)),
    ("job", "nurse", np.str_("nurse")),
    ("job", "nurse", b"nurse"),
    ("job", None, math.nan),
    ("job", None, pd.NA),
    ("day", DAY, "2024-02-28"),
    ("day", DAY, np.datetime64("2024-02-28")),
    ("day", None, pd.NaT),
    ("note", None, ""),
    ("note", "good", b"Good"),
]


@pytest.mark.parametrize(("column", "value", "other"), EQUAL, ids=lambda value: repr(value)[:20])
def test_equal_values(model: Model, table: pa.Table, column: str, value: Any, other: Any) -> None:
    """Values of numpy, of pandas and as JSON has them count as Python's own."""
    row, scorer = table.to_pylist()[0], model.scorer()
    expected = scorer.score(row | {column: value})
    for _ in range(2):
        assert scorer.score(row | {column: other}) == expected
        assert scorer.many([row | {column: other}] * 20)[1].tolist() == [expected] * 20
    assert model.decision_function(row | {column: other}).tolist() == [expected]


def test_categories_that_are_equal_in_python() -> None:
    """1, 1.0 and True are equal in Python, and one refuses what another was cached for."""
    table = pa.table({"k": [1, 0, 1, 0], "f": [True, False, False, True], "y": [0, 1, 0, 1]})
    scorer = learned(table, data={"hashed": ["k", "f"], "bits": 4}).scorer()
    row = {"k": 1, "f": True}
    expected = scorer.score(row)
    assert scorer.score(row | {"k": 1.0}) == expected
    for bad in ({"k": True}, {"f": 1}, {"f": 1.0}):
        with pytest.raises(SchemaError, match="found"):
            scorer.score(row | bad)
        with pytest.raises(SchemaError, match="row 9: column"):
            scorer.many([row] * 9 + [row | bad])


def test_what_is_no_row(model: Model, table: pa.Table) -> None:
    """Anything else than rows is refused with what is taken."""
    for given in (3, None, "rows", [1, 2], [[1.0, 2.0]], np.zeros(3), {1, 2}):
        with pytest.raises(UsageError):
            model.predict(given)
        with pytest.raises(UsageError, match=r"expected a dict|expected a list of dicts"):
            model.scorer().many(given) if given is not None else model.scorer()(given)
    with pytest.raises(UsageError, match="pass a frame or dicts with columns age, income"):
        model.predict(np.zeros((2, 2)))
    hinge = learned(table, data=DATA, model={"loss": "hinge"})
    with pytest.raises(UsageError, match="loss 'hinge' has no probabilities"):
        hinge.predict_proba(table)
    with pytest.raises(UsageError, match="loss 'hinge' has no probabilities"):
        hinge.scorer().proba(table.to_pylist()[0])
    vectors = model.state.extra["vectors"]
    before = vectors.copy()
    vectors[...] = math.nan
    try:
        with pytest.raises(DivergedError):
            model.scorer()
        with pytest.raises(DivergedError):
            model.predict(table)
    finally:
        vectors[...] = before


def test_a_scorer_is_of_its_time(table: pa.Table) -> None:
    """What the model learns later does not change a scorer."""
    for rule in ("auto", "nag", "sop_diag", "sop"):
        loss = all_rules()[rule].losses.default
        data = {**DATA, "bits": 3}
        model = learned(table, data=data, model={"rule": rule, "loss": loss})
        scorer, given = model.scorer(), table.to_pylist()
        before = [scorer.score(row) for row in given]
        model.learn(given, table.column("y"))
        assert [scorer.score(row) for row in given] == before
        assert [model.scorer().score(row) for row in given] != before


def test_missing_numbers_are_learned() -> None:
    """Dicts and tables with missing numbers are learned as a shard's: as the mean, or 0."""
    ages = [None if at % 3 == 1 else float(at) for at in range(20)]
    table = pa.table({"age": ages, "n": ages[::-1], "y": [at % 2 for at in range(20)]})
    for hashed in ([], ["n"]):
        numeric = ["age"] if hashed else ["age", "n"]
        data = {"numeric": numeric, "hashed": hashed, "nulls": {"age": "mean", "*": "indicator"}}
        if hashed:
            data["nulls"] = {"age": "mean"}
        whole, parts = new_model(table, data=data), new_model(table, data=data)
        learn(whole, table)
        parts.learn(table.slice(0, 9).to_pylist(), table.column("y").slice(0, 9))
        parts.learn(table.slice(9).to_pandas(), table.column("y").slice(9))
        assert parts.state_sha256 == whole.state_sha256
        row = {"age": None, "n": 3.0}
        assert parts.scorer().score(row) == parts.decision_function(row)[0]
