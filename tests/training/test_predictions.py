"""Predictions: what is written, that it is what numpy computes, and what is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import alone, both, rows, run, shards, train, write

import streamomd
from streamomd.checkpoint.stores.local import temporary_name
from streamomd.shards.output_files import PredictionWriter

pytestmark = pytest.mark.smoke


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with three shards of 40 rows in ``data``."""
    monkeypatch.chdir(tmp_path)
    shards(tmp_path / "data")
    return tmp_path


def sigmoid(score: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-np.asarray(score)))


def margins(model: Any, table: pa.Table) -> Any:
    """Bias, n, k and the pair, weighed in plain numpy; (rows, learners)."""
    weights = model.engine.weights(model.state, 0, model.plan.size)
    out = []
    for row in table.to_pylist():
        x = np.zeros(model.plan.size)
        x[:3] = 1.0, row["n"], row["k"]
        x[3 + np.array(row["i"], int)] = row["v"]
        out.append(x @ weights)
    return np.array(out)


def plain_model(loss: str = "logistic", *, rule: str = "nag", **columns: Any) -> Any:
    """A run on n, k and the pair, kept in ``kept``."""
    for path in sorted(Path("data").glob("*.parquet")):
        table = pq.read_table(path)
        for name, values in columns.items():
            at = table.schema.get_field_index(name)
            table = table.set_column(at, name, values(table))
        write(path, table, row_group_size=7)
    flags = ["--label", "y", "--numeric", "n,k", "--loss", loss, "--checkpoint", "kept"]
    train(
        "data", *flags, "--rule", rule, "--set", 'data.sparse={indices="i", values="v", size=100}'
    )
    return streamomd.load("kept")


def predicted(*more: str) -> pa.Table:
    files = alone(run("predict", "kept", "data", "--to", "out", *more, "--json"))["files"]
    assert [Path(file).name for file in files] == ["a.parquet", "b.parquet", "c.parquet"]
    return pa.concat_tables([pq.read_table(file) for file in files])


def smoothed(likely: Any, rule: str, classes: int) -> Any:
    """Probabilities of 120 learned rows: auto mixes them with uniform ones."""
    e = 1.0 / 122.0 if rule == "auto" else 0.0
    return (1.0 - e) * np.asarray(likely) + e / classes


@pytest.mark.parametrize("rule", ["nag", "auto"])
def test_predictions_of_two_classes(rule: str, here: Path) -> None:
    """Scores are the margins that numpy computes, predictions label values, probability sigmoid."""
    model = plain_model(rule=rule)
    table, given = predicted("--keep", "h,c,i,w"), both(here / "data")
    assert table.schema.names == ["row", "prediction", "score", "probability", "h", "c", "i", "w"]
    assert table.column("row").to_pylist() == [*range(40)] * 3
    score = table.column("score").to_numpy()
    np.testing.assert_allclose(score, margins(model, given)[:, 0], rtol=1e-9, atol=1e-12)
    assert table.column("prediction").to_pylist() == [int(one > 0) for one in score]
    np.testing.assert_allclose(
        table.column("probability"), smoothed(sigmoid(score), rule, 2), rtol=1e-12
    )
    for name in "hciw":
        assert table.schema.field(name).type == given.schema.field(name).type
        assert table.column(name).to_pylist() == given.column(name).to_pylist()


@pytest.mark.parametrize("rule", ["nag", "auto"])
def test_evaluation_is_numpys(rule: str, here: Path) -> None:
    """evaluate gives the loss, error and calibration that numpy computes from the predictions."""
    plain_model(rule=rule)
    told = run("evaluate", "kept", "data", "--json").result
    table, given = predicted(), both(here / "data")
    y = np.where(given.column("y").to_numpy() > 0, 1.0, -1.0)
    loss = -np.log(smoothed(sigmoid(y * table.column("score").to_numpy()), rule, 2))
    levels = (table.column("probability").to_numpy() * 20).astype(int)
    for level in told["calibration"]:
        inside = levels == round(level["low"] * 20)
        if inside.sum() == level["weight"]:  # else a bin lies across the edge
            mean = table.column("probability").to_numpy()[inside].mean()
            assert level["predicted"] == pytest.approx(mean, rel=0.01)
    assert told["loss"] == pytest.approx(loss.mean(), rel=1e-12)
    wrong = table.column("prediction").to_numpy() != given.column("y").to_numpy()
    assert told["error"] == pytest.approx(wrong.mean(), rel=1e-12)
    assert told["state_sha256"] == run("resume", "kept", "--json").result["state_sha256"]


def words(table: pa.Table) -> pa.Array:
    return pa.array(["yes" if y else "no" for y in table.column("y").to_pylist()])


def thirds(table: pa.Table) -> pa.Array:
    return pa.array([7 if n < -300 else 9 if n > 300 else 8 for n in table["n"].to_pylist()])


def test_predictions_of_words(here: Path) -> None:
    """Labels no and yes are predicted as no and yes; without a probability for hinge loss."""
    plain_model("hinge", y=words)
    table = predicted()
    assert table.schema.names == ["row", "prediction", "score"]
    score = table.column("score").to_numpy()
    assert table.column("prediction").to_pylist() == ["yes" if one > 0 else "no" for one in score]


