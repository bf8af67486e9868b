"""The report: one page, whole, harmless and readable, of any model."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from paging import Node, parsed, section
from running import everything, rows, run, shards, train, write

import streamomd
from streamomd.analysis.report.charts import Axis, brief
from streamomd.analysis.report.learning import curve_points, means
from streamomd.core.errors import NoCommitError, OutputExistsError
from streamomd.training.metrics import Metrics

TITLES = [
    "Things to look at", "Training progress", "Predictions and labels", "Features",
    "Regret and certificate", "Job and data",
]  # fmt: skip
TAGS = {
    "html", "head", "meta", "title", "style", "body", "main", "header", "section", "footer", "h1",
    "h2", "h3", "p", "details", "summary", "div", "dl", "dt", "dd", "ul", "li", "strong", "span",
    "figure", "figcaption", "table", "thead", "tbody", "tr", "th", "td", "svg", "g", "path", "rect",
    "circle", "text",
}  # fmt: skip
EVIL = '"><script>alert(1)</script><img src=x onerror=alert(2)>&amp;\u202e'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a finished run of 240 rows in two epochs, in ``runs/a``."""
    monkeypatch.chdir(tmp_path)
    shards(tmp_path / "data")
    kept = ["--checkpoint", "runs/a", "--set", "checkpoint.every_rows=50"]
    train("data", *everything(), "--rule", "nag", "--epochs", 2, *kept)
    return tmp_path


def reported(*words: object) -> Node:
    """The tree of the page that ``report`` writes."""
    found = run("report", *words, "-o", "out.html", "--overwrite", "--json").result
    assert found["bytes"] == Path("out.html").stat().st_size
    return parsed(Path("out.html"))


def test_a_page_starts_with_the_verdict(here: Path) -> None:
    """Verdict, things to look at, charts, tables, in this order, with the run's own figures."""
    page = reported("runs/a", "data")
    assert [one.all("h2")[0].text for one in page.all("section")] == TITLES
    top, result = page.all("header")[0].text, streamomd.load("runs/a").result()
    assert "y, learned by nag" in top
    assert "Finished: 240 rows were learned in 2 epochs" in top
    assert f"{result['error']:.2%}" in top
    assert brief(result["loss"]) in top
    epochs = section(page, "Training progress").all("table")[0]
    assert [row.all("td")[1].text for row in epochs.all("tr")[1:]] == ["120", "120"]


def test_the_heaviest_come_first(here: Path) -> None:
    """By weight times root mean square, from G relative to the bias's; the bias is omitted."""
    found = {one["name"]: one for one in streamomd.load("runs/a").inspect(top=2000)}
    bias = found.pop("bias")["slots"]["G"][0]
    moves = {
        name: abs(one["weight"][0]) * np.sqrt(one["slots"]["G"][0] / bias)
        for name, one in found.items()
    }
    rows = section(reported("runs/a"), "Features").all("table")[0].all("tr")[1:]
    named = [row.all("td")[0].text for row in rows]
    assert named == sorted(moves, key=lambda name: -moves[name])[: len(named)]
    assert len(named) == 25


def test_a_page_loads_and_runs_nothing(here: Path) -> None:
    """No address is fetched, no script runs, and the policy says so with the style's own hash."""
    page = reported("runs/a", "data")
    for node in page.all():
        assert node.tag in TAGS
        for name, value in node.attributes.items():
            assert not name.startswith("on")
            assert name not in ("src", "href", "style", "srcset", "action", "data")
            assert "http" not in (value or "") or name == "http-equiv"
    style = page.all("style")[0].text
    assert "url(" not in style
    assert "@import" not in style
    known = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    meta = [one.attributes for one in page.all("meta")]
    policy = next(one["content"] for one in meta if "http-equiv" in one)
    assert (policy or "").startswith(f"default-src 'none'; style-src 'sha256-{known}';")
    assert "prefers-color-scheme: dark" in style
    assert any(one.get("name") == "viewport" for one in meta)


def test_every_chart_can_be_read(here: Path) -> None:
    """Each has a title, an alternative text with figures, and axes that say what they are."""
    page = reported("runs/a", "data")
    figures = page.all("figure")
    titles = {one.all("figcaption")[0].text for one in figures}
    assert titles == {
        "Logistic loss over rows", "Error over rows", "Throughput", "Confusion",
        "Confusion of given rows", "Calibration", "ROC curve", "Precision-recall curve",
        "What moves a prediction most", "All weights by size",
    }  # fmt: skip
    for one in figures:
        drawn = next(svg for svg in one.all("svg") if svg.attributes.get("role") == "img")
        alt = drawn.attributes["aria-label"] or ""
        assert len(alt) > 20
        assert alt == drawn.all("title")[0].text
        assert re.search(r"\d", alt)
        assert "nan" not in " ".join(str(node.attributes) for node in one.all())
    labels = [
        one.text for one in page.all("text") if "label" in (one.attributes.get("class") or "")
    ]
    assert {"rows learned (log scale)", "rows learned", "rows / s", "Error"} <= set(labels)
    assert {"Logistic loss", "size of the weight (log scale)"} <= set(labels)
    assert {"weights", "predicted probability", "observed frequency", "predicted", "true"} <= set(
        labels
    )


