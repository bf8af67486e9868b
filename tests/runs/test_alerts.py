"""Alerts: what they are computed from, where they are reported, and how they end a run."""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import rivers_page_hinkley
from alerting import COLUMNS, FLAGS, ROWS, WATCHED, saved, write_changed
from hypothesis import given, settings
from hypothesis import strategies as st
from running import run, write
from sweeping import plain

import streamomd
from streamomd.analysis.watch import View, read_view
from streamomd.config.run_tables import Alert
from streamomd.core.batch import ColumnValues, DenseBatch
from streamomd.core.errors import AlertError, BadRowError, UnsupportedError
from streamomd.training.column_statistics import (
    MOST,
    ColumnStatistics,
    ColumnWindows,
    Drift,
    Fired,
    SeenCategories,
)
from streamomd.training.drift_alerts import (
    PageHinkley,
    check_counters,
    part_watcher,
    refuse_many_categories,
    watch_parts,
)
from streamomd.training.metrics import Metrics


@given(st.integers(0, 10_000), st.integers(0, 120), st.sampled_from([1.0, 0.99, 0.9]))
@settings(max_examples=30, deadline=None)
def test_the_loss_alerts_where_rivers_test_does(seed: int, cut: int, alpha: float) -> None:
    """At the same values, however they are cut into batches and saved between them."""
    draw = np.random.default_rng(seed)
    values = np.concatenate([draw.exponential(1.0, 60), draw.exponential(4.0, 60)])
    job = Alert(loss=True, delta=0.05, threshold=8.0, alpha=alpha, min_instances=20)
    oracle = rivers_page_hinkley.PageHinkley(20, 0.05, 8.0, alpha)
    expected = []
    for at, x in enumerate(values.tolist()):
        oracle.update(x)
        expected += [at] if oracle.drift_detected else []
    test = PageHinkley()
    found = [at for at, _ in test.add(values[:cut], job)]
    test = PageHinkley.from_array(test.array())
    found += [cut + at for at, _ in test.add(values[cut:], job)]
    assert found == expected
    whole = PageHinkley()
    whole.add(values, job)
    assert whole.array().tobytes() == test.array().tobytes()


@given(st.integers(0, 10_000), st.integers(0, 4))
@settings(max_examples=20, deadline=None)
def test_a_mean_counts_for_its_rows(seed: int, power: int) -> None:
    """Means of 2^k rows alert where river's test of the means does, whose sums have a 2^k-th of the
    size: bit for bit, as 2^k scales exactly."""
    draw, rows = np.random.default_rng(seed), 2.0**power
    values = np.concatenate([draw.exponential(1.0, 60), draw.exponential(4.0, 60)])
    job = Alert(loss=True, delta=0.05, threshold=8.0 * rows, alpha=0.99, min_instances=20)
    oracle = rivers_page_hinkley.PageHinkley(20 / rows, 0.05, 8.0, 0.99**rows)
    expected = []
    for at, x in enumerate(values.tolist()):
        oracle.update(x)
        expected += [at] if oracle.drift_detected else []
    assert [at for at, _ in PageHinkley().add(values, job, np.full(120, rows))] == expected


