"""The first lines of a report: whether a model is better than a constant prediction."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from paging import parsed
from running import run, train, write

import streamomd
from streamomd.analysis.report.learning import charts_by_day
from streamomd.analysis.report.verdict import (
    BETTER,
    NORMAL,
    UNCLEAR,
    WORSE,
    Comparison,
    compare_with_constant,
    sentences,
    verdict_box,
)
from streamomd.shards.first_rows import column_in_order
from streamomd.sources.find import find
from streamomd.training.model_figures import last_tenth

ROWS = 2000
FLAGS = ["--label", "y", "--numeric", "x"]


def table(*, signal: float, real: bool, days: int = 1) -> pa.Table:
    """Labels that depend on x, or on nothing."""
    draw = np.random.default_rng(4)
    x = draw.normal(size=ROWS)
    y = signal * x + draw.normal(size=ROWS)
    day = np.datetime64("2026-01-30") + np.arange(ROWS) % days
    return pa.table({"x": x, "y": y + 7.0 if real else (y > 1.0).astype(int), "when": day})


def model_of(path: Path, *flags: Any, ignore: bool = True, **made: Any) -> streamomd.Model:
    write(path / "data" / "a.parquet", table(**made))
    more = ["--set", 'data.ignore=["when"]'] if ignore else []
    train(path / "data", *FLAGS, *more, *flags, "--checkpoint", path / "run")
    return streamomd.load(str(path / "run"))


@pytest.mark.parametrize(
    "signal, real, flags, level",
    [
        (3.0, False, [], BETTER),
        (0.0, False, ["--set", "data.holdout=2"], UNCLEAR),  # log loss: the interval includes 0
        (3.0, True, ["--loss", "square"], BETTER),
        (0.0, True, ["--loss", "square"], WORSE),
        (3.0, False, ["--epochs", 2], BETTER),
        (3.0, True, ["--loss", "square", "--set", "data.holdout=4"], BETTER),
    ],
)
def test_the_first_line_is_the_verdict(
    signal: float, real: bool, flags: list[Any], level: str, tmp_path: Path
) -> None:
    """Both metrics in words; red if the model is no better."""
    model = model_of(tmp_path, *flags, signal=signal, real=real)
    found = compare_with_constant(model, model.result())
    assert found is not None
    assert level in (found.level, UNCLEAR if found.level == WORSE else "")
    y = np.asarray(table(signal=signal, real=real).column("y"))
    if "data.holdout=2" not in flags and "data.holdout=4" not in flags:
        constant = y.std() if real else -np.log(np.where(y, y.mean(), 1.0 - y.mean())).mean()
        assert found.theirs == pytest.approx(constant)
    to = str(tmp_path / "page.html")
    written = streamomd.write_report(model, to)
    page = parsed(Path(to))
    box = page.all("header")[0].all("div")[0]
    assert box.attributes["class"] == f"verdict {found.level}"
    assert all(text in box.text for text in sentences(found))
    assert written["verdict"]["level"] == found.level


def test_the_margin_is_that_of_paired_rows(tmp_path: Path) -> None:
    """Errors of model and constant are differences of the same rows: from the confusion matrix."""
    model = model_of(tmp_path, "--loss", "hinge", "--rule", "nag", signal=3.0, real=False)
    result = model.result()
    confusion = np.array(result["confusion"])
    common = int(confusion.sum(axis=1).argmax())
    assert common == 0
    difference = np.repeat([0.0, -1.0, 0.0, 1.0], confusion.ravel().astype(int))
    found = compare_with_constant(model, result)
    assert found is not None
    assert found.gain == pytest.approx(difference.mean())
    assert found.margin == pytest.approx(NORMAL * difference.std() / math.sqrt(ROWS))


@pytest.mark.parametrize("flags", [[], ["--class-weight", "balanced"], ["--calibrate", "sigmoid"]])
def test_a_model_of_rare_positives_is_judged_by_log_loss(flags: list[str], tmp_path: Path) -> None:
    """Its error is that of the constant, its log loss is lower, also of the probabilities that
    weighted classes have after calibration; the margin is that of paired rows."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=8000)
    y = (draw.random(8000) < 1.0 / (1.0 + np.exp(2.9 - x))).astype(int)
    write(tmp_path / "a.parquet", pa.table({"x": x, "y": y}))
    found = run("train", tmp_path / "a.parquet", *FLAGS, *flags, "--checkpoint", tmp_path / "run")
    assert "better than a constant" not in found.out
    # Of class weights too: their effect on the odds is removed.
    assert ("calibrated log loss" in found.out) == bool(flags)
    model = streamomd.load(str(tmp_path / "run"))
    judged = compare_with_constant(model, model.result())
    assert judged is not None
    assert (judged.metric, judged.level) == ("log loss", BETTER)
    if flags:
        log_loss = model.result()["calibrated"]["log_loss"]
        assert f"calibrated log loss {log_loss:.6f}" in found.out
        assert log_loss == pytest.approx(judged.ours, rel=1e-9)
        assert log_loss < judged.theirs
    assert judged.theirs == pytest.approx(-np.log(np.where(y, y.mean(), 1 - y.mean())).mean())
    assert judged.margin is not None
    assert 0.0 < judged.margin < judged.gain
    if not flags:
        assert "its threshold is 0.5" in " ".join(sentences(judged))
    streamomd.write_report(model, str(tmp_path / "page.html"))
    page = parsed(tmp_path / "page.html")
    assert {"ROC curve", "Precision-recall curve"} <= {one.text for one in page.all("figcaption")}
    table_of = next(one for one in page.all("table") if "share flagged" in one.text)
    cells = [[cell.text for cell in row.all("td")] for row in table_of.all("tr")[1:]]
    shares = [float(row[-1].rstrip("%")) / 100.0 for row in cells if row]
    assert shares == sorted(shares)
    _, precision, recall, share = (float(one.rstrip("%")) for one in cells[-1])
    assert recall * y.mean() == pytest.approx(precision * share / 100.0, rel=0.1)


