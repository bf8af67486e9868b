"""A rule's claims about a finished run, for each learner and for their sum."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from streamomd.analysis.certify.replay import FixedWeights, Replay, TotalLosses
from streamomd.analysis.comparator import Problem
from streamomd.core.batch import Floats
from streamomd.engine.state import State
from streamomd.features import decode_labels
from streamomd.rules import find_rule
from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.common.sets import ComparatorSet, Free
from streamomd.rules.contract import Rule, fields
from streamomd.training.model_data import ModelData

Row = dict[str, Any]

KEEP = "train with model.certificate = true: this run did not save the numbers its bound needs"
SUMMED = ("loss", "mistakes", "comparator_loss", "regret", "comparator_gap")
OF_LEARNERS, OF_ALL = ("matrix", "vectors", "A"), ("reference", "places")
"""Names of ``State.extra`` that certificates read."""
LOOSE = 1.0 + 1e-12


def nothing(model: ModelData, learner: int | None, reason: str | None = None) -> Row:
    """The row of a learner (None: of all) without measurements."""
    classes, several = model.plan.classes, model.engine.layout.learners > 1
    name: Any = "all" if learner is None else None
    if several and classes and learner is not None:
        name = decode_labels(model.plan, np.array([learner]))[0]
        name = name.as_py() if hasattr(name, "as_py") else name
    unknown = dict.fromkeys((*SUMMED, "claims"))
    rows = model.metrics.total_rows
    return {"learner": name, "rows": rows, **unknown, "refused": [], "reason": reason}


def sets_of(model: ModelData) -> list[ComparatorSet]:
    """Each learner's constraint set, which comparators are taken from."""
    rule = model.spec.rule
    feasible = rule.certificate.feasible or find_rule(rule.name).certificate.feasible
    learners = range(model.engine.layout.learners)
    if feasible is None:
        return [Free() for _ in learners]
    h, slots = model.engine.h, [_slots(model, k) for k in learners]
    return [feasible({**own, **shared, **totals}, h) for own, shared, totals in slots]


def fitted(sets: Sequence[ComparatorSet], given: Floats) -> Floats:
    """Comparators, each projected onto its learner's set."""
    return np.stack([one.nearest(u) for one, u in zip(sets, given.T, strict=True)], axis=1)


def candidate_gammas(model: ModelData) -> tuple[float, ...]:
    """The margins gamma for which claims probably need the hinge loss of u."""
    learner_rows = model.spec.model
    named = (learner_rows.params.get("gamma", 1.0), learner_rows.loss_params.get("gamma", 1.0))
    return tuple(sorted({1.0, *(float(gamma) for gamma in named)}))


@dataclass(frozen=True)
class Facts:
    """A theorem's conditions checked on the rows, and each learner's losses on them.

    own: losses by learner, if requested.
    outside: why the rule's theorem does not apply to the whole run, or "".
    """

    own: TotalLosses
    outside: str


def facts_of(model: ModelData, past: Replay, problem: Problem) -> Facts:
    """One or two passes over the rows, if needed."""
    rule, loss = model.spec.rule, problem.loss
    heaviest = 1.0
    if model.spec.data.weight:
        heaviest = max((float(batch.weight.max(initial=0.0)) for batch in past()), default=0.0)
    steep = rule.losses.lipschitz != "" and loss.lipschitz is None
    own = TotalLosses.none(problem, steep=steep)
    if (problem.learners > 1 or steep) and not past.replay(own.add):
        return Facts(own, "learning these rows again gives a different state")
    steepest = own.steepest if steep else heaviest * lipschitz(problem)
    outside = _outside(model, rule)
    if not outside and rule.losses.lipschitz:
        L = float(getattr(model.engine.h, rule.losses.lipschitz))
        if steepest > L * LOOSE:
            outside = f"the loss's slope reaches {steepest:g} with the importances, above L = {L:g}"
    return Facts(own, outside)


def _outside(model: ModelData, rule: Rule) -> str:
    if unproven := no_theorem(rule, model.spec.model.loss):
        return unproven
    if model.spec.model.dtype != "float64":
        return 'its slots are float32, which the theorem does not round: model.dtype = "float64"'
    return ""


def no_theorem(rule: Rule, loss: str) -> str:
    """Why there is no claim about any run of a rule with this loss; "" if there is one."""
    if certificate_of(rule) is None:
        return rule.certificate.reason
    whole = find_rule(rule.name).certificate
    return whole.reason if whole.losses and loss not in whole.losses else ""


def certificate_of(rule: Rule) -> Callable[[Run], list[Claim]] | None:
    """The rule's own, or that of the rule without accounts."""
    return rule.certificate.claims or find_rule(rule.name).certificate.claims


def lipschitz(problem: Problem) -> float:
    """The loss's bound on its slope, or NaN."""
    loss = problem.loss
    return float(loss.lipschitz(loss.numbers(problem.loss_params))) if loss.lipschitz else math.nan


