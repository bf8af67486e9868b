"""Rows held out: which they are, that nothing is learned of them, when to stop by their loss."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import Impatient, rows, run, with_column, write
from sweeping import plain

import streamomd
from streamomd.core.errors import StoppedError, UnsupportedError, UsageError
from streamomd.sources.find import find
from streamomd.training.holdout import best_epoch, held_out, patience_exhausted
from streamomd.training.metrics import Metrics
from streamomd.training.row_stream import rows_of

FLAGS: dict[str, Any] = {"label": "y", "weight": "w", "numeric": ["n", "k"], "hashed": ["h"]}
EVERY, COUNT = 5, 200
KEYS = ("rows", "loss", "error", "auc", "auc_error", "holdout", "epochs", "state_sha256")


def mixed(z: int) -> int:
    """SplitMix64's output for a state, in Python's whole numbers."""
    z = (z + 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return z ^ z >> 31


def number(name: str) -> int:
    """By which the hold-out rows of a shard of this name are drawn."""
    return int(hashlib.sha256(name.encode()).hexdigest()[:16], 16)


NUMBERS = [number(f"{name}.parquet") for name in "abc"]


def is_held(every: int, seed: int, shard: int, row: int) -> bool:
    start = mixed((mixed(seed % 2**64) + shard) % 2**64)
    return mixed((start + row * 0x9E3779B97F4A7C15) % 2**64) % every == 0


@given(st.integers(2, 2**32 - 1), st.integers(-(2**70), 2**70), st.integers(0, 2**64 - 1))
@settings(max_examples=100, deadline=None)
def test_which_rows(every: int, seed: int, shard: int) -> None:
    """A row is held out by its number, the shard's and the seed alone, as the generator's paper has
    it."""
    places = np.array([0, 1, 2, 1000, 2**40], np.int64)
    expected = [is_held(every, seed, shard, row) for row in places.tolist()]
    assert held_out(every, seed, shard, places).tolist() == expected


def test_about_one_in_every_so_many() -> None:
    """The share is near what was asked for, in each shard, and the shards' rows differ."""
    found = [held_out(10, 7, shard, np.arange(20_000)) for shard in range(4)]
    for one in found:
        assert 0.09 < one.mean() < 0.11
    assert not np.array_equal(found[0], found[1])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three shards of 200 rows in row groups of 30, and the same without the rows held out."""
    for shard, name in enumerate("abc"):
        table = rows(COUNT, first=shard)
        learned = [not is_held(EVERY, 3, NUMBERS[shard], row) for row in range(COUNT)]
        write(tmp_path / "all" / f"{name}.parquet", table, row_group_size=30)
        write(tmp_path / "learned" / f"{name}.parquet", table.filter(pa.array(learned)))
    return tmp_path


def learn(shards: Path, every: int = EVERY, **more: Any) -> streamomd.Model:
    sets = {"data.holdout": every, "data.seed": 3, **more.pop("sets", {})}
    given = {"checkpoint": "none", "quiet": True, "bits": 8, **FLAGS, **more}
    return streamomd.train(str(shards), sets=sets, **given)


def told(model: streamomd.Model) -> dict[str, Any]:
    return {key: model.result()[key] for key in KEYS}


@pytest.mark.parametrize("rule", ["nag", "arow", "pa1"])
def test_nothing_is_learned_of_them(rule: str, data: Path) -> None:
    """The state and the progressive figures are those of the other rows alone."""
    with plain():
        held, others = learn(data / "all", rule=rule), learn(data / "learned", 0, rule=rule)
    assert held.state_sha256 == others.state_sha256
    assert held.metrics.curve.tobytes() == others.metrics.curve.tobytes()
    assert held.result()["rows"] + held.result()["holdout"]["rows"] == 3 * COUNT
    assert others.result()["holdout"] is None


def test_nothing_is_looked_at_before_the_first_epoch(data: Path) -> None:
    """A rule that observes all rows first does not observe those held out."""
    two = {"rule": "nag_projected", "sets": {"model.params.passes": 2}, "hashed": []}
    with plain():
        held, others = learn(data / "all", **two), learn(data / "learned", 0, **two)
    assert held.state_sha256 == others.state_sha256


def test_they_are_predicted_when_they_come(data: Path) -> None:
    """A held-out row's loss is the one it has by the state that the rows before it made."""
    model = learn(data / "all")
    fresh = streamomd.Model.new(model.spec, model.plan)
    sums = np.zeros(3)
    for piece in rows_of(model.plan, find(str(data / "all")), range(3)):
        batch = piece.value.batch
        for at in range(len(batch)):
            one = batch.rows(at, at + 1)
            if is_held(EVERY, 3, NUMBERS[piece.position], piece.row + at):
                fresh.engine.predict(fresh.state, sums, one)
            else:
                fresh.learn(one)
    assert model.metrics.held is not None
    assert model.metrics.held.sums.tolist() == [sums.tolist()]