def test_an_interval_that_includes_0_is_unclear() -> None:
    one = Comparison("error", 0.1, 0.12, 0.02, 0.03, "always predicting 'no'", "9 rows")
    assert one.level == UNCLEAR
    assert replace(one, margin=0.01).level == BETTER
    assert replace(one, margin=None).level == BETTER
    assert replace(one, gain=0.0).level == WORSE
    assert "AUC 0.8" in " ".join(sentences(replace(one, auc=0.8)))
    assert "sweep" in " ".join(sentences(one))


def test_a_model_that_diverged_says_so(tmp_path: Path) -> None:
    model = model_of(tmp_path, signal=3.0, real=False)
    box = verdict_box(model, model.result(), diverged="the loss is nan")
    assert box.get("class") == "verdict worse"
    assert "The model diverged" in "".join(box.itertext())


def test_a_run_that_diverged_after_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is finite, and records why no other follows; it is not proposed to resume it."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "data" / "a.parquet", table(signal=3.0, real=True))
    flags = ["--loss", "square", "--rule", "ogd", "--eta", 1e9, "--set", 'data.ignore=["when"]']
    assert run("train", "data", *FLAGS, *flags, "--checkpoint", "run").code == 6
    written = streamomd.write_report(streamomd.load("run"), "out.html")
    assert written["verdict"]["level"] == WORSE
    top = parsed(Path("out.html")).all("header")[0].text
    assert "The model diverged" in top
    assert "The loss is inf after rows" in top
    assert "streamomd resume" not in top


def test_days_are_drawn_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With dates in the job and shards given: loss and error of each day."""
    monkeypatch.chdir(tmp_path)
    dates = ["--set", 'data.dates=["when"]']
    model_of(tmp_path, *dates, signal=1.0, real=False, days=4, ignore=False)
    found = run("report", "run", "data", "-o", "out.html", "--no-certificate")
    assert found.code == 0, found.err
    page = parsed(Path("out.html"))
    titles = [one.text for one in page.all("figcaption")]
    assert {"Logistic loss by day", "Error by day"} <= set(titles)
    figure = next(one for one in page.all("figure") if "Error by day" in one.text)
    assert "2026-01-30" in figure.text
    assert len(figure.all("circle")) == 4


@pytest.mark.parametrize("epochs", [1, 2])
def test_the_loss_of_the_last_rows_is_shown_next_to_that_of_all(
    epochs: int, tmp_path: Path
) -> None:
    """Of the rows from 1,792 on, of a run with dates: what is left of the sum of losses there."""
    dates = ["--set", 'data.dates=["when"]', "--epochs", epochs]
    model = model_of(tmp_path, *dates, signal=1.0, real=False, days=4, ignore=False)
    curve, first = model.metrics.curve, model.metrics.sums[0]
    point = curve[curve[:, 0] == 1792][0]
    expected = (first[1] - point[2]) / (first[0] - point[1])
    streamomd.write_report(model, str(tmp_path / "page.html"))
    text = parsed(tmp_path / "page.html").all("header")[0].text
    assert f"loss of the last 208{expected:.4g}" in text.replace("\n", "").replace(" 208 ", " 208")


def drifting(*, ordered: bool) -> pa.Table:
    """Labels whose relation to x changes sign in the last tenth; days that never fall, or do."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=ROWS)
    sign = np.where(np.arange(ROWS) < 0.9 * ROWS, 1.0, -1.0)
    y = (sign * x + 0.3 * draw.normal(size=ROWS) > 0.0).astype(int)
    day = np.datetime64("2025-01-01") + np.arange(ROWS) // 50
    day = day if ordered else day[::-1].copy()
    return pa.table({"x": x, "y": y, "when": day, "same": np.repeat(day[:1], ROWS)})