def test_names_are_only_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns, categories, classes and paths that look like HTML stand on the page as they are."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(1)
    y = pa.array([f"yes{EVIL}" if one else "no" for one in draw.integers(0, 2, 60)])
    h = pa.array([f"{one}{EVIL}" for one in draw.integers(0, 3, 60)])
    table = pa.table({f"y{EVIL}": y, f"n{EVIL}": draw.normal(size=60), f"h{EVIL}": h})
    write(tmp_path / "<b>" / "a.parquet", table)
    flags = ["--label", f"y{EVIL}", "--set", "model.classes=[]", "--bits", 8]
    train("<b>", *flags, "--checkpoint", "runs/<i>")
    page = reported("runs/<i>", "<b>")
    assert {node.tag for node in page.all()} <= TAGS
    shown = EVIL.replace("\u202e", "\\u202e")
    for name in (f"y{shown}", f"n{shown}", f"h{shown}=1{shown}", f"yes{shown}"):
        assert name in page.text
    assert "\u202e" not in page.text


def test_a_page_of_a_run_without_rows(here: Path) -> None:
    """The first commit has no rows: no page, but an error with how to resume."""
    streamomd.train(
        "data", label="y", numeric=["n"], hashed=["h"], checkpoint="runs/b", quiet=True,
        sets={"data.ignore": ["w", "k", "c", "i", "v"], "checkpoint.keep": 100,
              "checkpoint.every_rows": 40},
    )  # fmt: skip
    model = streamomd.load("runs/b", at=0)
    with pytest.raises(NoCommitError, match=r"no commit with rows in .*streamomd resume .*runs/b"):
        streamomd.write_report(model, "zero.html")
    assert not (here / "zero.html").exists()
    half = streamomd.load("runs/b", at=2)
    streamomd.write_report(half, "half.html")
    text = parsed(here / "half.html").text
    assert f"Not finished: {half.metrics.total_rows} rows" in text
    assert f"({half.metrics.total_rows / 120:.0%} of 120)" in text


def test_a_run_that_learned_nothing_has_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every row was skipped as bad: exit 4, as without a commit, and no file."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.parquet", pa.table({"y": [0, 1] * 20, "n": [float("nan")] * 40}))
    flags = ["--label", "y", "--numeric", "n", "--set", "data.on_bad_row=skip"]
    assert run("train", "a.parquet", *flags, "--checkpoint", "run").code == 2
    found = run("report", "run", "-o", "out.html")
    assert found.code == 4
    assert "no commit with rows in " in found.err
    assert "streamomd resume run" in found.err
    assert not Path("out.html").exists()


@pytest.mark.parametrize(
    "flags",
    [
        ["--loss", "square", "--label", "n", "--numeric", "k", "--hashed", "h"],
        ["--loss", "softmax", "--label", "c", "--numeric", "n,k", "--hashed", "h"],
        ["--label", "h", "--numeric", "n,k", "--hashed", "c", "--set", "model.task=classify"],
        ["--rule", "perceptron", "--label", "y", "--numeric", "n", "--hashed", "h"],
        ["--rule", "auto", "--label", "y", "--numeric", "n", "--hashed", "h"],
    ],
    ids=["regression", "softmax", "one against all", "no sizes", "moments"],
)
@pytest.mark.slow
def test_every_task_has_a_page(flags: list[str], here: Path) -> None:
    """Regression, several classes, rules that keep no sizes: all parts, with rows and without."""
    ignore = {"y", "w", "n", "k", "h", "c", "i", "v"} - set(",".join(flags).split(","))
    more = ["--set", f"data.ignore={sorted(ignore)}", "--bits", 8, "--checkpoint", "runs/t"]
    train("data", *flags, *more)
    for given in ([], ["data"]):
        page = reported("runs/t", *given)
        assert [one.all("h2")[0].text for one in page.all("section")] == TITLES


@pytest.mark.slow
def test_regret_is_shown_with_its_bound(here: Path) -> None:
    """Of the run's own shards; not of others, nor where it is not wanted; the reason is said."""
    fields = ["--rule", "adagrad", "--loss", "hinge", "--set", "model.certificate=true"]
    train("data", *everything(), *fields, "--checkpoint", "runs/c")
    title = "Regret and certificate"
    whole = section(reported("runs/c", "data"), title)
    proven = run("certify", "runs/c", "data", "--json").result["learners"][0]
    assert f"a regret of {brief(proven['regret'])}" in whole.text
    assert {one.text for one in whole.all("figcaption")} >= {"Regret over rows"}
    assert [row.all("td")[0].text for row in whole.all("tr")[1:]] == [
        claim["claim"] for claim in proven["claims"]
    ]
    assert "Pass their shards to the report" in section(reported("runs/c"), title).text
    assert "--no-certificate" in section(reported("runs/c", "data", "--no-certificate"), title).text
    assert "no certificate" in section(reported("runs/c", "data/a.parquet"), title).text


