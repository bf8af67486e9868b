"""Sweeps: each learner has the bits of one trained alone, whatever it is beside."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import oracles
import pytest
from running import run, with_column, write
from sweeping import JOB, alone, bits, chosen, job, plain, shards, table

import streamomd
from streamomd.config.spec import Spec
from streamomd.core.errors import (
    BadRowError,
    OutputExistsError,
    SweepError,
    UnsupportedError,
    UsageError,
)
from streamomd.losses import all_losses
from streamomd.rules import all_rules
from streamomd.runs.sweep.batched import group_learners

oracles.families()
ETAS = [0.01, 0.1, 0.5, 1.0, 4.0]


def grids(rule: str) -> Iterator[dict[str, list[Any]]]:
    """Grids with the options of the rule's oracle: a grid holds as many of them as may be crossed.

    An option that logistic loss does not have is swept with hinge loss.
    """
    grid: dict[str, list[Any]] = {"rule": [rule]}
    for params in oracles.VARIANTS.get(rule, [{}])[:5]:
        wider = {key: [*dict.fromkeys([*grid.get(key, []), params[key]])] for key in params}
        if is_accepted(grid | wider):
            grid |= wider
            continue
        yield grid
        grid = {"rule": [rule], **{key: [value] for key, value in params.items()}}
        grid |= {} if is_accepted(grid) else {"loss": ["hinge"]}
    yield grid


def is_accepted(grid: dict[str, list[Any]]) -> bool:
    """Whether each combination of a grid's values is a valid job."""
    for values in itertools.product(*grid.values()):
        try:
            Spec.parse({**JOB, "model": {**JOB["model"], **dict(zip(grid, values, strict=True))}})
        except UsageError:
            return False
    return True


@pytest.mark.parametrize("rule", ["of all", *all_rules()])
@pytest.mark.slow
def test_each_learner_is_as_trained_alone(rule: str, tmp_path: Path) -> None:
    """Of all rules in one sweep, and of each rule's options, two epochs over three shards."""
    told = job(shards(tmp_path / "rows", 14, 0, 9), train={"epochs": 2})
    found = [{"rule": [*all_rules()]}] if rule == "of all" else grids(rule)
    with plain():
        for grid in found:
            models = streamomd.sweep(told, grid=grid, quiet=True)
            for model, one in zip(models, chosen(models), strict=True):
                assert bits(model) == bits(alone(told, one)), one


@pytest.mark.parametrize("loss", [*all_losses(), "one-against-all"])
@pytest.mark.sample(3)
def test_losses(loss: str, tmp_path: Path) -> None:
    """Of numbers, of two classes, and of five: coupled, and one-against-all."""
    told = job(shards(tmp_path / "rows", 30), model={"loss": loss, "task": "auto"})
    if loss in ("softmax", "one-against-all"):
        told["data"] |= {"label": "t", "hashed": [], "ignore": ["y"]}
        told["model"]["loss"] = loss if loss == "softmax" else "logistic"
    elif not all_losses()[loss].classifies:
        told["data"] |= {"label": "w", "weight": "", "ignore": ["y"]}
    with plain():
        models = streamomd.sweep(told, grid={"eta": [0.1, 0.5, 1.0]}, quiet=True)
        for model, one in zip(models, chosen(models), strict=True):
            assert bits(model) == bits(alone(told, one)), one


def test_learners_of_auto_are_as_trained_alone(tmp_path: Path) -> None:
    """Without a grid one learner, of the default rule; in a grid they are no bit different."""
    told = job(shards(tmp_path / "rows", 30))
    del told["model"]["rule"]
    with plain():
        models = streamomd.sweep(told, quiet=True)
        assert [model.spec.model.rule for model in models] == ["auto"]
        assert bits(models.best) == bits(alone(told, {}))
        grid = {"rule": ["auto", "nag", "laplace"]}
        for model, one in zip(
            streamomd.sweep(told, grid=grid, quiet=True), grid["rule"], strict=True
        ):
            assert bits(model) == bits(alone(told, {"rule": one}))
        with pytest.raises(UsageError, match="sets eta, but no rule is named"):
            streamomd.sweep(told, grid={"eta": [0.1, 1.0]}, quiet=True)


def test_the_best_has_the_lowest_loss(tmp_path: Path) -> None:
    """Progressive, of all rows; of learners whose losses differ, the lowest error."""
    told = job(shards(tmp_path / "rows", 200))
    with plain():
        models = streamomd.sweep(told, grid={"eta": ETAS}, quiet=True)
        assert models.best.result()["loss"] == min(model.result()["loss"] for model in models)
        models = streamomd.sweep(
            told, grid={"eta": ETAS, "loss": ["hinge", "logistic"]}, quiet=True
        )
    assert (models.measure, len(models)) == ("error", 10)
    assert models.best.result()["error"] == min(model.result()["error"] for model in models)


def test_learners_alike_are_side_by_side(tmp_path: Path) -> None:
    """Sixteen etas are, in a loop for each thread; what is kept otherwise is apart."""
    told = job(shards(tmp_path / "rows", 20))
    with plain():
        etas = streamomd.sweep(told, grid={"eta": "0.01..10:16"}, quiet=True)
        told["model"] |= {"rule": "pnorm_lms", "loss": "square"}
        powers = streamomd.sweep(told, grid={"p": [2.0, 3.0]}, quiet=True)
    for threads, wide in ((1, [8, 8]), (2, [8, 8]), (3, [4] * 4), (5, [4] * 4), (6, [2] * 8)):
        found = group_learners([*etas], threads)
        assert [len(side.models) for side in found] == wide
        for side in found:
            side.split()
    assert [len(side.models) for side in group_learners([*powers], 1)] == [1, 1]


