"""init: the job that it writes is one that trains, and says why."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running import run, write
from written_jobs import DAY, KINDS, ROWS, job, made, roles, rows, text_file

from streamomd.config.job_file import quoted
from streamomd.engine.walks import Walks
from streamomd.runs.session import Session
from streamomd.training import choose_shapes

pytestmark = pytest.mark.usefixtures("own_folder")

STRANGE = [
    'a "b"',
    "line\nend",
    "tab\t",
    "Größe",
    "a.b",
    "a,b",
    "\x1b[31m",
    "back\\slash",
    "# no",
    "",
]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_column_has_its_role(kind: str) -> None:
    """A column is in the one key that fits it, or in none; each choice has a comment."""
    values, role = KINDS[kind]
    found = made(rows(**{kind: values}))["data"]
    assert roles(found, kind) == ([role] if role else [])
    assert (found["label"], roles(found, "x")) == ("y", [])
    lines = [one for one in Path("job.toml").read_text().splitlines() if f'"{kind}"' in one]
    assert all("  # " in line for line in lines)


def test_all_kinds_train_together() -> None:
    """The job trains unchanged, and with vectors the other columns are listed."""
    vectors = pa.array([[1.0, float(k)] for k in range(ROWS)], pa.list_(pa.float64(), 2))
    columns = {name: values for name, (values, _) in KINDS.items()}
    found = made(rows(**columns, vector=vectors))["data"]
    assert found["vectors"] == ["vector"]
    assert found["numeric"] == ["x", "float", "amount", "flag", "money", "gaps", "nan"]
    assert found["hashed"] == ["color", "few"]
    done = run("train", "job.toml", "--json")
    assert done.code == 0, done.err
    assert done.result["rows"] == ROWS
    assert Path("runs/rows").is_dir()
    assert run("init", "rows.parquet", "--overwrite").code == 0
    assert job()["checkpoint"]["url"] == "runs/rows-2"


def test_a_column_that_begins_with_one_value_stays() -> None:
    """Rows ordered by time: only the first ones are looked at. A date with one value has no use."""
    many = 10_500
    late = [7] * 10_200 + [8] * 300
    columns = {"x": [k * 37 % 11 / 4 for k in range(many)], "late": late,
               "day": [DAY] * many, "y": [0, 1] * (many // 2)}  # fmt: skip
    columns["color"] = [f"color {one}" for one in late]
    found = made(columns)["data"]
    assert roles(found, "late") == roles(found, "color") == []
    assert roles(found, "day") == ["ignore"]


@pytest.mark.parametrize("saved", [True, False])
def test_what_curves_would_bring(saved: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is measured where no loop has to be compiled for it; else the job names the command."""
    monkeypatch.setattr(Walks, "is_saved", lambda *_: saved)
    monkeypatch.setattr(choose_shapes, "is_function_saved", lambda _: True)
    x = np.random.default_rng(0).normal(size=3000)
    made({"x": x.tolist(), "y": (x * x + 0.1 * x).tolist()})
    text = Path("job.toml").read_text()
    measured = "# curved columns: --shapes columns lowers the loss of rows 1,501 to 3,000 by 9"
    assert (measured in text, "# `streamomd plan job.toml` measures" in text) == (saved, not saved)


@pytest.mark.parametrize("name", STRANGE)
def test_any_name_is_quoted(name: str) -> None:
    """As a feature with missing values, as an ignored column and as the label."""
    assert tomllib.loads(f"{quoted(name)} = {quoted(name)}") == {name: name}
    found = made({"x": KINDS["float"][0], name: KINDS["gaps"][0], "y": [0, 1] * 30})
    if name:
        assert found["data"]["nulls"] == {name: "mean"}
    else:  # the table cannot name it
        assert found["data"]["ignore"] == [""]
        return
    found = made({"x": KINDS["float"][0], name: [0, 1] * 30}, "--label", name)
    assert found["data"]["label"] == name
    assert Path("job.toml").read_text("utf-8").replace("\n", "").isprintable()


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=6)
COLUMNS = st.dictionaries(
    NAMES.filter(lambda name: name.lower() not in ("x", "y")),
    st.one_of(
        *(st.lists(values, min_size=30, max_size=30) for values in (
            st.none() | st.integers(-5, 5), st.none() | st.booleans(),
            st.none() | st.integers(-900, 900).map(lambda n: n / 100),
            st.none() | st.text("ab 1", max_size=20), st.none() | st.dates(),
        ))
    ),
    max_size=4,
)  # fmt: skip


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(COLUMNS)
def test_the_job_of_any_rows_trains(columns: dict[str, list[Any]]) -> None:
    """Also with missing values, equal values and strange names."""
    made({"x": KINDS["float"][0][:30], **columns, "y": [0, 1] * 15})
    done = run("train", "job.toml", "--checkpoint", "none", "--rule", "nag", "--json")
    assert done.code == 0, done.err
    assert done.result["rows"] == 30


