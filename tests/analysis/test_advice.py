"""Advice in messages is possible to follow and short."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import alone, rows, run, with_column, write

import streamomd

NUMBERS = ["--label", "y", "--numeric", "n,k"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run saved in ``kept``, of the shard in ``data``."""
    monkeypatch.chdir(tmp_path)
    write(Path("data/a.parquet"), rows(40))
    assert run("train", "data", *NUMBERS, "--rule", "nag", "--checkpoint", "kept").code == 0


def fields(*words: object) -> str:
    """The error of a command that is bad usage or has bad input."""
    done = run(*words)
    assert done.code == 2
    return done.err.splitlines()[-1]


def test_a_model_and_a_sweep_are_shown_in_a_line() -> None:
    model = streamomd.load("kept")
    assert repr(model).startswith("Model(rule='nag', loss='logistic', classes=2, coordinates=3, ")
    flags: dict[str, Any] = {"label": "y", "numeric": ["n", "k"], "checkpoint": "none"}
    models = streamomd.sweep("data", grid={"eta": [0.1, 1.0]}, rule="nag", quiet=True, **flags)
    assert repr(models).startswith("Sweep(learners=2, active=2, rows=40, best={'eta': ")
    assert max(len(repr(model)), len(repr(models))) < 200


def test_a_path_that_is_not_there_comes_before_a_label() -> None:
    found = fields("train", "cover.tml")
    assert "cover.tml" in found
    assert "no label" not in found
    assert "no label" in fields("train", "data")


@pytest.mark.slow
def test_predict_gives_no_advice_of_training() -> None:
    """Its model is made, so no key of the job can change what becomes of a null."""
    write(Path("holes/a.parquet"), with_column(rows(40), "n", pa.nulls(40, pa.float64())))
    found = fields("predict", "kept", "holes", "--to", "out")
    assert "data.nulls" not in found
    assert "drop the row" in found
    assert "data.nulls" in fields("train", "holes", *NUMBERS, "--checkpoint", "none")


def test_columns_that_are_not_there() -> None:
    assert "did you mean 'y'" not in fields("evaluate", "kept", "data", "--by", "city")
    write(Path("long/a.parquet"), rows(40).append_column("elevation", pa.array([1.0] * 40)))
    assert "did you mean 'elevation'?" in fields("evaluate", "kept", "long", "--by", "Elevaton")
    found = fields("predict", "kept", "long", "--to", "out", "--keep", "Elevaton")
    assert "did you mean 'elevation'?" in found
    assert "it has" not in found


def test_predict_says_what_to_do_about_a_missing_column() -> None:
    write(Path("fewer/a.parquet"), rows(40).drop_columns(["n"]))
    for words in (("predict", "kept", "fewer", "--to", "out2"), ("evaluate", "kept", "fewer")):
        found = run(*words)
        assert found.code == 2
        assert "column 'n' (double) is missing; " in found.err
        assert "rename or add it: the model has its weights" in found.err


COMMANDS = ("inspect", "resume", "evaluate", "predict", "certify", "report", "watch", "export")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_is_no_checkpoint(command: str) -> None:
    """Exit 2 with what the file is: a job, or any other."""
    Path("job.toml").write_text('[data]\nshards = "data"\n')
    more = {"evaluate": ["data"], "certify": ["data"], "predict": ["data", "-o", "out3"]}
    more |= {
        "report": ["-o", "page.html"],
        "export": ["--as", "parquet", "--to", "weights.parquet"],
    }
    done = run(command, "job.toml", *more.get(command, []))
    assert done.code == 2
    assert "job.toml is a job file: start it with `streamomd train`" in done.err
    done = run(command, "data/a.parquet", *more.get(command, []))
    assert done.code == 2
    assert "a.parquet is a file; a checkpoint is a directory" in done.err


def test_train_says_which_rule_another_name_is() -> None:
    for name in ("sgd", "ogd"):
        done = run("train", "data", *NUMBERS, "--rule", name, "--checkpoint", "none")
        assert "\nrule ogd (online gradient descent" in done.err
        assert "), loss logistic; " in done.err


