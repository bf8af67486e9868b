"""A sweep's grid: rules without a parameter run once, ends are reported and extended, results are
written to files."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from paging import parsed
from running import run
from sweeping import alone, bits, chosen, job, plain, shards
from test_sweep_grid import spec_of

import streamomd
from streamomd.core.errors import UsageError
from streamomd.runs.sweep import EXTENSIONS
from streamomd.runs.sweep.grid import BEYOND, entries, find_edges


def test_a_rule_without_a_parameter_runs_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Not once for each value of a parameter that another rule of the grid has."""
    grid = {"rule": ["nag", "perceptron", "auto"], "eta": [0.1, 1.0], "delta": [0.0, 1.0]}
    made = entries(lambda one: spec_of({"model.loss": "hinge", **one}), {**grid, "rule": [
        "nag", "adagrad", "perceptron"
    ]})  # fmt: skip
    assert [dict(one.chosen) for one in made] == [
        *({"rule": "nag", "eta": eta} for eta in (0.1, 1.0)),
        *({"rule": "adagrad", "eta": eta, "delta": delta}
          for eta in (0.1, 1.0) for delta in (0.0, 1.0)),
        {"rule": "perceptron"},
    ]  # fmt: skip
    assert "rule=perceptron has no eta, delta: it runs once" in capsys.readouterr().err


def test_a_parameter_that_no_rule_has_is_an_error() -> None:
    with pytest.raises(UsageError, match="etaa"):
        entries(spec_of, {"rule": ["nag", "adagrad"], "etaa": [0.1, 1.0]})


@pytest.mark.parametrize(
    "values, best, largest, beyond",
    [
        ([0.1, 1.0, 10.0], 10.0, True, [100.0, 1000.0, 10000.0]),
        ([0.1, 1.0, 10.0], 0.1, False, [0.01, 0.001, 0.0001]),
        ([0.01, 0.0316228, 0.1], 0.1, True, [0.316228, 1.0, 3.16228]),
        ([0.0, 0.25, 0.5], 0.5, True, [0.75, 1.0, 1.25]),
        ([0.0, 0.25, 0.5], 0.0, False, [-0.25, -0.5, -0.75]),
        ([1, 2, 4], 4, True, [8, 16, 32]),
        ([2, 1], 1, False, [0.5, 0.25, 0.125]),
        ([1.0, 3.0, 5.0], 5.0, True, [7.0, 9.0, 11.0]),
    ],
)
def test_values_beyond_an_end(
    values: list[float], best: float, largest: bool, beyond: list[float]
) -> None:
    """Steps go on as they are: equal ratios, or equal differences."""
    (edge,) = find_edges({"eta": best}, [{"eta": value} for value in values])
    assert (edge.key, edge.value, edge.largest) == ("eta", best, largest)
    assert list(edge.beyond) == beyond


def test_no_edge() -> None:
    """Of values inside, of a single value, of other rules' values, of texts and booleans."""
    tried = [{"rule": "nag", "eta": eta} for eta in (0.1, 1.0, 10.0)]
    assert not find_edges({"rule": "nag", "eta": 1.0}, tried)
    assert not find_edges({"rule": "nag", "eta": 1.0}, tried[1:2])
    assert not find_edges({"rule": "ng", "eta": 10.0}, [*tried, {"rule": "ng", "eta": 10.0}])
    assert not find_edges({"implicit": True}, [{"implicit": True}, {"implicit": False}])


def test_an_extension_ends_inside(tmp_path: Path) -> None:
    """Values beyond the end are learned until the best is not the last, at most three times; each
    learner has the bits of one trained alone, and the best is the best of all."""
    told = job(shards(tmp_path / "rows", 60, 40))
    with plain():
        models = streamomd.sweep(told, grid={"eta": [1e-4, 2e-4]}, extend=True, quiet=True)
        assert 1 <= len(models.extensions) <= EXTENSIONS
        assert all(len(more) == BEYOND for more in models.extensions)
        for learner in models.all_learners:
            assert bits(learner.model) == bits(alone(told, learner.chosen))
    result = models.result()
    assert len(result["learners"]) == 2 + BEYOND * len(models.extensions)
    losses = [one["loss"] for one in result["learners"]]
    assert result["best"]["loss"] == min(losses)
    assert models.best.metrics.figures(models.best.metrics.total)["loss"] == min(losses)
    assert len({one["name"] for one in result["learners"]}) == len(losses)


def test_a_best_inside_is_not_extended(tmp_path: Path) -> None:
    told = job(shards(tmp_path / "rows", 70))
    with plain():
        models = streamomd.sweep(told, grid={"eta": [1e-4, 1.0, 1e4]}, extend=True, quiet=True)
    assert chosen(models)[1] == models.best_learner.chosen
    assert not models.extensions
    assert models.result()["edges"] == []


def test_checkpoints_and_files_of_an_extended_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """URL/best is the best of all; the table has a row for each learner, the page a chart."""
    monkeypatch.chdir(tmp_path)
    folder = shards(tmp_path / "rows", 60, 40)
    words = [
        "sweep", folder, "--label", "y", "--rule", "nag", "--hashed", "t", "--numeric", "a,b,c,d",
        "--weight", "w", "--bits", 3, "--grid", "eta=0.0001,0.0002", "--checkpoint", "runs/s",
        "--extend", "--to", "s.parquet", "--to", "s.html",
    ]  # fmt: skip
    with plain():
        result = run(*words, "--json").result
        best = run("resume", "runs/s/best", "--json").result
        assert best["state_sha256"] == result["best"]["state_sha256"]
        again = run(*words, "--restart")
        assert (again.code, "--overwrite" in again.err) == (2, True)
        text = run(*words, "--restart", "--overwrite").out
    assert "extended-1/learners/000" in text
    assert (tmp_path / "runs/s/extended-1/learners/000/commits").is_dir()
    table = pq.read_table("s.parquet").to_pylist()
    assert [(one["learner"], one["loss"], one["param.eta"]) for one in table] == [
        (one["name"], one["loss"], one["params"]["eta"]) for one in result["learners"]
    ]
    assert [one["learner"] for one in table if one["best"]] == [result["best"]["name"]]
    page = parsed(Path("s.html"))
    assert [one.text for one in page.all("figcaption")] == ["Loss by eta"]
    assert len(page.all("circle")) == len(table)
    assert len(page.all("tbody")[0].all("tr")) == len(table)
    assert run(*words[:-1], "s.txt").code == 2