@pytest.mark.parametrize(
    "loss, rule",
    [
        ("softmax", "auto"),
        *(
            pytest.param(loss, rule, marks=pytest.mark.slow)  # loops that no other quick test has
            for loss, rule in (("softmax", "nag"), ("logistic", "auto"), ("logistic", "nag"))
        ),
    ],
)
def test_predictions_of_three_classes(loss: str, rule: str, here: Path) -> None:
    """Of three classes the one of the largest score is predicted; probabilities sum to 1."""
    model = plain_model(loss, rule=rule, y=thirds)
    table, given = predicted(), both(here / "data")
    score = np.array(table.column("score").to_pylist())
    assert score.shape == (120, 3)
    np.testing.assert_allclose(score, margins(model, given), rtol=1e-9, atol=1e-12)
    expected = [(7, 8, 9)[best] for best in score.argmax(axis=1)]
    assert table.column("prediction").to_pylist() == expected
    share = np.array(table.column("probability").to_pylist())
    np.testing.assert_allclose(share.sum(axis=1), 1.0, rtol=1e-12)
    if loss == "softmax":
        odds = np.exp(score - score.max(axis=1, keepdims=True))
        softmax = odds / odds.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(share, smoothed(softmax, rule, 3), rtol=1e-9)
        return
    whole = smoothed(sigmoid(score), rule, 2)  # each against the others, then its share
    np.testing.assert_allclose(share, whole / whole.sum(axis=1, keepdims=True), rtol=1e-9)


def test_predict_refuses_before_it_computes(here: Path) -> None:
    """One file that is there already is exit 2 and nothing is written; --overwrite replaces it."""
    plain_model()
    old = write(here / "out" / "b.parquet", {"old": [1]}).read_bytes()
    done = run("predict", "kept", "data", "--to", "out")
    assert done.code == 2
    for word in ("out/b.parquet", "--overwrite"):
        assert word in done.err
    assert [path.name for path in (here / "out").iterdir()] == ["b.parquet"]
    assert (here / "out" / "b.parquet").read_bytes() == old
    assert predicted("--overwrite").num_rows == 120


def test_predictions_never_go_among_shards(here: Path) -> None:
    """Predictions into the shards' own directory are refused, with --overwrite too."""
    plain_model()
    before = {path: path.read_bytes() for path in (here / "data").iterdir()}
    for given, to in (("data", "data"), ("data", "data/out"), ("data/a.parquet", "data")):
        done = run("predict", "kept", given, "--to", to, "--overwrite")
        assert done.code == 2
        assert "one directory is inside the other" in done.err
    assert {path: path.read_bytes() for path in (here / "data").iterdir()} == before


def test_kept_columns_are_checked_first(here: Path) -> None:
    """A kept column that is not there, or would hide one of ours, is exit 2 and writes nothing."""
    plain_model()
    for keep, word in {"hh": "no such column", "row": "'row'"}.items():
        table = pq.read_table("data/c.parquet")
        if keep == "row":
            write(here / "data" / "c.parquet", table.append_column("row", table.column("k")))
            word = "--keep row"
        done = run("predict", "kept", "data", "--to", "out", "--keep", keep)
        assert done.code == 2
        assert word in done.err
        assert not (here / "out").exists()


def test_unlabelled_and_empty_shards_are_predicted(here: Path) -> None:
    """Shards without label and weight are predicted; an empty one gives an empty file."""
    plain_model()
    expected = predicted()
    for name in "abc":
        path = here / "data" / f"{name}.parquet"
        write(path, pq.read_table(path).drop_columns(["y", "w"]))
    write(here / "data" / "b.parquet", pq.read_table(here / "data" / "b.parquet").slice(0, 0))
    table = predicted("--overwrite", "--keep", "h")
    assert table.drop_columns(["h"]) == pa.concat_tables([expected[:40], expected[80:]])
    empty = pq.read_table(here / "out" / "b.parquet")
    assert empty.num_rows == 0
    assert empty.schema.names == ["row", "prediction", "score", "probability", "h"]
    assert [field.type for field in empty.schema] == [field.type for field in table.schema]


def test_colliding_names_of_shards(here: Path) -> None:
    """Shards of one name in two directories give two files."""
    plain_model()
    write(here / "more" / "a.parquet", rows(5, first=9))
    words = ["predict", "kept", "data/a.parquet", "more/a.parquet", "--to", "out", "--json"]
    files = alone(run(*words))["files"]
    assert [pq.read_table(file).num_rows for file in files] == [40, 5]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_whole_files_alone(
    number: int, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prediction that is stopped ends with 128 + the signal; of its unfinished file nothing is
    left, and the files before stay."""
    plain_model()
    own, written = PredictionWriter.write, list[str]()

    def write_and_stop(self: PredictionWriter, *given: Any) -> None:
        own(self, *given)
        written.append(self.path)
        if len({*written}) == 2:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(PredictionWriter, "write", write_and_stop)
    done = run("predict", "kept", "data", "--to", "out")
    assert done.code == 128 + number
    assert [path.name for path in (here / "out").iterdir()] == ["a.parquet"]


@pytest.mark.parametrize("verb", ["predict", "convert"])
def test_leftovers_of_killed_processes_are_removed(verb: str, here: Path) -> None:
    """Of this host's processes that no longer exist; those of others and of living ones stay."""
    plain_model()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    own = temporary_name()
    host = own.removeprefix(".tmp-").rsplit("-", 2)[0]
    uuid = own.rsplit("-", 1)[1]
    left = [own, f".tmp-{host}.elsewhere-{dead.pid}-{uuid}", f".tmp-{uuid}"]
    stale = [f".tmp-{host}-{dead.pid}-{uuid}", f".tmp-{host}-{dead.pid}-{uuid[::-1]}"]
    for name in (*left, stale[0]):
        (here / "out" / name).mkdir(parents=True)
    (here / "out" / stale[0] / "0").write_bytes(b"x")
    (here / "out" / stale[1]).write_bytes(b"x")
    words = ("predict", "kept", "data") if verb == "predict" else ("convert", "data")
    assert run(*words, "--to", "out").code == 0
    hidden = {path.name for path in (here / "out").iterdir() if path.name.startswith(".")}
    assert hidden == {*left}
