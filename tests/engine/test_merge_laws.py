"""Merge laws of every rule: the words of its slots, identity, and parts against a literal merge."""

from __future__ import annotations

import numpy as np
import oracles
import pytest
from merge_laws import ACCOUNTS, LAWS, WORDS, laws_of, literal
from test_merge import CASES, MERGED, run, same

from streamomd.engine.merge import merge
from streamomd.rules import all_rules

oracles.families()


@pytest.mark.parametrize("name", LAWS)
def test_each_slot_merges_as_its_law_says(name: str) -> None:
    """The annotations are the words of the table, no slot is missing, also among the accounts."""
    rule = all_rules()[name]
    for form, accounts in ((rule, False), (rule.certificate.accounted, True)):
        if form is None:
            continue
        laws = laws_of(rule, accounts=accounts)
        slots = (*form.shared_slots, *form.own_slots, *form.total_slots)
        found = {slot.name: slot.merge for slot in slots if slot.merge != "coords"}
        assert found == {name: WORDS[laws[name]] for name in found}


def test_the_table_has_rules_that_merge() -> None:
    """A rule needs no line: without one, ``check_rule`` holds its annotations to the rows."""
    assert {*LAWS} <= {*MERGED}
    assert {*ACCOUNTS} <= {*LAWS}


ACCOUNTED = [(name, 0, True) for name in LAWS if all_rules()[name].certificate.accounted]


@pytest.mark.parametrize("name, at, accounts", [*((*case, False) for case in CASES), *ACCOUNTED])
@pytest.mark.sample(6)
def test_parts_merge_as_the_literal_does(name: str, at: int, accounts: bool) -> None:
    """Four parts of one stream; two, three and all of them."""
    engine, start, parts, examples = run(name, at, accounts=accounts)
    laws = laws_of(all_rules()[name], accounts=accounts)
    for count in (2, 3, 4):
        few = parts[:count], start, examples[:count]
        same(merge(engine, *few), literal(engine, *few, laws), parts)


@pytest.mark.parametrize("name, at", CASES)
@pytest.mark.sample(6)
def test_the_start_is_the_identity(name: str, at: int) -> None:
    """A part that learned nothing adds nothing: weights and slots are the other's.

    But for a ball's multiplier in dual averaging, which the next row finds again.
    """
    engine, start, parts, _ = run(name, at)
    ball = engine.params.get("ball", "none") != "none" and name == "adagrad_da"
    for part in parts[:2]:
        merged = merge(engine, (part, start.copy()), start, (7, 0))
        size = start.layout.size
        if not ball:
            pair = engine.weights(merged, 0, size), engine.weights(part, 0, size)
            np.testing.assert_allclose(*pair, rtol=1e-9, atol=1e-12)
        normal = part.copy()
        engine.renew(normal)
        laws = laws_of(all_rules()[name])
        rule = engine.layout.rule
        for slot in (*rule.shared_slots, *rule.own_slots):
            if rule.state.rejoin is None and laws[slot.name] in ("added", "averaged", "largest"):
                np.testing.assert_allclose(
                    merged.slot(slot.name), normal.slot(slot.name), rtol=1e-9, atol=1e-12
                )
        assert merged.clock == part.clock
