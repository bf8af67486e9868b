"""Columns of directories: their names, kinds and values, and that learning them is learning columns
of the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import run, train, write

import streamomd
from streamomd.config.recorded import split_recorded
from streamomd.config.spec import Spec
from streamomd.core.errors import DataError, SchemaError
from streamomd.features import Plan
from streamomd.shards.directory_columns import NULL, infer_partitions, keys_of, with_partitions
from streamomd.sources.find import find

pytestmark = pytest.mark.smoke
slow = pytest.mark.slow

OGD = ["--rule", "ogd", "--eta", "0.1", "--label", "y", "--checkpoint"]
DAYS, HOURS, CITIES = ("2026-01-01", "2026-01-02"), ("02", "10"), ("S%C3%A3o", NULL)


def table(seed: int, rows: int = 20) -> pa.Table:
    draw = np.random.default_rng(seed)
    return pa.table({"x": draw.normal(size=rows), "y": draw.integers(0, 2, rows)})


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight shards below day=, hour= and city=; the current directory is above ``data``."""
    monkeypatch.chdir(tmp_path)
    places = [(day, hour, city) for day in DAYS for hour in HOURS for city in CITIES]
    for seed, (day, hour, city) in enumerate(places):
        path = tmp_path / f"data/day={day}/hour={hour}/city={city}/part.parquet"
        write(path, table(seed), row_group_size=7)
    return tmp_path


@given(pairs=st.lists(st.tuples(st.text(min_size=1), st.text())))
def test_any_text_can_be_a_name_or_a_value(pairs: list[tuple[str, str]]) -> None:
    """What is percent-encoded is decoded; Hive's word for null is null."""
    texts = [(column, text) for column, text in pairs if max(column + text) < "\ud800"]
    path = "".join(f"{quote(column, safe='')}={quote(text, safe='')}/" for column, text in texts)
    assert keys_of(path + "rows.parquet") == [
        (column, None if text == NULL else text) for column, text in texts
    ]


KINDS = {
    "integer": ["1 02 -3", "9223372036854775807 -9223372036854775808", f"7 {NULL}", "0 -0"],
    "date": ["2026-01-01 2024-02-29", f"0001-01-01 {NULL}"],
    "category": [
        "1 x", "9223372036854775808", "2026-02-30", "2026-1-1", "1.5", "+1", "1 2026-01-01", NULL,
        "20260101 a", "true", "١",
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    "kind, texts", [(kind, text) for kind, cases in KINDS.items() for text in cases]
)
def test_a_column_has_one_kind_over_all_directories(kind: str, texts: str, tmp_path: Path) -> None:
    """Integers if all are, dates if all are, else categories; nulls are of any kind."""
    for text in texts.split():
        write(tmp_path / f"k={text}" / "part.parquet", table(1))
    assert infer_partitions(find(str(tmp_path)), "hive") == (("k", kind),)
    assert infer_partitions(find(str(tmp_path)), "none") == ()
    assert infer_partitions(find(str(tmp_path)), {"k": "category"}) == (("k", "category"),)


def stored(tree: Path) -> Path:
    """The same rows with the same columns in the files, in the same order."""
    for path in sorted((tree / "data").rglob("*.parquet")):
        day, hour, city = (part.partition("=")[2] for part in path.parts[-4:-1])
        rows = pq.read_table(path, partitioning=None)
        city = pa.scalar(None if city == NULL else "São", pa.string())
        rows = rows.append_column("hour", pa.array([int(hour)] * len(rows)))
        rows = rows.append_column("city", pa.repeat(city, len(rows)))
        day = pa.repeat(pa.scalar(day).cast(pa.date32()), len(rows))
        name = "-".join(path.parts[-4:-1]).replace("=", "").replace("%", "")
        write(tree / "stored" / f"{name}.parquet", rows.append_column("day", day), row_group_size=7)
    return tree / "stored"


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--dates", "day", "--set", "data.crosses=[['day.month', 'city'], ['hour', 'city']]"],
        ["--numeric", "x", "--weight", "hour", "--hashed", "city"],
        pytest.param(["--mode", "sharded", "--epochs", "2"], marks=slow),
        ["--cache", "cache", "--epochs", "2"],
        pytest.param(["--numeric", "x", "--label", "hour", "--loss", "square"], marks=slow),
        ["--numeric", "x", "--label", "hour", "--epochs", "2"],
    ],
)
@pytest.mark.sample(2)
def test_it_is_learned_as_a_column_of_the_files(tree: Path, flags: list[str]) -> None:
    """Inferred, or as date, in crosses, as weight and as label: the same bits."""
    ignored = [] if "--dates" in flags or "--numeric" in flags else ["--ignore", "day"]
    there = train("data", *OGD, "there", *flags)
    here = train(stored(tree), *OGD, "here", *flags, *ignored)
    assert there["rows"] == here["rows"] > 0
    assert there["state_sha256"] == here["state_sha256"]


