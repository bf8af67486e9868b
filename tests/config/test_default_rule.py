"""The rule of a job that names none."""

from __future__ import annotations

from typing import Any

import pytest

from streamomd.config.build_job import build_job, change_job
from streamomd.config.recorded import split_recorded
from streamomd.config.spec import Spec
from streamomd.core.errors import UsageError
from streamomd.losses import all_losses
from streamomd.rules import find_rule


def parsed(**tables: Any) -> tuple[str, list[str]]:
    """The rule of a job, and what is reported."""
    lines: list[str] = []
    return Spec.parse(tables, report=lines.append).model.rule, lines


def test_the_default_is_auto() -> None:
    """A job without a rule has auto, with all its parameters, and nothing is reported."""
    assert parsed() == ("auto", [])
    assert parsed(model={"bias": True, "params": {}}) == ("auto", [])
    assert Spec().model.rule == "auto"
    assert Spec.parse({}).model.params == find_rule("auto").parse_params({})


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"train": {"mode": "sharded"}}, "not sharded"),
        ({"model": {"bias": False}}, "needs the bias"),
        ({"model": {"bias": "false"}}, "needs the bias"),
    ],
)
def test_the_default_is_nag_where_auto_does_not_apply(tables: dict[str, Any], words: str) -> None:
    """Then one line says why. With the rule named nothing is reported: nag is learned, auto
    refused, and so is what of it is in auto."""
    rule, lines = parsed(**tables)
    assert rule == "nag"
    (line,) = lines
    assert words in line
    assert "auto" in line
    for name in ("nag", "auto", "adagrad_standardized"):
        named = {**tables, "model": {**tables.get("model", {}), "rule": name}}
        if name == "nag":
            assert parsed(**named) == ("nag", [])
        else:
            with pytest.raises(UsageError, match=f"'{name}' .*{words}"):
                parsed(**named)


@pytest.mark.parametrize("name", ["eta", "prior", "implicit"])
def test_parameters_need_a_rule(name: str) -> None:
    """They may be meant for the default of before: both rules are named with their parameters."""
    value = True if name == "implicit" else 0.5
    for tables in ({}, {"train": {"mode": "sharded"}}):
        with pytest.raises(UsageError, match=f"sets {name}, .* rule auto .* rule nag has eta, imp"):
            Spec.parse({"model": {"params": {name: value}}, **tables})
    with pytest.raises(UsageError, match=f"sets {name}"):
        build_job({"data": {"shards": "/s", "label": "y"}}, {}, {name: value})
    with pytest.raises(UsageError, match=r"'auto' has no parameter 'delta'.*rules with 'delta'"):
        Spec.parse({"model": {"params": {"delta": 0.5}}})


def test_saved_jobs_keep_their_rule() -> None:
    """What was saved parses to the same rule without a report; without one it is nag's."""
    for tables in (
        {},
        {"model": {"bias": False}},
        {"model": {"rule": "nag", "params": {"eta": 2}}},
    ):
        saved = Spec.parse(tables).to_json()
        assert parsed(**saved) == (saved["model"]["rule"], [])
        assert change_job(saved, {"train.epochs": 2}).model == Spec.parse(tables).model
    saved = Spec.parse({"model": {"rule": "nag"}}).to_json()
    del saved["model"]["rule"]
    assert Spec.parse(split_recorded(saved, "/runs/a")[0]).model.rule == "nag"


def test_losses_without_a_curvature_are_learned_by_the_first_order_part() -> None:
    """One place says which state a job has: the rule of its Spec, always called auto."""
    second = {"logistic", "square", "softmax"}
    for loss in all_losses():
        rule = Spec.parse({"model": {"loss": loss}}).rule
        assert rule.name == "auto"
        assert rule.storage.second == (loss in second)  # type: ignore[union-attr]
        own = [slot.name for slot in rule.own_slots]
        assert own == (["w", "S", "g", "H"] if loss in second else ["g", "H"])