@given(st.integers(0, 10_000), st.integers(0, 50))
@settings(max_examples=20, deadline=None)
def test_statistics_are_their_definitions_for_any_split(seed: int, cut: int) -> None:
    """Mean, standard deviation, share of missing values and of rows with a new category."""
    draw = np.random.default_rng(seed)
    rows = random_rows(draw, 100)
    made = []
    for edges in ((0, 100), (0, cut, 50 + cut, 100)):
        one, found = ColumnWindows.none(2, 2, 6), []
        for low, high in itertools.pairwise(edges):
            for after in one.add(rows.rows(low, high), 50):
                found.append((low + after, one.changes()))
                one.end()
        made.append((one, found))
    (whole, found), (parts, again) = made
    assert found == again
    for a, b in ((whole.before, parts.before), (whole.window, parts.window)):
        assert (a.rows, a.sums.tobytes()) == (b.rows, b.sums.tobytes())
    assert whole.seen.bits.tobytes() == parts.seen.bits.tobytes()
    assert found[0] == (50, [])
    found = {(one.kind, one.column): one.value for one in found[1][1]}
    old, new = rows.numbers[:50], rows.numbers[50:]
    for k in (0, 1):
        far = abs(np.nanmean(new[:, k]) - np.nanmean(old[:, k]))
        far /= max(np.nanstd(old[:, k]), np.nanstd(new[:, k]))
        assert found["mean", k] == pytest.approx(far, abs=1e-6)
        rise = np.isnan(new[:, k]).mean() - np.isnan(old[:, k]).mean()
        assert found["null_rate", k] == pytest.approx(rise, abs=1e-12)
    for k in (0, 1):
        had, more = categories(rows.rows(0, 50), k), categories(rows.rows(50, 100), k)
        assert found["new_categories", k] == len(more - had) / 50


@given(st.integers(0, 10_000), st.lists(st.integers(0, 90), max_size=4), st.booleans())
@settings(max_examples=30, deadline=None)
def test_statistics_of_parts_merge_to_those_of_one_pass(
    seed: int, cuts: list[int], from_the_right: bool
) -> None:
    """However rows are divided, some parts being empty, and whichever neighbours merge first:
    counts and categories are equal, means and sums of squares up to rounding."""
    rows, seen = random_rows(np.random.default_rng(seed), 90), SeenCategories.none(2, 6)
    parts = []
    for low, high in itertools.pairwise([0, *sorted(cuts), 90]):
        parts.append(ColumnStatistics.none(2))
        parts[-1].add(rows.rows(low, high), seen)
    if from_the_right:
        merged = functools.reduce(lambda after, one: one.merged(after), parts[::-1])
    else:
        merged = functools.reduce(ColumnStatistics.merged, parts)
    assert merged.rows == 90
    assert {*merged.categories.tolist()} == {*rows.categories.tolist()}
    there = ~np.isnan(rows.numbers)
    np.testing.assert_array_equal(merged.sums[1], there.sum(axis=0))
    mean, deviation = merged.means()
    np.testing.assert_allclose(mean, np.nanmean(rows.numbers, axis=0), rtol=1e-13)
    np.testing.assert_allclose(deviation, np.nanstd(rows.numbers, axis=0), rtol=1e-9)
    np.testing.assert_allclose(merged.null_rates(), 1.0 - there.mean(axis=0), atol=1e-15)


class Losses:
    """An engine whose margins are the losses."""

    def row_losses(self, _: float, margins: Any, y: Any, weight: Any) -> Any:
        return margins


PLAN: Any = SimpleNamespace(
    numeric=("a", "b"), hashed=("c", "d"), hashed_lists=(), dates=(), crosses=(), text=(), bits=6
)


def batch_of(rows: ColumnValues) -> DenseBatch:
    """Rows that have these values."""
    count = len(rows)
    return DenseBatch(np.zeros((count, 0)), np.zeros(count), np.ones(count), columns=rows)


def random_rows(draw: np.random.Generator, count: int) -> ColumnValues:
    """Of two numeric columns far from 0, some missing, and two columns of up to two categories."""
    numbers = 1e6 + draw.normal(size=(count, 2))
    numbers[draw.random(numbers.shape) < 0.2] = np.nan
    lengths = draw.integers(0, 3, count)
    keys = draw.integers(0, 60, lengths.sum()) + (draw.integers(0, 2, lengths.sum()) << 32)
    return ColumnValues(numbers, np.concatenate([[0], np.cumsum(lengths)]), keys)


def categories(rows: ColumnValues, column: int) -> set[int]:
    """Of a column."""
    return {key for key in rows.categories.tolist() if key >> 32 == column}


def numbers(*rows: list[float]) -> ColumnValues:
    """Of numeric columns alone."""
    return ColumnValues(np.array(rows), np.zeros(len(rows) + 1, np.int64), np.empty(0, np.int64))


