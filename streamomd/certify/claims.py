"""A rule's claims about a run that has ended, each learner's own and their sum."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.certify.past import Past
from streamomd.certify.sums import Costs, Fixed
from streamomd.comparator import Problem
from streamomd.features import decode_labels
from streamomd.model import Model
from streamomd.rules import find_rule
from streamomd.rules.certificate import Claim, Run
from streamomd.rules.contract import Rule, fields

Floats = NDArray[np.float64]
Row = dict[str, Any]

KEEP = "train with model.certificate = true: this run did not keep the numbers its bound needs"
SUMMED = ("loss", "mistakes", "comparator_loss", "regret")
LOOSE = 1.0 + 1e-12


def nothing(model: Model, learner: int | None, reason: str | None = None) -> Row:
    """What is said of a learner (None: of all) of which nothing was measured."""
    classes, several = model.plan.classes, model.engine.layout.learners > 1
    name: Any = "all" if learner is None else None
    if several and classes and learner is not None:
        name = decode_labels(model.plan, np.array([learner]))[0]
        name = name.as_py() if hasattr(name, "as_py") else name
    unknown = dict.fromkeys((*SUMMED, "claims"))
    return {"learner": name, "rows": model.metrics.total_rows, **unknown, "reason": reason}


def fitted(model: Model, given: Floats) -> Floats:
    """Comparators moved into the set that the rule keeps its weights in."""
    rule = model.spec.rule
    fit = rule.fit or find_rule(rule.name).fit
    if fit is None:
        return given
    h = rule.hyper_of(model.engine.params)
    slots = [_slots(model, k) for k in range(given.shape[1])]
    told = [{**own, **shared, **totals} for own, shared, totals in slots]
    return np.stack([fit(u, one, h) for u, one in zip(given.T, told, strict=True)], axis=1)


def gammas_of(model: Model) -> tuple[float, ...]:
    """The margins gamma that claims are likely to ask the hinge loss of u for."""
    told = model.spec.model
    named = (told.params.get("gamma", 1.0), told.loss_params.get("gamma", 1.0))
    return tuple(sorted({1.0, *(float(gamma) for gamma in named)}))


@dataclass(frozen=True)
class Facts:
    """What the rows tell of a theorem's conditions, and what each learner lost on them.

    weighted: whether an importance is not 1. own: losses by learner, where they were asked for.
    outside: why the rule's theorem does not apply to the whole run, or "".
    """

    weighted: bool
    own: Costs
    outside: str


def facts_of(model: Model, past: Past, problem: Problem) -> Facts:
    """One or two passes over the rows, where they are needed."""
    rule, loss = model.spec.rule, problem.loss
    weighted, heaviest = False, 1.0
    if model.spec.data.weight:
        heaviest = 0.0
        for batch in past():
            weighted = weighted or bool((batch.weight != 1.0).any())
            heaviest = max(heaviest, float(batch.weight.max(initial=0.0)))
    steep = rule.needs_lipschitz and loss.lipschitz is None
    own = Costs.none(problem, steep=steep)
    if (problem.learners > 1 or steep) and not past.replay(own.add):
        return Facts(weighted, own, "learning these rows anew leads to another state")
    steepest = own.steepest if steep else heaviest * lipschitz(problem)
    outside = _outside(model, rule)
    if not outside and rule.needs_lipschitz:
        L = float(rule.hyper_of(model.engine.params).L)
        if steepest > L * LOOSE:
            outside = f"the loss's slope reaches {steepest:g} with the importances, above L = {L:g}"
    return Facts(weighted, own, outside)


def _outside(model: Model, rule: Rule) -> str:
    if certificate_of(rule) is None:
        return rule.uncertified
    if model.spec.model.dtype != "float64":
        return 'its slots are float32, which the theorem does not round: model.dtype = "float64"'
    return ""


def certificate_of(rule: Rule) -> Callable[[Run], list[Claim]] | None:
    """The rule's own, or that of the rule without accounts."""
    return rule.certificate or find_rule(rule.name).certificate


def lipschitz(problem: Problem) -> float:
    """The loss's bound on its slope, or NaN."""
    loss = problem.loss
    return float(loss.lipschitz(loss.numbers(problem.loss_params))) if loss.lipschitz else math.nan


def run_of(model: Model, fixed: Fixed, k: int, lost: tuple[float, float, float]) -> Run:
    """What the certificate of learner k is shown. lost: loss, mistakes, loss of u."""
    own, shared, totals = _slots(model, k)
    loss, mistakes, loss_u = lost
    return Run(
        own=own,
        shared=shared,
        totals=totals,
        w=model.engine.weights(model.state, 0, fixed.problem.size)[:, k],
        h=model.spec.rule.hyper_of(model.engine.params),
        rows=model.metrics.total_rows,
        loss=loss,
        mistakes=mistakes,
        u=np.array(fixed.u[:, k]),
        loss_u=loss_u,
        hinge_u=fixed.hinge(k),
        square_u=float(fixed.costs.square[k]),
        lipschitz=lipschitz(fixed.problem),
        extra={name: array[k] for name, array in model.state.extra.items() if name == "matrix"},
        probe=fixed.probe(k),
    )