@pytest.mark.parametrize("ordered", [True, False])
def test_rows_found_in_order_of_a_date_column_have_the_loss_of_the_last_ones(
    ordered: bool, tmp_path: Path
) -> None:
    """The column is in data.ignore, in several row groups: the order is in the commit, the report
    shows both losses, and ``train`` says what they estimate. None of this of other rows."""
    write(tmp_path / "data" / "a.parquet", drifting(ordered=ordered), row_group_size=300)
    ignore = ["--set", 'data.ignore=["when", "same"]', "--rule", "nag"]
    found = run("train", tmp_path / "data", *FLAGS, *ignore, "--checkpoint", tmp_path / "run")
    model = streamomd.load(str(tmp_path / "run"))
    assert model.ordered_by == ("when" if ordered else "")
    streamomd.write_report(model, str(tmp_path / "page.html"))
    top = parsed(tmp_path / "page.html").all("header")[0].text
    assert ("loss of the last 208" in top) == ordered
    [line] = [one for one in found.out.splitlines() if "continue the stream" in one] or [""]
    assert bool(line) == ordered
    if ordered:
        rows, loss = last_tenth(model) or (0, 0.0)
        assert loss > 1.5 * model.result()["loss"]
        assert line.startswith("rows are in order of 'when': the loss is that of rows that ")
        assert f"of the last {rows} it is {loss:.6f}; rows of much later may have another" in line
        again = run("resume", tmp_path / "run").out
        assert line in again.splitlines()


def test_the_order_of_rows_is_that_of_every_row_group_that_is_looked_at(tmp_path: Path) -> None:
    """Timestamps with nulls; one that falls inside of a group, or from shard to shard, is none."""
    when = np.datetime64("2025-01-01T00:00:00", "us") + np.arange(200).astype("m8[s]")
    cells = [None if at % 7 == 0 else one for at, one in enumerate(when.tolist())]
    falls = [*cells[:150], *reversed(cells[150:])]

    def made(times: list[Any]) -> pa.Table:
        zoned = pa.array(times, pa.timestamp("us", "UTC"))
        return pa.table({"t": zoned, "y": np.arange(200) % 2})

    for name, times, expected in (("a", cells, "t"), ("b", falls, "")):
        write(tmp_path / name / "0.parquet", made(times), row_group_size=60)
        assert column_in_order(find([str(tmp_path / name)])) == expected
    write(tmp_path / "a" / "1.parquet", made(cells))
    assert column_in_order(find([str(tmp_path / "a")])) == ""


def test_times_of_a_day_are_one_day(tmp_path: Path) -> None:
    """Weighted by their rows; no chart of values that are not dates or were cut off."""
    model = model_of(tmp_path, signal=1.0, real=False)

    def at(value: Any, weight: float, error: float) -> dict[str, Any]:
        return {"value": value, "weight": weight, "loss": 1.0, "error": error, "rmse": None}

    slices = [at("2026-01-02 11:00:00", 1.0, 0.4), at("2026-01-01", 1.0, 0.3),
              at("2026-01-02 10:00:00", 3.0, 0.0), at(None, 1.0, 0.0)]  # fmt: skip
    charts = charts_by_day(model, "when", slices)
    assert [one.findtext("figcaption") for one in charts] == [
        "Logistic loss by day",
        "Error by day",
    ]
    assert "ends at 0.1." in (charts[1].find("svg").get("aria-label") or "")  # type: ignore[union-attr]
    assert charts_by_day(model, "when", [*slices, at("(other)", 1.0, 0.0)]) == []
    assert charts_by_day(model, "when", [at("x", 1.0, 0.0), at("y", 1.0, 0.0)]) == []


def test_updates_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures of an update are those that ``update --json`` printed."""
    monkeypatch.chdir(tmp_path)
    model_of(tmp_path, signal=3.0, real=False)
    last = {}
    for number in range(2):
        write(
            tmp_path / "data" / f"b{number}.parquet", table(signal=1.0, real=False)[: 500 + number]
        )
        last = run("update", "run", "--settle", 0, "--json").result["update"]
    streamomd.write_report(streamomd.load("run"), "out.html")
    figures = {one.all("figcaption")[0].text: one for one in parsed(Path("out.html")).all("figure")}
    alt = figures["Error by update"].all("svg")[0].attributes["aria-label"] or ""
    assert f"ends at {last['error']:.4g}." in alt
    assert len(figures["Error by update"].all("circle")) == 3
