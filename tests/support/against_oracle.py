"""Rules and losses against their literal oracles: what the test files of each family share."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import oracles
import oracles_ftrl
import pytest
from helpers import Learner, dense, legal, pairs, sparse

from streamomd.analysis.plugin_checks import example_streams as streams
from streamomd.losses import all_losses
from streamomd.rules import all_rules

oracles.families()
KINK = 1e-9
REDRAWS = 40
MANY = 14
FIRST_RULES = ("ng", "nag", "snag", "adagrad", "ogd", "da", "perceptron", "pa1")
FIRST_LOSSES = ("square", "absolute", "hinge", "logistic")
# Rows and columns at most, where plain Python takes d^2 or d^3 steps a row, or visits every row.
SIZES = {"matrix": (60, 12), "root": (30, 6), "online_svm": (40, None)}
DRAWN: Counter[str] = Counter()


def suited(rule: str, X: np.ndarray, params: dict) -> dict:
    """The step size in the units of the stream, where the rule's depends on them.

    A step a billion times too long makes the square loss grow from row to row, and rounding with
    it: then two right programs part.
    """
    if rule == "adagrad":
        return {**params, "eta": params["eta"] / np.abs(X).sum(axis=1).max()}
    if rule in ("eg", "winnow"):
        return {**params, "eta": params["eta"] / np.square(X).sum(axis=1).max()}
    return oracles_ftrl.suited(rule, X, params) if rule in oracles_ftrl.UNITS else params


def gentle(rule: str, params: dict) -> dict:
    """Short steps: e^p runs away with long ones, and where weights may leave a set for a while."""
    if rule == "nag_projected":
        return {**params, "C": min(params["C"], 1.0), "project_every": 1}
    if rule in oracles_ftrl.UNITS:
        return oracles_ftrl.gentle(rule, params)
    return {**params, "eta": min(params["eta"], 0.01)} if "eta" in params else params


def redrawn(rule: str, loss: str, kind: str, target: str, seed: int, params: dict) -> tuple:
    """A stream that stands near no kink, its trace, and how many were drawn before it."""
    keeps = all_rules()[rule].storage.kind
    for again in range(REDRAWS):
        rng = np.random.default_rng([seed, again, *rule.encode(), *loss.encode(), *kind.encode()])
        stream = streams.make(rng, kind, target)
        if rule in ("dual_ascent", "cw_diag") and kind == "scales":
            # Two rows that one feature makes parallel to ten digits have no two multipliers that
            # two programs agree on, and confidence blurs there: scales from 1e-2 to 1e2 instead.
            widest = np.maximum(np.abs(stream.X).max(axis=0), 1e-300)
            stream = stream._replace(X=stream.X / widest ** (5 / 6))
        if rule == "winnow" and loss in ("poisson", "softmax"):
            # Weights sum to 1 whatever the units: a margin of 1e9 leaves the difference of two
            # exponentials no digits, and poisson no number. Entries of 1 at most instead.
            stream = stream._replace(X=stream.X / max(1.0, float(np.abs(stream.X).max())))
        rows, columns = SIZES.get("online_svm" if rule == "online_svm" else keeps, (None, None))
        stream = stream._replace(
            X=stream.X[:rows, :columns], y=stream.y[:rows], h=stream.h[:rows],
            stored=stream.stored[:rows, :columns],
        )  # fmt: skip
        used = suited(rule, stream.X, params) if kind == "scales" else params
        used = gentle(rule, used) if loss == "poisson" else used
        trace = oracles.run(rule, loss, stream.X, stream.y, stream.h, used, stream.classes)
        if trace.kink >= KINK:
            return stream, trace, used, again
    raise AssertionError(f"{REDRAWS} streams in a row stood near a kink")


def variants(rule: str, loss: str) -> list[dict]:
    """Parameters to try, defaults filled in."""
    found = all_rules()[rule]
    return [legal(found, all_losses()[loss], params) for params in oracles.VARIANTS[rule]]


def close(rule: str, loss: str, batch, stream, trace, params: dict, *, long: bool) -> None:
    told = {"classes": stream.classes, "params": params, "compiled": False}
    learner = Learner(rule, loss, stream.X.shape[1], **told)
    margins = learner.learn(batch)
    first = rule in FIRST_RULES and loss in FIRST_LOSSES and not long
    allowed = (1e-12 if first else 1e-10) * trace.scale
    keeps_matrix = all_rules()[rule].storage.kind in ("matrix", "root")
    if keeps_matrix:  # A^-1 theta cancels: to the digits of its largest row
        allowed = allowed + 1e-13 * trace.scale.max(initial=0.0)
    assert np.all(np.abs(margins - trace.margins) <= allowed)
    found_slots = {name: learner.state.slot(name) for name in trace.slots}
    names = [slot.name for slot in all_rules()[rule].total_slots]
    found_totals = {name: learner.state.totals[:, names.index(name)] for name in trace.totals}
    slots, totals = trace.slots, trace.totals
    if rule == "ogd":  # c goes into v now and then, when the engine sums anew: their product counts
        found_slots = {"w": found_slots["v"] * found_totals.pop("c")}
        slots, totals = {"w": slots["v"] * totals["c"]}, {}
    for name, expected in slots.items():
        # A slot of a matrix rule may be 0 but for cancellation.
        # So may, among many streams, a weight that steps of one size lead back to 0.
        least = 1e-12 if keeps_matrix else 1e-13 if long else 0.0
        least *= np.abs(expected).max(initial=0.0)
        np.testing.assert_allclose(found_slots[name], expected, rtol=1e-10, atol=least)
    for name, expected in totals.items():
        np.testing.assert_allclose(found_totals[name], expected, rtol=1e-10, atol=0)
    np.testing.assert_allclose(learner.sums[1], trace.loss, rtol=1e-10)


def quick_case(case: tuple[str, str]) -> None:
    """A rule's own loss: every variant on every kind of stream. Other losses: one stream each."""
    rule, loss = case
    own = loss == all_rules()[rule].losses.default
    targets = ("binary", "classes") if all_losses()[loss].classifies else ("real",)
    tried = list(itertools.product(variants(rule, loss), streams.KINDS))
    # Every variant and every kind still, not each with each: a stride below 7, the number of kinds.
    tried = tried[:: min(math.ceil(len(tried) / MANY), 6)]
    for n, (params, kind) in enumerate(tried if own else tried[len(loss) % 7 : 7 : 7]):
        check(rule, loss, kind, targets[n % len(targets)], seed=0, params=params, flat=n % 2 == 0)


