"""Metrics by hour and day: literal sums, any cuts, resumed runs, and how many periods there are."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import Impatient, run, with_column, write
from timed import COUNT, DAYS, FLAGS, Literal, seconds_of, timed_shards, train

import streamomd
from streamomd.core.errors import (
    BadRowError,
    SchemaError,
    StoppedError,
    UsageError,
)
from streamomd.core.jit import compiled
from streamomd.training.metrics import Metrics, by_time
from streamomd.training.metrics.by_time import DAY, HOUR, ByTime, period_text

KEYS = ("rows", "loss", "error", "rmse")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six days of rows, in no order of time in a day, some of the day before."""
    return timed_shards(tmp_path_factory.mktemp("timed") / "data", late=True)


def literal(data: Path, length: int) -> dict[str, list[float]]:
    """Rows and sums of each period, added up row by row."""
    learner, found = Literal(data), defaultdict(lambda: [0.0] * 4)
    for row in learner.rows:
        sums = np.zeros(3)
        learner.engine.learn(learner.state, sums, row)
        assert row.time is not None
        one = found[period_text(int(row.time[0]) // length, length)]
        for at, term in enumerate([1.0, *sums]):
            one[at] += float(term)
    return dict(found)


@pytest.mark.parametrize("late", [False, True])
def test_figures_are_those_of_the_rows(late: bool, tmp_path: Path) -> None:
    """rows, loss and error of each hour and day are those of its rows one by one, to 1e-12; the
    model is the one without times, to the bit."""
    data = timed_shards(tmp_path / "data", late=late, days=3)
    model = train(data)
    timed = model.result()["by_time"]
    for by, length in (("hour", HOUR), ("day", DAY)):
        expected = literal(data, length)
        assert [one["period"] for one in timed[by]] == sorted(expected)
        for one in timed[by]:
            rows, importance, loss, wrong = expected[one["period"]]
            assert one["rows"] == rows
            if importance:
                assert one["loss"] == pytest.approx(loss / importance, rel=1e-12, abs=1e-12)
                assert one["error"] == pytest.approx(wrong / importance, rel=1e-12, abs=1e-12)
    assert model.state_sha256 == train(data, time="").state_sha256


def test_late_rows_and_ties_are_counted(data: Path) -> None:
    """Late: before an earlier row's time; ties: at the latest time so far."""
    late = ties = 0
    latest = -1
    for time in Literal(data).times:
        late, ties = late + (time < latest), ties + (time == latest)
        latest = max(latest, time)
    timed = train(data).result()["by_time"]
    assert (timed["late"], timed["ties"]) == (late, ties)
    assert timed["latest"] == np.datetime64(latest // 10**9, "s").item().isoformat() + "Z"


def test_a_resumed_run_has_the_same_figures(data: Path, tmp_path: Path) -> None:
    """Commits in the middle of an hour and of a day change no bit, with hold-out rows too."""
    sets = {"data.holdout": 5, "checkpoint.every_rows": 37}
    whole = train(data, sets=sets)
    url = str(tmp_path / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamomd.runs.reporting.progress", lambda *_: Impatient(100))
        with pytest.raises(StoppedError):
            train(data, sets=sets, checkpoint=url, quiet=False)
    assert streamomd.load(url).metrics.total_rows < 137
    resumed = streamomd.resume(url, quiet=True)
    for model in (resumed, streamomd.load(url)):
        assert model.result()["by_time"] == whole.result()["by_time"]
        assert model.result()["holdout"] == whole.result()["holdout"]


def test_epochs_and_hold_out_rows(data: Path) -> None:
    """Learned rows of all epochs are counted; hold-out rows are those of the last epoch."""
    model = train(data, epochs=2, sets={"data.holdout": 5})
    result = model.result()
    timed, held = result["by_time"], result["holdout"]["by_time"]
    assert sum(one["rows"] for one in timed["hour"]) == result["rows"]
    assert sum(one["rows"] for one in held["day"]) == result["holdout"]["rows"]


TIMES = st.lists(st.integers(0, 9 * HOUR // 2), max_size=30)


@given(TIMES, st.lists(st.integers(0, 30), max_size=4), st.integers(1, 4))
@settings(deadline=None, max_examples=25)
def test_cuts_change_no_bit(times: list[int], cuts: list[int], retained: int) -> None:
    """Rows cut anywhere, saved and restored at each cut, have the sums of rows one by one; of
    periods that do not fit, the latest stay, and no row is lost."""
    terms = np.random.default_rng(len(times)).random((len(times), 3))

    def counted(edges: list[int]) -> ByTime:
        made = ByTime()
        for low, high in zip([0, *edges], [*edges, len(times)], strict=True):
            time, some = np.array(times[low:high], np.int64), terms[low:high]
            made.count(time, some[:, 0].copy(), some[:, 1:].copy())
            made.read(time)
            made = ByTime.from_arrays(made.arrays())
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_time, "RETAINED", retained)
        known = sorted(cut for cut in cuts if cut <= len(times))
        found, expected = counted(known), counted([])
        singly = counted([*range(1, len(times))]) if times else expected
    for name, array in expected.arrays().items():
        assert found.arrays()[name].tobytes() == array.tobytes() == singly.arrays()[name].tobytes()
    for periods, length in ((found.hours, HOUR), (found.days, DAY)):
        assert periods.rows.sum() + periods.earlier_rows == len(times)
        latest = sorted({time // length for time in times})[-retained:]
        assert periods.numbers.tolist() == latest
        for number, sums in zip(latest, periods.sums, strict=True):
            literal = np.zeros(3)
            for time, (weight, *losses) in zip(times, terms, strict=True):
                if time // length == number:
                    literal += [weight, weight * losses[0], weight * losses[1]]
            if not periods.earlier_rows:  # else its first rows may have been earlier ones then
                assert sums.tobytes() == literal.tobytes()


def test_the_latest_periods_have_figures_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of earlier periods, and of late rows of them, are one period, which is first."""
    monkeypatch.setattr(by_time, "RETAINED", 2)
    made = ByTime()
    time = np.array([5, 3, 7, 4, 8, 7], np.int64) * HOUR
    made.count(time, np.ones(6), np.ones((6, 2)))
    assert made.hours.numbers.tolist() == [7, 8]
    assert made.hours.rows.tolist() == [2, 1]
    assert (made.hours.earlier_rows, made.hours.earlier.tolist()) == (3, [3.0, 3.0, 3.0])
    first = made.hours.figures(HOUR, Metrics(classifies=True).figures)[0]
    assert (first["period"], first["rows"]) == ("earlier", 3)


def other_times(data: Path, folder: Path, values: Any) -> Path:
    """The first shard with other times."""
    table = pq.read_table(data / "0.parquet", partitioning=None)
    write(folder / "a.parquet", with_column(table, "ts", values))
    return folder


def test_dates_and_seconds_are_times(data: Path, tmp_path: Path) -> None:
    """A date counts as its midnight; whole seconds are those of the timestamps."""
    seconds = seconds_of(0)
    whole = train(other_times(data, tmp_path / "s", pa.array(seconds))).result()["by_time"]
    stamps = pa.array(seconds.astype("datetime64[s]"))
    assert whole == train(other_times(data, tmp_path / "t", stamps)).result()["by_time"]
    days = stamps.cast(pa.date32())
    dated = train(other_times(data, tmp_path / "d", days)).result()["by_time"]
    assert [one["rows"] for one in dated["hour"]] == [COUNT]
    assert dated["day"] == whole["day"]


def test_zones_and_summer_time_are_instants(data: Path, tmp_path: Path) -> None:
    """Hours are those of UTC, over both changes of summer time, of any unit, as dictionary and as
    dates of either width."""
    seconds = np.sort(np.random.default_rng(0).integers(0, 300, COUNT)) * 86_400 + 1_767_231_000
    stamps = pa.array(seconds.astype("datetime64[s]"))
    whole = train(other_times(data, tmp_path / "utc", stamps)).result()["by_time"]
    kinds = {
        "zone": stamps.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us", "Europe/Berlin")),
        "ms": stamps.cast(pa.timestamp("ms")),
        "ns": stamps.cast(pa.timestamp("ns", "America/New_York")),
        "dictionary": stamps.dictionary_encode(),
    }
    for name, kind in kinds.items():
        assert train(other_times(data, tmp_path / name, kind)).result()["by_time"] == whole
    for kind in (stamps.cast(pa.date32()), stamps.cast(pa.timestamp("ms")).cast(pa.date64())):
        days = train(other_times(data, tmp_path / str(kind.type), kind)).result()["by_time"]
        assert days["day"] == whole["day"]


def test_times_near_the_limits_of_64_bits(data: Path, tmp_path: Path) -> None:
    """Within 2^62 ns of 1970 they are counted; others are bad rows; text is refused by its type."""
    limit = 1 << 62
    ns = np.resize(np.array([-limit, -1, 0, limit]), COUNT)
    kind = pa.timestamp("ns")
    timed = train(other_times(data, tmp_path / "in", pa.array(ns).cast(kind))).result()["by_time"]
    names = [one["period"] for one in timed["day"]]
    assert names == ["1823-11-12", "1969-12-31", "1970-01-01", "2116-02-20"]
    for far in (limit + 1, -limit - 1, 2**63 - 1, -(2**63) + 1):
        ns[7] = far
        shards = other_times(data, tmp_path / str(far), pa.array(ns).cast(kind))
        with pytest.raises(BadRowError, match=r"row 7, column 'ts': found .* expected a time from"):
            train(shards)
    words = other_times(data, tmp_path / "text", pa.array(["2026-01-01"] * COUNT))
    with pytest.raises(SchemaError, match="column 'ts' is string: time takes timestamps"):
        train(words)


def test_null_times_are_bad_rows(data: Path, tmp_path: Path) -> None:
    """An error that names the row, or skipped and counted as null."""
    seconds = [None if row in (3, 50) else int(one) for row, one in enumerate(seconds_of(0))]
    shards = other_times(data, tmp_path / "n", pa.array(seconds, pa.int64()))
    with pytest.raises(BadRowError, match="row 3, column 'ts': found null, expected a time"):
        train(shards)
    model = train(shards, on_bad_row="skip")
    assert model.result()["skipped"] == {"null": 2}
    assert sum(one["rows"] for one in model.result()["by_time"]["day"]) == COUNT - 2


def test_a_column_of_floats_is_no_time(data: Path, tmp_path: Path) -> None:
    """Its type is refused by name, as a column that is missing, and the label."""
    shards = other_times(data, tmp_path / "f", pa.array(np.arange(COUNT) / 2))
    with pytest.raises(SchemaError, match="time takes timestamps, dates, and whole seconds"):
        train(shards)
    with pytest.raises(SchemaError, match="no column 'when'"):
        train(data, time="when")
    with pytest.raises(UsageError, match=r"data\.time = 'y' is the label"):
        train(data, time="y")


def test_a_time_is_no_feature_unless_it_is_named(data: Path) -> None:
    """Among inferred columns it has no coordinate; under ``dates`` it has."""
    flags = {"label": "y", "weight": "w", "numeric": (), "hashed": (), "sets": {}}
    flags["sets"] = {"data.ignore": ["i", "v"]}
    assert "ts" not in train(data, **flags).plan.features
    dated = train(data, **{**flags, "dates": ["ts"]})
    assert "ts" in dated.plan.features
    assert sum(one["rows"] for one in dated.result()["by_time"]["day"]) == DAYS * COUNT


def test_the_model_needs_no_times_afterwards(data: Path, tmp_path: Path) -> None:
    """evaluate, predict, a warm start and rows in memory work without the column."""
    url = str(tmp_path / "run")
    model = train(data, checkpoint=url)
    table = pq.read_table(data / "0.parquet", partitioning=None).drop_columns("ts")
    other = str(write(tmp_path / "other.parquet", table))
    assert model.evaluate(other, quiet=True)["rows"] == COUNT
    assert len(model.predict(table)) == COUNT
    started = streamomd.train([other], **{**FLAGS, "start": url})
    assert started.metrics.by_time is None
    before = model.result()["by_time"]
    model.learn(table, table["y"])
    assert model.result()["by_time"]["day"] == before["day"]


def test_the_cache_has_times(data: Path, tmp_path: Path) -> None:
    """Cached rows have the times of decoded ones."""
    for path in data.glob("*.parquet"):
        os.utime(path, (1, 1))  # long settled
    cache = str(tmp_path / "cache")
    first = train(data, cache=cache, epochs=2, sets={"data.holdout": {"after": "2026-01-05"}})
    again = train(data, cache=cache, epochs=2, sets={"data.holdout": {"after": "2026-01-05"}})
    assert list(Path(cache).rglob("*"))
    for key in ("by_time", "holdout", "state_sha256"):
        assert again.result()[key] == first.result()[key]


@given(TIMES, st.integers(0, 30), st.integers(1, 4))
@settings(deadline=None, max_examples=25)
def test_parts_are_summed(times: list[int], cut: int, retained: int) -> None:
    """Rows counted in two parts, which are then joined, have the periods and the rows of one part,
    and its sums to 1e-12; late rows and ties are those of each part."""
    terms = np.random.default_rng(len(times)).random((len(times), 3))

    def counted(low: int, high: int | None) -> ByTime:
        made, some = ByTime(), terms[low:high]
        time = np.array(times[low:high], np.int64)
        made.count(time, some[:, 0].copy(), some[:, 1:].copy())
        made.read(np.array(times[low:high], np.int64))
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_time, "RETAINED", retained)
        whole, first, second = counted(0, None), counted(0, cut), counted(cut, None)
        apart = [first.late + second.late, first.ties + second.ties]
        first.add(second)
    assert [first.late, first.ties] == apart
    assert (first.latest, first.day) == (whole.latest, whole.day)
    for found, expected in ((first.hours, whole.hours), (first.days, whole.days)):
        assert found.numbers.tolist() == expected.numbers.tolist()
        rows = int(found.rows.sum()) + found.earlier_rows
        assert rows == len(times)
        both = found.sums.sum(axis=0) + found.earlier, expected.sums.sum(axis=0) + expected.earlier
        np.testing.assert_allclose(*both, rtol=1e-12)
        if not expected.earlier_rows:
            assert found.rows.tolist() == expected.rows.tolist()
            np.testing.assert_allclose(found.sums, expected.sums, rtol=1e-12)


@pytest.mark.slow
def test_the_compiled_kernel_has_the_same_bits() -> None:
    """As the uncompiled one, of rows in no order, with more periods than are retained."""
    draw = np.random.default_rng(0)
    time = draw.integers(-9 * HOUR, 90 * HOUR, 500)
    weight, losses = draw.random(500), draw.random((500, 2))
    found = []
    for kernel in (by_time.add_rows, compiled(by_time.add_rows, *by_time.SIGNATURE)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(by_time, "RETAINED", 20)
            patch.setattr(by_time, "compiled_add_rows", lambda n, *given: kernel(*given))  # noqa: B023
            made = ByTime()
            made.count(time, weight, losses)
        found.append({name: array.tobytes() for name, array in made.arrays().items()})
    assert found[0] == found[1]


def test_sharded_mode_has_the_rows_of_exact_mode(data: Path) -> None:
    """In each hour and day, late and tied; their losses sum to that of all rows."""
    exact, model = train(data), train(data, mode="sharded", sets={"train.batch_rows": 32})
    result = model.result()
    found, expected = result["by_time"], exact.result()["by_time"]
    for key in ("latest", "late", "ties"):
        assert found[key] == expected[key]
    for by in ("hour", "day"):
        names = [[one[key] for key in ("period", "rows")] for one in found[by]]
        assert names == [[one[key] for key in ("period", "rows")] for one in expected[by]]
    np.testing.assert_allclose(
        model.metrics.by_time.days.sums.sum(axis=0), model.metrics.total, rtol=1e-12
    )


def test_the_report_has_charts_by_time(data: Path, tmp_path: Path) -> None:
    """By day, or by hour; a run without times has none, and says so."""
    url, page = tmp_path / "run", tmp_path / "page.html"
    train(data, checkpoint=str(url), sets={"data.holdout": 5})
    for by in ("day", "hour"):
        assert run("report", url, "--by", by, "-o", page, "--overwrite").code == 0
        assert f"Error by {by}" in page.read_text("utf-8")
    bare = tmp_path / "bare"
    train(data, time="", checkpoint=str(bare))
    done = run("report", bare, "--by", "day", "-o", page, "--overwrite")
    assert done.code == 2
    assert "this run has none" in done.err


def test_progress_shows_the_day(data: Path) -> None:
    """Lines of progress end with the day of the latest row, and its loss."""
    words = ["--label", "y", "--numeric", "n", "--rule", "nag", "--time", "ts"]
    done = run("train", data, *words, "--checkpoint", "none", "--verbose")
    assert re.search(r"; 2026-01-0\d: loss 0\.\d+ \(\d+ rows\)", done.err)
    assert "stream time 2026-01-06T" in done.out
