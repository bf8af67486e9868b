"""No rule without an oracle, and no oracle without a file of tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import oracles
import pytest
from against_oracle import variants

from streamomd.analysis.plugin_checks import example_streams as streams
from streamomd.rules import all_rules


def test_every_family_is_tested() -> None:
    """Each file of oracles has its file of tests."""
    files = {file.stem for file in Path(__file__).parent.glob("test_oracle_*.py")}
    names = {name.removeprefix("oracles_") for name in oracles.FAMILIES if name != "oracles"}
    assert files == {f"test_oracle_{name}" for name in (*names, "first_rules", "all")}


@pytest.mark.parametrize("rule", list(all_rules()))
def test_no_rule_lacks_an_oracle(rule) -> None:
    """Each rule's slots are those that its oracle keeps, or derived from them."""
    found = all_rules()[rule]
    loss = found.losses.default
    stream = streams.make(np.random.default_rng(0), "dense", "binary")
    rows = stream.X[:20], stream.y[:20], stream.h[:20]
    trace = oracles.run(rule, loss, *rows, variants(rule, loss)[0])

    derived = set(oracles.DERIVED.get(rule, ()))
    slots = {slot.name for slot in (*found.shared_slots, *found.own_slots)}
    totals = {slot.name for slot in found.total_slots if not slot.name.startswith("top.")}
    assert slots - derived == set(trace.slots) - derived
    assert totals - derived == set(trace.totals) - derived
