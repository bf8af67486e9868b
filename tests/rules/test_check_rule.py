"""``streamomd.testing.check_rule``: a new rule passes, and its mutants do not."""

from __future__ import annotations

import re
import textwrap
from dataclasses import replace
from typing import Any

import new_rule
import numpy as np
import oracles
import pytest
from documented import ROOT
from merge_laws import mutated

from streamomd.analysis.plugin_checks.laws import merge_problems
from streamomd.analysis.plugin_checks.learner import legal
from streamomd.analysis.plugin_checks.rule_case import RuleCase
from streamomd.losses import find_loss
from streamomd.rules import all_rules
from streamomd.rules.contract import RowHooks
from streamomd.testing import check_rule

oracles.families()
WORDS = {"sum", "mean", "max", "min"}
CHEAP = {"compiled": False, "losses": ["logistic"], "streams": 1}


def test_a_new_rule_passes() -> None:
    """One that is in no package, compiled too, with parameters that check_rule makes up."""
    check_rule(new_rule.RULE, new_rule.oracle)


def test_the_oracle_of_contributing_is_nag() -> None:
    """The example of "Add a rule" passes as it stands there."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    [block] = re.findall(r"```python\n(.*?)```", text, re.S)
    names: dict[str, Any] = {}
    exec(textwrap.dedent(block), names)

    def nag(d: int, rows: Any, eta: float, implicit: bool) -> Any:
        return names["nag"](d, rows, eta)

    check_rule(all_rules()["nag"], nag, params=[{}, {"eta": 0.2}], compiled=False)


@pytest.mark.parametrize("mutant", new_rule.MUTANTS)
def test_each_mutant_of_a_new_rule_is_found(mutant: str) -> None:
    """By one oracle function: importance forgotten, a sum off by 1e-7, b for b^2, 0/0 on a zero
    first gradient, each wrong annotation. The message names the rule."""
    with pytest.raises(AssertionError, match="rule 'new_rule' with loss 'logistic'"):
        check_rule(new_rule.MUTANTS[mutant], new_rule.oracle, **CHEAP)


MESSAGES = {
    "importance forgotten": r"row \d+ has importance .*: is it in `step`\?",
    "gradient sum off by 1e-7": r"row \d+ of 40 is predicted as .*\(difference -?[\d.]+e-\d\d",
    "b for b squared": r"look at `weight`",
    "0/0 on a zero first gradient": r"`weight_0_over_0` .* ZeroDivisionError.* define 0/0 as 0",
    "G merges by max": r"slot 'G' merges by 'max', but one pass over both gives the sum",
    "theta merges by mean": r"weight \d+ of the merged state .* annotations of the slots",
}


@pytest.mark.parametrize("mutant", MESSAGES)
def test_messages_say_what_to_look_at(mutant: str) -> None:
    """What differs, where, and which function or slot to look at."""
    with pytest.raises(AssertionError, match=MESSAGES[mutant]):
        check_rule(new_rule.MUTANTS[mutant], new_rule.oracle, **CHEAP)


def test_units_are_checked_without_the_oracle() -> None:
    """A rule whose oracle has the same mistake is held to its range: units must not matter."""

    def squared(d: int, rows: Any, eta: float) -> None:
        b, theta, G = np.zeros((3, d))
        for row in rows:
            b = np.maximum(b, np.abs(row.x))
            g = row.slope(np.where(G > 0.0, eta * theta / (b**2 * np.sqrt(G)), 0.0))
            z = np.where(b > 0.0, g * row.x / b, 0.0)
            theta, G = theta - z, G + z**2

    with pytest.raises(AssertionError, match="units must not matter"):
        check_rule(new_rule.MUTANTS["b for b squared"], squared, **CHEAP)


def test_what_importance_is_declared_as_is_checked_without_the_oracle() -> None:
    """A rule that declares "presence" and multiplies the loss contradicts itself."""
    rule = replace(new_rule.RULE, row=RowHooks(importance="presence"))
    with pytest.raises(AssertionError, match="declares importance 'presence'"):
        check_rule(rule, new_rule.oracle, **CHEAP)


def test_functions_that_remember_are_found() -> None:
    """Rows in one batch or in several must end in the same bits."""
    calls = [0]

    def step(row: Any, totals: object, clock: float, h: Any) -> Any:
        calls[0] += 1
        g = row.importance * row.slope * (1.0 + 1e-14 * calls[0])
        return g != 0.0, new_rule.Move(g), totals

    with pytest.raises(AssertionError, match="end in different bits"):
        check_rule(replace(new_rule.RULE, step=step), new_rule.oracle, **CHEAP)


def test_an_oracle_that_is_wrong_is_named() -> None:
    """0/0 in an oracle, and a slot that the rule does not have."""

    def nan(d: int, rows: Any, eta: float) -> None:
        for row in rows:
            row.slope(np.full(d, np.nan))

    def unknown(d: int, rows: Any, eta: float) -> dict[str, Any]:
        return {**new_rule.oracle(d, rows, eta), "H": np.zeros(d)}

    with pytest.raises(AssertionError, match="the oracle predicts no number for row 1"):
        check_rule(new_rule.RULE, nan, **CHEAP)
    with pytest.raises(AssertionError, match="the oracle returns 'H', which the rule has not"):
        check_rule(new_rule.RULE, unknown, **CHEAP)


SEEN: dict[str, set[str]] = {
    "adagrad": {"w", "G"}, "adagrad_da": {"b", "G"}, "aggressive_second_order_diag": {"theta", "S"},
    "arow_diag": {"mu", "S"}, "composite": {"theta"}, "da": {"theta"},
    "ftrl_centered": {"M", "theta", "G"}, "ftrl_proximal": {"G"}, "nag": {"s", "w", "G", "N"},
    "nag_projected": {"s", "G"}, "ng": {"s", "w", "N"}, "ogd": {"v"}, "ons_diag": {"S"},
    "pa": {"theta"}, "pa1": {"theta"}, "pa2": {"theta"}, "perceptron": {"theta"},
    "rda": {"theta"}, "si_adagrad": {"b", "theta", "Q"}, "si_pnorm": {"b"},
    "snag": {"s", "w", "G"}, "sop_diag": {"theta", "S"},
}  # fmt: skip
QUICK = ("adagrad", "da", "nag", "sop_diag")
"""Slots of which every wrong annotation is found from the rule alone, without a table of laws."""


@pytest.mark.parametrize(
    "name",
    # Half a second each: the quick run has one rule of each kind.
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in SEEN],
)
def test_wrong_annotations_of_the_package_are_found(name: str) -> None:
    """Each of them, as each of the three other kinds, with the parameters' defaults."""
    rule, loss = all_rules()[name], find_loss(all_rules()[name].losses.default)
    params = legal(rule, loss, {})
    rule = rule.reduced_for(params)
    slots = (*rule.shared_slots, *rule.own_slots, *rule.total_slots)
    kinds = {slot.name: slot.merge for slot in slots}
    alive = {
        (slot, kind)
        for slot in SEEN[name]
        for kind in WORDS - {kinds[slot]}
        if not [*merge_problems(mutated(rule, slot, kind), loss, params)]
    }
    assert not alive
    assert not [*merge_problems(rule, loss, params)]


def test_a_rule_with_a_block_is_checked_but_for_copies_and_merges() -> None:
    """Copies have an order, and a block merges as a whole; all else holds."""
    rule = all_rules()["adagrad_standardized"]
    case = RuleCase(rule, find_loss("logistic"), rule.parse_params({}))
    case.check_splits(0)
    case.check_importance(0)