def check(
    rule: str,
    loss: str,
    kind: str,
    target: str,
    seed: int,
    params: dict,
    *,
    flat: bool,
    long: bool = False,
) -> None:
    """One stream, as a matrix if ``flat``, else as CSR rows."""
    stream, trace, used, again = redrawn(rule, loss, kind, target, seed, params)
    DRAWN["redrawn"] += again
    DRAWN["kept"] += 1
    make = dense if flat else sparse
    close(rule, loss, make(stream.X, stream.y, stream.h), stream, trace, used, long=long)


def long_case(case: tuple[str, str]) -> None:
    """200 generated streams of a rule with its own loss, 14 with each other one."""
    rule, loss = case
    own = loss == all_rules()[rule].losses.default
    targets = ("binary", "classes") if all_losses()[loss].classifies else ("real",)
    tried = itertools.cycle(itertools.product(streams.KINDS, variants(rule, loss), targets))
    for n, (kind, params, target) in zip(range(200 if own else 14), tried, strict=False):
        check(rule, loss, kind, target, seed=1 + n, params=params, flat=n % 2 == 0, long=True)


def few_redrawn() -> None:
    """Of all streams drawn so far, less than 1 % stood within 1e-9 of a kink."""
    assert DRAWN["redrawn"] <= max(2, 0.01 * DRAWN.total()), DRAWN


def cases(family: str) -> list[tuple[str, str]]:
    """Every rule of a file of oracles, with every loss it learns with."""
    return [pair for pair in pairs() if pair[0] in oracles.FAMILIES[family]]


def quick_or_slow(found: list[tuple[str, str]]) -> list[Any]:
    """Of a rule's losses that are not its own every other one is for the long run, by turns."""
    names = [*all_losses()]
    marks = [
        pytest.mark.slow
        if loss != all_rules()[rule].losses.default and (len(rule) + names.index(loss)) % 2
        else ()
        for rule, loss in found
    ]
    return [pytest.param(case, marks=some) for case, some in zip(found, marks, strict=True)]


def tests_of(family: str) -> tuple[Callable[..., None], ...]:
    """The three tests of a file of oracles; each has a test file, so that they run side by side."""
    found = cases(family)

    @pytest.mark.parametrize("case", quick_or_slow(found), ids="-".join)
    def test_engine_is_the_oracle(case) -> None:
        """Predictions agree to 1e-10 of their terms, slots to 1e-10."""
        quick_case(case)

    @pytest.mark.slow
    @pytest.mark.parametrize("case", found, ids="-".join)
    def test_engine_is_the_oracle_on_many_streams(case) -> None:
        """The same on 200 streams a rule."""
        long_case(case)

    def test_few_streams_are_redrawn() -> None:
        """Less than 1 % of the streams above stood near a kink."""
        few_redrawn()

    return (
        test_engine_is_the_oracle,
        test_engine_is_the_oracle_on_many_streams,
        test_few_streams_are_redrawn,
    )
