"""``streamomd plan``: its report is correct, only a unit is read, and nothing is written."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import alone, everything, rows, run, shards, write

from streamomd.analysis import preview
from streamomd.analysis.preview import expected, expected_shared, expected_used

ROOT = Path(__file__).parents[2]
JOB = """
[data]
shards = "data"
label = "y"
weight = "w"
numeric = ["n"]
hashed = ["h", "id"]
text = [{ column = "t", ngrams = 2 }]
crosses = [["h", "c"]]
dates = ["d"]
nulls = "indicator"
bits = 12
[model]
rule = "nag"
loss = "logistic"
"""
COUNT = 1000


def table(count: int = COUNT, first: int = 0) -> pa.Table:
    found = rows(count).select(["y", "w", "n", "h", "c"])
    words = [f"word {k % 50} again" for k in range(count)]
    days = pa.array(np.arange(count, dtype=np.int32) % 60).view(pa.date32())
    ids = [f"id {k}" for k in range(first, first + count)]
    return found.append_column("t", [words]).append_column("d", days).append_column("id", [ids])


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "data" / "a.parquet", table())
    write(tmp_path / "data" / "b.parquet", table(first=COUNT))
    (tmp_path / "job.toml").write_text(JOB)
    return tmp_path


def fields(*words: Any) -> dict[str, Any]:
    return alone(run("plan", *words, "--json"))


def everything_below(folder: Path) -> set[tuple[str, int]]:
    return {(str(path), path.stat().st_mtime_ns) for path in folder.rglob("*")}


def test_columns_kinds_and_values(here: Path) -> None:
    """Every feature with its kind, its coordinates, and exactly how many values were seen."""
    found = fields("job.toml")
    seen = {one["name"]: (one["kind"], one["coordinates"], one["seen"]) for one in found["columns"]}
    data = table()
    pairs = set(zip(*(data.column(name).to_pylist() for name in "hc"), strict=True))
    grams = 50 + 2 + 50 + 50  # words, "word" and "again"; "word 7", "7 again"
    assert seen == {
        "n": ("numeric", 1, None),
        "h": ("hashed", None, 9),
        "id": ("hashed", None, 2 * COUNT),
        "d.year": ("date part", None, 1),
        "d.month": ("date part", None, 3),
        "d.weekday": ("date part", None, 7),
        "h^c": ("cross", None, len(pairs)),
        "t": ("text", None, grams),
        "n is null": ("indicator", 1, None),
    }
    assert all(one["expected"] == one["seen"] for one in found["columns"])  # these are all rows
    assert found["coordinates"] == 1 + 1 + 4096 + 1
    assert (found["rows"], found["shards"], found["unit"]["rows"]) == (2 * COUNT, 2, 2 * COUNT)
    hashed = found["hashed"]
    assert hashed["seen"] == sum(one["seen"] or 0 for one in found["columns"])
    assert hashed["share_expected"] == expected_shared(hashed["expected"], 4096)
    assert found["memory"]["state"] == 4 * 8 * found["coordinates"]  # NAG: w, G, s, and padding
    assert found["time"]["seconds"] > 0
    assert found["next"] == "streamomd train job.toml"


def test_it_reads_a_unit_and_writes_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of the second shard may be damaged: of it only the footer is read."""
    path = here / "data" / "b.parquet"
    content = bytearray(path.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    path.write_bytes(content)
    monkeypatch.setattr(preview, "UNIT_BYTES", 1 << 12)
    before = everything_below(here)
    found = fields("job.toml")
    assert found["unit"]["rows"] < COUNT
    assert found["rows"] == 2 * COUNT
    grown = {one["name"]: one["expected"] for one in found["columns"]}
    assert (grown["d.year"], grown["id"]) == (1, 2 * COUNT)  # none were new, and all were
    assert everything_below(here) == before
    assert run("train", "job.toml", "--checkpoint", "none").code == 2


def test_the_text_shows_the_command(here: Path) -> None:
    """Columns, collisions, memory and time in lines, and the command that trains the same job."""
    flags = ["--label", "y", "--hashed", "h,c", "--rule", "nag", "--bits", 4, "--set", "eta=0.1"]
    done = run("plan", "data", *flags)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert "hashed into 2^4 coordinates (2): h, c" in lines
    assert any(line.startswith("h ") and "hashed" in line for line in lines)
    assert "hashed values: 12 seen, about 12 expected, in about 9 of 2^4 coordinates" in lines
    assert any("data.bits = 6 has four times as many" in line for line in lines)
    assert any(line.startswith("memory: state ") for line in lines)
    assert any(line.startswith("time: about ") for line in lines)
    train = "streamomd train data --label y --hashed h,c --rule nag --bits 4 --set eta=0.1"
    assert lines[-2:] == ["next:", f"  {train}"]
    assert not (here / "runs").exists()


def test_it_says_of_which_rows_values_are_counted(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all of them, or of the first ones, in the first shard."""
    assert f"counted in all {2 * COUNT:,} rows\n" in run("plan", "job.toml").out
    monkeypatch.setattr(preview, "UNIT_BYTES", 1)
    found = run("plan", "job.toml").out
    assert re.search(r"counted in the first [\d,]+ rows, from .*a.parquet", found)


def test_train_prints_the_new_kinds_before_the_first_row(here: Path) -> None:
    """The lines that ``plan`` begins with are those that ``train`` begins with."""
    found = fields("job.toml")["plan"]
    done = run("train", "job.toml", "--checkpoint", "none", "--verbose")
    assert done.code == 0, done.err
    assert done.err.splitlines()[: len(found)] == found
    for kind in ("text 't'", "cross 'h' × 'c'", "date 'd'", "a null or NaN is 0"):
        assert any(line.startswith(kind) for line in found), kind


def test_a_state_too_large_is_reported(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not made, and the time is not guessed."""
    monkeypatch.setattr(preview, "available_memory", lambda: 1000.0)
    done = run("plan", "job.toml", "--set", "data.bits=30")
    assert done.code == 0, done.err
    assert "that is more than available" in done.out
    assert "too large to measure learning" in done.out
    assert fields("job.toml", "--set", "data.bits=30")["time"]["seconds"] is None


BAD = [
    (["nosuch.toml"], "no job file"),
    (["data"], "no label"),
    (["data", "--label", "yy"], "no column 'yy'"),
    (["data", "--label", "y", "--numeric", "h"], "name it in hashed or text"),
    (["nowhere", "--label", "y"], "no such file"),
    (["data", "--label", "y", "--set", "data.crosses=[['h']]"], "two or more"),
]


@pytest.mark.parametrize("words, message", BAD)
def test_what_train_refuses_is_refused(words: list[str], message: str, here: Path) -> None:
    """With its message and exit code."""
    done = run("plan", *words)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_a_bad_row_in_the_unit_is_reported(here: Path) -> None:
    """As train reports it; or skipped as train does."""
    bad = table(50).set_column(2, "n", pa.array([float("inf")] * 50))
    write(here / "data" / "a.parquet", bad)
    done = run("plan", "job.toml")
    assert done.code == 2
    assert "a.parquet, row 0, column 'n': found inf" in done.err
    write(here / "data" / "a.parquet", pa.concat_tables([bad, table(50)]))
    assert fields("job.toml", "--on-bad-row", "skip")["unit"]["rows"] == 100 + COUNT


RULES = [("nag_projected", {"passes": 2}), ("vaw", {}), ("dual_ascent", {}), ("arow", {})]


@pytest.mark.slow
@pytest.mark.parametrize("rule, params", RULES)
def test_rules_that_walk_otherwise(rule: str, params: dict[str, Any], tmp_path: Path) -> None:
    """Rules that look first, keep a matrix, or keep rows: each is timed."""
    shards(tmp_path / "data")
    sets = [word for key, value in params.items() for word in ("--set", f"{key}={value}")]
    given = ["--label", "y", "--numeric", "n,k", "--rule", rule, *sets]
    found = fields(tmp_path / "data", *given)
    assert found["time"]["learn_per_row"] > 0
    assert found["time"]["seconds"] > 0


def test_all_kinds_together(tmp_path: Path) -> None:
    """A pair of lists, a dictionary and a weight; of one row; and in a store."""
    write(tmp_path / "data" / "a.parquet", rows(1))
    found = fields(tmp_path / "data", *everything())
    kinds = {one["name"]: one["kind"] for one in found["columns"]}
    assert kinds == {"n": "numeric", "k": "numeric", "h": "hashed", "i": "sparse"}
    assert found["unit"]["rows"] == 1


def test_the_quickstart_has_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its 45,211 rows, and every job, month and marital state that there is."""
    monkeypatch.chdir(ROOT)
    before = set(os.listdir(ROOT))
    found = fields("pipelines/quickstart.toml")
    assert found["rows"] == 45_211
    seen = {one["name"]: one["seen"] for one in found["columns"]}
    paths = sorted((ROOT / "pipelines/data/bank").glob("*.parquet"))
    tables = [pq.read_table(path) for path in paths]
    first = pa.concat_tables(tables).slice(0, found["unit"]["rows"])
    for name in ("job", "month", "marital"):
        assert seen[name] == len(set(first.column(name).to_pylist()))
    assert set(os.listdir(ROOT)) == before


@pytest.mark.parametrize("values, coordinates", [(10, 16), (300, 1024), (2000, 1024)])
def test_the_birthday_formula(values: int, coordinates: int) -> None:
    """As many coordinates are used, and shared, as when values are thrown a thousand times."""
    thrown = np.random.default_rng(7).integers(0, coordinates, (1000, values))
    counts = [np.bincount(one, minlength=coordinates) for one in thrown]
    mean = np.mean([count[count > 1].sum() for count in counts])
    assert expected_shared(values, coordinates) == pytest.approx(mean, rel=0.02)
    mean = np.mean([np.count_nonzero(count) for count in counts])
    assert expected_used(values, coordinates) == pytest.approx(mean, rel=0.02)
    assert expected_shared(0, coordinates) == expected_shared(1, coordinates) == 0.0


@pytest.mark.parametrize("power", [0.0, 0.4, 1.0])
def test_growth_by_a_power_is_extrapolated(power: float) -> None:
    """Values that grow as a power of the rows are extrapolated with this power."""
    seen = [round(1000 * rows**power) for rows in (50_000, 100_000, 5_000_000)]
    assert expected(seen[0], seen[1], 50.0) == pytest.approx(seen[2], rel=0.01)


def test_json_is_one_object(here: Path) -> None:
    """Numbers that are not finite are null; nothing else is on stdout."""
    done = run("plan", "job.toml", "--json")
    assert json.loads(done.out) == alone(done)