def test_nothing_is_new_where_features_are_listed(tree: Path) -> None:
    """numeric and hashed alone are features; the columns of directories are known all the same."""
    listed = train("data", *OGD, "a", "--numeric", "x")
    none = train("data", *OGD, "b", "--partitions", "none")
    assert listed["state_sha256"] == none["state_sha256"]
    assert [one for one, _ in streamomd.load("a").plan.partitions] == ["day", "hour", "city"]
    assert streamomd.load("b").plan.partitions == ()
    assert "partitions" not in streamomd.load("b").plan.to_json()


def test_plan_and_train_print_them(tree: Path) -> None:
    """With their kinds, before the first row."""
    line = "columns of directories: day (date), hour (integer), city (category)"
    assert line in run("plan", "data", *OGD, "none").out
    done = run("train", "data", *OGD, "none")
    assert line in done.err
    assert "numeric, one coordinate each (2): x, hour" in done.err
    assert "hashed into 2^18 coordinates (1): city" in done.err


def test_files_that_a_shell_lists_have_none(tree: Path) -> None:
    """Each file is its own source: a line says that directories are no columns."""
    done = run("train", *sorted(map(str, Path("data").rglob("*.parquet"))), *OGD, "none")
    assert "directories day=…, hour=…, city=… are no columns" in done.err
    assert "columns of directories" not in done.err
    assert "are no columns" not in run("train", "data", *OGD, "none", "--partitions", "none").err
    quoted = run("train", "data/day=*/*/*/*.parquet", *OGD, "none")
    assert "columns of directories: day (date)" in quoted.err


def test_a_plan_saves_them(tree: Path) -> None:
    """As JSON and back; a manifest with another kind is refused."""
    train("data", *OGD, "run")
    plan = streamomd.load("run").plan
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    for wrong in ([["day", "time"]], [[1, "date"]]):
        with pytest.raises(DataError, match="expected a feature plan"):
            Plan.from_json({**plan.to_json(), "partitions": wrong})


def test_jobs_saved_before_have_none(tree: Path) -> None:
    """A recorded job without the key reads directories as it did; a new job takes them."""
    job = Spec.parse({"data": {"shards": ["data"], "label": "y"}}).to_json()
    assert job["data"]["partitions"] == "hive"
    del job["data"]["partitions"]
    assert split_recorded(job, "run")[0]["data"]["partitions"] == "none"


def test_resume_takes_the_kinds_of_the_run(tree: Path) -> None:
    """A new directory of another kind is refused with shard and remedy; one of that kind is
    learned."""
    train("data", *OGD, "run", "--set", "train.epochs=1")
    write(Path("data/day=2026-01-03/hour=x/city=Rio/part.parquet"), table(9))
    done = run("resume", "run", "--epochs", 2, "--accept-new-shards")
    assert done.code == 2
    assert "hour=x is not a 64-bit integer, as column 'hour' has in this run" in done.err
    Path("data/day=2026-01-03/hour=x").rename("data/day=2026-01-03/hour=3")
    assert run("resume", "run", "--epochs", 2, "--accept-new-shards", "--json").result["rows"] > 160


def test_different_columns_are_refused(tree: Path) -> None:
    """Of two shards of a run; a mapping names those that all have."""
    write(Path("data/other/k=1.parquet"), table(1))
    Path("data/day=2026-01-03/hour=1").mkdir(parents=True)
    write(Path("data/day=2026-01-03/hour=1/part.parquet"), table(1))
    assert run("train", "data/day=*", *OGD, "none").code == 2
    done = run("train", "data/day=*", *OGD, "none")
    assert "has directories day=, hour=, and " in done.err
    mapping = "{ day = 'date', hour = 'category' }"
    fine = run("train", "data/day=*", *OGD, "none", "--partitions", mapping)
    assert "columns of directories: day (date), hour (category)" in fine.err
    missing = run("train", "data/day=*", *OGD, "none", "--partitions", "{ city = 'category' }")
    assert "has no directory city=… below its source" in missing.err
    other = run("train", "data/day=*", *OGD, "none", "--partitions", "{ day = 'integer' }")
    assert "day=2026-01-01 is not a 64-bit integer" in other.err
    assert run("train", "data", *OGD, "none", "--partitions", "{ day = 'time' }").code == 2


STORED = {
    "integer": (pa.int32(), [2, 2, 3, None]),
    "float": (pa.float64(), [2.0, 2.0, 2.5, None]),
    "text": (pa.string(), ["02", "2", "3", None]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["2", "02", "x", None]),
}


