"""Certificates of adaptive FTRL without AdaGrad: they hold; elsewhere none is given."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import oracles_ftrl
import pytest
from ftrl_runs import drawn, learner, weights
from helpers import sparse
from oracles import Floats, value_and_slope
from scipy.optimize import minimize

from streamomd.analysis.plugin_checks import oracle_rows as streams
from streamomd.analysis.plugin_checks.oracle_rows import Stream
from streamomd.losses import find_loss
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
    return against(whole, rule, loss, stream, u), margins


def against(run: Run, rule: str, loss: str, stream: Stream, u: Floats) -> Run:
    """The same run beside another comparator, moved into the rule's set."""
    feasible = find_rule(rule).certificate.feasible
    u = feasible({}, run.h).nearest(u) if feasible else u
    rows = zip(stream.X @ u, stream.y, stream.h, strict=True)
    total = math.fsum(i * value_and_slope(loss, float(p), float(y))[0] for p, y, i in rows)
    return replace(run, u=u, loss_u=total)


def best(loss: str, stream: Stream) -> Floats:
    """The best fixed weights, nearly."""

    def value(u: Floats) -> tuple[float, Floats]:
        told = [
            value_and_slope(loss, float(p), float(y)) for p, y in zip(X @ u, stream.y, strict=True)
        ]
        values, slopes = np.array(told).T
        return float(stream.h @ values + 1e-6 * u @ u), X.T @ (stream.h * slopes) + 2e-6 * u

    size = np.maximum(np.abs(stream.X).max(axis=0), 1e-300)
    X = stream.X / size
    return minimize(value, np.zeros(X.shape[1]), jac=True, options={"maxiter": 50}).x / size


@pytest.mark.parametrize("many", [20, pytest.param(250, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.sample(3)
def test_certificates_hold(rule: str, many: int) -> None:
    """Never less than the measured regret: best, zero and random comparators, all options."""
    choices = itertools.cycle(itertools.product(oracles_ftrl.VARIANTS[rule], LOSSES))
    kinds = itertools.cycle(streams.KINDS)
    ratios = []
    for seed, (params, loss), kind in zip(range(many), choices, kinds, strict=False):
        if params.get("project_every", 1) > 1:
            continue
        target = "binary" if find_loss(loss).classifies else "real"
        stream = drawn(seed, kind, target)
        used = {**find_rule(rule).parse_params(params)}
        if kind == "scales":
            used = oracles_ftrl.suited(rule, stream.X, used)
        given = {k: v for k, v in used.items() if k not in ("L", "project_every")}
        if "L" in params:
            given["L"] = params["L"]
        rng = np.random.default_rng(seed)
        d = stream.X.shape[1]
        found = best(loss, stream)
        whole, _ = finished(rule, loss, stream, given, found)
        for u in (found, np.zeros(d), found * rng.uniform(0.0, 2.0, d), rng.normal(size=d)):
            run = against(whole, rule, loss, stream, u)
            claims = find_rule(rule).certificate.claims(run)
            assert claims
            for claim in claims:
                size = abs(claim.bound) + run.loss + run.loss_u
                assert math.isfinite(claim.bound), (seed, claim)
                assert claim.measured <= claim.bound + 1e-9 * size, (
                    seed,
                    params,
                    loss,
                    kind,
                    claim,
                )
            if u is found:
                ratios += [c.bound / c.measured for c in claims if c.measured > 0.0]
    print(f"{rule}: median of bound / regret {np.median(ratios):.3g} of {len(ratios)}")


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
