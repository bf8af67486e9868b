"""Delayed labels: river's questions and answers, row by row, and resumed runs, to the bit."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delayed_labels import simulate_qa
from killed import killed
from running import Impatient, rows, run, with_column, write
from timed import COUNT, DAYS, START, Literal, slots, timed_shards, train

import streamomd
from streamomd.core.errors import InputNotFoundError, StoppedError, UnsupportedError, UsageError
from streamomd.training.class_weights import drawn_shares
from streamomd.training.holdout import number_of
from streamomd.training.metrics import Metrics
from streamomd.training.metrics.ranking import fit_calibration

DELAYS = {"1s": 1, "1h": 3600, "24h": 86_400, "36h": 129_600, "9d": 777_600}


IN_ORDER = pytest.param(False, id="in order", marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=[IN_ORDER, pytest.param(True, id="late")])
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six days of rows, in order of time or not."""
    return timed_shards(tmp_path_factory.mktemp("delayed") / "data", late=request.param, days=4)


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.sample(2)
def test_rows_are_learned_when_their_labels_are_known(delay: str, data: Path) -> None:
    """Predictions and the state are those of river's simulation, event by event, to the bit, of
    rows in any order of time; the answers after the last question are rows that wait."""
    learner, sums, learned = Literal(data), np.zeros(3), 0
    moments = learner.times
    for row, event in simulate_qa(moments, DELAYS[delay] * 10**9):
        if event == "question":
            learner.predict(row, sums)
        elif event == "answer":
            learner.learn(row)
            learned += 1
    model = train(data, delay=delay)
    assert model.metrics.current.tobytes() == sums.tobytes()
    assert slots(model) == learner.slots()
    waiting = len(moments) - learned
    expected = {"seconds": DELAYS[delay], "learned": learned, "waiting": waiting}
    assert model.result()["delay"] == expected
    assert sum(one["rows"] for one in model.result()["by_time"]["day"]) == len(moments)


def test_classes_balance_as_labels_become_known(data: Path) -> None:
    """A row counts in its class when it is learned; its prediction has its own weight."""
    learner, sums, counts = Literal(data), np.zeros(3), {-1.0: 0.0, 1.0: 0.0}
    for row, event in simulate_qa(learner.times, 36 * 3600 * 10**9):
        if event == "question":
            learner.predict(row, sums)
        elif event == "answer":
            one = learner.rows[row]
            counts[float(one.y[0])] += float(one.weight[0])
            factor = sum(counts.values()) / (2.0 * counts[float(one.y[0])])
            learner.rows[row] = replace(one, weight=one.weight * factor)
            learner.learn(row)
    model = train(data, delay="36h", sets={"model.class_weight": "balanced"})
    assert model.metrics.current == pytest.approx(sums, rel=1e-12)
    cells = np.frombuffer(slots(model)["w"]), np.frombuffer(learner.slots()["w"])
    np.testing.assert_allclose(*cells, rtol=1e-9)
    assert model.result()["delay"]["waiting"] > 0


def test_both_cursors_sample_the_same_rows(data: Path, tmp_path: Path) -> None:
    """A delayed run on sampled rows is that on shards of these rows alone, with their weights."""
    sampled = train(data, delay="20h", sets={"data.sample": {"0": 0.3}})
    for path in sorted(data.glob("*.parquet")):
        table = pq.read_table(path, partitioning=None)
        place = number_of(path.name)
        share = np.where(table["y"].to_numpy() == 1, 1.0, 0.3)
        taken = drawn_shares(0, place, np.arange(len(table))) < share
        weighted = with_column(table, "w", table["w"].to_numpy() / share)
        write(tmp_path / "taken" / path.name, weighted.filter(taken), row_group_size=25)
    assert slots(sampled) == slots(train(tmp_path / "taken", delay="20h"))
    assert sampled.result()["sampled_out"] > 0


