"""Every rule and loss against its literal oracle."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import oracles
import pytest
from helpers import Learner, dense, legal, pairs, sparse

from streamomd.losses import all_losses
from streamomd.rules import all_rules

oracles.families()
SEEDS = range(2)
KINK = 1e-9
DRAWN: Counter[str] = Counter()


def suited(rule: str, X: np.ndarray, params: dict) -> dict:
    """The step size in the units of the stream, where the rule's depends on them.

    A step a billion times too long makes the square loss grow from row to row, and rounding with
    it: then two right programs part.
    """
    longest = {
        "ogd": np.square(X).sum(axis=1).max(),
        "da": np.square(X).sum(axis=1).max(),
        "adagrad": np.abs(X).sum(axis=1).max(),
    }
    return {**params, "eta": params["eta"] / longest[rule]} if rule in longest else params


def redrawn(rule: str, loss: str, kind: str, target: str, seed: int, params: dict) -> tuple:
    """A stream that stands near no kink, its trace, and how many were drawn before it."""
    again = -1
    while True:
        again += 1
        rng = np.random.default_rng([seed, again, *rule.encode(), *loss.encode(), *kind.encode()])
        stream = oracles.streams(rng, kind, target)
        if rule == "dual_ascent" and kind == "scales":
            # Two rows that one feature makes parallel to ten digits have no two multipliers that
            # two programs agree on: scales from 1e-2 to 1e2 instead.
            widest = np.maximum(np.abs(stream.X).max(axis=0), 1e-300)
            stream = stream._replace(X=stream.X / widest ** (5 / 6))
        if rule == "online_svm":  # every row visits all before it
            stream = stream._replace(X=stream.X[:40], y=stream.y[:40], h=stream.h[:40])
        if kind == "scales":
            params = suited(rule, stream.X, params)
        if loss == "poisson" and "eta" in params:  # e^p runs away with long steps
            params = {**params, "eta": min(params["eta"], 0.01)}
        trace = oracles.run(rule, loss, stream.X, stream.y, stream.h, params, stream.classes)
        if trace.kink >= KINK:
            return stream, trace, params, again


def variants(rule: str, loss: str) -> list[dict]:
    """Parameters to try, defaults filled in."""
    found = all_rules()[rule]
    return [legal(found, all_losses()[loss], params) for params in oracles.VARIANTS[rule]]


def close(rule: str, loss: str, batch, stream, trace, params: dict) -> None:
    told = {"classes": stream.classes, "params": params, "compiled": False}
    learner = Learner(rule, loss, stream.X.shape[1], **told)
    margins = learner.learn(batch)
    assert np.all(np.abs(margins - trace.margins) <= 1e-10 * trace.scale)
    for name, expected in trace.slots.items():
        np.testing.assert_allclose(learner.state.slot(name), expected, rtol=1e-10, atol=0)
    for name, expected in trace.totals.items():
        names = [slot.name for slot in all_rules()[rule].total_slots]
        found = learner.state.totals[:, names.index(name)]
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=0)
    np.testing.assert_allclose(learner.sums[1], trace.loss, rtol=1e-10)


@pytest.mark.parametrize("kind", oracles.KINDS)
@pytest.mark.parametrize("rule, loss", list(pairs()))
def test_engine_is_the_oracle(rule: str, loss: str, kind: str) -> None:
    """On each kind of stream, predictions agree to 1e-10 of their terms and slots to 1e-10."""
    targets = ("binary", "classes") if all_losses()[loss].classifies else ("real",)
    first = loss == (all_rules()[rule].losses or ("logistic",))[0]
    for target, seed, params in itertools.product(targets, SEEDS, variants(rule, loss)):
        if not first and (seed or params != variants(rule, loss)[0]):
            continue  # options do not depend on the loss
        stream, trace, used, again = redrawn(rule, loss, kind, target, seed, params)
        DRAWN["redrawn"] += again
        DRAWN["kept"] += 1
        close(rule, loss, sparse(stream.X, stream.y, stream.h), stream, trace, used)
        if first:
            close(rule, loss, dense(stream.X, stream.y, stream.h), stream, trace, used)


def test_few_streams_are_redrawn() -> None:
    """Of all streams drawn above, less than 1 % stood within 1e-9 of a kink."""
    if DRAWN["kept"] < 1000:
        pytest.skip(f"{DRAWN['kept']} streams were drawn: run the whole file to count them")
    assert DRAWN["redrawn"] < 0.01 * DRAWN.total()


def test_no_rule_lacks_an_oracle() -> None:
    """Each rule's slots are those that its oracle keeps, or derived from them."""
    for rule, loss in pairs():
        stream = oracles.streams(np.random.default_rng(0), "dense", "binary")
        params = variants(rule, loss)[0]
        if loss == "poisson" and "eta" in params:  # e^p runs away with long steps
            params = {**params, "eta": min(params["eta"], 0.01)}
        trace = oracles.run(rule, loss, stream.X, stream.y, stream.h, params)

        found = all_rules()[rule]
        derived = set(oracles.DERIVED.get(rule, ()))
        slots = {slot.name for slot in (*found.shared_slots, *found.own_slots)}
        totals = {slot.name for slot in found.total_slots if not slot.name.startswith("top.")}
        assert slots - derived == set(trace.slots) - derived
        assert totals - derived == set(trace.totals) - derived