def test_a_constant_column_that_changes() -> None:
    """It moves by infinitely many standard deviations; one that stays does not, and nor do those
    without values before, or in the window."""
    one, nan = ColumnWindows.none(4, 0, 6), math.nan
    for _ in one.add(numbers([0.1, 5.1, nan, 1.0], [0.1, 5.1, nan, 1.0]), 2):
        one.end()
    for _ in one.add(numbers([0.2, 5.1, 1.0, nan], [0.2, 5.1, 2.0, nan]), 2):
        changes = {change[:2]: change.value for change in one.changes()}
    assert [changes["mean", at] for at in range(4)] == [math.inf, 0.0, 0.0, 0.0]
    assert [changes["null_rate", at] for at in range(4)] == [0.0, 0.0, -1.0, 1.0]


def test_columns_share_no_category_and_collisions_are_one() -> None:
    """A coordinate that another column has had is new; one that the column has had is not."""
    seen = SeenCategories.none(2, 1)
    keys = np.array([0, 1, 1, 1 << 32])
    assert seen.unseen(keys).tolist() == [0, 1, 1 << 32]
    seen.mark(keys[:2])
    assert seen.unseen(keys).tolist() == [1 << 32]
    assert seen.by_column(keys).tolist() == [3, 1]
    assert SeenCategories.none(0, 1).unseen(keys).tolist() == []


