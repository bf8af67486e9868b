"""init: the job that it writes is one that trains, and says why."""

from __future__ import annotations

import datetime
import json
import os
import pty
import select
import subprocess
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running import Ran, run, write
from terminal import MODULE

from streamomd.config.job_file import quoted
from streamomd.runs.session import Session

ROWS = 60
DAY = datetime.date(2026, 1, 1)
KINDS: dict[str, tuple[list[Any] | pa.Array, str]] = {
    "float": ([k * 37 % 11 / 4 for k in range(ROWS)], ""),
    "amount": ([k * k * 7919 % 100_003 for k in range(ROWS)], ""),  # all differ, out of order
    "color": (["red", "green", "blue"] * 20, ""),
    "flag": ([True, False, False] * 20, ""),
    "money": ([Decimal(k % 7) for k in range(ROWS)], ""),
    "gaps": ([None, 1.5, 2.5] * 20, "nulls"),
    "nan": ([float("nan"), 1.5, 2.5] * 20, "nulls"),
    "few": ([None, "a", "b"] * 20, ""),
    "customer_id": ([k * 31 % 17 for k in range(ROWS)], "ignore"),
    "orderId": (["a", "b", "c"] * 20, "ignore"),
    "uuid": (["a", "b", "c"] * 20, "ignore"),
    "number": ([1000 + k for k in range(ROWS)], "ignore"),
    "shuffled": ([k * 7 % 60 for k in range(ROWS)], "ignore"),
    "key": ([2**50 + k * k * 7919 % 100_003 for k in range(ROWS)], "ignore"),
    "code": ([f"code-{k}" for k in range(ROWS)], "ignore"),
    "constant": ([7] * ROWS, "ignore"),
    "same": (["x"] * ROWS, "ignore"),
    "empty": (pa.nulls(ROWS), "ignore"),
    "no numbers": (pa.nulls(ROWS, pa.float64()), "ignore"),
    "lists": ([[1.0] * (k % 3) for k in range(ROWS)], "ignore"),
    "map": (
        pa.array([[("a", k)] for k in range(ROWS)], pa.map_(pa.string(), pa.int64())),
        "ignore",
    ),
    "bytes": ([b"a", b"b", b"c"] * 20, "ignore"),
    "day": ([DAY + datetime.timedelta(k) for k in range(ROWS)], "dates"),
    "time": ([datetime.datetime(2026, 1, 1, k % 24) for k in range(ROWS)], "dates"),
    "loaded at": ([datetime.datetime(2026, 1, 1)] * ROWS, "ignore"),
    "note": ([f"the note of row {k}" for k in range(ROWS)], "text"),
}
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


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMOMD_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def rows(**columns: Any) -> dict[str, Any]:
    return {"x": KINDS["float"][0], **columns, "y": [0, 1] * 30}


def job() -> dict[str, Any]:
    return tomllib.loads(Path("job.toml").read_text("utf-8"))


def made(columns: dict[str, Any], *words: object) -> dict[str, Any]:
    """The job for these columns; it can be planned."""
    write(Path("rows.parquet"), columns)
    done = run("init", "rows.parquet", "--overwrite", *words)
    assert done.code == 0, done.err
    assert len(done.out.splitlines()) <= 8
    Session.open("job.toml", {}).plan()
    return job()


