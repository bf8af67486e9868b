"""How each rule's states merge, word by word, and a literal merge that goes by these words.

The words are those of the papers' quantities, not of the rules' annotations, which they check:
a scale or a bound is the largest of all parts; squares, gradients in a dual vector and counts of
rows are added; weights, and dual vectors under a fixed regularizer, are averaged by examples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, NamedTuple, get_type_hints

import numpy as np

from streamomd.engine import Engine
from streamomd.engine.state import State
from streamomd.rules.contract import Rule

WORDS = {"added": "sum", "averaged": "mean", "largest": "max", "smallest": "min"}
"""Each word, and the annotation that means it."""

LINKED = {"theta": "averaged", "a": "averaged", "ref": "largest"}
"""Dual vectors under a fixed regularizer, and their images by a link."""
STEPS = {"steps": "added"}
FACTOR = {"scale": "largest", "at": "largest"}
MATRIX = {"mu": "averaged"}
UPDATES = {"updates": "added", "lift": "added", "heaviest": "largest"}
DIAGONAL = {
    "theta": "added", "S": "added", "updates": "added", "margins": "added", "largest": "largest",
}  # fmt: skip
WINNOWED = {**STEPS, "n": "largest", "ref": "largest", "heaviest": "largest", "gain": "added"}
LAWS: dict[str, dict[str, str]] = {
    "adagrad": {"w": "averaged", "G": "added", "seen": "largest"},
    "adagrad_da": {"b": "largest", "theta": "added", "G": "added", "mu": "largest"},
    "adagrad_full": {"w": "averaged", "theta": "added", "longest": "largest"},
    "aggressive": {
        **LINKED, **FACTOR, "X": "largest", "Y2": "largest",
        "mistakes": "added", "e": "added", "c": "added",
    },
    "aggressive_second_order": {**MATRIX, **UPDATES},
    "aggressive_second_order_diag": DIAGONAL,
    "arow": {**MATRIX, **UPDATES},
    "arow_diag": {"mu": "averaged", "S": "added"},
    "composite": {"theta": "added"},
    "cw": {**MATRIX, "phi": "largest"},
    "cw_diag": {"mu": "averaged", "S": "added", "phi": "largest"},
    "da": {"theta": "added"},
    "dual_step": {
        **LINKED, **FACTOR, **STEPS, "b": "averaged", "n": "largest",
        "rises": "added", "mistakes": "added", "hardest": "largest",
    },
    "eg": {**WINNOWED, "theta": "averaged", "a": "averaged", "b": "averaged"},
    "ftrl_centered": {"M": "largest", "theta": "added", "G": "added"},
    "ftrl_proximal": {"z": "averaged", "G": "added", "mu": "largest"},
    "nag": {"s": "largest", "w": "averaged", "G": "added", "N": "added"},
    "nag_projected": {"s": "largest", "w": "averaged", "G": "added"},
    "ng": {"s": "largest", "w": "averaged", "N": "added"},
    "ogd": {"v": "averaged", "c": "largest", "fold": "largest", "N": "added"},
    "ons": {"w": "averaged", "cost": "added",
            **dict.fromkeys(("steepest", "widest", "heaviest"), "largest")},
    "ons_diag": {"w": "averaged", "S": "added"},
    "pa": {"theta": "averaged"},
    "pa1": {"theta": "averaged", "dual": "added", "mistakes": "added", "hardest": "largest"},
    "pa2": {"theta": "averaged"},
    "perceptron": {
        "theta": "averaged", "dual": "added", "mistakes": "added", "longest": "largest",
    },
    "pnorm": {**LINKED, **FACTOR, **STEPS},
    "pnorm_lms": {
        **LINKED, **FACTOR, "X": "largest", "errors": "added", "targets": "added",
        "excess": "added",
    },
    "rda": {"theta": "added"},
    "rls": {**MATRIX, "error": "added"},
    "si_adagrad": {
        "b": "largest", "theta": "added", "Q": "added", "root": "largest", "steepest": "largest",
    },
    "si_pnorm": {
        "b": "largest", "theta": "added", "rp": "added", "B": "added", "paid": "added",
        **dict.fromkeys(("scale", "p", "p_of_rp", "m", "beta", "steepest", "ahead"), "largest"),
    },
    "snag": {"s": "added", "b": "largest", "w": "averaged", "G": "added", "N": "added"},
    "sop": {**MATRIX, **UPDATES},
    "sop_diag": DIAGONAL,
    "vaw": {**MATRIX, "cost": "added", "Y": "largest", "extra": "added"},
    "winnow": {**WINNOWED, "theta": "averaged", "e": "averaged"},
}  # fmt: skip
ACCOUNTS: dict[str, dict[str, str]] = {
    "adagrad": {"s": "added", "q": "added", "low": "smallest", "high": "largest", "paid": "added"},
    "adagrad_da": {"steepest": "largest", "paid": "added"},
    "adagrad_full": {"low": "smallest", "high": "largest"},
    "aggressive_second_order_diag": {"sharp": "added", "rarest": "largest", "longest": "largest"},
    "composite": {"steps": "added", "top": "largest"},
    "da": {"steps": "added"},
    "eg": {"x": "largest"},
    "ftrl_centered": {"steps": "added", "steepest": "largest"},
    "ftrl_proximal": {"s": "added", "q": "added"},
    "nag_projected": {"first": "largest", "p": "added", "q": "added", "paid": "added"},
    "ogd": {
        "s": "added", "mark": "added", "A": "largest",
        **dict.fromkeys(("turned", "settled", "q", "steps"), "added"),
    },
    "pnorm": {"longest": "largest"},
    "rda": {"steps": "added"},
    "sop_diag": {"sharp": "added", "rarest": "largest", "longest": "largest"},
    "winnow": {"x": "largest"},
}  # fmt: skip
"""What the form with a certificate's accounts has in addition."""