def test_alerts_come_back_from_a_commit() -> None:
    """The last hundred, and the number of all."""
    drift = Drift({"seen": np.array([[5]], np.uint64), "rows": np.array([2, 1])})
    for row in range(MOST + 5):
        drift.fire(Fired(row, "null_rate", 3, 0.5, 0.25))
    again = Drift.restored({**drift.saved(), "metrics.rows": np.zeros(1)})
    assert again is not None
    assert (again.alerts, again.count) == (drift.alerts, MOST + 5)
    assert again.arrays["seen"].tolist() == [[5]]
    assert again.arrays["rows"].tolist() == [2, 1]
    assert Drift.restored({"metrics.rows": np.zeros(1)}) is None


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with the rows in ``data``."""
    write_changed(tmp_path / "data")
    return tmp_path


def learn(shards: Path, **more: Any) -> streamomd.Model:
    sets = {**WATCHED, **more.pop("sets", {})}
    with plain():
        return streamomd.train(str(shards), sets=sets, **{"checkpoint": "none", **FLAGS, **more})


def test_every_kind_alerts_at_the_change_and_not_before(data: Path, tmp_path: Path) -> None:
    """In the result, in the log, in ``watch`` and in the report."""
    log, url = tmp_path / "log.jsonl", str(tmp_path / "run")
    found = learn(data / "data", log=str(log), checkpoint=url).result()["alerts"]
    assert {one["kind"] for one in found} == {"loss", "mean", "null_rate", "new_categories"}
    assert all(one["row"] > 5 * ROWS and one["value"] > one["limit"] for one in found)
    assert {one["column"] for one in found} == {None, "n", "h"}
    events = [json.loads(line) for line in log.read_text().splitlines()]
    alerts = [event for event in events if event["event"] == "alert"]
    assert [{key: event[key] for key in found[0]} for event in alerts] == found
    assert {event["level"] for event in alerts} == {"warning"}
    with plain():
        lines = "\n".join(read_view(View(url)).lines())
        assert "alert: missing values of column 'n' rose by" in lines
        page = tmp_path / "page.html"
        assert run("report", url, "-o", page).code == 0
    assert f"{len(found)} alerts" in page.read_text()
    assert "above alert." in page.read_text()


def test_rows_alike_have_none_and_the_model_does_not_change(data: Path) -> None:
    """Without [alert] there is no list; the state is the same with and without."""
    (data / "data" / "f.parquet").unlink()
    watched = learn(data / "data")
    off = {"alert.loss": False, **dict.fromkeys(COLUMNS)}
    plainly = learn(data / "data", sets=off)
    assert watched.result()["alerts"] == []
    assert plainly.result()["alerts"] is None
    assert watched.state_sha256 == plainly.state_sha256


@pytest.mark.parametrize("kind", ["table", "dicts", "halves"])
def test_rows_in_memory_are_watched(kind: str, data: Path) -> None:
    """``Model.learn`` has the alerts of a run with the rows as one more shard, and its calibration;
    a frame has them as a list of dicts has."""
    sets = {"model.calibrate": "sigmoid"}
    whole = learn(data / "data", sets=sets)
    last = pq.read_table(data / "data" / "f.parquet")
    (data / "data" / "f.parquet").unlink()
    model, y = learn(data / "data", sets=sets), last["y"].to_pylist()
    assert model.result()["alerts"] == []
    with plain():
        for low, high in ((0, 70), (70, ROWS)) if kind == "halves" else ((0, ROWS),):
            some = last.slice(low, high - low).drop_columns("y")
            model.learn(some.to_pylist() if kind == "dicts" else some, y[low:high])
    assert model.result()["alerts"] == whole.result()["alerts"] != []
    assert saved(model) == saved(whole)
    assert model.calibration == whole.calibration


def test_arrays_in_memory_are_watched(tmp_path: Path) -> None:
    """Rows of numbers alone, as an array: NaN is a missing value, and a bad row changes nothing."""
    table = {"y": [0, 1] * 60, "a": np.arange(120.0) % 7, "b": np.arange(120.0) % 5}
    write(tmp_path / "data" / "a.parquet", table)
    sets = {**dict.fromkeys(WATCHED, None), "alert.loss": False, "alert.threshold": 20.0,
            "alert.rows": 60, "alert.mean": 1.5, "alert.null_rate": 0.2}  # fmt: skip
    given = {**FLAGS, "numeric": ["a", "b"], "hashed": [], "checkpoint": "none", "nulls": "zero"}
    with plain():
        model = streamomd.train(str(tmp_path / "data"), sets=sets, **given)
    rows = np.stack([np.full(60, 50.0), np.where(np.arange(60) % 2, np.nan, 1.0)], axis=1)
    with pytest.raises(BadRowError):
        model.learn(np.array([[np.inf, 1.0]]), [1])
    assert model.result()["alerts"] == []
    model.learn(rows, [0, 1] * 30)
    found = {(one["kind"], one["column"]) for one in model.result()["alerts"]}
    assert found == {("mean", "a"), ("null_rate", "b")}


def test_a_run_ends_at_an_alert_and_continues(data: Path, tmp_path: Path) -> None:
    """Exit code 7 with a commit; the resumed run has the state and alerts of one undisturbed."""
    whole, url = learn(data / "data"), str(tmp_path / "run")
    with pytest.raises(AlertError, match=r"above alert\..*; commit \d+") as problem:
        learn(data / "data", checkpoint=url, fail_on_alert=True)
    assert problem.value.exit_code == 7
    half = streamomd.load(url)
    assert 5 * ROWS < half.metrics.total_rows < 6 * ROWS
    with plain():
        again = streamomd.resume(url, sets={"update.fail_on_alert": False}, quiet=True)
    assert again.state_sha256 == whole.state_sha256
    assert again.result()["alerts"] == whole.result()["alerts"]
    assert saved(again) == saved(whole)


def test_sharded_mode_has_the_alerts_of_exact_mode(data: Path, tmp_path: Path) -> None:
    """Rounds of one row learn as exact mode does: all that is saved is bit-identical. Of larger
    rounds the columns are. A run that ended at an alert continues to the same."""
    exact = learn(data / "data")
    sharded = {"train.mode": "sharded", "train.parts": 4, "train.batch_rows": 1}
    rounds = learn(data / "data", sets=sharded)
    assert saved(rounds) == saved(exact)
    assert rounds.result()["alerts"] == exact.result()["alerts"]
    sets = {**sharded, "train.batch_rows": 64}
    whole, url = learn(data / "data", sets=sets), str(tmp_path / "run")
    for name in ("before", "window", "rows", "seen", "categories"):
        assert saved(whole)[f"metrics.drift{name}"] == saved(exact)[f"metrics.drift{name}"]
    with pytest.raises(AlertError, match=r"above alert\..*; commit \d+"):
        learn(data / "data", sets=sets, checkpoint=url, fail_on_alert=True)
    with plain():
        again = streamomd.resume(url, sets={"update.fail_on_alert": False}, quiet=True)
    assert again.state_sha256 == whole.state_sha256
    assert saved(again) == saved(whole)


def test_the_cache_is_written_and_changes_no_alert(data: Path) -> None:
    """The first pass reads the shards, since entries have no values of columns; the second pass and
    other runs read the entries."""
    for path in (data / "data").iterdir():
        os.utime(path, (1e9, 1e9))  # the cache takes files that have settled
    plainly, cache = learn(data / "data", epochs=2), data / "cache"
    for _ in range(2):
        cached = learn(data / "data", epochs=2, sets={"data.cache": str(cache)})
        assert cached.state_sha256 == plainly.state_sha256
        assert saved(cached) == saved(plainly)
    written = sorted(path.name for path in cache.rglob("*") if path.is_file())
    sets = {"data.cache": str(cache), "alert.loss": False, **dict.fromkeys(COLUMNS)}
    learn(data / "data", sets=sets)
    assert written == sorted(path.name for path in cache.rglob("*") if path.is_file())
    assert len(written) >= 6 * ROWS // 30


@given(st.integers(0, 10_000), st.lists(st.integers(0, 120), max_size=3), st.sampled_from([1, 4]))
@settings(max_examples=20, deadline=None)
def test_parts_alert_as_their_rows_in_order_do(seed: int, cuts: list[int], block: int) -> None:
    """The loss where river's test of the losses does, of blocks of one row; with larger blocks
    where it does of the means of each part's blocks. The columns as windows do that end with a
    part's window of at most alert.rows rows, once they have alert.rows rows."""
    draw = np.random.default_rng(seed)
    losses = np.concatenate([draw.exponential(1.0, 60), draw.exponential(4.0, 60)])
    rows = random_rows(draw, 120)
    job = Alert(loss=True, delta=0.05, threshold=8.0, min_instances=20, rows=25,
                new_categories=0.01)  # fmt: skip
    parts, means, ends = [], [], []
    for low, high in itertools.pairwise([0, *sorted(cuts), 120]):
        watcher = part_watcher(Losses(), job, PLAN, high - low)
        watcher.block = block
        cut = int(draw.integers(low, high + 1))
        for first, last in ((low, cut), (cut, high)):
            watcher.add(batch_of(rows.rows(first, last)), losses[first:last, np.newaxis], 0.0)
        parts.append(watcher.found())
        for first in range(low, high, block):
            last = min(first + block, high)
            means += [losses[first:last].mean()] * (last - first)
            ends += [last] * (last - first)
    model = SimpleNamespace(
        metrics=Metrics(True), spec=SimpleNamespace(alert=job), plan=PLAN, alert=""
    )
    model.metrics.begin(0)
    model.metrics.rows[-1] = 120
    watch_parts(model, parts)
    found = [one.row for one in model.metrics.drift.alerts if one.kind == "loss"]
    if block == 1:
        oracle, expected = rivers_page_hinkley.PageHinkley(20, 0.05, 8.0, job.alpha), []
        for at, x in enumerate(losses.tolist()):
            oracle.update(x)
            expected += [at + 1] if oracle.drift_detected else []
        assert found == expected
    else:
        assert {*found} <= {*ends}
        assert found  # the mean rises from 1 to 4
    windows, expected, low = ColumnWindows.none(2, 2, 6), [], 0
    for high in itertools.accumulate(one.rows for part in parts for one in part.windows):
        if high - low >= 25 or high == 120:
            for _ in windows.add(rows.rows(low, high), high - low):
                changes = {change[:2]: change.value for change in windows.changes()}
                expected += [
                    (high, column, changes["new_categories", column])
                    for column in (0, 1)
                    if high - low >= 25 and changes.get(("new_categories", column), 0.0) > 0.01
                ]
                windows.end()
            low = high
    alerts = [one for one in model.metrics.drift.alerts if one.kind == "new_categories"]
    assert [(one.row, one.column, one.value) for one in alerts] == expected