def test_the_oracle_in_words() -> None:
    """A row is answered before the first question at its time and the delay, or later."""
    events = list(simulate_qa([0, 1, 5, 6], 5))
    assert events == [
        (0, "question"), (1, "question"), (0, "answer"), (2, "question"),
        (1, "answer"), (3, "question"), (2, "end"), (3, "end"),
    ]  # fmt: skip
    late = list(simulate_qa([4, 1, 7, 9], 5))  # the second waits for the first
    assert late[:6] == [
        (0, "question"), (1, "question"), (2, "question"), (0, "answer"), (1, "answer"),
        (3, "question"),
    ]  # fmt: skip


def test_rows_of_one_time_are_predicted_with_the_same_weights(tmp_path: Path) -> None:
    """Days of one time each, labels a day later: a label is known at that very time, and the order
    of the last day's rows, which only predicts, changes nothing but the rounding of sums."""
    day = 86_400 * np.repeat(np.arange(3), COUNT)
    table = pa.concat_tables([rows(COUNT, first=one) for one in range(3)])
    ts = pa.array((day + START).astype("datetime64[s]"))
    order = np.r_[: 2 * COUNT, 3 * COUNT - 1 : 2 * COUNT - 1 : -1]
    found = []
    for name, taken in (("as they are", np.arange(3 * COUNT)), ("reversed", order)):
        write(tmp_path / name / "0.parquet", table.take(taken).append_column("ts", ts))
        found.append(train(tmp_path / name, delay="24h"))
    one, other = found
    assert slots(one) == slots(other)
    assert one.metrics.current == pytest.approx(other.metrics.current, rel=1e-12)
    expected = {"seconds": 86_400, "learned": 2 * COUNT, "waiting": COUNT}
    assert one.result()["delay"] == other.result()["delay"] == expected


def test_no_delay_is_todays_run(data: Path) -> None:
    """``delay = 0`` learns each row directly after its prediction."""
    assert train(data, delay=0).state_sha256 == train(data).state_sha256
    assert "delay" not in train(data, delay=0).result()


