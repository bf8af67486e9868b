"""data.standardize in a job: commits, resume, predictions, exports, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamomd
from streamomd.analysis.preview import preview
from streamomd.analysis.report import write_report
from streamomd.analysis.report.feature_weights import scales_from_slots
from streamomd.core.errors import UnsupportedError, UsageError
from streamomd.integrations.export import export
from streamomd.integrations.export.contract import pieces
from streamomd.training.load_model import load_model

STANDARD = {"data.standardize": "running"}


def shard(path: Path, count: int = 400) -> str:
    """Two columns, one of them far from 0, and a category."""
    draw = np.random.default_rng(5)
    year, size = 2020.0 + draw.normal(size=count), draw.normal(size=count)
    job = draw.choice(["a", "b"], count)
    y = (year - 2020.0 + size + 0.5 * (job == "a") > 0.0).astype(int)
    table = pa.table({"year": year, "size": size, "job": job, "y": y})
    pq.write_table(table, path / "rows.parquet", row_group_size=100)
    return str(path / "rows.parquet")


def trained(shards: str, url: str, **more: Any) -> streamomd.Model:
    rule = {} if "model.rule" in more.get("sets", {}) else {"rule": "nag"}
    given: dict[str, Any] = {**rule, "quiet": True, "checkpoint": url, "bits": 4}
    sets = STANDARD | more.pop("sets", {})
    return streamomd.train(shards, label="y", sets=sets, **given, **more)


def test_offsets_are_learned(tmp_path: Path) -> None:
    """The run is better than that on raw columns, and its predictions are of raw rows."""
    shards = shard(tmp_path)
    raw = streamomd.train(shards, label="y", rule="nag", checkpoint="none", quiet=True, bits=4)
    model = trained(shards, str(tmp_path / "run"))
    assert model.result()["loss"] < 0.7 * raw.result()["loss"]
    written = model.predict(shards, to=str(tmp_path / "out"))
    score = pq.read_table(written[0]).column("score").to_numpy()
    w = model.engine.weights(model.state, 0, model.plan.size)[:, 0]
    rows = pq.read_table(shards)
    year, size = rows.column("year").to_numpy(), rows.column("size").to_numpy()
    of_job = score - (w[0] + w[1] * year + w[2] * size)
    jobs = np.array(rows.column("job").to_pylist())
    for job in "ab":
        assert np.ptp(of_job[jobs == job]) < 1e-9


def test_commits_and_resume(tmp_path: Path) -> None:
    """A run that is resumed ends in the same bits, in one epoch more, too."""
    shards = shard(tmp_path)
    whole = trained(shards, "none", epochs=2)
    part = trained(shards, str(tmp_path / "run"), sets={"checkpoint.every_rows": 37})
    assert part.state_sha256 != whole.state_sha256
    again = streamomd.resume(str(tmp_path / "run"), sets={"train.epochs": 2}, quiet=True)
    assert again.state_sha256 == whole.state_sha256
    loaded = streamomd.load(str(tmp_path / "run"))
    assert loaded.state.extra["reference"].tobytes() == whole.state.extra["reference"].tobytes()


def test_exported_weights_are_raw(tmp_path: Path) -> None:
    """The command's export reads a state that is still in its checkpoint."""
    model = trained(shard(tmp_path), str(tmp_path / "run"))
    remote, _ = load_model(str(tmp_path / "run"), remote=lambda _: True)
    found = np.concatenate([piece.weights for piece in pieces(remote)])
    expected = model.engine.weights(model.state, 0, model.plan.size)
    assert found.tobytes() == expected.tobytes()
    assert abs(expected[0, 0]) > 100.0
    export(remote, "parquet", str(tmp_path / "w.parquet"))
    columns = pq.read_table(tmp_path / "w.parquet").column_names
    assert columns == ["coordinate", "feature", "weight"]


def test_the_report_without_shards_is_of_centred_columns(tmp_path: Path) -> None:
    """A column's size is its standard deviation, not its distance from 0."""
    model = trained(shard(tmp_path), "none")
    sizes = scales_from_slots(model)
    assert sizes.typical[1:3] == pytest.approx([1.0, 1.0], rel=0.1)
    assert "standard deviations" in sizes.source