@pytest.mark.parametrize("command", ["update", pytest.param("follow", marks=pytest.mark.slow)])
def test_an_update_alerts(command: str, data: Path, tmp_path: Path) -> None:
    """Its rows are compared with those of the run; a flag of this call ends it."""
    later, url = data / "data" / "f.parquet", tmp_path / "run"
    aside = later.rename(data / "f.parquet")
    assert learn(data / "data", checkpoint=str(url)).result()["alerts"] == []
    aside.rename(later)
    more = ["--idle-exit", "1s", "--every", "1s"] if command == "follow" else []
    with plain():
        done = run(command, url, "--settle", "0s", "--fail-on-alert", *more)
        assert (done.code, "alert: " in done.err) == (7, True), done.err
        assert run("update", url, "--settle", "0s", "--json").result["alerts"]
    assert streamomd.load(str(url)).spec.update.fail_on_alert is False


@pytest.mark.slow
def test_later_epochs_are_not_watched(data: Path) -> None:
    """Their rows were seen."""
    once, twice = learn(data / "data"), learn(data / "data", epochs=2)
    assert once.result()["alerts"] == twice.result()["alerts"]


REFUSED = [
    ({"data.delay": "1h", "data.time": "y"}, {}, r"\[alert\] compares each row with its label"),
]


