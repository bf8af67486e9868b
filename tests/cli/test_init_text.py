"""init on text: what its columns are, read with which options."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest
from running import run
from written_jobs import DAY, ROWS, job, made

from streamomd.runs.session import Session

pytestmark = pytest.mark.usefixtures("own_folder")
NUMBERS = [f"{k * 37 % 11},{k % 10}" for k in range(ROWS)]
CITIES = ["Wien", "Graz"] * 30
YESNO = ["no", "yes"] * 30


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
    """[data] of the job that is written for a file of these lines."""
    Path("rows.csv").write_text("\n".join(lines) + "\n")
    done = run("init", "rows.csv", "--overwrite")
    assert done.code == 0, done.err
    return job()["data"]


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


def test_hints_of_a_conversion_are_printed_by_every_run() -> None:
    lines = [f"{'k.A.' if k % 9 == 0 else k % 70},{k % 2}" for k in range(100)]
    Path("rows.csv").write_text("\n".join(["age,y", *lines]) + "\n")
    for _ in range(2):
        done = run("train", "rows.csv", "--label", "y", "--checkpoint", "none")
        assert done.err.count("it is text because of k.A.") == 1


def test_texts_for_missing_values() -> None:
    """What the note on a column names is pasted as a flag, which the job records."""
    lines = [f"{'k.A.' if k % 9 == 0 else k % 70},{k % 2}" for k in range(100)]
    Path("rows.csv").write_text("\n".join(["age,y", *lines]) + "\n")
    noted = run("init", "rows.csv", "--yes")
    assert "'age': most values are numbers, but it is text because of k.A." in noted.err
    assert "--null-values=k.A.)" in noted.err
    assert run("init", "rows.csv", "--yes", "--overwrite", "--null-values=k.A.").code == 0
    data = job()["data"]
    assert data["csv"] == {"null_values": "k.A."}
    assert data["nulls"] == {"age": "mean"}
    assert run("train", "job.toml").code == 0