def laws_of(rule: Rule, *, accounts: bool = False) -> dict[str, str]:
    """The word for each slot and total, sums over all coordinates left out.

    Of a rule without a line in the table: the annotations, which ``check_rule`` holds to the rows.
    """
    if rule.name not in LAWS:
        meant = {kind: word for word, kind in WORDS.items()}
        slots = (*rule.shared_slots, *rule.own_slots, *rule.total_slots)
        return {slot.name: meant[slot.merge] for slot in slots if slot.merge != "coords"}
    return {**LAWS[rule.name], **(ACCOUNTS.get(rule.name, {}) if accounts else {})}


def literal(
    engine: Engine, states: Sequence[State], start: State, examples: Sequence[int],
    laws: Mapping[str, str],
) -> State:  # fmt: skip
    """The merged state, coordinate by coordinate, each number as its word says."""
    rule = engine.layout.rule
    parts = [state.copy() for state in (start, *states)]
    if rule.masses:
        for part in parts:
            engine.renew(part)
    whole = start.copy()
    whole.clock = sum(state.clock for state in states) - (len(states) - 1) * start.clock
    shares = [n / sum(examples) for n in examples]
    for slot in rule.shared_slots:
        numbers = [np.asarray(part.slot(slot.name), dtype=float) for part in parts]
        whole.slot(slot.name)[...] = by_word(laws[slot.name], numbers, shares)
    for at, slot in enumerate(rule.total_slots):
        if slot.merge != "coords":
            numbers = [part.totals[:, at] for part in parts]
            whole.totals[:, at] = by_word(laws[slot.name], numbers, shares)
    if rule.align is not None and rule.shared_slots:
        for part in parts:
            carry(engine, part, whole)
    for slot in rule.own_slots:
        numbers = [np.asarray(part.slot(slot.name), dtype=float) for part in parts]
        whole.slot(slot.name)[...] = by_word(laws[slot.name], numbers, shares)
    if rule.state.rejoin is not None:
        rejoin(engine, whole, parts[1:], shares)
    if rule.storage.kind == "matrix":
        for k in range(whole.layout.learners):
            invert(whole, parts, k, [n for n in laws if n in ("mu", "w")])
    if rule.storage.kind == "root":
        for k in range(whole.layout.learners):
            add_squares(whole, parts, k)
    engine.renew(whole)
    return whole


def by_word(word: str, numbers: Sequence[Any], shares: Sequence[float]) -> Any:
    """One number of all parts; the first is the start's."""
    start, *parts = numbers
    if word == "added":  # what each part has added since the start
        return start + sum(part - start for part in parts)
    if word == "averaged":
        return sum(share * part for share, part in zip(shares, parts, strict=True))
    return np.max(parts, axis=0) if word == "largest" else np.min(parts, axis=0)


