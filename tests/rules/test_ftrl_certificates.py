"""Certificates of adaptive FTRL without AdaGrad: they hold; elsewhere none is given."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import oracles_ftrl
import pytest
from ftrl_runs import drawn, learner, weights
from helpers import sparse
from oracles import Floats

from streamomd.analysis.plugin_checks.oracle_rows import Stream
from streamomd.rules import find_rule, ogd
from streamomd.rules.certificates.certificate import Run
from streamomd.rules.contract import Rule

RULES = tuple(oracles_ftrl.LEARNERS)
LOSSES = ("logistic", "hinge", "square", "absolute", "huber")


def accounted(rule: str) -> Rule:
    found = find_rule(rule).certificate.accounted
    assert found is not None
    return found


def finished(
    rule: str, loss: str, stream: Stream, params: dict[str, Any], u: Floats
) -> tuple[Run, Floats]:
    """A run with accounts, put together by hand; and its margins."""
    found, d = accounted(rule), stream.X.shape[1]
    run = learner(found, loss, d, params)
    margins = run.learn(sparse(stream.X, stream.y, stream.h))
    names = [slot.name for slot in found.total_slots]
    whole = Run(
        own={slot.name: run.state.slot(slot.name)[:, 0] for slot in found.own_slots},
        shared={slot.name: run.state.slot(slot.name) for slot in found.shared_slots},
        totals=dict(zip(names, run.state.totals[0], strict=True)),
        w=weights(run),
        h=found.hyper(*found.hyper_numbers(run.engine.params)),
        rows=len(stream.y),
        loss=float(run.sums[1]),
        mistakes=float(run.sums[2]),
        u=u,
        loss_u=math.nan,
        hinge_u=lambda gamma: math.nan,
        square_u=math.nan,
        lipschitz=math.nan,
    )
    return whole, margins


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.sample(3)
def test_accounts_change_nothing(rule: str) -> None:
    """The rule with accounts predicts what the rule without does, to the bit."""
    for seed, params in enumerate(oracles_ftrl.VARIANTS[rule]):
        stream = drawn(seed, "weights")
        plain = learner(rule, "logistic", stream.X.shape[1], params)
        margins = plain.learn(sparse(stream.X, stream.y, stream.h))
        _, others = finished(rule, "logistic", stream, params, np.zeros(stream.X.shape[1]))
        assert margins.tobytes() == others.tobytes()


@pytest.mark.parametrize(
    "params", [{}, {"ball": "box", "radius": 0.2}, {"ball": "l2", "radius": 1}]
)
def test_the_simplest_form_of_ogd_is_ogd(params: dict[str, Any]) -> None:
    """Without a ball that needs sums, the same to the bit."""
    stream = drawn(0, "weights")
    rows, d = sparse(stream.X, stream.y, stream.h), stream.X.shape[1]
    free = ogd.RULE.reduced_for(ogd.RULE.parse_params(params))
    found, expected = (learner(rule, "logistic", d, params) for rule in (free, ogd.RULE))
    assert found.learn(rows).tobytes() == expected.learn(rows).tobytes()
    assert (free.masses > 0) == (params.get("ball") == "l2")  # the whole form has N, too


@pytest.mark.parametrize(
    "rule, params",
    [
        ("ogd", {"implicit": True}),
        ("ogd", {"ball": "l1", "radius": 1.0, "project_every": 5}),
        ("da", {"implicit": True}),
    ],
)
def test_no_certificate_outside_its_theorem(rule: str, params: dict[str, Any]) -> None:
    """Implicit steps and rare projections are other algorithms."""
    stream = drawn(0)
    run, _ = finished(rule, "logistic", stream, params, np.zeros(stream.X.shape[1]))
    with pytest.raises(ValueError, match=r"."):
        find_rule(rule).certificate.claims(run)


def test_closed_forms_need_their_conditions() -> None:
    """The closed bounds come only with a box within the radius, or with slopes within L."""
    stream = drawn(0, "weights")
    u = np.zeros(stream.X.shape[1])

    def count(rule: str, params: dict[str, Any], rows: Stream) -> int:
        return len(
            find_rule(rule).certificate.claims(finished(rule, "logistic", rows, params, u)[0])
        )

    assert count("ftrl_proximal", {"radius": 0.5, "box": 0.5}, stream) == 2
    assert count("ftrl_proximal", {"radius": 0.5, "box": 0.6}, stream) == 1
    assert count("ftrl_proximal", {"radius": 0.5}, stream) == 1
    assert count("ftrl_centered", {}, stream) == 2  # M counts importances
    assert count("ftrl_centered", {"L": 0.01}, stream) == 1