def test_evaluate_says_that_it_needs_the_label() -> None:
    write(Path("new/a.parquet"), rows(40).drop_columns(["y"]))
    found = fields("evaluate", "kept", "new")
    assert "'y' (int64) is missing; it is the label" in found
    assert run("predict", "kept", "new", "--to", "out").code == 0


def test_a_type_is_that_of_the_training() -> None:
    write(Path("text/a.parquet"), with_column(rows(40), "k", pa.array(["a"] * 40)))
    assert "the model was trained on int64" in fields("evaluate", "kept", "text")
    assert "first shard" not in fields("predict", "kept", "text", "--to", "out")


def test_a_range_without_a_count() -> None:
    words = ["sweep", "data", *NUMBERS, "--checkpoint", "none"]
    assert "eta=1..10:8" in fields(*words, "--grid", "eta=1..10")


def test_slices_are_printed_up_to_twenty() -> None:
    write(Path("many/a.parquet"), rows(60).append_column("at", pa.array(range(60))))
    done = run("evaluate", "kept", "many", "--by", "at")
    table = done.out.splitlines()[2:]
    assert len(table) == 1 + 20 + 1
    assert table[-1] == "… 40 more (--json has all)"
    assert len(alone(run("evaluate", "kept", "many", "--by", "at", "--json"))["slices"]["at"]) == 60


def test_predict_says_how_many_rows_and_of_which_classes() -> None:
    kinds = pa.array(["b", "c", "a", "b"] * 10)
    write(Path("three/a.parquet"), with_column(rows(40), "y", kinds))
    assert run("train", "three", *NUMBERS, "--rule", "nag", "--checkpoint", "three-kept").code == 0
    done = run("predict", "three-kept", "three", "--to", "out")
    assert "40 rows predicted in 1 file, " in done.err
    found = pq.read_table("out/a.parquet")
    classes = json.loads(found.schema.metadata[b"classes"])
    assert classes == ["a", "b", "c"]
    for row in found.to_pylist():
        assert classes[row["score"].index(max(row["score"]))] == row["prediction"]


def test_plan_says_what_the_loss_of_several_classes_is() -> None:
    write(Path("three/a.parquet"), with_column(rows(40), "y", pa.array([0, 1, 2, 3] * 10)))
    nag = [*NUMBERS, "--rule", "nag"]
    line = "4 learners, one per class against all others; the loss is the sum of their losses"
    assert line in run("plan", "three", *nag).out.splitlines()
    assert line not in run("plan", "three", *nag, "--loss", "softmax").out.splitlines()
    assert line not in run("plan", "data", *nag).out.splitlines()


def test_columns_are_named_up_to_twelve() -> None:
    more = {f"x{at}": [1.0] * 8 for at in range(54)}
    write(Path("wide/a.parquet"), {**more, "y": [0, 1] * 4})
    flags = ["--label", "y", "--rule", "nag", "--checkpoint", "none"]
    (line,) = [
        line for line in run("train", "wide", *flags).err.splitlines() if line.startswith("numeric")
    ]
    assert line.endswith(": " + ", ".join([*more][:12]) + " and 42 more")


def test_a_sweep_says_where_its_best_is_at_an_edge() -> None:
    words = ["sweep", "data", *NUMBERS, "--rule", "nag", "--checkpoint", "none"]
    out = run(*words, "--grid", "eta=1e-9,1e-8").out
    assert "the best eta, 1e-08, is the largest of those tried: try larger ones" in out
    assert "those tried" not in run(*words, "--grid", "eta=1e-3,1,1e6").out


def test_a_sweep_continues_from_the_commit_that_it_named() -> None:
    flags: dict[str, Any] = {"label": "y", "numeric": ["n", "k"], "checkpoint": "swept"}
    made = streamomd.sweep("data", grid={"eta": [0.1, 1.0]}, rule="nag", quiet=True, **flags)
    done = run("resume", "swept", "--epochs", "2")
    assert f"resuming from commit {made.sequence} of " in done.err
