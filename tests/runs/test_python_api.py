"""streamomd from Python: train, resume, load and what a Model can do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from running import rows, run, write

import streamomd
from streamomd.core.batch import SparseBatch
from streamomd.core.errors import (
    NoCommitError,
    OutputExistsError,
    ResumeRefusedError,
    StreamomdError,
    UsageError,
)
from streamomd.sources.text.convert import convert

FLAGS: dict[str, Any] = {"label": "y", "numeric": ["n", "k"], "hashed": ["h"], "bits": 10}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with two shards of 40 rows in ``data``."""
    monkeypatch.chdir(tmp_path)
    for place, name in enumerate("ab"):
        write(tmp_path / "data" / f"{name}.parquet", rows(40, first=place))
    return tmp_path


def learn(*job: Any, **flags: Any) -> streamomd.Model:
    return streamomd.train(*job, **{"checkpoint": "none", "quiet": True, **flags})


def test_ways_to_give_a_job(here: Path) -> None:
    """Shards as text or list, a path, a dict, a Spec, flags alone: one job, the same bits."""
    tables = {"data": {"shards": "data", **FLAGS}, "checkpoint": {"url": "none"}}
    lines = ["[data]", 'shards = "data"', *(f"{k} = {json.dumps(v)}" for k, v in FLAGS.items())]
    (here / "job.toml").write_text("\n".join(lines))
    models = [
        learn("data", **FLAGS),
        learn("data/*.parquet", **FLAGS),
        learn(["data/a.parquet", "data/b.parquet"], **FLAGS),
        learn(here / "data", **FLAGS),
        learn(shards="data", **FLAGS),
        learn(shards=["data/a.parquet", "data/b.parquet"], **FLAGS),
        learn(tables),
        learn(streamomd.Spec.parse(tables)),
        learn("job.toml"),
        learn(here / "job.toml"),
        learn("job.toml", eta=2.0, rule="auto"),
    ]
    assert {model.metrics.total_rows for model in models} == {80}
    assert len({model.state_sha256 for model in models}) == 1


def test_flags_and_sets(here: Path) -> None:
    """Flags are the command's names; sets win over them; what is unknown is refused by name."""
    model = learn("data", **FLAGS, rule="nag", eta=0.25, epochs=2, sets={"model.params.eta": 0.125})
    assert model.spec.model.params["eta"] == 0.125
    assert model.result()["rows"] == 160
    with pytest.raises(UsageError, match="unknown flag 'etaa'; did you mean 'eta'"):
        learn("data", **FLAGS, etaa=1)
    with pytest.raises(UsageError, match="shards are given twice"):
        learn("data", shards="data", **FLAGS)
    with pytest.raises(UsageError, match="not object"):
        learn("data", client=object(), **FLAGS)


def test_result_is_what_the_command_prints(here: Path) -> None:
    """``result()`` has the keys and figures of ``train --json``."""
    model = learn("data", **FLAGS, checkpoint="kept")
    said = run("resume", "kept", "--json").result
    result = model.result()
    assert set(result) == set(said)
    for key in ("rows", "loss", "error", "rmse", "epochs", "state_sha256", "checkpoint"):
        assert result[key] == said[key]
    assert model.finished
    assert model.url == str(here / "kept")


def test_load(here: Path) -> None:
    """``load`` gives the newest commit's model, or an earlier one's; nothing there is NoCommit."""
    model = learn("data", **FLAGS, checkpoint="kept", sets={"checkpoint.every_rows": 40})
    loaded = streamomd.load("kept")
    assert loaded.state_sha256 == model.state_sha256
    assert loaded.result()["loss"] == model.result()["loss"]
    assert loaded.sequence == model.sequence
    earlier = streamomd.load("kept", at=1)
    assert earlier.metrics.total_rows == 40
    assert earlier.state_sha256 == learn("data/a.parquet", **FLAGS).state_sha256
    for url, at in (("nowhere", None), ("kept", 99)):
        with pytest.raises(NoCommitError):
            streamomd.load(url, at=at)


def test_resume(here: Path) -> None:
    """``resume`` of a finished run gives its model; with more epochs it goes on, same bits."""
    first = learn("data", **FLAGS, checkpoint="kept")
    assert streamomd.resume("kept", quiet=True).state_sha256 == first.state_sha256
    more = streamomd.resume("kept", sets={"train.epochs": 3}, quiet=True)
    assert more.state_sha256 == learn("data", **FLAGS, epochs=3).state_sha256
    with pytest.raises(ResumeRefusedError):
        streamomd.resume("kept", sets={"train.epochs": 2}, quiet=True)
    with pytest.raises(OutputExistsError):
        learn("data", **FLAGS, checkpoint="kept")
    assert learn("data", **FLAGS, checkpoint="kept", restart=True).finished


def test_predict_evaluate_inspect(here: Path) -> None:
    """A Model predicts, evaluates and inspects as the commands do."""
    model = learn("data", **FLAGS, checkpoint="kept")
    files = model.predict("data", "out", keep=["h"])
    assert files == [str(here / "out" / "a.parquet"), str(here / "out" / "b.parquet")]
    with pytest.raises(OutputExistsError):
        model.predict("data", "out")
    assert model.predict(["data/a.parquet"], "out", overwrite=True) == files[:1]
    assert pq.read_table(files[1]).schema.names[-1] == "h"
    told = model.evaluate("data", quiet=True)
    said = run("evaluate", "kept", "data", "--json").result
    assert (told["rows"], told["loss"], told["error"]) == (80, said["loss"], said["error"])
    top = model.inspect(3)
    assert top == run("inspect", "kept", "--top", "3", "--json").result["top"]
    sha = model.state_sha256
    assert model.state_sha256 == sha == streamomd.load("kept").state_sha256


