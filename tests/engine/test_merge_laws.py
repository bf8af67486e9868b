"""Merge laws of every rule: identity, parts of one stream against a literal merge, mutants."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import oracles
import pytest
from helpers import Learner, sparse
from merge_laws import ACCOUNTS, LAWS, WORDS, laws_of, literal, mutated
from test_merge import CASES, MERGED, loss_of, params_of, rows, run, same

from streamomd.engine import Engine
from streamomd.engine.merge import merge
from streamomd.engine.state import State
from streamomd.losses import all_losses
from streamomd.losses.contract import Loss
from streamomd.rules import all_rules
from streamomd.rules.contract import Rule

oracles.families()
QUICK = ("nag", "snag", "adagrad", "ftrl_centered", "sop_diag", "arow", "pa1", "ogd")
"""Rules whose mutants a quick run tries: every annotation, scales, sums, means and a matrix."""


def named(rule: Rule) -> set[str]:
    """Slots and totals that merge by an annotation; the others are summed over all coordinates."""
    slots = (*rule.shared_slots, *rule.own_slots, *rule.total_slots)
    return {slot.name for slot in slots if slot.merge != "coords"}


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


def straight() -> Loss:
    """-y p: its slope knows nothing of the weights, so that parts learn what one pass learns."""
    return replace(
        all_losses()["absolute"],
        name="straight",
        value=lambda p, y, h: -y * p,
        slope=lambda p, y, h: -y,
        lipschitz=lambda h: 50.0,
        along=None,
    )


FREE = [
    (name, at)
    for name, at in CASES
    if name in LAWS
    and not all_rules()[name].losses.names
    and all_rules()[name].storage.kind == "coordinates"
]


@pytest.mark.parametrize("name, at", FREE)
@pytest.mark.sample(3)
def test_sums_and_maxima_are_those_of_one_pass(name: str, at: int) -> None:
    """Where slopes do not depend on weights, what is added and what is largest is the same after
    one pass over all rows, in one state: the truth that the table's words have to meet."""
    rule, loss = all_rules()[name], straight()
    params = (
        {**params_of(name, at), "implicit": False} if rule.row.implicit else params_of(name, at)
    )
    learner = Learner(rule, loss, 7, params=params, compiled=False)
    rng = np.random.default_rng([*name.encode(), at])
    batches = [sparse(*rows(rng, 12, rule)) for _ in range(4)]
    learner.learn(batches[0])
    start, parts = learner.state, []
    for batch in batches[1:]:
        learner.state = start.copy()
        learner.learn(batch)
        parts.append(learner.state)
    learner.state = start.copy()
    for batch in batches[1:]:
        learner.learn(batch)
    whole = merge(learner.engine, parts, start, (12, 12, 12))
    laws, met = laws_of(rule), 0
    slots = (*rule.shared_slots, *rule.own_slots)
    for slot in slots:
        law = laws[slot.name]
        by_rows = slot.name not in BY_WEIGHTS.get(name, ())
        if law in ("added", "largest") and by_rows:
            expected = learner.state.slot(slot.name)
            np.testing.assert_allclose(
                whole.slot(slot.name), expected, rtol=1e-10, atol=1e-12 * np.abs(expected).max()
            )
            met += 1
    assert met or {laws[slot.name] for slot in slots} == {"averaged"}


BY_WEIGHTS = {"si_pnorm": ("rp",), "si_adagrad": ("Q",), "adagrad": ("seen",), "snag": ("b",)}
"""Images of other slots, sums and scales that a state had met, and rows of one state's clock."""


@functools.cache
def weighted(name: str, at: int, *, accounts: bool = False) -> tuple:
    """As ``run``, of rows with importances: an engine, a start, three states and their rows."""
    rule = all_rules()[name]
    rule = (accounts and rule.certificate.accounted) or rule
    rng = np.random.default_rng([7, at, *name.encode()])
    learner = Learner(rule, loss_of(rule), 7, params=params_of(name, at), compiled=False)
    counts = (12, 10, 25, 17)
    states = []
    for part, count in enumerate(counts):  # each part's maxima are above the start's
        if states:
            learner.state = states[0].copy()
        X, y = rows(rng, count, rule)
        X[:, 2] *= 1e-3  # so little that L1 leaves its weight at 0
        h = rng.choice([1.0 + part, 1.0 / (1.5 + part)] if part else [1.0], count)
        X[:, 6] *= bool(states)  # not met before the parts
        learner.learn(sparse(X * (1.0 + 0.5 * part), y, h))
        states.append(learner.state)
    return learner.engine, states[0], tuple(states[1:]), counts[1:]


