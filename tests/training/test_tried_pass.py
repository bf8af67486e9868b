"""A later pass of rule auto is tried: the run returns to the model before it, or keeps it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from running import Impatient, write

import streamomd
from streamomd.core.errors import StoppedError
from streamomd.engine import block_state
from streamomd.training import run_records, training_step
from streamomd.training.run_records import TriedPass

ROWS, LEAST = 4400, 1000
KEYS = ("rows", "loss", "error", "auc", "epochs", "stopped_early", "state_sha256", "saved_loss")


def made(order: str, rows: int = ROWS) -> pa.Table:
    """Two numbers and a label with noise; "sorted" by label."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(rows, 2))
    y = (x @ [1.5, -1.0] + rng.logistic(size=rows) > 0.0).astype(np.int64)
    at = np.argsort(y, kind="stable") if order == "sorted" else np.arange(rows)
    return pa.table({"a": x[at, 0], "b": x[at, 1], "y": y[at]})


def learn(shards: Path, epochs: int, checkpoint: str = "none", **more: Any) -> streamomd.Model:
    given: dict[str, Any] = {"label": "y", "quiet": True, "checkpoint": checkpoint, **more}
    return streamomd.train(str(shards), epochs=epochs, **given)


def told(model: streamomd.Model) -> list[Any]:
    found = model.result()
    return [found[key] for key in KEYS]


@pytest.fixture(autouse=True)
def fewer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops are not compiled here. 2,048 rows are solved again: all would make one pass of sorted
    rows as good as one of shuffled rows."""
    monkeypatch.setattr(block_state, "MOST", 4096)
    monkeypatch.setattr(training_step, "LEAST", LEAST)
    monkeypatch.setattr(run_records, "WINDOW", 8)


@pytest.fixture
def shuffled(tmp_path: Path) -> Path:
    write(tmp_path / "shuffled" / "a.parquet", made("shuffled"), row_group_size=300)
    return tmp_path / "shuffled"


@pytest.fixture
def by_label(tmp_path: Path) -> Path:
    write(tmp_path / "sorted" / "a.parquet", made("sorted"), row_group_size=300)
    return tmp_path / "sorted"


def test_a_pass_that_brings_little_leaves_no_trace(
    shuffled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three epochs of shuffled rows are one, to the bit; a line says so."""
    one, three = learn(shuffled, 1), learn(shuffled, 3, quiet=False)
    assert three.state_sha256 == one.state_sha256
    assert three.result()["epochs"] == one.result()["epochs"]
    assert three.result()["stopped_early"]
    assert not one.result()["stopped_early"]
    assert "stopped early: epoch 2 brings little, so the model is that of epoch 1" in (
        capsys.readouterr().err
    )


def test_a_pass_over_rows_sorted_by_label_is_kept(by_label: Path) -> None:
    """One twentieth of its rows is not learned, but counted by both models."""
    model = learn(by_label, 2)
    windows = np.arange(ROWS) // run_records.WINDOW % run_records.EVERY == run_records.EVERY // 2
    assert [one["rows"] for one in model.result()["epochs"]] == [ROWS, ROWS - windows.sum()]
    assert model.tried is None


@pytest.mark.parametrize("at", [4550, 6000, 8000])
@pytest.mark.parametrize("order", ["shuffled", "sorted"])
@pytest.mark.sample(2)
def test_cuts_and_interruptions_change_no_bit(
    order: str, at: int, shuffled: Path, by_label: Path, tmp_path: Path
) -> None:
    """A stop in the second epoch, commits every 90 rows, of which one is retained, and a resume:
    the model before the pass is there, and the result the same."""
    shards = shuffled if order == "shuffled" else by_label
    whole, url = learn(shards, 3), str(tmp_path / "run")
    sets = {"checkpoint.every_rows": 90, "checkpoint.keep": 1}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamomd.runs.reporting.progress", lambda *_: Impatient(at))
        with pytest.raises(StoppedError):
            learn(shards, 3, url, sets=sets, quiet=False)
    stopped = streamomd.load(url)
    assert stopped.tried is not None
    assert stopped.tried.rows >= stopped.metrics.rows[1]
    resumed = streamomd.resume(url, quiet=True)
    assert told(resumed) == told(whole) == told(streamomd.load(url))


def test_rows_after_a_pass_that_was_undone(shuffled: Path) -> None:
    """They are learned as after one epoch."""
    more = made("shuffled", 100)
    given = more.drop_columns("y"), more["y"].to_numpy()
    one, three = (learn(shuffled, epochs).learn(*given) for epochs in (1, 3))
    assert three.state_sha256 == one.state_sha256


def test_more_epochs_of_a_finished_run(shuffled: Path, tmp_path: Path) -> None:
    """They are tried, too, and the run ends with the model that it had."""
    url = str(tmp_path / "run")
    one = learn(shuffled, 1, url)
    more = streamomd.resume(url, sets={"train.epochs": 2}, quiet=True)
    assert more.state_sha256 == one.state_sha256


@pytest.mark.parametrize(
    "more", [{"patience": 1, "holdout": 5}, {"rule": "nag"}, {"rule": "laplace"}]
)
def test_passes_that_are_not_tried(more: dict[str, Any], shuffled: Path) -> None:
    """Those of other rules, and where the job says when to stop."""
    epochs = learn(shuffled, 2, **more).result()["epochs"]
    assert epochs[0]["rows"] == epochs[1]["rows"]


def test_small_tables_are_learned_as_often_as_asked(tmp_path: Path) -> None:
    """Too few rows would decide."""
    write(tmp_path / "few" / "a.parquet", made("shuffled", LEAST - 1))
    assert [one["rows"] for one in learn(tmp_path / "few", 2).result()["epochs"]] == [LEAST - 1] * 2


def test_hold_out_rows_decide_where_the_job_has_some(by_label: Path) -> None:
    """No further row is left out; both models predict the same rows."""
    found = learn(by_label, 2, holdout=20).result()
    assert found["epochs"][0]["rows"] == found["epochs"][1]["rows"]
    assert found["holdout"]["epochs"][0]["rows"] == found["holdout"]["epochs"][1]["rows"]


def test_which_rows_do_not_depend_on_batches() -> None:
    whole, cut = TriedPass(-1), TriedPass(-1)
    parts = [cut.draw(rows) for rows in (1, 0, 700, 2, 5000)]
    assert np.array_equal(whole.draw(5703), np.concatenate(parts))


@pytest.mark.parametrize(
    "wrong",
    [{"commit": "3"}, {"rows": -1}, {"before": [0.0]}, {"now": [[0.0] * 3]}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_an_invalid_record_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="its pass"):
        TriedPass.from_json({**TriedPass(3).to_json(), **wrong})


def test_estimators_undo_the_same_passes(shuffled: Path, by_label: Path) -> None:
    """Without early stopping and shuffling, ``fit`` is the run with as many epochs."""
    for shards, passes in ((shuffled, 1), (by_label, 2)):
        table = made("shuffled" if shards == shuffled else "sorted")
        X = np.c_[table["a"].to_numpy(), table["b"].to_numpy()]
        given: dict[str, Any] = {"shuffle": False, "early_stopping": False, "max_iter": 2}
        fitted = streamomd.OMDClassifier(**given).fit(X, table["y"].to_numpy())
        assert fitted.n_iter_ == passes
        assert fitted.to_model().state.cells.tolist() == learn(shards, 2).state.cells.tolist()