def carry(engine: Engine, part: State, whole: State) -> None:
    """A part's own slots on the scales of the whole."""
    rule, h = engine.layout.rule, engine.layout.rule.hyper_of(engine.params)
    fields = len(rule.state.totals._fields)
    for j in range(part.layout.size):
        old = rule.state.shared(*(float(part.slot(slot.name)[j]) for slot in rule.shared_slots))
        new = rule.state.shared(*(float(whole.slot(slot.name)[j]) for slot in rule.shared_slots))
        for k in range(part.layout.learners if new != old else 0):
            own = rule.state.own(*(float(part.slot(slot.name)[j, k]) for slot in rule.own_slots))
            totals = rule.state.totals(*part.totals[k, :fields].tolist())
            after = rule.align(own, old, new, totals, float(part.clock), h)
            for slot, number in zip(rule.own_slots, after, strict=True):
                part.slot(slot.name)[j, k] = number


def rejoin(engine: Engine, whole: State, parts: Sequence[State], shares: Sequence[float]) -> None:
    """Own slots that give the mean weights, where a part has met the coordinate."""
    rule, h = engine.layout.rule, engine.layout.rule.hyper_of(engine.params)
    size, fields = whole.layout.size, len(rule.state.totals._fields)
    weights = [engine.weights(part, 0, size) for part in parts]
    for j in range(size):
        for k in range(whole.layout.learners):
            own = rule.state.own(*(float(whole.slot(slot.name)[j, k]) for slot in rule.own_slots))
            shared = rule.state.shared(*(float(whole.slot(s.name)[j]) for s in rule.shared_slots))
            if (*shared, *own) == (*rule.state.shared(), *rule.state.own()):
                continue
            mean = sum(s * w[j, k] for s, w in zip(shares, weights, strict=True))
            totals = rule.state.totals(*whole.totals[k, :fields].tolist())
            made = rule.state.rejoin(own, float(mean), shared, totals, float(whole.clock), h)
            for slot, number in zip(rule.own_slots, made, strict=True):
                whole.slot(slot.name)[j, k] = number


def invert(whole: State, parts: Sequence[State], k: int, names: Sequence[str]) -> None:
    """A = A_0 and what each part added; theta = A w too."""
    eye = np.eye(whole.layout.size)
    stored = [part.extra["matrix"][k] for part in parts]
    uppers = [np.tril(one, -1).T + eye for one in stored]
    A = [
        np.linalg.inv(U @ np.diag(np.diagonal(one)) @ U.T)
        for U, one in zip(uppers, stored, strict=True)
    ]
    merged = A[0] + sum(one - A[0] for one in A[1:])
    for name in names:
        theta = [one @ part.slot(name)[:, k] for one, part in zip(A, parts, strict=True)]
        whole.slot(name)[:, k] = np.linalg.solve(
            merged, theta[0] + sum(t - theta[0] for t in theta[1:])
        )
    inverse = np.linalg.inv(merged)
    whole.extra["matrix"][k] = stored_of(inverse)


def add_squares(whole: State, parts: Sequence[State], k: int) -> None:
    """The sum of z z' of the start, and of what each part added; any root of it."""
    size = whole.layout.size
    stored = [part.extra["matrix"][k] for part in parts]
    grams = [one[:, :size].T @ one[:, :size] + one[:, size:].T @ one[:, size:] for one in stored]
    squares, directions = np.linalg.eigh(grams[0] + sum(gram - grams[0] for gram in grams[1:]))
    root = np.sqrt(np.maximum(squares, 0.0))[:, np.newaxis] * directions.T
    whole.extra["matrix"][k] = np.hstack((root, np.zeros_like(root)))


def stored_of(inverse: Any) -> Any:
    """U and D of inverse = U D U', as the engine stores them."""
    d = len(inverse)
    flipped = np.linalg.cholesky(inverse[::-1, ::-1])[::-1, ::-1]  # upper, = U sqrt(D)
    scale = np.diagonal(flipped)
    return np.tril((flipped / scale).T, -1) + np.diag(scale**2) if d else inverse


def mutated(rule: Rule, slot: str, merge: str) -> Rule:
    """The rule with another annotation for a slot or total."""
    for part in ("shared", "own", "totals"):
        numbers = getattr(rule.state, part)
        if slot in numbers._fields:
            changed: dict[str, Any] = {part: annotated(numbers, slot, merge)}
            return replace(rule, state=replace(rule.state, **changed))
    raise KeyError(slot)


def annotated(numbers: Any, slot: str, merge: str) -> Any:
    """The same NamedTuple, one field of which merges otherwise."""
    hints = get_type_hints(numbers, include_extras=True)
    hints[slot] = Annotated[float, merge]
    made: Any = NamedTuple(numbers.__name__, [*hints.items()])
    made.__new__.__defaults__ = tuple(numbers._field_defaults.values())
    made._field_defaults = dict(numbers._field_defaults)
    return made