def run_facts(
    model: ModelData, fixed: FixedWeights, k: int, losses: tuple[float, float, float]
) -> Run:
    """The input of learner k's certificate. losses: loss, mistakes, loss of u."""
    own, shared, totals = _slots(model, k)
    loss, mistakes, loss_u = losses
    return Run(
        own=own,
        shared=shared,
        totals=totals,
        w=model.engine.weights(model.state, 0, fixed.problem.size)[:, k],
        h=model.engine.h,
        rows=model.metrics.total_rows,
        loss=loss,
        mistakes=mistakes,
        u=np.array(fixed.u[:, k]),
        loss_u=loss_u,
        hinge_u=fixed.hinge(k),
        square_u=float(fixed.costs.square[k]),
        lipschitz=lipschitz(fixed.problem),
        extra=arrays_of(model.state, k),
        longest=functools.cache(fixed.longest),
        widest_u=float(fixed.costs.widest[k]),
    )


def arrays_of(state: State, k: int) -> dict[str, Any]:
    """Learner k's matrices; of a block also what all learners have in common."""
    found = {name: array[k] for name, array in state.extra.items() if name in OF_LEARNERS}
    return found | {name: state.extra[name] for name in OF_ALL if name in state.extra}


def _slots(
    model: ModelData, k: int
) -> tuple[dict[str, Floats], dict[str, Floats], dict[str, float]]:
    """Learner k's own slots, the shared ones, its totals."""
    state, rule = model.state, model.spec.rule
    own = {slot.name: np.array(state.slot(slot.name)[:, k]) for slot in rule.own_slots}
    shared = {slot.name: np.array(state.slot(slot.name)) for slot in rule.shared_slots}
    totals = dict(zip(fields(rule.state.totals), state.totals[k].tolist(), strict=False))
    return own, shared, totals


def claim_rows(model: ModelData, facts: Facts, fixed: FixedWeights) -> list[Row]:
    """A row for each learner and, if there are several, one for their sum."""
    L = fixed.problem.learners
    if fixed.problem.loss.coupled:
        return [_coupled(model, facts, fixed)]
    learner_rows = [_learner(model, facts, fixed, k) for k in range(L)]
    return learner_rows if L == 1 else [*learner_rows, _sum(model, learner_rows)]


def _learner(model: ModelData, facts: Facts, fixed: FixedWeights, k: int) -> Row:
    run = run_facts(model, fixed, k, measured_losses(model, facts, fixed, k))
    judged = judge(model, facts, run)
    gap = None if fixed.lower is None else max(run.loss_u - float(fixed.lower[k]), 0.0)
    return _learner_row(nothing(model, k), (run.loss, run.mistakes, run.loss_u), gap, judged)


def measured_losses(
    model: ModelData, facts: Facts, fixed: FixedWeights, k: int
) -> tuple[float, float, float]:
    """The loss and the mistakes of learner k, and the loss of its u."""
    problem = fixed.problem
    _, loss, wrong = model.metrics.total.tolist()
    if problem.loss.coupled:  # the first gets the whole loss: sums over the learners are judged
        return (loss, math.nan, fixed.total) if k == 0 else (0.0, math.nan, 0.0)
    alone = problem.learners == 1
    if not alone:
        loss, wrong = float(facts.own.loss[k]), float(facts.own.mistakes[k])
    mistakes = wrong if problem.loss.classifies else math.nan
    return loss, mistakes, fixed.total if alone else float(fixed.costs.loss[k])


def _coupled(model: ModelData, facts: Facts, fixed: FixedWeights) -> Row:
    """Learners with one loss together: their bounds add up to one of the whole regret."""
    losses = [measured_losses(model, facts, fixed, k) for k in range(fixed.problem.learners)]
    each = [judge(model, facts, run_facts(model, fixed, k, one)) for k, one in enumerate(losses)]
    claims = _added([one.claims for one in each])
    if claims is not None:
        claims = [claim for claim in claims if is_regret_claim(claim)]
    gap = None if fixed.lower is None else max(fixed.total - float(fixed.lower.sum()), 0.0)
    return _learner_row(nothing(model, None), losses[0], gap, each[0]._replace(claims=claims))


def is_regret_claim(claim: Claim) -> bool:
    """Whether a claim compares summed losses: then importances are part of them."""
    return claim.name.startswith("regret")


class CheckedClaims(NamedTuple):
    """The valid claims of a run; the refused ones, with the reason; why there are none."""

    claims: list[Claim] | None
    refused: list[Row]
    reason: str | None


def judge(model: ModelData, facts: Facts, run: Run) -> CheckedClaims:
    """The claims of the rule's certificate for a run."""
    if facts.outside:
        return CheckedClaims(None, [], facts.outside)
    try:
        claims = certified(model, run)
    except KeyError:
        if model.spec.model.certificate:
            raise
        return CheckedClaims(None, [], KEEP)
    except ArithmeticError as error:
        return CheckedClaims(None, [], f"its numbers exceed the range of float64: {error}")
    except ValueError as error:
        return CheckedClaims(None, [], str(error))
    refused = [_refused(claim, run) for claim in claims if not _finite(claim)]
    fine = [claim._replace(limit=limit_of(model, claim, run)) for claim in claims if _finite(claim)]
    return CheckedClaims(fine or None, refused, None if fine else refused[0]["reason"])