def survivors(name: str, at: int, *, accounts: bool = False) -> set[tuple[str, str]]:
    """Annotations of a rule that could be others, and no law above would see it."""
    engine, start, parts, examples = weighted(name, at, accounts=accounts)
    laws = laws_of(all_rules()[name], accounts=accounts)
    truth = literal(engine, parts, start, examples, laws)
    same(merge(engine, parts, start, examples), truth, parts)
    return {
        (slot, other)
        for slot in named(engine.layout.rule)
        for other in WORDS.values()
        if other != WORDS[laws[slot]]
        and not killed(engine, start, parts, examples, truth, slot, other)
    }


def killed(
    engine: Engine, start: State, parts: tuple, examples: tuple, truth: State, slot: str, other: str
) -> bool:
    """Whether the literal merge differs from that by a rule with another annotation."""
    rule = mutated(engine.layout.rule, slot, other)
    layout = replace(engine.layout, rule=rule)
    changed = replace(engine, layout=layout)
    alike = [State(layout, s.cells, s.totals, s.clock, s.extra) for s in (start, *parts)]
    with np.errstate(all="ignore"):
        merged = merge(changed, alike[1:], alike[0], examples)
    try:
        same(
            State(engine.layout, merged.cells, merged.totals, merged.clock, merged.extra),
            truth,
            parts,
        )
    except (
        AssertionError,
        ArithmeticError,
        ValueError,
    ):  # compiled code has NaN where Python raises
        return True
    return False


IMAGES = {"a", "ref", "scale", "at"}
EQUIVALENT: dict[str, set[str]] = {
    # Made anew after a merge, from other slots and the mean weights: rejoin, renew.
    "adagrad": {"w", "seen"},
    "aggressive": IMAGES,
    "dual_step": {*IMAGES, "b", "n"},
    "eg": {"a", "b", "ref", "n"},
    "ogd": {"c", "fold", "mark", "settled", "turned"},
    "pnorm": IMAGES,
    "pnorm_lms": IMAGES,
    "si_pnorm": {"rp", "p_of_rp", "scale"},
    "winnow": {"e", "ref", "n"},
    # The same number in every state of a run, n above among them.
    "cw": {"phi"},
    "cw_diag": {"phi"},
    "si_adagrad": {"root"},
    "sop_diag": {"margins"},
}
"""Slots that no annotation can make merge otherwise."""


def alive(name: str) -> tuple[set[tuple[str, str]], int]:
    """Mutants that no law saw, with any parameters, in either form; and how many there were."""
    rule, found, count = all_rules()[name], set(), 0
    for accounts in (False, True) if rule.certificate.accounted else (False,):
        form = rule.certificate.accounted if accounts else rule
        assert form is not None
        fresh = named(form) - (named(rule) if accounts else set())
        several = range(len(oracles.VARIANTS.get(name, [{}])))
        by_params = [survivors(name, at, accounts=accounts) for at in several]
        found |= {pair for pair in set.intersection(*by_params) if pair[0] in fresh}
        count += 3 * len(fresh)
    return found, count


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in LAWS]
)
@pytest.mark.sample(4)
def test_another_annotation_fails_a_law(name: str) -> None:
    """Each slot declared as each other kind merges to other numbers than the literal merge: but for
    those that are listed, and each of these is none that any annotation could change."""
    found, count = alive(name)
    assert {slot for slot, _ in found} == EQUIVALENT.get(name, set())
    assert len(found) == 3 * len(EQUIVALENT.get(name, set()))
    assert count


@pytest.mark.slow
def test_how_many_mutants_are_killed() -> None:
    """Of all annotations of all rules, each swapped with each other."""
    tried = [alive(name) for name in LAWS]
    mutants, lived = sum(count for _, count in tried), sum(len(found) for found, _ in tried)
    print(f"{mutants - lived} of {mutants} mutants killed, {lived} equivalent")
    assert lived == 3 * sum(len(slots) for slots in EQUIVALENT.values())
    assert mutants - lived > 400
