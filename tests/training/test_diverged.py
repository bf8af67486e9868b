"""A model that diverged: the run stops and names the rows; what is committed is finite."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from diverging import commits, rows, shards, train
from running import run, write

import streamomd
from streamomd.core.batch import DenseBatch
from streamomd.core.errors import DivergedError
from streamomd.rules import all_rules

EVERY = ("--set", "checkpoint.every_rows=300", "--set", "checkpoint.every_seconds=0")
NAMED = re.compile(r"after rows? ([0-9,]+)(?: to ([0-9,]+))? of (\S+?)\.( |$)", re.MULTILINE)


def named(text: str) -> tuple[int, int, str]:
    """The rows and the shard that a message names."""
    found = NAMED.search(text)
    assert found, text
    low = int(found[1].replace(",", ""))
    return low, int((found[2] or found[1]).replace(",", "")), Path(found[3]).name


@pytest.mark.parametrize("rule, loss", [("adagrad", "square"), ("ogd", "square")])
def test_an_extreme_value_stops_the_run(rule: str, loss: str, tmp_path: Path) -> None:
    """Exit 6; the message names the batch of the value and the last finite commit; all commits that
    are there are finite, and the last one is of before that batch."""
    data, url = shards(tmp_path / "data"), tmp_path / "run"
    done = train(data, *EVERY, "--checkpoint", url, rule=rule, loss=loss)
    assert done.code == 6, done.err
    low, high, shard = named(done.err)
    assert low <= 700 <= high
    assert high - low < 200
    assert shard == "b.parquet"
    last = int(re.search(r"last finite commit is (\d+), after 1,500 rows", done.err)[1])
    found = commits(url)
    assert all(one["ok"] for one in found)
    assert [one["rows"] for one in found if one["sequence"] >= last] == [1500]
    again = re.search(r"last finite commit is (\d+), after 1,500 rows", run("resume", url).err)
    assert int(again[1]) == last
    assert "--start" in done.err
    model = streamomd.load(str(url))
    assert model.metrics.total_rows == 1500
    assert np.isfinite(model.state.cells).all()


@pytest.mark.parametrize("rule", ["adagrad", "ogd", "nag"])
def test_a_learning_rate_too_large_stops_the_run(rule: str, tmp_path: Path) -> None:
    """With --eta 1e308 no weight that is not finite is committed, and the exit code is 6."""
    data, url = shards(tmp_path / "data", at=None), tmp_path / "run"
    done = train(data, *EVERY, "--checkpoint", url, "--eta", "1e308", rule=rule)
    assert done.code == 6, done.err
    assert named(done.err)[2] == "a.parquet"
    assert [one["rows"] for one in commits(url)] == [0, 0]


def test_without_a_checkpoint_it_is_said_too(tmp_path: Path) -> None:
    """Exit 6 and the rows, with nothing saved."""
    done = train(shards(tmp_path / "data"), "--checkpoint", "none")
    assert done.code == 6, done.err
    assert "after rows 700 to" in done.err


def sparse_shard(
    folder: Path, *, at: int, value: float = 1e200, name: str = "a", first: int = 0
) -> Path:
    """Hashed words, a pair with one extreme value at an index that comes once, and a time, a
    second for each row from ``first`` on."""
    count = 3000
    draw = np.random.default_rng(5)
    index, values = draw.integers(0, 98, count), np.ones(count)
    index[at], values[at] = 98, value
    table = pa.table(
        {
            "c": [f"word {one}" for one in draw.integers(0, 500, count)],
            "i": pa.array([[int(one)] for one in index], pa.list_(pa.int64())),
            "v": pa.array([[one] for one in values], pa.list_(pa.float64())),
            "y": draw.normal(size=count),
            "t": np.arange(first, first + count),
        }
    )
    write(folder / f"{name}.parquet", table, row_group_size=500)
    return folder


@pytest.mark.parametrize("mode", ["exact", "sharded"])
@pytest.mark.parametrize("aside", ["true", "false"])
def test_a_slot_that_no_row_meets_again(mode: str, aside: str, tmp_path: Path) -> None:
    """In a state too large to be looked at after each batch, a slot that overflowed is found when a
    commit is packed; none is made, and the first batch is named nevertheless."""
    data, url = sparse_shard(tmp_path / "data", at=1700), tmp_path / "run"
    pair = 'data.sparse={indices="i",values="v",size=100}'
    more = ["--hashed", "c", "--set", pair, "--mode", mode, "--set", f"checkpoint.aside={aside}"]
    every = ["--set", "checkpoint.every_rows=1000", "--set", "checkpoint.every_seconds=0"]
    done = train(data, *more, *every, "--checkpoint", url, rule="adagrad")
    assert done.code == 6, done.err
    assert "slot 'G' of coordinate" in done.err
    low, high, _ = named(done.err)
    assert low <= 1700 <= high
    assert high - low <= 256
    found = commits(url)
    assert all(one["ok"] for one in found)
    assert 1000 <= found[-1]["rows"] <= 1024
    again = train(data, *more, "--checkpoint", "none", rule="adagrad")
    assert again.code == 6
    assert "slot 'G' of coordinate" in again.err


@pytest.mark.parametrize("delay", [0, 900])
def test_a_slot_in_an_update(delay: int, tmp_path: Path) -> None:
    """The first batch of an update is named, too; with a delay it is that of the rows which were
    learned, of a shard before the update here, not of those which were predicted meanwhile."""
    url, pair = tmp_path / "run", 'data.sparse={indices="i",values="v",size=100}'
    at = 2600  # which is learned in the update, also in the first shard
    folder = sparse_shard(tmp_path / "data", at=at, value=1e200 if delay else 1.0)
    every = ["--set", "checkpoint.every_rows=1000", "--set", "checkpoint.every_seconds=0"]
    more = ["--hashed", "c", "--set", pair, "--time", "t", "--delay", delay, *every]
    assert train(folder, *more, "--checkpoint", url, rule="adagrad").code == 0
    sparse_shard(folder, at=at, name="b", first=3000)
    done = run("update", url, "--settle", "0s")
    assert done.code == 6, done.err
    assert "looking for the first batch since commit" in done.err
    low, high, shard = named(done.err)
    assert shard == ("a.parquet" if delay else "b.parquet")
    assert low <= at <= high < low + 300
    assert all(one["ok"] for one in commits(url))


def test_the_same_run_diverges_again(tmp_path: Path) -> None:
    """resume exits 6 and learns nothing while nothing changed; with another treatment of bad rows
    it continues from the last finite commit. skip cannot be taken back."""
    data, url = shards(tmp_path / "data"), tmp_path / "run"
    assert train(data, *EVERY, "--checkpoint", url).code == 6
    before = commits(url)
    for more in ((), ("--epochs", 3), ("--set", "train.prefetch=8")):
        done = run("resume", url, *more)
        assert done.code == 6, done.err
        assert "after rows 700 to" in done.err
        assert "after 1,500 rows" in done.err
        assert "--start" in done.err
    assert commits(url) == before
    done = run("resume", url, "--on-bad-row", "skip")
    assert done.code == 6
    assert f"resuming from commit {before[-1]['sequence']}" in done.err
    assert len(commits(url)) > len(before)
    assert run("resume", url, "--on-bad-row", "skip").code == 6
    assert run("resume", url, "--on-bad-row", "error").code == 3


def test_start_continues_with_another_learning_rate(tmp_path: Path) -> None:
    """What the message suggests works: train --start with another eta, on shards without the
    value, from the state of the last finite commit."""
    data, url = shards(tmp_path / "data"), tmp_path / "run"
    assert train(data, *EVERY, "--checkpoint", url).code == 6
    good = shards(tmp_path / "good", at=None)
    done = train(good, "--start", url, "--eta", "0.01", "--checkpoint", tmp_path / "next", "--json")
    assert done.result["loss"] < 1e-3
    other = train(good, "--start", url, "--set", "model.params.l2=1.0", "--checkpoint", "none")
    assert other.code == 2
    assert "params" in other.err


def test_rows_held_out_do_not_stop_a_run(tmp_path: Path) -> None:
    """An extreme value in a held-out row makes the held-out loss infinite, and no error."""
    data = shards(tmp_path / "data", at=None)
    model = streamomd.train(
        str(data), label="y", rule="adagrad", loss="square", checkpoint="none", quiet=True,
        sets={"data.holdout": 5},
    )  # fmt: skip
    from streamomd.training.holdout import held_out, number_of

    name = sorted(path.name for path in data.iterdir())[1]
    at = int(np.flatnonzero(held_out(5, 0, number_of(name), np.arange(1000)))[3])
    done = train(
        shards(tmp_path / "other", at=at),
        "--set",
        "data.holdout=5",
        "--checkpoint",
        "none",
        "--json",
    )
    assert done.result["holdout"]["loss"] is None
    assert done.result["loss"] is not None
    assert np.isfinite(model.state.cells).all()


def test_squared_errors_may_overflow_alone(tmp_path: Path) -> None:
    """Targets whose squares overflow are no divergence where the loss is finite: rmse is null."""
    draw = np.random.default_rng(3)
    table = {"a": draw.normal(size=200), "y": 1e200 * draw.normal(size=200)}
    write(tmp_path / "data" / "a.parquet", table)
    done = train(tmp_path / "data", "--checkpoint", "none", "--json", loss="absolute")
    assert done.result["rmse"] is None
    assert done.result["loss"] > 1e199


def test_learning_rows_in_memory(tmp_path: Path) -> None:
    """Model.learn raises DivergedError; then predict and evaluate do, unless they are allowed."""
    data = shards(tmp_path / "data", at=None, count=100)
    model = streamomd.train(
        str(data), label="y", rule="adagrad", loss="square", checkpoint="none", quiet=True
    )
    values = np.array([[1.0, 1e200, 1.0, 1.0, 1.0]])
    with pytest.raises(DivergedError, match="the rows given"):
        model.learn(DenseBatch(values, np.ones(1), np.ones(1)))
    for ask in asked(model, data, tmp_path):
        with pytest.raises(DivergedError, match="not finite"):
            ask(False)
        ask(True)
    with pytest.raises(DivergedError, match="not finite"):
        streamomd.predict_collection(model, None)


def asked(model: Any, data: Path, folder: Path) -> list[Callable[[bool], Any]]:
    """Everything that is asked for predictions, or hands a model to who is."""
    from streamomd.integrations.export import export

    return [
        lambda ok: model.predict(
            str(data), str(folder / "out"), overwrite=True, allow_non_finite=ok
        ),
        lambda ok: model.evaluate(str(data), quiet=True, allow_non_finite=ok),
        lambda ok: export(
            model, "parquet", str(folder / "w.parquet"), overwrite=True, allow_non_finite=ok
        ),
        lambda ok: export(model, "vw", str(folder / "w.txt"), overwrite=True, allow_non_finite=ok),
    ]


@pytest.mark.slow
def test_a_weight_that_overflows_of_finite_slots(tmp_path: Path) -> None:
    """Dual averaging with a huge eta: finite slots, weights that are not. What predicts says so."""
    write(tmp_path / "data" / "a.parquet", {"a": [0.0, 3.0], "y": [0.0, 5.0]})
    model = streamomd.train(
        str(tmp_path / "data"), label="y", rule="da", loss="square", eta=1e308, checkpoint="none",
        quiet=True,
    )  # fmt: skip
    assert not model.state.problem()
    for ask in asked(model, tmp_path / "data", tmp_path)[:2]:
        with pytest.raises(DivergedError, match="a weight is not"):
            ask(False)
        ask(True)


def test_nan_predictions_are_nulls_and_mistakes(tmp_path: Path) -> None:
    """With --allow-non-finite a prediction that is NaN is null, and counts as a mistake."""
    table = {"a": np.linspace(-1.0, 1.0, 50), "y": [0, 1] * 25}
    data = write(tmp_path / "data" / "a.parquet", table).parent
    model = streamomd.train(str(data), label="y", rule="nag", checkpoint="none", quiet=True)
    model.state.cells[:] = np.nan
    (file,) = model.predict(str(data), str(tmp_path / "out"), allow_non_finite=True)
    assert pq.read_table(file)["prediction"].to_pylist() == [None] * 50
    assert model.evaluate(str(data), quiet=True, allow_non_finite=True)["error"] == 1.0


@pytest.mark.parametrize("kind", ["partial_fit", "fit"])
def test_estimators_say_so(kind: str) -> None:
    """fit and partial_fit raise DivergedError; a diverged estimator does not predict silently."""
    pytest.importorskip("sklearn")
    table = rows(200, at=150)
    X = np.column_stack([table[f"f{j}"].to_numpy() for j in range(5)])
    model = streamomd.OMDRegressor(rule="adagrad", loss="square")
    if kind == "fit":
        with pytest.raises(DivergedError):
            model.fit(X, table["y"].to_numpy())
        return
    model.partial_fit(X[:100], table["y"].to_numpy()[:100])
    assert np.isfinite(model.predict(X[:100])).all()
    with pytest.raises(DivergedError):
        model.partial_fit(X[100:], table["y"].to_numpy()[100:])
    with pytest.raises(DivergedError):
        model.predict(X[:100])


CASES = {"an extreme value": {"at": 700}, "eta": {"at": None}}
QUICK = ("adagrad", "nag", "ogd")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "rule",
    [pytest.param(one, marks=() if one in QUICK else pytest.mark.slow) for one in all_rules()],
)
def test_no_rule_commits_what_is_not_finite(rule: str, case: str, tmp_path: Path) -> None:
    """Of every rule, whether it learns on or stops: all commits are finite, and so is the model of
    a run that ends with exit 0; else the code is 6 and rows are named."""
    about = all_rules()[rule]
    loss = (about.losses.names or ("square",))[0]
    data, url = tmp_path / "data", tmp_path / "run"
    classifies = loss in ("hinge", "logistic", "squared_hinge", "softmax")
    for place, name in enumerate("ab"):
        table = rows(1000, first=place, at=CASES[case]["at"] if name == "b" else None)
        if classifies:
            table = table.set_column(5, "y", pa.array(table["y"].to_numpy() > 0.0))
        write(data / f"{name}.parquet", table, row_group_size=100)
    eta = ["--eta", "1e308"] if case == "eta" and "eta" in about.hyper._fields else []
    if about.losses.lipschitz and not classifies:
        eta += ["--set", "model.params.L=1000"]
    done = train(data, *EVERY, *eta, "--checkpoint", url, rule=rule, loss=loss)
    bad_row = done.code == 2 and "the rule's range" in done.err  # of rules that declare one
    assert done.code in (0, 6) or bad_row, done.err
    if not list(url.glob("commits/*")):  # such an eta makes totals overflow before the first row
        assert "the model diverged" in done.err
        return
    assert all(one["ok"] for one in commits(url))
    if done.code == 6:
        named(done.err)
    elif not bad_row:
        told = run("evaluate", url, data, "--json", "--allow-non-finite")
        assert json.loads(told.out.splitlines()[-1])["rows"] == 2000
        assert not streamomd.load(str(url)).state.problem()


def test_every_rule_starts_finite() -> None:
    """No slot or total starts as NaN or infinite: such a number always means divergence."""
    for rule in all_rules().values():
        slots = (*rule.own_slots, *rule.shared_slots, *rule.total_slots)
        assert all(np.isfinite(slot.start) for slot in slots), rule.name