def certified(model: ModelData, run: Run) -> list[Claim]:
    """The claims of the rule's certificate, finite or not. Raises what the certificate raises."""
    certificate = certificate_of(model.spec.rule)
    with np.errstate(all="ignore"):
        return certificate(run) if certificate else []


def _finite(claim: Claim) -> bool:
    return math.isfinite(claim.measured) and math.isfinite(claim.bound)


def _refused(claim: Claim, run: Run) -> Row:
    """A claim with numbers that are not finite, and the reason."""
    sides = {
        "the loss of the run": run.loss,
        "the loss of the comparator": run.loss_u,
        "the measured side": claim.measured,
        "the bound": claim.bound,
    }
    found = [f"{name} is {value}" for name, value in sides.items() if not math.isfinite(value)]
    reason = f"{' and '.join(found)}: numbers that are not finite allow no claim"
    return {"claim": claim.name, "source": claim.source, "reason": reason}


def limit_of(model: ModelData, claim: Claim, run: Run) -> float:
    """The maximum of the measured side without any theorem.

    Regret, as no loss is negative (but Poisson's): the run's loss. Mistakes: the rows. The dual
    value: what steps of at most C, one a row, can sum up to.
    """
    if is_regret_claim(claim):
        return math.inf if model.spec.loss.least is not None else run.loss
    if "mistakes" in claim.name:
        return float(run.rows)
    if "dual" in claim.name:
        return float(getattr(run.h, "gamma", 1.0) * run.h.C * run.rows)
    return math.inf


def _learner_row(
    row: Row, losses: tuple[float, float, float], gap: float | None, judged: CheckedClaims
) -> Row:
    loss, mistakes, loss_u = losses
    known = (loss, mistakes, loss_u, loss - loss_u, gap)
    learner_claims = (
        None if judged.claims is None else [_claim_row(claim, loss_u) for claim in judged.claims]
    )
    rest = {"claims": learner_claims, "refused": judged.refused, "reason": judged.reason}
    return {**row, **dict(zip(SUMMED, known, strict=True)), **rest}


def _claim_row(claim: Claim, loss_u: float) -> Row:
    measured, bound = float(claim.measured), float(claim.bound)
    trivial = f"trivial: at most {claim.limit:.6g} in any run" if bound >= claim.limit else ""
    return {
        "claim": claim.name,
        "measured": measured,
        "bound": bound,
        "ratio": bound / measured if measured > 0.0 else None,
        "source": claim.source,
        "given": claim.given or None,
        "trivial": bool(trivial),
        "limit": claim.limit if math.isfinite(claim.limit) else None,
        "note": "; ".join(part for part in (claim.given, trivial) if part) or None,
        "comparator_loss": loss_u,
    }


def key_of(claim: Claim) -> tuple[str, str]:
    """The key that a claim has in common with those of other runs or comparators."""
    return claim.name, claim.source


def _added(each: list[list[Claim] | None]) -> list[Claim] | None:
    """Claims common to all learners, both sides added; None if one of them has none."""
    whole = [{key_of(claim): claim for claim in claims} for claims in each if claims is not None]
    if len(whole) < len(each):
        return None
    added = []
    for key, first in whole[0].items():
        some = [claims[key] for claims in whole if key in claims]
        if len(some) == len(whole):
            sums = {side: sum(getattr(c, side) for c in some) for side in ("measured", "bound")}
            added.append(first._replace(**sums, limit=sum(c.limit for c in some)))
    return added


def _sum(model: ModelData, learner_rows: list[Row]) -> Row:
    """The row of all learners together."""
    each = [
        None if one["claims"] is None else [*map(_to_claim, one["claims"])] for one in learner_rows
    ]
    reasons = [one["reason"] for one in learner_rows if one["reason"]]
    refused = [claim for one in learner_rows for claim in one["refused"]]
    loss, mistakes, loss_u = (sum(one[key] for one in learner_rows) for key in SUMMED[:3])
    gaps = [one["comparator_gap"] for one in learner_rows]
    gap = None if None in gaps else sum(gaps)
    judged = CheckedClaims(_added(each), refused, reasons[0] if reasons else None)
    return _learner_row(nothing(model, None), (loss, mistakes, loss_u), gap, judged)


def _to_claim(learner_claims: Row) -> Claim:
    limit = math.inf if learner_claims["limit"] is None else learner_claims["limit"]
    sides = (
        learner_claims["claim"],
        learner_claims["measured"],
        learner_claims["bound"],
        learner_claims["source"],
    )
    return Claim(*sides, given=learner_claims["given"] or "", limit=limit)