def test_bad_rows_are_left_out_for_all(tmp_path: Path) -> None:
    """With skip, and counted for each; without, the first one stops all of them."""
    rows = table(60)
    values = rows["a"].to_pylist()
    values[7] = values[31] = float("nan")
    write(tmp_path / "rows" / "0.parquet", with_column(rows, "a", values), row_group_size=16)
    told = job(str(tmp_path / "rows"), data={"on_bad_row": "skip"})
    with plain():
        models = streamomd.sweep(told, grid={"eta": ETAS}, halve=13, quiet=True)
        for model, one in zip(models, chosen(models), strict=True):
            if model.finished:
                assert model.metrics.skipped == {"nan": 2}
                assert bits(model) == bits(alone(told, one))
        told["data"]["on_bad_row"] = "error"
        with pytest.raises(BadRowError, match="row 7"):
            streamomd.sweep(told, grid={"eta": ETAS}, quiet=True)


def test_checkpoints_are_those_of_any_run(tmp_path: Path) -> None:
    """Each learner's loads, predicts, is inspected and gone on with; so is the best."""
    rows, url = shards(tmp_path / "rows", 90), str(tmp_path / "run")
    told = job(rows, url, checkpoint={"url": url, "every_rows": 25})
    with plain():
        models = streamomd.sweep(told, grid={"eta": ETAS}, quiet=True)
        for at, model in enumerate(models):
            kept = streamomd.load(f"{url}/learners/{at:03d}")
            assert (bits(kept), kept.finished) == (bits(model), True)
        best = streamomd.load(f"{url}/best")
        assert bits(best) == bits(models.best)
        assert best.predict(rows, str(tmp_path / "out"))
        again = streamomd.resume(f"{url}/best", sets={"train.epochs": 2}, quiet=True)
        whole = alone({**told, "train": {"epochs": 2}}, best.spec.model.params)
        assert bits(again) == bits(whole)


def test_a_sweep_is_no_model(tmp_path: Path) -> None:
    """What wants one says where they are; nor is a model a sweep, nor begun over either."""
    rows, url, other = shards(tmp_path / "rows", 20), str(tmp_path / "run"), str(tmp_path / "one")
    with plain():
        streamomd.sweep(job(rows, url), grid={"eta": ETAS}, quiet=True)
        streamomd.train(job(rows, other), quiet=True)
        for use in (streamomd.load, streamomd.resume):
            with pytest.raises(SweepError, match=f"{url}/best") as refused:
                use(url)
            assert ("resume_sweep" in str(refused.value)) == (use is streamomd.resume)
        with pytest.raises(UsageError, match="is no sweep"):
            streamomd.resume_sweep(other)
        for place in (url, other):
            with pytest.raises(OutputExistsError, match="--restart") as swept:
                streamomd.sweep(job(rows, place), grid={"eta": ETAS}, quiet=True)
            with pytest.raises(OutputExistsError) as trained:
                streamomd.train(job(rows, place), quiet=True)
            assert str(swept.value) == str(trained.value)
        fewer = streamomd.sweep(job(rows, url), grid={"eta": [0.3]}, quiet=True, restart=True)
        assert [bits(one) for one in streamomd.resume_sweep(url)] == [bits(one) for one in fewer]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"train": {"mode": "sharded"}}, "exact mode, not sharded"),
        ({"train": {"patience": 2}, "data": {"holdout": 5}}, "none stops early"),
    ],
)
def test_other_ways_to_learn_are_refused(more: Any, says: str, tmp_path: Path) -> None:
    """By name, before anything is read."""
    with pytest.raises(UnsupportedError, match=says):
        streamomd.sweep(job(str(tmp_path), **more), grid={"eta": ETAS}, quiet=True)


def test_labels_that_losses_read_in_two_ways_are_refused(tmp_path: Path) -> None:
    """As classes and as numbers: no one reading serves both."""
    told = job(shards(tmp_path / "rows", 20), model={"task": "auto"})
    with pytest.raises(UsageError, match="read the labels in two ways"):
        streamomd.sweep(told, grid={"loss": ["logistic", "square"]}, quiet=True)


def test_the_command(tmp_path: Path) -> None:
    """What it prints: a table with the best marked, lines to type that work, and JSON."""
    rows, url = shards(tmp_path / "rows", 60), str(tmp_path / "run")
    words = ["--label", "y", "--weight", "w", "--bits", "3", "--checkpoint", url]
    with plain():
        done = run("sweep", rows, *words, "--grid", "eta=0.1..10:3", "--grid", "rule=nag,pa")
        assert done.code == 0, done.err
        assert "rule=pa has no eta: it runs once" in done.err
        marked = [line for line in done.out.splitlines() if line.startswith("best")]
        assert len(marked) == 1
        typed = [line.split()[1:] for line in done.out.splitlines() if " streamomd " in line]
        assert [words[0] for words in typed] == ["inspect", "predict", "resume"]
        typed[1][-1] = str(tmp_path / "out")
        for line in typed:
            assert run(*line).code == 0, line
        told = run("resume", url, "--json").result
    assert json.dumps(told)
    assert [one["params"].get("eta") for one in told["learners"]] == [0.1, None, 1.0, 10.0]
    measure = told["measure"]  # the rules' default losses differ
    assert told["best"][measure] == min(one[measure] for one in told["learners"])
    assert told["best"]["checkpoint"]["url"] == f"{url}/best"
    assert (told["rows"], told["epochs"]) == (120, 2)