@pytest.mark.parametrize(
    "sets, words",
    [
        ({"model.rule": "auto"}, "'auto' standardises numeric columns itself"),
        ({"model.rule": "da"}, "its weights cannot be set. Rules that can: adagrad, "),
        ({"model.rule": "ons"}, "a matrix"),
        ({"model.rule": "adagrad", "model.params": {"box": 1.0}}, "box"),
        ({"train.mode": "averaged"}, "not averaged"),
        ({"train.mode": "sharded"}, "not sharded"),
        ({"model.bias": False}, "without a bias"),
    ],
)
def test_what_is_refused(sets: dict[str, Any], words: str, tmp_path: Path) -> None:
    """With the reason, and the rules that learn with it."""
    with pytest.raises((UsageError, UnsupportedError)) as error:
        trained(shard(tmp_path), str(tmp_path / "run"), sets={"model.rule": "nag"} | sets)
    assert words in str(error.value)
    assert not (tmp_path / "run").exists()


def test_a_sweep_learns_one_after_the_other(tmp_path: Path) -> None:
    """Each of its models is that of a run alone."""
    shards = shard(tmp_path)
    models = streamomd.sweep(
        shards, label="y", rule="nag", checkpoint="none", bits=4, quiet=True,
        grid={"eta": "0.25,0.5"}, sets=STANDARD,
    )  # fmt: skip
    alone = trained(shards, "none", eta=0.25)
    assert models[0].state_sha256 == alone.state_sha256


@pytest.mark.parametrize(
    "sets, remedy",
    [
        ({}, "use --rule auto, or set data.standardize to running"),
        ({"model.rule": "da"}, "use --rule auto, or subtract the mean beforehand"),
        ({"model.rule": "auto"}, ""),
        (STANDARD, ""),
    ],
)
def test_columns_far_from_0_are_reported(
    sets: dict[str, Any], remedy: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """By train, plan and the report, where the rule does not centre them; a constant one is not."""
    shards = shard(tmp_path, 2000)
    rows = pq.read_table(shards).append_column("one", pa.array(np.full(2000, 7.0)))
    pq.write_table(rows, shards)
    given = {"model.rule": "nag"} | sets
    planned = preview({"data": {"shards": [shards], "label": "y", "bits": 4}}, sets=given)["plan"]
    capfd.readouterr()
    model = streamomd.train(shards, label="y", checkpoint="none", bits=4, sets=given)
    learned = capfd.readouterr().err.splitlines()
    for lines in (planned, learned):
        found = [line for line in lines if "does not centre" in line]
        assert len(found) == (remedy != "")
        assert all(": year; rule" in line and line.endswith(remedy) for line in found)
    page = write_report(model, str(tmp_path / "page.html"), shards=shards, quiet=True)
    found = [one for one in page["look"] if "standard deviations from 0" in one["title"]]
    assert [one["name"] for one in found] == ["year"] * (remedy != "")


def test_sharded_mode_and_sweeps_report_them_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Once for each rule of a sweep; a resumed run does not report them again."""
    shards, url = shard(tmp_path, 2000), str(tmp_path / "run")
    sets = {"train.mode": "sharded", "train.parts": 2, "checkpoint.every_rows": 500}
    streamomd.train(shards, label="y", rule="nag", checkpoint=url, bits=4, sets=sets)
    assert capfd.readouterr().err.count("use --rule auto, or subtract the mean beforehand") == 1
    streamomd.resume(url, sets={"train.epochs": 2})
    assert "does not centre" not in capfd.readouterr().err
    grid = {"rule": ["nag", "adagrad"], "eta": [0.2, 0.5]}
    streamomd.sweep(shards, label="y", checkpoint="none", bits=4, grid=grid)
    found = [line for line in capfd.readouterr().err.splitlines() if "does not centre" in line]
    assert [line.split("; rule ")[1].split()[0] for line in found] == ["'nag'", "'adagrad'"]
    assert all(line.endswith("or set data.standardize to running") for line in found)
