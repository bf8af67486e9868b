"""Runs with a filter are runs on the filtered rows, however they are read, stopped and resumed."""

from __future__ import annotations

import datetime
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from caching import entries, settled
from clustered import long
from filtering import literally, random_filter, random_table, written
from running import run, train, write

import streamomd
from streamomd.core.errors import UnsupportedError
from streamomd.sources.find import find
from streamomd.training.holdout import held_out, number_of

OGD = ["--rule", "ogd", "--eta", "0.1", "--label", "y", "--numeric", "x", "--checkpoint"]
FIGURES = ("rows", "loss", "error", "skipped", "auc", "state_sha256")


def figures(told: dict[str, Any]) -> dict[str, Any]:
    return {key: told[key] for key in FIGURES}


def table(seed: int, rows: int = 40) -> pa.Table:
    """x, y, and every column that a filter compares, but day; k counts the rows."""
    draw = np.random.default_rng(seed)
    more = random_table(random.Random(seed), rows)
    own = {"x": draw.normal(size=rows), "y": draw.integers(0, 2, rows), "k": np.arange(rows)}
    return pa.table({**own, **{name: more[name] for name in more.column_names if name != "day"}})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three shards of four row groups below ``data``, in days 1 to 3; an Arrow shard in day 4."""
    monkeypatch.chdir(tmp_path)
    for day in (1, 2, 3):
        write(Path(f"data/day=2026-01-0{day}/a.parquet"), table(day), row_group_size=11)
    Path("data/day=2026-01-04").mkdir()
    with pa.ipc.new_file("data/day=2026-01-04/a.arrow", table(4).schema) as writer:
        writer.write_table(table(4), max_chunksize=11)
    return tmp_path


def filtered(keep: Any, to: str = "left") -> str:
    """The shards with the rows that ``keep(table, day)`` has, in directories of the same names."""
    for path in sorted(Path("data").rglob("a.*")):
        arrow = path.suffix == ".arrow"
        rows = (
            pa.ipc.open_file(path).read_all() if arrow else pq.read_table(path, partitioning=None)
        )
        left = rows.filter(keep(rows, int(path.parent.name[-1])))
        write(Path(to) / path.parent.name / "a.parquet", left, row_group_size=7)
    return to


@pytest.mark.parametrize("seed", [0, 1, *long(*range(2, 40))])
def test_it_is_training_on_the_filtered_table(here: Path, seed: int) -> None:
    """Random filters: the same bits, and as many rows as the filter, read literally, has."""
    draw = random.Random(seed)
    condition = random_filter(draw)

    def keep(rows: pa.Table, day: int) -> pa.Array:
        date = {"day": datetime.date(2026, 1, day)}
        return pa.array([literally(condition, row | date) is True for row in rows.to_pylist()])

    left = filtered(keep)
    flags = ["--where", written(condition), "--on-bad-row", draw.choice(["skip", "error"])]
    done = run("train", "data", *OGD, "a", *flags, "--json")
    expected = run("train", left, *OGD, "b", "--json")
    if expected.code:
        assert done.code == 2
        assert "satisfies where" in done.err or "distinct values" in done.err
        return
    assert figures(done.result) == figures(expected.result)
    assert done.result["rows"] + done.result["filtered"]["rows"] == 160
    assert expected.result["filtered"] is None


RESUMED = 4
WHERE = "day >= 2026-01-02 and k < 30 and x > -0.5"
MODES = {
    "epochs": ["--epochs", "2"],
    "sharded": ["--mode", "sharded", "--epochs", "2", "--set", "train.batch_rows=16"],
    "cache": ["--epochs", "2", "--cache", "cache"],
    "shuffled": ["--epochs", "2", "--order", "shuffled"],
    "several columns": ["--hashed", "text,word", "--set", "data.crosses=[['day.month','word']]",
                        "--dates", "day"],
    # Without classes the filtered copies have labels of later shards from their footers.
    "a label of a few": ["--label", "i8", "--set", "model.classes=[-128,-1,0,1,2,127]",
                         "--on-bad-row", "skip"],
}  # fmt: skip


@pytest.mark.parametrize(
    "mode", ["sharded", "cache", "several columns", *long("epochs", "shuffled", "a label of a few")]
)
def test_in_every_way_of_reading(here: Path, mode: str) -> None:
    """Passes, partitions, the cache, orders and kinds of columns."""
    left = filtered(
        lambda rows, day: pc.and_(
            pc.and_(pc.less(rows["k"], 30), pc.greater(rows["x"], -0.5)), pa.scalar(day > 1)
        )
    )
    settled(Path("data"))
    first = train("data", *OGD, "a", *MODES[mode], "--where", WHERE)
    flags = ["other" if word == "cache" else word for word in MODES[mode]]
    expected = train(left, *OGD, "b", *flags)
    assert figures(first) == figures(expected)
    assert first["epochs"] == expected["epochs"]
    epochs = len(first["epochs"])
    lost = {"rows": 160 * epochs - first["rows"] - sum(first["skipped"].values()), "shards": 1}
    assert {key: first["filtered"][key] for key in lost} == lost
    assert first["filtered"]["row_groups"] == 4 + 2  # rows 33 and on of the Parquet shards
    if mode == "cache":
        assert len(entries(Path("cache"))) == 16 - 6
        assert figures(train("data", *OGD, "c", *MODES[mode], "--where", WHERE)) == figures(first)
        other = train("data", *OGD, "d", *MODES[mode], "--where", "k < 30")
        assert other["rows"] > first["rows"]


def test_a_sweep_filters(here: Path) -> None:
    """Each learner has what ``train`` has."""
    flags = [*OGD, "swept", "--where", WHERE, "--grid", "eta=0.1,0.2"]
    swept = run("sweep", "data", *flags, "--json").result
    assert swept["learners"][0]["loss"] == train("data", *OGD, "a", "--where", WHERE)["loss"]


def test_every_commit_resumes(here: Path) -> None:
    """From the state after any row that was learned: the same bits, and the same counts."""
    often = ["checkpoint.every_rows=5", "checkpoint.every_seconds=0", "checkpoint.keep=999"]
    sets = [word for key in often for word in ("--set", key)]
    flags = ["--where", WHERE, "--epochs", "2", "--set", "checkpoint.aside=false"]
    whole = train("data", *OGD, "a", *flags, *sets)
    expected = {**figures(whole), "filtered": whole["filtered"]}
    commits = sorted(Path("a/commits").glob("*.json"), reverse=True)
    assert len(commits) > 15
    done = 0
    for path in commits:
        document = json.loads(path.read_text().splitlines()[0])["document"]
        path.unlink()
        if not document["finished"] and path is not commits[-1] and done < RESUMED:
            for newer in Path("a/commits").glob("*.json"):
                if newer.name >= path.name:
                    newer.unlink()
            again = run("resume", "a", "--json").result
            assert {**figures(again), "filtered": again["filtered"]} == expected
            done += 1
            for newer in Path("a/commits").glob("*.json"):
                if newer.name >= path.name:
                    newer.unlink()
    assert done == RESUMED


def test_a_changed_filter_is_refused(here: Path) -> None:
    """On resume, with exit code 3; the saved one is used."""
    train("data", *OGD, "a", "--where", WHERE)
    done = run("resume", "a", "--epochs", 2, "--set", "data.where=k < 31")
    assert (done.code, "data.where may not change on resume" in done.err) == (3, True)
    more = run("resume", "a", "--epochs", 2, "--json").result
    assert more["filtered"]["rows"] == 2 * (160 - more["epochs"][0]["rows"])


def test_hold_out_rows_are_those_of_all_rows(here: Path) -> None:
    """Their numbers count rows before the filter."""
    told = train("data", *OGD, "a", "--where", "k >= 20", "--holdout", "4")
    places = [number_of(shard.identity) for shard in find("data")]
    held = [held_out(4, 0, place, np.arange(20, 40)).sum() for place in places]
    assert told["holdout"]["rows"] == sum(held)
    assert told["rows"] == 80 - sum(held)


def test_a_bad_row_has_its_number(here: Path) -> None:
    """The row of the shard, not of those that the filter left; filtered rows are never bad."""
    rows = table(9)
    rows = rows.set_column(
        0, "x", pa.array([float("nan") if k in (3, 30) else 1.0 for k in range(40)])
    )
    write(Path("own/a.parquet"), rows)
    done = run("train", "own", *OGD, "none", "--where", "k > 20")
    assert done.code == 2
    assert "row 30, column 'x': found nan" in done.err
    skipped = train("own", *OGD, "none", "--where", "k > 20", "--on-bad-row", "skip")
    assert (skipped["rows"], skipped["skipped"]) == (18, {"nan": 1})
    at_most = run("train", "own", *OGD, "none", "--where", "k > 20", "--on-bad-row", "skip",
                  "--max-bad-rows", "1")  # fmt: skip
    assert at_most.code == 0


def test_evaluate_and_predict_filter(here: Path) -> None:
    """Figures of the rows that are left, by slices too; predictions with their row numbers."""
    train("data", *OGD, "a")
    model = streamomd.load("a")
    where = "day = 2026-01-02 and k between 5 and 25 and x is not null"
    whole = model.evaluate("data", where=where, by=["day", "flag"], quiet=True)
    left = filtered(
        lambda rows, day: pc.and_(
            pc.and_(pc.greater_equal(rows["k"], 5), pc.less_equal(rows["k"], 25)),
            pa.scalar(day == 2),
        )
    )
    there = model.evaluate(left, by=["day", "flag"], quiet=True)
    for key in ("rows", "loss", "error", "auc", "slices"):
        assert whole[key] == there[key], key
    assert whole["filtered"] == {
        "rows": 139, "shards": 3, "row_groups": 3 * 4 + 1,
        "bytes": whole["filtered"]["bytes"],
    }  # fmt: skip
    done = run("predict", "a", "data", "--to", "out", "--keep", "k", "--where", where, "--json")
    assert "21 rows predicted in 4 files, 139 rows filtered" in done.err
    found = pq.read_table("out/day=2026-01-02/a.parquet", partitioning=None)
    assert found["row"].to_pylist() == found["k"].to_pylist() == list(range(5, 26))
    assert pq.read_table("out/day=2026-01-01/a.parquet", partitioning=None).num_rows == 0
    # The filter of the training rows is not that of other rows.
    train("data", *OGD, "b", "--where", "k < 3")
    assert streamomd.load("b").evaluate("data", quiet=True)["rows"] == 160


def test_slices_of_rows_that_are_skipped_and_filtered(here: Path) -> None:
    """Bad rows among those that are left are in no slice."""
    rows = table(9)
    rows = rows.set_column(0, "x", pa.array([None if k % 7 == 0 else 1.0 for k in range(40)]))
    write(Path("own/a.parquet"), rows)
    train("own", *OGD, "a", "--on-bad-row", "skip")
    found = streamomd.load("a").evaluate("own", by=["k"], where="k >= 20", quiet=True)
    values = {one["value"] for one in found["slices"]["k"]}
    assert values == {k for k in range(20, 40) if k % 7}


def test_plan_says_what_is_not_read(here: Path) -> None:
    """Before anything is learned; so does train."""
    line = "filter: 1 of 4 shards and 6 of 16 row groups are not read"
    done = run("plan", "data", *OGD, "none", "--where", WHERE)
    assert line in done.out
    found = run("plan", "data", *OGD, "none", "--where", WHERE, "--json").result
    assert found["filtered"]["row_groups"] == 6
    assert found["unit"]["rows"] < 80
    trained = run("train", "data", *OGD, "none", "--where", WHERE)
    assert line in trained.err
    assert " rows filtered (1 shard and 6 row groups not read, " in trained.out


REFUSED = {
    "kk < 3": "no column 'kk'; did you mean 'k'?",
    "k < 'a'": "column 'k' is int64: expected a number, found 'a'",
    "text > 3": "column 'text' is string: expected a text in single quotes, found 3",
    "flag > true": "column 'flag' is bool: expected = or != with true or false, found true",
    "day > 3": "column 'day' is date32[day]: expected a date or time such as 2026-01-31",
    "day > 'soon'": "expected a date or time such as 2026-01-31",
    "us > 2026-01-31T00:00:00Z": "expected a time without an offset",
    "k > 100": "no row satisfies where: it dropped 160 rows",
    "day > 2030-01-01": "no row of 4 shards satisfies where",
    "x > 1 and x < 1": "no row satisfies where: it dropped 160 rows",
}


@pytest.mark.parametrize("where", REFUSED)
def test_what_is_refused(here: Path, where: str) -> None:
    """Before a row is read, if it is known then; with exit code 2."""
    done = run("train", "data", *OGD, "none", "--where", where, "--set", "model.classes=[0,1]")
    assert done.code == 2
    assert REFUSED[where] in done.err


def test_a_filter_of_no_row_is_named_before_its_labels(here: Path) -> None:
    done = run("train", "data", *OGD, "none", "--where", "x > 1 and x < 1")
    assert done.code == 2
    assert "no row of 4 shards that satisfies where has a label" in done.err


def test_a_shard_without_the_column_is_named(here: Path) -> None:
    """No row is taken or dropped for want of a column."""
    write(Path("data/day=2026-01-05/a.parquet"), table(5).drop(["us"]))
    done = run("train", "data", *OGD, "none", "--where", "us is null")
    assert done.code == 2
    assert "day=2026-01-05/a.parquet: no column 'us'" in done.err


@pytest.mark.slow
def test_certify_reads_the_rows_that_were_learned(here: Path) -> None:
    """The run's own filter."""
    flags = ["--where", WHERE, "--set", "model.certificate=true"]
    told = train("data", *OGD, "a", *flags)
    found = run("certify", "a", "data", "--json").result
    assert found["learners"][0]["rows"] == told["rows"]
    assert not found["learners"][0]["reason"]