@pytest.mark.parametrize("stop", [1, 61, 130, 239])
@pytest.mark.sample(2)
def test_a_resumed_run_is_the_undisturbed_one(stop: int, data: Path, tmp_path: Path) -> None:
    """A stop after any row, with hold-out rows; commits hold no rows."""
    sets = {"data.holdout": 7, "checkpoint.every_rows": 60}
    whole, url = train(data, delay="30h", sets=sets), str(tmp_path / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamomd.runs.reporting.progress", lambda *_: Impatient(stop))
        if stop < whole.metrics.total_rows:
            with pytest.raises(StoppedError):
                train(data, delay="30h", sets=sets, checkpoint=url, quiet=False)
    resumed = streamomd.resume(url, quiet=True) if Path(url).exists() else whole
    for key in ("state_sha256", "by_time", "holdout", "delay", "loss"):
        assert resumed.result()[key] == whole.result()[key]
    assert slots(resumed) == slots(whole)


def test_bad_rows_are_skipped_by_both_cursors(data: Path, tmp_path: Path) -> None:
    """Bad rows between others, at the ends of row groups, and whole row groups of them: the run is
    the one without them, and each is counted once."""
    for path in sorted(data.glob("*.parquet")):
        table = pq.read_table(path, partitioning=None)
        n = table["n"].to_numpy().copy()
        bad = np.zeros(len(table), bool)
        bad[::7] = bad[20:50] = bad[-3:] = True
        n[bad] = np.nan
        write(tmp_path / "bad" / path.name, with_column(table, "n", n), row_group_size=25)
        write(tmp_path / "good" / path.name, table.filter(~bad), row_group_size=25)
    some = train(tmp_path / "bad", delay="20h", on_bad_row="skip")
    good = train(tmp_path / "good", delay="20h", on_bad_row="skip")
    assert slots(some) == slots(good)
    assert some.result()["by_time"] == good.result()["by_time"]
    rows = sum(len(pq.read_table(path)) for path in data.glob("*.parquet"))
    assert sum(some.result()["skipped"].values()) == rows - good.result()["rows"]


@pytest.mark.parametrize(
    "more, message",
    [
        ({"epochs": 2}, r"set train\.epochs = 1, not 2"),
        ({"mode": "averaged"}, "in mode exact, not averaged"),
        ({"sets": {"model.certificate": True}, "rule": "ogd"}, "leave model.certificate out"),
    ],
)
def test_what_cannot_be_delayed(more: dict[str, Any], message: str, data: Path) -> None:
    """Several epochs, other modes and certificates are refused by name."""
    with pytest.raises(UnsupportedError, match=message):
        train(data, delay="1h", **more)


def arriving(data: Path, folder: Path, days: range) -> None:
    """Shards of these days appear."""
    folder.mkdir(exist_ok=True)
    for day in days:
        shutil.copy(data / f"{day}.parquet", folder / f"{day}.parquet")


MORE = {"data.holdout": 7, "model.class_weight": "balanced", "model.calibrate": "sigmoid"}


@pytest.mark.parametrize(
    "delay, sets",
    [("30h", MORE), *(pytest.param(delay, {}, marks=pytest.mark.slow) for delay in DELAYS)],
)
def test_updates_are_one_run(delay: str, sets: dict[str, Any], data: Path, tmp_path: Path) -> None:
    """A run on the first day and an update for each other day, one of them without a new row, are
    bit-identical to one run on all days: rows wait from one update to the next, and the labels of
    their shards become known there."""
    whole = train(data, delay=delay, sets=sets)
    source, url = tmp_path / "source", str(tmp_path / "run")
    arriving(data, source, range(1))
    train(source, delay=delay, sets=sets, checkpoint=url)
    for day in (1, 1, 2, 3):
        if not (source / f"{day}.parquet").exists():
            arriving(data, source, range(day, day + 1))
        streamomd.update(url, settle=0, quiet=True)
    found = streamomd.load(url)
    for key in ("state_sha256", "by_time", "holdout", "delay", "loss", "rows", "calibrated"):
        assert found.result()[key] == whole.result()[key]
    assert slots(found) == slots(whole)
    assert found.metrics.current.tobytes() == whole.metrics.current.tobytes()


@pytest.mark.parametrize(
    "stop", [*(pytest.param(row, marks=pytest.mark.slow) for row in (61, 110)), 170]
)
def test_an_interrupted_update_is_the_undisturbed_one(
    stop: int, data: Path, tmp_path: Path
) -> None:
    """A stop after any row of an update, whose rows wait in shards of the run before; then
    ``update`` finishes the list."""
    whole = train(data, delay="30h")
    source, url = tmp_path / "source", str(tmp_path / "run")
    arriving(data, source, range(1))
    train(source, delay="30h", checkpoint=url, sets={"checkpoint.every_rows": 20})
    arriving(data, source, range(1, 4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamomd.runs.reporting.progress", lambda *_: Impatient(stop))
        with pytest.raises(StoppedError):
            streamomd.update(url, settle=0)
    assert streamomd.load(url).metrics.total_rows < len(data_rows(data))
    finished = streamomd.update(url, settle=0, quiet=True)
    assert slots(finished) == slots(whole)
    for key in ("state_sha256", "by_time", "delay", "loss"):
        assert finished.result()[key] == whole.result()[key]


def data_rows(data: Path) -> pa.Table:
    """The rows of all shards."""
    return pa.concat_tables(
        pq.read_table(path, partitioning=None) for path in sorted(data.glob("*.parquet"))
    )


def test_follow_learns_labels_as_they_become_known(data: Path, tmp_path: Path) -> None:
    """One shard in each update: all updates of one process are one run."""
    whole = train(data, delay="30h")
    source, url = tmp_path / "source", str(tmp_path / "run")
    arriving(data, source, range(1))
    train(source, delay="30h", checkpoint=url)
    arriving(data, source, range(1, 4))
    more = {"settle": 0, "every": 0.05, "idle_exit": 0.1, "max_shards": 1}
    followed = streamomd.follow(url, quiet=True, **more)
    assert slots(followed) == slots(whole)
    assert followed.update.number == 3
    assert followed.result()["delay"] == whole.result()["delay"]


def test_shards_whose_rows_wait_are_needed(data: Path, tmp_path: Path) -> None:
    """A shard that is gone or rewritten is named; one whose rows are all learned may be gone."""
    source, url = tmp_path / "source", str(tmp_path / "run")
    arriving(data, source, range(3))
    train(source, delay="30h", checkpoint=url)
    (source / "0.parquet").unlink()
    arriving(data, source, range(3, 4))
    streamomd.update(url, settle=0, quiet=True)
    assert slots(streamomd.load(url)) == slots(train(data, delay="30h"))
    (source / "2.parquet").unlink()
    arriving(timed_shards(tmp_path / "more", days=5), source, range(4, 5))
    with pytest.raises(InputNotFoundError, match=r"2\.parquet"):
        streamomd.update(url, settle=0, quiet=True)


def test_margins_are_counted_when_labels_are_known(data: Path) -> None:
    """Calibration learns from each row when it is learned, by its margin just before."""
    learner, counted = Literal(data), Metrics(classifies=True)
    for row, event in simulate_qa(learner.times, 36 * 3600 * 10**9):
        if event == "answer":
            one = learner.rows[row]
            margins = learner.engine.learn(learner.state, np.zeros(3), one)
            counted.count_first(learner.engine.loss, margins, one.y, one.weight)
    model = train(data, delay="36h", sets={"model.calibrate": "isotonic"})
    assert model.metrics.margins.tobytes() == counted.margins.tobytes()
    assert model.calibration == fit_calibration("isotonic", counted.margins)


def test_who_refuses_a_delay(data: Path) -> None:
    """A job without times, and times before now."""
    with pytest.raises(UsageError, match=r"data\.delay needs the rows' times"):
        train(data, delay="1h", time="")
    with pytest.raises(UsageError, match=r"data\.delay = -1: expected a number from 0"):
        train(data, delay=-1)


def test_the_command_says_how_many_rows_wait(data: Path) -> None:
    """A line on the rows that were learned, and on those that were not."""
    words = ["--label", "y", "--numeric", "n", "--rule", "nag", "--time", "ts", "--delay", "24h"]
    done = run("train", data, *words, "--checkpoint", "none")
    rows = sum(len(pq.read_table(path)) for path in data.glob("*.parquet"))
    learned = int(done.out.partition("learned ")[2].partition(" ")[0])
    assert f"; {rows - learned} rows wait for their labels (data.delay)" in done.out


def test_a_warm_start_says_which_rows_it_does_not_learn(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Rows of the other run that wait are not counted among those of this run, which only an update
    of the other run would learn."""
    plain, late = tmp_path / "plain", tmp_path / "late"
    rows = train(data, checkpoint=str(plain)).metrics.total_rows
    there = train(data, delay="24h", checkpoint=str(late)).result()["delay"]
    capfd.readouterr()
    found = train(data, delay="24h", start=str(late), quiet=False).result()["delay"]
    assert found == there
    assert f"{there['waiting']:,} rows of {late} wait for their labels" in capfd.readouterr().err
    with pytest.raises(UsageError, match=r"only streamomd update .*late learns them"):
        train(data, delay="24h", start=str(late), continue_metrics=True)
    found = train(data, delay="24h", start=str(plain), continue_metrics=True).result()["delay"]
    assert (found["learned"], found["waiting"]) == (rows + there["learned"], there["waiting"])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_a_killed_run_ends_with_the_same_bits(seed: int, tmp_path: Path) -> None:
    """A process killed up to five times, at any instant, resumes to the undisturbed run."""
    data = timed_shards(tmp_path / "data", late=bool(seed % 2), days=DAYS)
    url = str(tmp_path / "run")
    job = {
        "data": {
            "shards": [str(data)], "label": "y", "weight": "w", "numeric": ["n", "k"],
            "hashed": ["h"], "bits": 8, "time": "ts", "delay": "30h", "holdout": 9,
        },
        "model": {"rule": "nag"},
        "train": {},
        "checkpoint": {"url": url, "every_rows": 5},
    }  # fmt: skip
    whole = train(data, delay="30h", sets={"data.holdout": 9})
    outcome = killed(job, "", seed)
    assert outcome.state_sha256 == whole.state_sha256
    found = streamomd.load(url)
    for key in ("by_time", "holdout", "delay"):
        assert found.result()[key] == whole.result()[key]
    assert found.metrics.total_rows + found.result()["holdout"]["rows"] == DAYS * COUNT
