"""Backtest: the model of each period is one trained on the rows before it, to the bit."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import Impatient, rows, run, with_column, write
from timed import COUNT, DAY, FLAGS, START, seconds_of, timed_shards, train

import streamomd
from streamomd.analysis.report.sweep_pages import backtest_page
from streamomd.cli.formatting import format_backtest
from streamomd.core.errors import DataError, StoppedError, UnsupportedError, UsageError
from streamomd.training.class_weights import drawn_shares
from streamomd.training.holdout import number_of

SECONDS = {"hour": 3600, "day": DAY, "week": 7 * DAY}
FIRST = datetime.date(2026, 1, 1)
GAPS = {"0s": 0, "1d": DAY, "6h": 21_600, "2d": 2 * DAY}


def backtest(shards: Path, **more: Any) -> dict[str, Any]:
    return streamomd.backtest([str(shards)], **{**FLAGS, "time": "ts", **more})


def table_of(data: Path) -> pa.Table:
    """All rows, with their stream times in seconds."""
    shards = [pq.read_table(path, partitioning=None) for path in sorted(data.glob("*.parquet"))]
    table = pa.concat_tables(shards)
    seconds = table["ts"].to_numpy().astype("datetime64[s]").astype(np.int64)
    return table, np.maximum.accumulate(seconds)


def start_of(second: int, by: str) -> int:
    """The start of the hour, day or week of a time, by Python's calendar."""
    moment = datetime.datetime.fromtimestamp(second, datetime.UTC)
    moment = moment.replace(minute=0, second=0)
    if by != "hour":
        moment = moment.replace(hour=0)
    if by == "week":
        moment -= datetime.timedelta(days=moment.weekday())
    return int(moment.timestamp())


