"""No rule without an oracle, and no oracle without a file of tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import oracles
import pytest

from streamomd.analysis.plugin_checks import oracle_rows
from streamomd.analysis.plugin_checks.learner import legal
from streamomd.analysis.plugin_checks.oracle_rows import Rows, run_oracle
from streamomd.losses import find_loss
from streamomd.rules import all_rules

oracles.families()


def test_every_family_is_tested() -> None:
    """Each file of oracles has its file of tests."""
    files = {file.stem for file in Path(__file__).parent.glob("test_oracle_*.py")}
    names = {name.removeprefix("oracles_") for name in oracles.FAMILIES if name != "oracles"}
    assert files == {f"test_oracle_{name}" for name in (*names, "first_rules", "all")}


BLOCKS = [name for name, rule in all_rules().items() if rule.storage.kind == "block"]
"""Their oracle learns rows, not w alone: see tests/engine/test_block.py."""


@pytest.mark.parametrize("name", [name for name in all_rules() if name not in BLOCKS])
def test_no_rule_lacks_an_oracle(name: str) -> None:
    """Each rule's slots are those that its oracle returns, or derived from them."""
    rule, loss = all_rules()[name], find_loss(all_rules()[name].losses.default)
    stream = oracle_rows.make(np.random.default_rng(0), "dense", "binary")
    rows = Rows(stream.X, stream.y, stream.h).first(20)
    trace = run_oracle(oracles.oracle_of(name), rows, loss, legal(rule, loss, {}))
    derived = set(oracles.DERIVED.get(name, ()))
    slots = {slot.name for slot in (*rule.shared_slots, *rule.own_slots, *rule.total_slots)}
    slots = {slot for slot in slots if not slot.startswith("top.")}
    assert slots - derived == set(trace.slots[0]) - derived