@pytest.mark.parametrize(("sets", "flags", "message"), REFUSED)
def test_refused(sets: dict[str, Any], flags: dict[str, Any], message: str, data: Path) -> None:
    """What cannot be right is named."""
    with pytest.raises(UnsupportedError, match=message):
        learn(data / "data", sets=sets, **flags)


def test_categories_that_do_not_fit_into_a_commit_are_refused(data: Path) -> None:
    """The error says how many bytes there would be."""
    model = learn(data / "data")
    refuse_many_categories(model.spec, replace(model.plan, bits=29))
    with pytest.raises(UnsupportedError, match=r"1 column .* data.bits = 30: .* 128 MiB"):
        refuse_many_categories(model.spec, replace(model.plan, bits=30))


def test_a_sweep_has_none(data: Path) -> None:
    """Its learners share every row, and one of them would end the others."""
    grid = {"eta": [0.5, 1.0]}
    with plain(), pytest.raises(UnsupportedError, match="not for a sweep"):
        streamomd.sweep(grid=grid, shards=str(data / "data"), sets=WATCHED, **FLAGS)


WRONG: list[tuple[str, Any]] = [
    ("classes", np.zeros(9)),
    ("classes", np.array([np.nan, 0.0, 0.0])),
    ("margins", np.full((2, 16385), -1.0)),
    ("loss", np.zeros(2)),
    ("before", np.zeros((1, 3))),
    ("window", np.zeros((4, 7))),
    ("rows", np.zeros(4, np.int64)),
    ("seen", np.zeros((1, 8), np.uint64)),
    ("categories", np.array([3, 3])),
    ("categories", np.array([1 << 32])),
    ("strange", np.zeros(1)),
]


def test_counters_of_another_shape_are_a_corrupt_commit(data: Path) -> None:
    """A hash proves a commit's bytes, not that they make sense; and so are kinds that no version
    has, and columns that the model does not have."""
    model = learn(data / "data")
    check_counters(model)
    for name, array in WRONG:
        whole = model.metrics
        model.metrics = whole.copy()
        if name in ("classes", "margins"):
            setattr(model.metrics, name, array)
        else:
            model.metrics.drift.arrays[name] = array
        with pytest.raises((LookupError, ValueError)):
            check_counters(model)
        model.metrics = whole
    saved = model.metrics.drift.saved()
    saved["metrics.driftalerts"][0, 1] = 99.0
    with pytest.raises(IndexError):
        Drift.restored(saved)
    model.metrics.drift.fire(Fired(1, "mean", 5, 1.0, 0.5))
    with pytest.raises(ValueError, match="another column"):
        check_counters(model)