def test_holdout_rows_are_reported(here: Path) -> None:
    """Their figures, by epoch too, and that a run stopped early."""
    sets = ["--set", "data.holdout=4", "--set", "train.patience=1", "--epochs", 30]
    result = train("data", *everything(), *sets, "--checkpoint", "runs/h")
    page = reported("runs/h")
    assert result["stopped_early"]
    assert "of 30: early stopping" in page.all("header")[0].text
    held = result["holdout"]
    assert brief(held["loss"]) in page.all("header")[0].text
    assert f"Epoch {held['best_epoch']} was the best." in page.text
    rows = section(page, "Training progress").all("table")[0].all("tr")[1:]
    assert [row.all("td")[5].text for row in rows] == [brief(one["loss"]) for one in held["epochs"]]


def test_what_is_there_is_not_written_over(here: Path) -> None:
    """A file is replaced when that was asked for; a directory and a URL are refused by name."""
    (here / "report.html").write_text("mine")
    done = run("report", "runs/a")
    assert (done.code, (here / "report.html").read_text()) == (2, "mine")
    assert "--overwrite" in done.err
    with pytest.raises(OutputExistsError):
        streamomd.write_report(streamomd.load("runs/a"))
    assert run("report", "runs/a", "--overwrite").code == 0
    assert (here / "report.html").read_text().startswith("<!doctype html>")
    assert run("report", "runs/a", "-o", "data").code == 2
    assert run("report", "runs/a", "-o", "s3://bucket/r.html").code == 2
    assert run("report", "runs/a", "-o", "none/r.html").code == 2
    assert run("report", "runs/nothing", "-o", "n.html").code == 4


def test_the_same_model_has_the_same_page(here: Path) -> None:
    """Nothing of a page depends on when it was made."""
    first = (reported("runs/a"), Path("out.html").read_bytes())[1]
    reported("runs/a")
    assert Path("out.html").read_bytes() == first


def test_a_model_in_memory_has_a_page(here: Path) -> None:
    """Without a checkpoint there are no commits; everything else is reported."""
    model = streamomd.train(
        "data", label="y", numeric=["n"], hashed=["h"], checkpoint="none", quiet=True,
        sets={"data.ignore": ["w", "k", "c", "i", "v"]},
    )  # fmt: skip
    found = streamomd.write_report(model, "memory.html")
    assert json.loads(json.dumps(found))["report"] == "memory.html"
    assert "A model in memory." in parsed(here / "memory.html").text


def test_a_curve_ends_now() -> None:
    """Loss over rows is drawn from the saved sums, up to the last row."""
    curve = np.array([[1.0, 2.0, 4.0, 0.0], [2.0, 4.0, 6.0, 2.0]])
    assert means(curve, 2).tolist() == [2.0, 1.5]
    assert means(np.diff(curve, axis=0), 2).tolist() == [1.0]

    metrics = Metrics(True, [2, 1], np.array([[4.0, 6.0, 2.0], [1.0, 4.0, 0.0]]), curve=curve)
    assert curve_points(metrics)[-1].tolist() == [3.0, 5.0, 10.0, 2.0]
    assert curve_points(metrics)[:-1].tolist() == curve.tolist()


@pytest.mark.parametrize("low, high", [(0.1, 0.3), (1.0, 1e6), (-5.0, 7.0), (1e-9, 2e-9), (3, 3.1)])
@pytest.mark.parametrize("log", [False, True])
def test_ticks_lie_on_their_axis(low: float, high: float, log: bool) -> None:
    """Two to a dozen round numbers, ascending, within the axis."""
    if log and low <= 0.0:
        low = 0.01
    ticks = [number for number, _ in Axis("x", low, high, log).ticks()]
    assert 2 <= len(ticks) <= 12
    assert ticks == sorted(ticks)
    assert low - 1e-3 * abs(low) <= ticks[0]
    assert ticks[-1] <= high + 1e-3 * abs(high)
    assert [0.0 <= Axis("x", low, high, log).at(one) <= 1.0 for one in ticks]


def test_skipped_rows_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By reason, and as a thing to look at."""
    monkeypatch.chdir(tmp_path)
    table = rows(50)
    n = table.column("n").to_pylist()
    n[3], n[5] = None, float("nan")
    write(tmp_path / "data" / "a.parquet", table.set_column(2, "n", pa.array(n)))
    train("data", *everything(), "--on-bad-row", "skip", "--checkpoint", "runs/s")
    page = reported("runs/s")
    fields = section(page, "Training progress").all("table")[-1]
    assert [[td.text for td in tr.all("td")] for tr in fields.all("tr")[1:]] == [
        ["null", "1"], ["nan", "1"],
    ]  # fmt: skip
    assert "2 of them, 4.00% (null 1, nan 1), were skipped" in page.text