def test_learn_goes_on_with_batches(here: Path) -> None:
    """``learn`` predicts a batch and learns it: the state and margins of a stream of these rows."""
    pair = {"indices": "i", "values": "v", "size": 100}
    flags = {"label": "y", "sets": {"data.sparse": pair}}
    model = learn("data/a.parquet", **flags)
    table = pq.read_table("data/b.parquet")
    indptr = np.concatenate(([0], np.cumsum([len(one) for one in table["i"].to_pylist()])))
    batch = SparseBatch(
        indptr.astype(np.int64),
        table["i"].combine_chunks().flatten().to_numpy().astype(np.int32),
        table["v"].combine_chunks().flatten().to_numpy(),
        np.where(table["y"].to_numpy() > 0, 1.0, -1.0),
        np.ones(40),
    )
    margins = model.learn(batch)
    assert margins.shape == (40, 1)
    assert model.metrics.total_rows == 80
    straight = learn("data", **flags)
    assert model.state.cells.tobytes() == straight.state.cells.tobytes()
    assert model.state.totals.tobytes() == straight.state.totals.tobytes()
    assert model.result()["loss"] == pytest.approx(straight.result()["loss"])


def test_a_loaded_beginning_learns(here: Path) -> None:
    """The model of commit 0, which has seen nothing, learns batches too."""
    pair = {"indices": "i", "values": "v", "size": 100}
    flags = {"label": "y", "sets": {"data.sparse": pair, "checkpoint.keep": 9}}
    learn("data/a.parquet", checkpoint="kept", **flags)
    model = streamomd.load("kept", at=0)
    assert model.metrics.total_rows == 0
    batch = SparseBatch(
        np.array([0, 1]), np.array([5], np.int32), np.array([2.0]), np.array([1.0]), np.array([1.0])
    )
    assert model.learn(batch).tolist() == [[0.0]]
    assert model.result()["rows"] == 1


def test_quiet_prints_nothing(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With quiet=True nothing is written to stdout or stderr; else only to stderr."""
    model = learn("data", **FLAGS, checkpoint="kept")
    write(here / "more" / "a.parquet", rows(9))
    streamomd.resume("kept", sets={"train.epochs": 2}, quiet=True)
    model.evaluate("data", quiet=True)
    model.predict("data", "out")
    model.inspect()
    with pytest.raises(StreamomdError):
        learn("nothing", **FLAGS)
    assert capfd.readouterr() == ("", "")
    learn("data", **FLAGS, quiet=False)
    streamomd.resume("kept", sets={"train.epochs": 3})
    told = capfd.readouterr()
    assert told.out == ""
    assert "coordinates with the bias" in told.err
    assert "resuming from commit" in told.err


@pytest.mark.parametrize(
    ("call", "unknown", "known"),
    [
        (lambda **more: streamomd.load("kept", **more), "storage_option", "storage_options"),
        (lambda **more: streamomd.resume("kept", **more), "accept_new_shard", "accept_new_shards"),
        (lambda **more: streamomd.load("kept").predict("data", **more), "keeps", "keep"),
        (lambda **more: streamomd.load("kept").evaluate("data", **more), "bye", "by"),
        (lambda **more: streamomd.load("kept").inspect(**more), "topp", "top"),
        (lambda **more: streamomd.write_report(None, **more), "overwrit", "overwrite"),
        (lambda **more: learn("data", **FLAGS, **more), "lable", "label"),
        (lambda **more: learn("data", **FLAGS, **more), "callback", "callbacks"),
    ],
)
def test_an_unknown_keyword_names_the_nearest(
    call: Any, unknown: str, known: str, here: Path
) -> None:
    """Of functions and methods; train, whose flags are keywords, raises UsageError."""
    learn("data", **FLAGS, checkpoint="kept")
    with pytest.raises((TypeError, UsageError), match=f"'{unknown}'; did you mean '{known}'"):
        call(**{unknown: "x"})


def test_an_unknown_option_of_convert_names_the_nearest(here: Path) -> None:
    """Of the source's format, or convert's own."""
    for unknown, known in (("delimeter", "delimiter"), ("overwrit", "overwrite")):
        with pytest.raises(UsageError, match=f"'{unknown}'; did you mean '{known}'"):
            convert([], source_format="csv", to="out", **{unknown: ","})


def test_rows_in_memory_lead_to_an_estimator(here: Path) -> None:
    """A frame or arrays where shards are named: to train, predict and evaluate."""
    frame = rows(10).to_pandas()
    arrays = (np.zeros((10, 2)), np.zeros(10))
    model = learn("data", **FLAGS)
    for call in (
        lambda: learn(arrays),
        lambda: learn(shards=arrays[0], label="y"),
        lambda: learn({"data": {"shards": arrays[0], "label": "y"}}),
        lambda: model.predict(frame, "out"),
        lambda: model.evaluate(frame),
    ):
        with pytest.raises(UsageError, match=r"rows in memory .*OMDClassifier"):
            call()
