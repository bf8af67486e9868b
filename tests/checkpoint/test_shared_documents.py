"""What a user can still do when a shared document of a checkpoint is damaged."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from running import everything, run, shards, train

import streamomd
from streamomd.checkpoint.sealed_json import seal, unseal
from streamomd.core.errors import NoCommitError


@pytest.fixture
def url(tmp_path: Path) -> Path:
    """A finished run on three shards."""
    shards(tmp_path / "data")
    one = ["--set", "checkpoint.keep=1"]
    train(tmp_path / "data", *everything(), "--checkpoint", tmp_path / "run", *one)
    return tmp_path / "run"


def damage(url: Path, pattern: str) -> None:
    """Flip one bit of each object."""
    found = list(url.glob(pattern))
    assert found
    for path in found:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


def test_without_the_ledger_a_model_is_still_of_use(url: Path, tmp_path: Path) -> None:
    """With both copies damaged inspect, predict, evaluate, export and report work; resume, which
    has to compare the shards, exits with 4 and names the document."""
    before = run("evaluate", url, tmp_path / "data", "--json").result["loss"]
    damage(url, "**/segments/*")
    assert run("inspect", url).code == 0
    assert run("predict", url, tmp_path / "data", "--to", tmp_path / "out").code == 0
    assert run("evaluate", url, tmp_path / "data", "--json").result["loss"] == before
    assert run("export", url, "--as", "parquet", "--to", tmp_path / "w.parquet").code == 0
    report = run("report", url, "-o", tmp_path / "a.html")
    assert report.code == 0
    assert "segments/" in report.err
    refused = run("resume", url, "--epochs", "2")
    assert refused.code == 4
    assert "segments/" in refused.err


@pytest.mark.parametrize("kind", ["segments", "names"])
@pytest.mark.parametrize("copy", ["", "copies/"])
def test_one_damaged_copy_costs_nothing(url: Path, kind: str, copy: str) -> None:
    """Every command works from the other copy, verify names the damaged one, and resume repairs
    it."""
    damage(url, f"{copy}{kind}/*")
    verified = run("checkpoint", "verify", url)
    assert verified.code == 0
    assert f"{copy}{kind}/" in verified.out
    assert run("inspect", url).code == 0
    resumed = run("resume", url, "--epochs", "2")
    assert resumed.code == 0
    assert "rejected" not in resumed.err
    assert f"{copy}{kind}/" not in run("checkpoint", "verify", url).out


def test_older_commits_have_one_copy(url: Path) -> None:
    """A checkpoint of an older version, without second copies, loads and is no damage."""
    for path in url.glob("copies/*/*"):
        path.unlink()
    verified = run("checkpoint", "verify", url)
    assert (verified.code, "copies/" in verified.out) == (0, False)
    assert run("resume", url, "--epochs", "2").code == 0


FORGED = {
    "an index below 0": ("indices", 0, -1),
    "an index past the last coordinate": ("indices", 0, 2**30),
    "a row that ends past the last value": ("indptr", -1, 2**30),
    "rows that go back": ("indptr", 1, 2**20),
}


@pytest.mark.parametrize("forged", FORGED)
def test_forged_rows_of_a_rule_are_refused(forged: str, tmp_path: Path) -> None:
    """Compiled loops follow the indices of rows that dual_ascent saves: forged ones are corrupt."""
    shards(tmp_path / "data")
    url = tmp_path / "run"
    more = ["--rule", "dual_ascent", "--set", "k=5", "--set", "checkpoint.keep=1"]
    train(tmp_path / "data", *everything(), "--checkpoint", url, *more)
    name, at, value = FORGED[forged]
    for manifest in (url / "commits").iterdir():
        fields, _ = unseal(manifest.read_bytes())
        entry = fields["parts"][0]
        part = url / "data" / fields["directory"] / entry["name"]
        arrays = {key: np.array(one) for key, one in safetensors.numpy.load_file(part).items()}
        arrays[f"extra.{name}"][at] = value
        data = safetensors.numpy.save(arrays)
        part.write_bytes(data)
        entry |= {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        manifest.write_bytes(seal(fields))
    with pytest.raises(NoCommitError, match="saved rows"):
        streamomd.load(str(url))