def test_text_directories_and_globs() -> None:
    """Each source of a run is one of init; the label is found by its name."""
    text_file()
    for folder in "ab":
        write(Path(folder, "0.parquet"), rows())
    for sources in (["rows.csv"], ["a"], ["*/0.parquet"], ["a", "b"]):
        assert run("init", *sources, "--overwrite").code == 0
        expected = sources if len(sources) > 1 else sources[0]
        assert job()["data"]["shards"] == expected
        Session.open("job.toml", {}).plan()
    assert run("init", "rows.csv", "-o", "other.toml", "--json").result["next"] == (
        "streamomd train other.toml"
    )
    assert tomllib.loads(Path("other.toml").read_text())["data"]["label"] == "churned"


def test_missing_labels_are_skipped_rows() -> None:
    """They cannot be learned; the task follows from the others."""
    found = made({"x": KINDS["float"][0], "y": [None, 0.25, 1.5] * 20})
    assert found["data"]["on_bad_row"] == "skip"
    assert "regression" in Path("job.toml").read_text()


def test_a_large_data_set_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Footers count missing values outside of the rows that are looked at."""
    from streamomd.sources import column_facts

    monkeypatch.setattr(column_facts, "MOST_ROWS", 30)
    monkeypatch.setattr(column_facts, "LEAST_ROWS", 30)
    gap = [1.0, 2.0] * 10 + [None] * 5 + [3.0] * 35
    write(Path("rows.parquet"), rows(gap=gap), row_group_size=20)
    done = run("init", "rows.parquet")
    assert "from 30 rows of 60" in done.out
    assert job()["data"]["nulls"] == {"gap": "mean"}


def test_columns_to_leave_out() -> None:
    """They are ignored, also by defaults for missing numbers, and are never the label."""
    pq.write_table(
        pa.table({"x": [1.0, 2.0] * 9, "n": [None, 1.0] * 9, "y": [0, 1] * 9}), "a.parquet"
    )
    done = run("init", "a.parquet", "--ignore", "n,y", "--label", "x", "--yes")
    assert done.code == 2
    assert "no feature is left" in done.err
    job = run("init", "a.parquet", "--ignore", "n", "--yes", "--json").result["job"]
    assert (job["data"]["label"], job["data"]["ignore"]) == ("y", ["n"])
    assert "nulls" not in job["data"]
    assert run("train", "job.toml").code == 0
    done = run("init", "a.parquet", "--ignore", "m", "--yes", "--overwrite")
    assert (done.code, "no column 'm'" in done.err) == (2, True)


def test_numbers_of_few_groups_are_categories() -> None:
    """Named like an identifier, but of many rows each; all features are named then."""
    shop, color = [k % 3 for k in range(ROWS)], KINDS["color"][0]
    data = made(rows(shop_id=shop, customer_id=KINDS["customer_id"][0], color=color))["data"]
    assert data["ignore"] == ["customer_id"]
    assert (data["numeric"], data["hashed"]) == (["x"], ["shop_id", "color"])
    assert "named like an identifier, of 3 values" in Path("job.toml").read_text()
    assert run("train", "job.toml").code == 0


def test_a_partition_is_no_label() -> None:
    """Whatever its name, and although partitions are the last columns."""
    for k in range(2):
        write(Path("rows", f"target={k}", "0.parquet"), {"a": [1, 2] * 30, "b": [0, 1] * 30})
    assert run("init", "rows").code == 0
    assert job()["data"]["label"] == "b"


def test_rows_are_sampled_over_one_row_group() -> None:
    """Not its first rows alone: values that begin late are seen."""
    many = 100_000
    late = [1.0] * 60_000 + [2.0, None] * 20_000
    made({"x": [k * 37 % 11 / 4 for k in range(many)], "late": late, "y": [0, 1] * (many // 2)})
    write(Path("rows.parquet"), {"x": [1.0] * 60_000 + [2.0] * 40_000, "y": [0, 1] * 50_000})
    assert run("init", "rows.parquet", "--overwrite").code == 0
    assert roles(job()["data"], "x") == []


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (("ja", "nein"), ["nein", "ja"]),
        (("Ja", "Nein"), ["Nein", "Ja"]),
        (("active", "no"), ["no", "active"]),
        (("no", "yes"), None),  # their sorted order
        (("false", "no"), None),
        (("a", "b"), None),
    ],
)
def test_the_positive_class(labels: tuple[str, str], classes: list[str] | None) -> None:
    """The second class is the positive one; the job names them if their order says otherwise."""
    write(Path("rows.parquet"), pa.table({"x": [k / 7 for k in range(40)], "y": [*labels] * 20}))
    assert run("init", "rows.parquet", "--label", "y", "--yes").code == 0
    assert tomllib.loads(Path("job.toml").read_text())["model"].get("classes") == classes
    done = run("train", "job.toml")
    assert done.code == 0
    assert f"positive {(classes or labels)[1]!r}" in done.err