def test_collections_are_refused() -> None:
    """They have filters of their own."""
    dd = pytest.importorskip("dask.dataframe")
    import pandas as pd

    frame = dd.from_pandas(pd.DataFrame({"x": [1.0, 2.0], "y": [0, 1]}), npartitions=1)
    with pytest.raises(UnsupportedError, match="filter the collection"):
        streamomd.train(shards=frame, label="y", where="x > 1", checkpoint="none", quiet=True)


def test_an_update_filters_what_arrives(here: Path) -> None:
    """New shards through the filter of the run: the bits of one run over the filtered rows."""
    Path("later").mkdir()
    Path("data/day=2026-01-03").rename("later/day=2026-01-03")
    first = train("data", *OGD, "a", "--where", WHERE, "--order", "given")
    Path("later/day=2026-01-03").rename("data/day=2026-01-03")
    told = run("update", "a", "--settle", "0", "--json").result
    assert (told["new_shards"], told["new_rows"]) == (1, 40)
    sources = ["data/day=2026-01-0[12]/*", "data/day=2026-01-04*/*", "data/day=2026-01-03*/*"]
    whole = train(*sources, *OGD, "b", "--where", WHERE, "--order", "given")
    assert figures(told) == figures(whole)
    assert told["filtered"]["rows"] == whole["filtered"]["rows"]
    assert first["rows"] < told["rows"]
