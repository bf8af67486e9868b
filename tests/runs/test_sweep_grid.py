"""A grid: what its texts mean, which learners it makes, what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from streamomd.config.flags import assign
from streamomd.config.spec import Spec
from streamomd.core.errors import UsageError
from streamomd.runs.sweep.grid import MOST, entries, parse_grid, values_of, worded

VALUES = {
    "0.01..10:4": [0.01, 0.1, 1.0, 10.0],
    "10..0.1:3": [10.0, 1.0, 0.1],
    "1..2:3": [1.0, 1.41421, 2.0],
    "1e-2..1e2:5": [0.01, 0.1, 1.0, 10.0, 100.0],
    "lin:0..1:5": [0.0, 0.25, 0.5, 0.75, 1.0],
    "lin:-1..1:2": [-1.0, 1.0],
    "0.5": [0.5],
    "1,2.5": [1, 2.5],
    "nag, adagrad": ["nag", "adagrad"],
    "true,false": [True, False],
    "l2,none": ["l2", "none"],
    "[0.1, 1],[0.2, 2]": [[0.1, 1], [0.2, 2]],
    "'a,b',c": ["'a", "b'", "c"],
}
ILL = (
    "0..1:3",
    "-1..1:3",
    "1..2:1",
    "1..2:1e9",
    "1..x:3",
    "a..b:3",
    "1..inf:3",
    "nan..1:3",
    "",
    ",",
)
KEYS = {
    "eta": "model.params.eta",
    "model.params.eta": "model.params.eta",
    "rule": "model.rule",
    "loss": "model.loss",
    "model.loss_params.tau": "model.loss_params.tau",
    "model.certificate": "model.certificate",
}
ROWS = (
    "bits",
    "data.bits",
    "numeric",
    "label",
    "data.hash_seed",
    "model.task",
    "model.bias",
    "dtype",
)
WHOLE = (
    "epochs",
    "train.epochs",
    "checkpoint.keep",
    "start",
    "mode",
    "models.rule",
    "cluster.decode",
)


def spec_of(chosen: Mapping[str, Any]) -> Spec:
    tables: dict[str, Any] = {}
    for key, value in chosen.items():
        assign(tables, key, value)
    return Spec.parse(tables)


def never(chosen: Mapping[str, Any]) -> Spec:
    raise AssertionError(chosen)


@pytest.mark.parametrize("text", VALUES)
def test_values(text: str) -> None:
    """Ends are as given; what lies between is rounded to six digits, to be typed."""
    assert values_of("k", text) == VALUES[text]


@pytest.mark.parametrize("text", ILL)
def test_values_that_cannot_be_meant(text: str) -> None:
    """They are refused, with the key and an example."""
    with pytest.raises(UsageError, match=r"grid 'k'|grid k="):
        values_of("k", text)


@pytest.mark.parametrize("text", ["0.1-1", "0.1:1", "0.1 to 1", "0.1 - 1"])
def test_a_range_in_another_notation_gets_ours(text: str) -> None:
    """A number with a negative exponent is none."""
    with pytest.raises(UsageError, match=r"low\.\.high:count, e\.g\. eta=0\.1\.\.1:5"):
        values_of("eta", text)
    assert values_of("eta", "1e-5") == [1e-5]
    assert values_of("tau", "-1") == [-1]


@pytest.mark.parametrize("text", ["eta", "=1", " =1"])
def test_a_grid_needs_a_key(text: str) -> None:
    """And says how one looks."""
    with pytest.raises(UsageError, match=r"expected key=values, e\.g\. --grid eta=0\.01\.\.10:16"):
        parse_grid([text])


def test_a_key_is_named_once() -> None:
    """In one form or in two."""
    with pytest.raises(UsageError, match="name it once"):
        parse_grid(["eta=1", "eta=2"])
    with pytest.raises(UsageError, match="names each key once"):
        entries(never, {"eta": [1.0], "model.params.eta": [2.0]})


def test_without_a_grid_the_job_is_learned() -> None:
    """One learner, and nothing was chosen for it."""
    (found,) = entries(spec_of, {})
    assert (dict(found.chosen), worded(found.chosen)) == ({}, "the job")
    assert found.spec == spec_of({})


@pytest.mark.parametrize("key", KEYS)
def test_what_may_differ(key: str) -> None:
    """The make of a job is asked by the dotted key."""
    asked: list[Mapping[str, Any]] = []

    def make(chosen: Mapping[str, Any]) -> Spec:
        asked.append(chosen)
        return spec_of({})

    entries(make, {key: ["value"]})
    assert asked == [{KEYS[key]: "value"}]


@pytest.mark.parametrize("key", ROWS)
def test_what_changes_the_rows_is_refused(key: str) -> None:
    """By name, with the reason."""
    with pytest.raises(UsageError, match=f"grid '{key}'.* changes how rows are read"):
        entries(never, {key: [1]})


@pytest.mark.parametrize("key", WHOLE)
def test_what_is_the_whole_sweeps_is_refused(key: str) -> None:
    """And what may differ is told."""
    with pytest.raises(UsageError, match=f"grid '{key}'.*What may differ"):
        entries(never, {key: [1]})


def test_the_product() -> None:
    """Each value with each, the last key the quickest; every one is a legal job of its own."""
    found = entries(spec_of, {"rule": ["nag", "ng"], "eta": [0.1, 1.0]})
    told = [(one.spec.model.rule, one.spec.model.params["eta"]) for one in found]
    assert told == [("nag", 0.1), ("nag", 1.0), ("ng", 0.1), ("ng", 1.0)]
    assert [worded(one.chosen) for one in found][1] == "rule=nag eta=1.0"


def test_illegal_combinations_are_left_out_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    """In a line for each reason."""
    found = entries(spec_of, {"rule": ["nag", "perceptron"], "eta": [-1.0, 0.1, 0.5, 0.5]})
    assert [worded(one.chosen) for one in found] == [
        "rule=nag eta=0.1", "rule=nag eta=0.5", "rule=perceptron",
    ]  # fmt: skip
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 3
    assert "rule=perceptron has no eta: it runs once" in told[0]
    assert "rule=nag eta=-1.0: model.params.eta = -1.0: expected a number above 0" in told[1]
    assert "rule=nag eta=0.5: the same learner is there already" in told[2]


def test_no_legal_combination_is_refused() -> None:
    """With the reason."""
    with pytest.raises(UsageError, match=r"no combination.*'perceptron' has no parameter 'eta'"):
        entries(spec_of, {"rule": ["perceptron"], "eta": [0.1, 1.0]})


def test_too_many_learners_are_refused() -> None:
    """Before any is made."""
    with pytest.raises(UsageError, match=f"1,001,000 learners: at most {MOST:,}"):
        entries(never, {"eta": [*range(1000)], "C": [*range(1001)]})