def roles(data: dict[str, Any], name: str) -> list[str]:
    return [
        key for key in ("ignore", "dates", "text", "vectors", "nulls") if name in data.get(key, ())
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


def text_file(name: str = "rows.csv") -> None:
    lines = [f"{k},{k % 7}.5,{'yes' if k % 2 else 'no'}" for k in range(ROWS)]
    Path(name).write_text("\n".join(["id,x,churned", *lines]) + "\n")


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


def in_text(columns: dict[str, list[Any]], delimiter: str = ",") -> None:
    """The columns as rows.csv."""
    lines = [delimiter.join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    Path("rows.csv").write_text("\n".join([delimiter.join(columns), *lines]) + "\n")


def in_csv(columns: dict[str, list[Any]], *words: object, delimiter: str = ",") -> dict[str, Any]:
    """[data] of the job that is written for these columns as text; it trains."""
    in_text(columns, delimiter)
    done = run("init", "rows.csv", "--overwrite", *words)
    assert done.code == 0, done.err
    assert run("train", "job.toml", "--checkpoint", "none").code == 0
    return job()["data"]


NUMBERS = [f"{k * 37 % 11},{k % 10}" for k in range(ROWS)]
CITIES = ["Wien", "Graz"] * 30
YESNO = ["no", "yes"] * 30


def test_decimal_commas() -> None:
    """Numbers are numbers then; the job says so. What was asked for stays."""
    columns = {"x": NUMBERS, "city": CITIES, "y": YESNO}
    data = in_csv(columns, delimiter=";")
    assert data["csv"] == {"decimal": ","}
    assert Session.open("job.toml", {}).plan().numeric == ("x",)
    assert "decimal" not in in_csv({**columns, "x": ["a,b", *NUMBERS[1:]]}, delimiter=";").get(
        "csv", {}
    )
    data = in_csv(columns, "--decimal", ".", delimiter=";")
    assert data["csv"] == {"decimal": "."}
    data = in_csv({"city": CITIES, "y": NUMBERS}, "--label", "y", delimiter=";")
    assert data["csv"] == {"decimal": ","}


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


def test_columns_that_most_rows_lack_or_that_differ_in_each() -> None:
    """The former are no label unless asked for; of the latter names are words."""
    codes = [f"N{max(k, 1)}" for k in range(ROWS)]
    names = [f"Ann {code}" for code in codes]
    late = [*[""] * (ROWS - 9), *range(9)]
    columns = {"x": range(ROWS), "n": [k % 7 for k in range(ROWS)], "who": names}
    data = in_csv({**columns, "code": codes, "z": YESNO, "late": late})
    assert (data["label"], data["text"], data["ignore"]) == ("z", ["who"], ["x", "code"])


def test_lists_of_equally_many_numbers_are_vectors() -> None:
    """As JSON lines have embeddings; other lists of numbers have no role."""
    rows = [{"v": [k, 0.5], "w": [1.5] * (k % 3), "y": k % 2} for k in range(ROWS)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run("init", "rows.jsonl", "--overwrite", "--label", "y").code == 0
    assert (job()["data"]["vectors"], job()["data"]["ignore"]) == (["v"], ["w"])
    assert run("train", "job.toml", "--checkpoint", "none").code == 0


def without_header(lines: list[str]) -> dict[str, Any]:
    Path("rows.csv").write_text("\n".join(lines) + "\n")
    done = run("init", "rows.csv", "--overwrite")
    assert done.code == 0, done.err
    return tomllib.loads(Path("job.toml").read_text())["data"]


def test_a_first_line_of_values() -> None:
    """Numbers with fractions, texts that are values, or a number twice: none is a header, as years
    are. The job says so, and trains."""
    flowers = [f"{5 + k / 10:.1f},{k % 7}.5,{'ab'[k % 2]}" for k in range(ROWS)]
    for lines, label in (
        (flowers, "f2"),
        ([f"7,7,{k % 9}.0,{k % 2}" for k in range(ROWS)], "f3"),
    ):
        data = without_header(lines)
        assert (data["csv"], data["label"]) == ({"header": False}, label)
        assert run("train", "job.toml", "--json", "--restart").result["rows"] == ROWS
    years = ["place,1999,2000", *(f"p{k % 5},{k},{k % 2}" for k in range(ROWS))]
    assert "csv" not in without_header(years)


@pytest.mark.parametrize(
    ("form", "known"),
    [
        ("%d.%m.%Y", "%d.%m.%Y"),
        ("%d/%m/%Y", "%d/%m/%Y"),
        ("%m/%d/%Y", "%m/%d/%Y"),
        ("%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M"),
        ("%Y-%m-%d", ""),
    ],
)
def test_dates_with_the_day_first(form: str, known: str) -> None:
    """Only where a day above 12 shows which number it is."""
    days = [DAY + datetime.timedelta(k) for k in range(ROWS)]
    columns = {"when": [f"{one:{form}}" for one in days], "city": CITIES, "y": YESNO}
    data = in_csv(columns)
    assert data.get("csv", {}) == ({"date_format": known} if known else {})
    assert data["dates"] == ["when"]
    if "/" in form:
        columns["when"] = [f"0{1 + k % 9}/0{1 + k % 7}/2026" for k in range(ROWS)]
        assert "csv" not in in_csv(columns)


def test_codes_for_missing_values() -> None:
    """In text they are nulls, unless another column has such numbers; in shards a comment."""
    age = [-999 if k % 7 == 0 else 20 + k % 40 for k in range(ROWS)]
    columns = {"age": age, "x": [k % 9 for k in range(ROWS)], "y": YESNO}
    data = in_csv(columns)
    assert data["csv"]["null_values"].endswith("None,-999,-999.0")
    assert data["nulls"] == {"age": "mean"}
    balance = [k * 7919 % 5000 - 2500 for k in range(ROWS)]
    assert "csv" not in in_csv({**columns, "balance": balance})
    assert "csv" not in in_csv(
        {**columns, "age": [-999 if k == 3 else 20 + k for k in range(ROWS)]}
    )
    found = made({**columns, "y": [0, 1] * 30})["data"]
    assert "nulls" not in found
    assert "# age: -999 may mean missing" in Path("job.toml").read_text()


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


def test_hints_of_a_conversion_are_printed_by_every_run() -> None:
    lines = [f"{'k.A.' if k % 9 == 0 else k % 70},{k % 2}" for k in range(100)]
    Path("rows.csv").write_text("\n".join(["age,y", *lines]) + "\n")
    for _ in range(2):
        done = run("train", "rows.csv", "--label", "y", "--checkpoint", "none")
        assert done.err.count("it is text because of k.A.") == 1


def refused() -> list[tuple[list[str], str]]:
    return [
        (["nosuch.csv"], "no such file"),
        (["empty.csv"], "empty"),
        (["one.csv"], "label and a feature"),
        (["none.parquet"], "no rows"),
        (["rows.csv", "--label", "churn"], "did you mean 'churned'?"),
        (["rows.csv", "-o", "job.txt"], "ends in .toml"),
        (["rows.csv", "--task", "guess"], "'guess' is not one of"),
        (["ids.parquet"], "no feature is left"),
    ]


@pytest.mark.parametrize(("words", "text"), refused(), ids=lambda one: str(one)[:30])
def test_data_without_a_job(words: list[str], text: str) -> None:
    """Exit code 2, a reason, and no job file."""
    text_file()
    Path("empty.csv").write_text("")
    Path("one.csv").write_text("a\n1\n2\n")
    write(Path("none.parquet"), pa.table(rows()).slice(0, 0))
    write(Path("ids.parquet"), {"id": [*range(ROWS)], "y": [0, 1] * 30})
    done = run("init", *words)
    assert (done.code, done.out) == (2, "")
    assert text in done.err
    assert not Path("job.toml").exists()


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


def test_texts_for_missing_values() -> None:
    """What the note on a column names is pasted as a flag, which the job records."""
    lines = [f"{'k.A.' if k % 9 == 0 else k % 70},{k % 2}" for k in range(100)]
    Path("rows.csv").write_text("\n".join(["age,y", *lines]) + "\n")
    noted = run("init", "rows.csv", "--yes")
    assert "'age': most values are numbers, but it is text because of k.A." in noted.err
    assert "--null-values=k.A.)" in noted.err
    assert run("init", "rows.csv", "--yes", "--overwrite", "--null-values=k.A.").code == 0
    data = tomllib.loads(Path("job.toml").read_text())["data"]
    assert data["csv"] == {"null_values": "k.A."}
    assert data["nulls"] == {"age": "mean"}
    assert run("train", "job.toml").code == 0


def test_an_existing_job_stays() -> None:
    """Without --overwrite nothing is read and nothing written."""
    Path("job.toml").write_text("mine")
    done: Ran = run("init", "nosuch.csv")
    assert (done.code, Path("job.toml").read_text()) == (2, "mine")
    assert "--overwrite" in done.err


def on_a_terminal(answers: list[tuple[str, str]]) -> tuple[int, str]:
    """Exit code and output of init, each answer typed when its question is seen."""
    main, end = pty.openpty()
    words = [*MODULE, "init", "rows.parquet"]
    seen = ""
    with subprocess.Popen(words, stdin=end, stdout=end, stderr=end) as process:
        os.close(end)
        while select.select([main], [], [], 60)[0]:
            try:
                piece = os.read(main, 65536).decode()
            except OSError:  # the other end was closed
                break
            seen += piece
            if answers and answers[0][0] in seen.rpartition("\n")[2]:
                os.write(main, f"{answers.pop(0)[1]}\n".encode())
        os.close(main)
        code = process.wait(60)
    assert not answers
    return code, seen


def test_three_questions_on_a_terminal() -> None:
    """A wrong answer is asked again, an empty one takes the proposal."""
    write(Path("rows.parquet"), rows(stars=[1, 2, 3, 4, 5] * 12))
    answers = [("label [y]:", "star"), ("label [y]:", "stars")]
    answers += [("classify or regress [classify]:", "regress"), ("checkpoint [runs/rows]:", "")]
    code, seen = on_a_terminal(answers)
    assert code == 0, seen
    assert "did you mean 'stars'?" in seen
    found = job()
    assert (found["data"]["label"], found["model"]["task"]) == ("stars", "regress")
    assert found["checkpoint"]["url"] == "runs/rows"