@pytest.mark.parametrize("name", STORED)
def test_a_row_that_contradicts_its_directory_is_bad(tree: Path, name: str) -> None:
    """Its value, in whatever type, is not the directory's: an error that names it, or skipped."""
    kind, values = STORED[name]
    rows = table(1, 4).append_column("hour", pa.array(values, kind))
    write(Path("own/hour=02/part.parquet"), rows)
    write(Path("own/hour=3/part.parquet"), table(2, 4))
    done = run("train", "own", *OGD, "none")
    assert done.code == 2
    assert "row 2, column 'hour'" in done.err
    assert "expected '02', as its directory hour=… says" in done.err
    skipped = train("own", *OGD, "skipped", "--on-bad-row", "skip")
    assert (skipped["rows"], skipped["skipped"]) == (6, {"partition": 2})
    write(Path("good/hour=02/part.parquet"), rows.slice(0, 2).drop(["hour"]))
    write(Path("good/hour=3/part.parquet"), table(2, 4))
    assert skipped["state_sha256"] == train("good", *OGD, "good-run")["state_sha256"]
    # Where the column is not read, nothing contradicts.
    assert run("train", "own", *OGD, "none", "--numeric", "x").code == 0


def test_a_stored_list_cannot_be_compared(tree: Path) -> None:
    """Before a row is read."""
    lists = table(1, 2).append_column("k", pa.array([[1], [2]]))
    write(Path("own/k=1/part.parquet"), lists)
    done = run("train", "own", *OGD, "none")
    assert (done.code, "column 'k' is list<element: int64>" in done.err) == (2, True)


def test_evaluate_and_predict_find_them_anywhere(tree: Path) -> None:
    """In all directories of a path, in the file instead, and predictions have the same paths."""
    train("data", *OGD, "run")
    model = streamomd.load("run")
    whole = model.evaluate("data", by=["hour", "day", "city"], quiet=True)
    assert whole["rows"] == 160
    assert {one["value"]: one["rows"] for one in whole["slices"]["hour"]} == {2: 80, 10: 80}
    assert {one["value"] for one in whole["slices"]["day"]} == set(DAYS)
    assert {one["value"] for one in whole["slices"]["city"]} == {"São", None}
    part = model.evaluate(f"data/day={DAYS[0]}/hour=10/city={NULL}/part.parquet", quiet=True)
    assert part["rows"] == 20
    assert model.evaluate(str(stored(tree)), quiet=True)["loss"] == whole["loss"]
    files = run("predict", "run", "data", "--to", "out", "--keep", "day,hour,city", "--json")
    paths = [str(Path(file).relative_to(tree / "out")) for file in files.result["files"]]
    assert paths == [str(path.relative_to("data")) for path in sorted(Path("data").rglob("*.p*"))]
    found = pq.read_table(files.result["files"][0], partitioning=None)
    assert found["day"].to_pylist()[0].isoformat() == DAYS[0]
    assert found["city"].to_pylist()[0] == "São"
    for words in (["evaluate", "run", "flat"], ["predict", "run", "flat", "--to", "elsewhere"]):
        write(Path("flat/part.parquet"), table(1))
        done = run(*words)
        assert done.code == 2
        assert "column 'hour' (int64) is missing; no directory of its path is named hour=" in (
            done.err
        )


def test_names_that_lead_elsewhere_are_not_followed(tmp_path: Path) -> None:
    """A prediction is written below the output, whatever a store calls its objects."""
    from dataclasses import replace

    from streamomd.shards.output_files import output_names

    write(tmp_path / "a.parquet", table(1))
    shards = find(str(tmp_path))
    named = replace(shards, shards=(replace(shards.shards[0], name="../a.parquet"),))
    assert output_names(named) == ["00000-a.parquet"]


def test_a_shard_without_its_columns_is_named(tree: Path) -> None:
    """with_partitions of an untrained run needs every column."""
    with pytest.raises(SchemaError, match="no directory month=…"):
        with_partitions(find("data"), [("month", "integer")])  # type: ignore[list-item]


def test_fingerprints_are_of_the_files(tree: Path) -> None:
    """Columns of directories change none, so that runs without them resume."""
    shards = find("data")
    assert with_partitions(shards, infer_partitions(shards, "hive")).fingerprint() == (
        shards.fingerprint()
    )


def test_a_sweep_learns_them(tree: Path) -> None:
    """Each learner as ``train`` does."""
    swept: Any = run("sweep", "data", *OGD, "swept", "--grid", "eta=0.1,0.2", "--json").result
    alone = train("data", *OGD, "alone")
    assert swept["learners"][0]["loss"] == alone["loss"]