def text_of(start: int, by: str) -> str:
    moment = datetime.datetime.fromtimestamp(start, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%MZ" if by == "hour" else "%Y-%m-%d")


def literal(
    data: Path, by: str, gap: int, folder: Path, share: float = 1.0, **more: Any
) -> list[dict[str, Any]]:
    """A model trained from scratch for each period, evaluated on its rows. share: of the rows of
    class 0 that it is trained on."""
    table, stream = table_of(data)
    shares = np.where(table["y"].to_numpy() == 0, share, 1.0)
    paths = sorted(data.glob("*.parquet"))
    drawn = [drawn_shares(0, number_of(path.name), np.arange(COUNT)) for path in paths]
    taken = np.concatenate(drawn) < shares
    sampled = with_column(table, "w", table["w"].to_numpy() / shares)
    starts = np.array([start_of(second, by) for second in stream.tolist()])
    found = []
    for start in sorted({*starts.tolist()}):
        before, inside = stream < start - gap, starts == start
        if not before.any():
            continue
        before &= taken
        old = write(folder / f"{start}" / "old.parquet", sampled.filter(before))
        new = write(folder / f"{start}" / "new.parquet", table.filter(inside))
        model = train([str(old)], time="", **more)
        figures = model.evaluate(str(new), quiet=True)
        keys = ("rows", "loss", "error", "rmse", "auc", "auc_error")
        one = {key: figures[key] for key in keys}
        one |= {"calibrated": figures["calibrated"]} if more else {}
        found.append({"period": text_of(start, by), "learned": int(before.sum()), **one})
    return found


CASES = [
    pytest.param("day", "0s", False, id="day"),
    pytest.param("day", "1d", True, id="day, a gap, late rows"),
    pytest.param("week", "6h", True, id="week, a gap, late rows"),
]
SLOW_CASES = [
    pytest.param(by, gap, late, id=f"{by} {gap} {late}", marks=pytest.mark.slow)
    for by in ("hour", "day", "week")
    for gap in GAPS
    for late in (False, True)
]


@pytest.mark.parametrize("by, gap, late", [*CASES, *SLOW_CASES])
def test_each_period_is_predicted_by_the_rows_before_it(
    by: str, gap: str, late: bool, tmp_path: Path
) -> None:
    """Rows, loss, error and AUC of each period are those of a model trained from scratch on the
    rows before it, less the gap, evaluated on its rows, to the bit. A row is of the period in which
    it arrives."""
    days = 3 if by == "hour" else 5
    data = timed_shards(tmp_path / "data", late=late, days=days)
    found = backtest(data, by=by, gap=gap)
    assert found["periods"] == literal(data, by, GAPS[gap], tmp_path)
    assert found["rows"] == sum(one["rows"] for one in found["periods"])
    assert found["rows"] + found["rows_before"] == days * COUNT


def test_sampled_rows_teach_and_all_rows_are_evaluated(tmp_path: Path) -> None:
    """The model of each day is that of the sampled rows before it, at their larger weights; it is
    evaluated on all rows of the day, at their own. Rows that are not sampled move the stream time,
    too: a late row after one of a new day is not learned before that day."""
    data = timed_shards(tmp_path / "data", late=True, days=4)
    found = backtest(data, sets={"data.sample": {"0": 0.1}})
    assert found["periods"] == literal(data, "day", 0, tmp_path, 0.1)
    assert found["rows"] + found["rows_before"] == 4 * COUNT


@pytest.mark.parametrize("kind", ["sigmoid", pytest.param("isotonic", marks=pytest.mark.slow)])
def test_probabilities_are_calibrated_by_the_rows_before(kind: str, tmp_path: Path) -> None:
    """``calibrated`` of a day is what a model trained and calibrated on the rows before it has."""
    data = timed_shards(tmp_path / "data", days=4)
    sets = {"model.calibrate": kind}
    result = backtest(data, gap="6h", sets=sets)
    found = result["periods"]
    assert found == literal(data, "day", GAPS["6h"], tmp_path, sets=sets)
    assert all(one["calibrated"]["log_loss"] > 0.0 for one in found)
    check_calibrated_texts(data, result)


def check_calibrated_texts(data: Path, result: dict[str, Any]) -> None:
    """The table has the calibrated log loss of each day next to its loss, and of all days; the
    page has it in the plot of the loss and in its table."""
    heads, *texts = format_backtest(result).splitlines()
    assert "  loss      calibrated log loss  error  " in heads
    page, weights, losses = backtest_page(result), [], []
    for line, one in zip(map(str.split, texts), result["periods"], strict=False):
        log_loss = one["calibrated"]["log_loss"]
        assert line[3:5] == [f"{one['loss']:.6f}", f"{log_loss:.6f}"]
        assert f"{log_loss:.4g}" in page
        shard = data / f"{(datetime.date.fromisoformat(one['period']) - FIRST).days}.parquet"
        weights.append(sum(pq.read_table(shard, partitioning=None)["w"].to_pylist()))
        losses.append(log_loss)
    whole = result["calibrated"]["log_loss"]
    assert whole == pytest.approx(np.average(losses, weights=weights))
    assert f"calibrated log loss {whole:.6f}" in format_backtest(result)
    assert "Loss ends at" in page
    assert "Calibrated log loss ends at" in page


def test_many_periods_have_bounded_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The latest have their own; the rows and losses of earlier ones are one period, which the page
    and the table have, too."""
    data, sets = timed_shards(tmp_path / "data", days=6), {"model.calibrate": "sigmoid"}
    whole = backtest(data, sets=sets)
    monkeypatch.setattr("streamomd.training.model_figures.RETAINED", 2)
    monkeypatch.setattr("streamomd.cli.formatting.MOST_PERIODS", 2)
    found = backtest(data, sets=sets)
    assert found["periods"][1:] == whole["periods"][-2:]
    first, expected = found["periods"][0], whole["periods"][:3]
    assert (first["period"], first["learned"]) == ("earlier", 3 * COUNT)
    assert first["rows"] == sum(one["rows"] for one in expected)
    assert (found["rows"], found["loss"]) == (whole["rows"], pytest.approx(whole["loss"]))
    assert found["calibrated"]["log_loss"] == pytest.approx(whole["calibrated"]["log_loss"])
    assert "earlier" in backtest_page(found)
    assert "1 earlier period not shown" in format_backtest(found)


@pytest.mark.parametrize("kind", ["isotonic", "sigmoid"])
def test_rows_of_one_class_are_calibrated(kind: str, tmp_path: Path) -> None:
    """The other class never comes: probabilities are near 0, the log loss is finite, no AUC."""
    data = timed_shards(tmp_path / "data", days=3)
    for path in data.glob("*.parquet"):
        table = pq.read_table(path, partitioning=None)
        write(path, with_column(table, "y", np.zeros(COUNT, np.int64)))
    sets = {"model.calibrate": kind, "model.classes": [0, 1], "model.class_weight": "balanced"}
    for one in backtest(data, sets=sets)["periods"]:
        assert 0.0 < one["calibrated"]["log_loss"] < 0.1
        assert one["auc"] is None


def test_time_that_runs_backwards_and_samples_of_nothing(tmp_path: Path) -> None:
    """Why no period has a model is said."""
    data = timed_shards(tmp_path / "data", days=3)
    shards = [str(data / f"{day}.parquet") for day in (2, 1, 0)]
    given = {**FLAGS, "time": "ts", "sets": {"data.order": "given"}}
    with pytest.raises(DataError, match="120 late rows count when they arrive: give shards in or"):
        streamomd.backtest(shards, **given)
    nothing = {"data.sample": {"0": 1e-9, "1": 1e-9}}
    with pytest.raises(DataError, match=r"data\.sample may drop all rows before"):
        backtest(data, sets=nothing)
    with pytest.raises(DataError, match=r"no row is sampled: data\.sample dropped 180 rows"):
        train(data, sets=nothing)


def test_finished_periods_are_in_the_log(tmp_path: Path) -> None:
    """A line for each period when it ends: an interrupted backtest has not lost them."""
    data, log = timed_shards(tmp_path / "data", days=4), tmp_path / "log.jsonl"
    whole = backtest(data, log=str(log))["periods"]
    keys = ("period", "learned", "rows", "loss", "auc")

    def logged() -> list[dict[str, Any]]:
        lines = map(json.loads, log.read_text("utf-8").splitlines())
        return [line for line in lines if line["event"] == "period"]

    assert [[one[key] for key in keys] for one in logged()] == [
        [one[key] for key in keys] for one in whole
    ]
    log.unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamomd.runs.reporting.progress", lambda *_: Impatient(150))
        with pytest.raises(
            StoppedError, match="nothing was saved: run it again with --checkpoint URL"
        ):
            backtest(data, log=str(log), quiet=False)
    assert [one["period"] for one in logged()] == ["2026-01-02"]


@pytest.mark.parametrize("loss", ["square", "hinge"])
@pytest.mark.slow
def test_regression_and_other_losses(loss: str, tmp_path: Path) -> None:
    """RMSE in regression; other losses and three classes as well."""
    data = timed_shards(tmp_path / "data", days=3)
    found = backtest(data, loss=loss)
    total = sum(one["rows"] for one in found["periods"])
    assert found["rows"] == total == 2 * COUNT
    assert (found["rmse"] is None) == (loss == "hinge")


def test_the_default_gap_is_the_jobs_delay(tmp_path: Path) -> None:
    """A label that comes a day later is not known to the model of the next day."""
    data = timed_shards(tmp_path / "data", days=4)
    without = [{**backtest(data, gap="1d")["periods"][0]}]
    assert backtest(data, delay="1d")["periods"][:1] == without
    assert backtest(data, delay="1d", gap=0)["periods"] == backtest(data)["periods"]


def test_batches_of_bad_rows_alone(tmp_path: Path) -> None:
    """Row groups without a good row are passed; data without one is an error that says so."""
    data = timed_shards(tmp_path / "data", days=2)
    table = pq.read_table(data / "0.parquet", partitioning=None)
    stamps = table["ts"].to_pylist()
    bad = table.set_column(table.schema.get_field_index("ts"), "ts", pa.array(
        [None] * 50 + stamps[50:], table.schema.field("ts").type))  # fmt: skip
    write(data / "0.parquet", bad, row_group_size=25)
    found = backtest(data, on_bad_row="skip")
    assert [(one["learned"], one["rows"]) for one in found["periods"]] == [(COUNT - 50, COUNT)]
    assert found["skipped"] == {"null": 50}
    write(tmp_path / "none" / "a.parquet", bad.slice(0, 50))
    with pytest.raises(DataError, match="every row is bad \\(null 50\\)"):
        backtest(tmp_path / "none", on_bad_row="skip")


def test_periods_without_rows_have_no_line(tmp_path: Path) -> None:
    """The model of the next period has learned all rows before the gap in the data."""
    for day in (0, 1, 4):
        ts = pa.array(seconds_of(day).astype("datetime64[s]"))
        table = rows(COUNT, first=day).append_column("ts", ts)
        write(tmp_path / "data" / f"{day}.parquet", table)
    found = backtest(tmp_path / "data")["periods"]
    assert [(one["period"], one["learned"]) for one in found] == [
        ("2026-01-02", COUNT), ("2026-01-05", 2 * COUNT),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "more, error, message",
    [
        ({"time": ""}, UsageError, "a backtest needs the rows' times"),
        ({"by": "dya"}, UsageError, "expected hour, day or week; did you mean 'day'"),
        ({"gap": "soon"}, UsageError, "gap = 'soon': expected 0 or more seconds"),
        ({"gap": -1}, UsageError, "gap = -1: expected 0 or more seconds"),
        ({"epochs": 3}, UnsupportedError, r"set train\.epochs = 1, not 3"),
        ({"sets": {"data.holdout": 5}}, UnsupportedError, r"set data\.holdout = 0"),
        ({"mode": "sharded"}, UnsupportedError, "in mode exact, not sharded"),
        ({"shapes": "all"}, UnsupportedError, "grows trees with labels that are not known yet"),
        ({"mode": "averaged"}, UsageError, r"a backtest learns in mode exact \(--mode exact\)"),
        ({"by": "week"}, DataError, "no week has rows before it to learn from: all 120 rows"),
        ({"gap": "9d"}, DataError, "no day has rows before it"),
    ],
)
def test_what_is_refused(more: dict[str, Any], error: type[Exception], message: str,
                         tmp_path: Path) -> None:  # fmt: skip
    """Jobs that have no backtest, and data of one period, are named."""
    data = timed_shards(tmp_path / "data", days=2)
    with pytest.raises(error, match=message):
        backtest(data, **more)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table, JSON, and a page with a plot that loads nothing; nothing else is written."""
    monkeypatch.chdir(tmp_path)
    data = timed_shards(tmp_path / "data", days=3)
    job = f'[data]\nshards = "{data}"\nlabel = "y"\ntime = "ts"\nnumeric = ["n"]\n'
    (tmp_path / "job.toml").write_text(f'{job}[model]\nrule = "nag"\n[checkpoint]\nurl = "run"\n')
    done = run("backtest", "job.toml", "--by", "day", "-o", "page.html")
    assert done.code == 0, done.err
    assert [line.split()[0] for line in done.out.splitlines()[:3]] == [
        "day", "2026-01-02", "2026-01-03",
    ]  # fmt: skip
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "<svg" in page
    assert "AUC by day" in page
    assert "alibrated" not in page + done.out
    assert "<script" not in page
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "job.toml", "page.html"]
    result = run("backtest", "job.toml", "--json").result
    assert [one["period"] for one in result["periods"]] == ["2026-01-02", "2026-01-03"]
    assert run("backtest", "job.toml", "-o", "page.html").code == 2
    assert "already exists" in run("backtest", "job.toml", "-o", "page.html").err
    assert "ends in .html" in run("backtest", "job.toml", "-o", "page.pdf").err


def test_the_first_of_january_2026_is_a_thursday() -> None:
    """Which the weeks of these tests rely on."""
    assert datetime.datetime.fromtimestamp(START, datetime.UTC).weekday() == 3
