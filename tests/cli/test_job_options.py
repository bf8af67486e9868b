"""Options of a run: its flags, its job file and --set, and which of them counts."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from running import everything, run, train

import streamomd


def job(**tables: Any) -> str:
    lines = []
    for table, keys in tables.items():
        lines += [f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
    return "\n".join(lines)


def test_precedence(here: Path) -> None:
    """--set wins over a flag, a flag over the job file, the file over the default."""
    data = {"shards": "data", "label": "y", "numeric": ["n"], "bits": 5}
    text = job(data=data, train={"epochs": 2}, checkpoint={"url": "none"})
    model = "[model]\nrule = 'nag'\nparams = { eta = 0.25 }\n"
    (here / "job.toml").write_text(f"{text}\n{model}")
    for more, eta in [
        ([], 0.25),
        (["--eta", "0.75"], 0.75),
        (["--eta", "0.75", "--set", "eta=1.5"], 1.5),
        (["--set", "model.params.eta=2", "--eta", "0.75"], 2.0),
    ]:
        words = ["job.toml", "--checkpoint", f"run-{eta}", *more]
        assert train(*words)["rows"] == 240
        model = streamomd.load(f"run-{eta}")
        assert model.spec.model.params["eta"] == eta
        assert model.spec.data.bits == 5
    assert train("data", "--label", "y", "--numeric", "n", "--checkpoint", "bare")["rows"] == 120
    bare = streamomd.load("bare").spec.model
    assert (bare.rule, bare.params["eta"]) == ("auto", 2.0)


def test_flags_are_short_for_keys(here: Path) -> None:
    """A job of flags, of --set and of a file are one job: the same bits."""
    keys = {"label": "y", "weight": "w", "numeric": ["n", "k"], "hashed": ["h"], "bits": 10}
    model = {"rule": "adagrad", "loss": "hinge", "dtype": "float32"}
    (here / "job.toml").write_text(
        job(data={"shards": "data", **keys}, model=model, train={"epochs": 2})
        + "\n[model.params]\neta = 0.125\n"
    )
    of_file = train("job.toml", "--checkpoint", "none")["state_sha256"]
    flags = ["--label", "y", "--weight", "w", "--numeric", "n,k", "--hashed", "h", "--bits", "10"]
    flags += ["--rule", "adagrad", "--loss", "hinge", "--dtype", "float32", "--epochs", "2"]
    flags += ["--eta", "0.125", "--mode", "exact", "--checkpoint", "none"]
    assert train("data", *flags)["state_sha256"] == of_file
    sets = {**{f"data.{key}": value for key, value in keys.items()}, "train.epochs": 2}
    sets |= {f"model.{key}": value for key, value in model.items()}
    sets |= {"checkpoint.url": "none", "model.params.eta": 0.125}
    words = [
        word for key, value in sets.items() for word in ("--set", f"{key}={json.dumps(value)}")
    ]
    assert train("data", *words)["state_sha256"] == of_file


def test_shards_on_the_command_replace_those_of_the_job(here: Path) -> None:
    """``train job.toml other.parquet`` reads the other shard."""
    (here / "job.toml").write_text(job(data={"shards": "nothing", "label": "y", "numeric": ["n"]}))
    assert train("job.toml", "data/a.parquet", "--checkpoint", "none")["rows"] == 40
    assert (
        train("data/b.parquet", "job.toml", "data/a.parquet", "--checkpoint", "none")["rows"] == 80
    )


def test_checkpoint_none(here: Path) -> None:
    """``--checkpoint none`` keeps nothing, and says no URL."""
    before = sorted(os.walk(here))
    result = train("data", *everything(), "--checkpoint", "none")
    assert result["checkpoint"] == {"url": "", "sequence": -1}
    assert sorted(os.walk(here)) == before
    assert "next:" not in run("train", "data", *everything(), "--checkpoint", "none").out


@pytest.mark.parametrize(
    "words, name",
    [
        (["data"], "data"),
        (["data/*.parquet"], "data"),
        (["data/b.parquet", "data/c.parquet"], "b"),
        (["nightly.toml"], "nightly-data"),
        (["data.toml"], "data"),
    ],
)
def test_a_run_without_a_checkpoint_url_carries_the_name_of_the_data(
    words: list[str], name: str, here: Path
) -> None:
    """It is saved to runs/DATA-DATE-TIME; the job file's name comes first."""
    for file in ("nightly.toml", "data.toml"):
        (here / file).write_text(job(data={"shards": "data", "label": "y"}))
    url = Path(train(*words, *everything())["checkpoint"]["url"])
    assert re.fullmatch(rf"{name}-\d{{8}}-\d{{6}}", url.name)
    assert url.parent == here / "runs"
    assert run("resume", url).code == 0