def _slots(model: Model, k: int) -> tuple[dict[str, Floats], dict[str, Floats], dict[str, float]]:
    """Learner k's own slots, the shared ones, its totals."""
    state, rule = model.state, model.spec.rule
    own = {slot.name: np.array(state.slot(slot.name)[:, k]) for slot in rule.own_slots}
    shared = {slot.name: np.array(state.slot(slot.name)) for slot in rule.shared_slots}
    totals = dict(zip(fields(rule.totals), state.totals[k].tolist(), strict=False))
    return own, shared, totals


def rows_told(model: Model, facts: Facts, fixed: Fixed) -> list[Row]:
    """A row for each learner and, where there are several, one for their sum."""
    L = fixed.problem.learners
    if fixed.problem.loss.coupled:
        return [_coupled(model, facts, fixed)]
    told = [_learner(model, facts, fixed, k) for k in range(L)]
    return told if L == 1 else [*told, _sum(model, told)]


def _learner(model: Model, facts: Facts, fixed: Fixed, k: int) -> Row:
    alone = fixed.problem.learners == 1
    _, loss, wrong = model.metrics.total.tolist()
    if not alone:
        loss, wrong = float(facts.own.loss[k]), float(facts.own.mistakes[k])
    mistakes = wrong if fixed.problem.loss.classifies else math.nan
    loss_u = fixed.total if alone else float(fixed.costs.loss[k])
    claims, reason = _claims(model, facts, run_of(model, fixed, k, (loss, mistakes, loss_u)))
    return _told(nothing(model, k, reason), (loss, mistakes, loss_u), claims)


def _coupled(model: Model, facts: Facts, fixed: Fixed) -> Row:
    """Learners with one loss together: their bounds add up to one of the whole regret."""
    L, loss, loss_u = fixed.problem.learners, float(model.metrics.total[1]), fixed.total
    # The first is told of the whole loss: only sums over the learners are claimed.
    lost = [(loss, math.nan, loss_u), *[(0.0, math.nan, 0.0)] * (L - 1)]
    each = [_claims(model, facts, run_of(model, fixed, k, lost[k])) for k in range(L)]
    claims = _added([claims for claims, _ in each])
    if claims is not None:
        claims = [claim for claim in claims if about_regret(claim)]
    return _told(nothing(model, None, each[0][1]), lost[0], claims)


def about_regret(claim: Claim) -> bool:
    """Whether a claim compares summed losses: then importances are part of them."""
    return claim.name.startswith("regret")


def _claims(model: Model, facts: Facts, run: Run) -> tuple[list[Claim] | None, str | None]:
    certificate = certificate_of(model.spec.rule)
    if facts.outside or certificate is None:
        return None, facts.outside
    try:
        claims = certificate(run)
    except KeyError:
        if model.spec.model.certificate:
            raise
        return None, KEEP
    except ValueError as error:
        return None, str(error)
    if facts.weighted:
        claims = [claim for claim in claims if about_regret(claim)]
    if not claims:
        return None, "the rows have importance weights, and the theorem counts each row once"
    return claims, None


def _told(row: Row, lost: tuple[float, float, float], claims: list[Claim] | None) -> Row:
    loss, mistakes, loss_u = lost
    known = (loss, mistakes, loss_u, loss - loss_u)
    said = None if claims is None else [_said(claim) for claim in claims]
    return {**row, **dict(zip(SUMMED, known, strict=True)), "claims": said}


def _said(claim: Claim) -> Row:
    measured, bound = float(claim.measured), float(claim.bound)
    ratio = bound / measured if measured > 0.0 else None
    numbers = {"measured": measured, "bound": bound, "ratio": ratio}
    return {"claim": claim.name, **numbers, "source": claim.source}


def _added(each: list[list[Claim] | None]) -> list[Claim] | None:
    """Claims of several learners, both sides added; None if one of them has none."""
    whole = [claims for claims in each if claims is not None]
    if len(whole) < len(each):
        return None
    added = []
    for some in zip(*whole, strict=True):
        measured, bound = sum(c.measured for c in some), sum(c.bound for c in some)
        added.append(Claim(some[0].name, measured, bound, some[0].source))
    return added


def _sum(model: Model, told: list[Row]) -> Row:
    keys = ("claim", "measured", "bound", "source")
    claims = _added(
        [
            None if one["claims"] is None else [Claim(*map(c.get, keys)) for c in one["claims"]]
            for one in told
        ]
    )
    reasons = [one["reason"] for one in told if one["reason"]]
    row = nothing(model, None, reasons[0] if reasons else None)
    sums = {key: sum(one[key] for one in told) for key in SUMMED}
    return {**row, **sums, "claims": None if claims is None else [_said(c) for c in claims]}