def test_cuts_and_interruptions_leave_no_trace(data: Path) -> None:
    """Commits every 90 rows, a stop in the second epoch and a resume: the same, to the bit."""
    whole = learn(data / "all", epochs=3)
    kept, often = str(data / "kept"), {"checkpoint.every_rows": 90}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamomd.runs.reporting.progress", lambda *_: Impatient(700))
        with pytest.raises(StoppedError):
            learn(data / "all", epochs=3, checkpoint=kept, sets=often, quiet=False)
    resumed = streamomd.resume(kept, quiet=True)
    assert told(resumed) == told(whole) == told(streamomd.load(kept))
    assert [one["rows"] for one in whole.result()["holdout"]["epochs"]] == [
        3 * COUNT - len(whole_learned(data))
    ] * 3


def whole_learned(data: Path) -> list[int]:
    """The rows that are not held out, numbered over all shards."""
    return [n for n in range(3 * COUNT) if not is_held(EVERY, 3, NUMBERS[n // COUNT], n % COUNT)]


def test_each_epoch_holds_out_the_same_rows(data: Path) -> None:
    """In another order of the shards too; a rerun has the same rows, another seed others."""
    shuffled = learn(data / "all", epochs=2, sets={"data.order": "shuffled"})
    sorted_ones = learn(data / "all", epochs=2)
    weights = [model.metrics.held.sums[:, 0] for model in (shuffled, sorted_ones)]
    assert np.allclose(weights, weights[0][0])


def test_bad_rows_between_them_move_nothing(data: Path) -> None:
    """A row is counted with those left out: the same ones are held out as if all were good."""
    for shard, name in enumerate("abc"):
        table = rows(COUNT, first=shard)
        n = table["n"].to_numpy().copy()
        n[::9] = n[:60] = np.nan  # whole row groups, too
        write(data / "bad" / f"{name}.parquet", with_column(table, "n", n), row_group_size=30)
    model = learn(data / "bad", on_bad_row="skip")
    good = [n for n in range(3 * COUNT) if n % COUNT >= 60 and n % COUNT % 9]
    expected = sum(is_held(EVERY, 3, NUMBERS[n // COUNT], n % COUNT) for n in good)
    assert model.result()["holdout"]["rows"] == expected
    assert model.result()["rows"] == len(good) - expected


def test_epochs_have_figures_of_their_own(data: Path) -> None:
    """By epoch: rows, loss, error and AUC; the whole is the last epoch's; lines tell the loss."""
    model = learn(data / "all", epochs=3)
    found = model.result()["holdout"]
    assert len(found["epochs"]) == 3
    last = found["epochs"][-1]
    assert {key: found[key] for key in last} == last
    assert found["auc"] is not None
    assert found["per_class"] is not None
    ones = [learn(data / "all", epochs=epochs).result()["holdout"] for epochs in (1, 2, 3)]
    assert [one["epochs"][-1] for one in ones] == found["epochs"]
    best = min(range(3), key=lambda at: found["epochs"][at]["loss"])
    assert found["best_epoch"] == best + 1
    words = ["--set", f"data.holdout={EVERY}", "--checkpoint", "none", "--label", "y"]
    words += ["--numeric", "n", "--epochs", "2", "--verbose"]
    done = run("train", data / "all", *words, "--json")
    lines = done.err.splitlines()
    told = re.compile(r"; hold-out loss 0\.\d+ \((\d+) rows? of epoch (\d)\)")
    shown = [told.search(line) for line in lines]
    shown = [(int(one[2]), int(one[1])) for one in shown if one]
    assert shown == sorted(shown)  # counted from the start of the epoch that is named
    assert shown[-1] == (2, done.result["holdout"]["rows"])
    assert "hold-out loss nan" not in "".join(lines)


def with_losses(*losses: float) -> Metrics:
    metrics = Metrics(classifies=True)
    for epoch, loss in enumerate(losses):
        metrics.begin(epoch)
        metrics.current[:] = 1.0, loss, 0.0
    return metrics


@pytest.mark.parametrize(
    ("losses", "patience", "stops", "best"),
    [
        ([3.0, 2.0, 1.0], 1, None, 3),
        ([3.0, 2.0, 2.0], 1, 3, 2),
        ([3.0, 1.0, 2.0, 1.5, 0.5], 2, 4, 2),
        ([3.0, 1.0, 2.0, 0.5, 2.0, 2.0], 2, 6, 4),
        ([np.nan, np.nan, 1.0], 3, None, 3),
        ([np.nan, np.inf, np.nan], 1, 2, None),
        ([1.0, np.nan, np.nan], 2, 3, 1),
        ([1.0, 2.0, 3.0], 0, None, 1),
    ],
)
def test_when_patience_ends(
    losses: list[float], patience: int, stops: int | None, best: int | None
) -> None:
    """After so many epochs in a row that were not better than the best; never before as many."""
    held = with_losses(*losses)
    ends = [done for done in range(len(losses) + 1) if patience_exhausted(held, done, patience)]
    assert (ends[0] if ends else None) == stops
    assert best_epoch(held, stops or len(losses)) == best
    assert not patience_exhausted(None, 9, 1)


def test_a_run_stops_early(data: Path) -> None:
    """It says so, and which epoch was best; resumed, or asked for more, it tells the same."""
    kept = data / "kept"
    model = learn(data / "all", epochs=60, checkpoint=str(kept), sets={"train.patience": 2})
    found = model.result()
    done = len(found["epochs"])
    assert 2 < done < 60
    assert found["stopped_early"]
    assert found["holdout"]["best_epoch"] == done - 2
    again = run("resume", kept, "--json").result
    more = run("resume", kept, "--epochs", "70")
    assert "stopped early: the last 2 epochs had no better held-out loss" in more.err
    for other in (again, run("resume", kept, "--json").result):
        assert {key: other[key] for key in (*KEYS, "stopped_early")} == {
            key: found[key] for key in (*KEYS, "stopped_early")
        }
    plain = learn(data / "all", epochs=done)
    assert plain.state_sha256 == model.state_sha256
    assert not plain.result()["stopped_early"]


def test_what_has_no_holdout_refuses(data: Path) -> None:
    """By name, before a shard is looked for."""
    with pytest.raises(
        UnsupportedError, match=r"data\.holdout = 5: sharded mode has no hold-out rows"
    ):
        learn(data / "nowhere", mode="sharded")
    sets = {"data.holdout": 5, "train.patience": 2}
    with pytest.raises(UnsupportedError, match=r"train\.patience = 2: the learners of a sweep"):
        streamomd.sweep(str(data / "nowhere"), grid={"rule": ["nag"]}, label="y", sets=sets)


def test_what_makes_no_sense_is_refused(data: Path) -> None:
    """Patience without rows held out, and rows that are all held out."""
    with pytest.raises(
        UsageError, match=r"train\.patience = 2: early stopping needs hold-out rows"
    ):
        learn(data / "all", 0, sets={"train.patience": 2})
    with pytest.raises(UsageError, match=r"data\.holdout = 1 would hold out every row"):
        learn(data / "all", 1)
