"""Certificates: what a paper proves of a finished run, beside what was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.certify.given import weights_of
from streamomd.certify.past import Past, why_not
from streamomd.certify.sums import Costs, Fixed
from streamomd.comparator import Problem, best
from streamomd.features import decode_labels
from streamomd.model import Model
from streamomd.report import note
from streamomd.rules import find_rule
from streamomd.rules.contract import Claim, Run, fields
from streamomd.shards.find import find

Floats = NDArray[np.float64]
Row = dict[str, Any]

KEEP = "train with model.certificate = true: this run did not keep the numbers its bound needs"


def certify(
    model: Model,
    shards: str | Sequence[str],
    *,
    comparator: Any = "best",
    storage_options: Mapping[str, Any] | None = None,
    checkpoint_storage_options: Mapping[str, Any] | None = None,
) -> list[Row]:
    """What is proven of the model's run over these shards, for each learner.

    comparator: "best" finds the best fixed weights by L-BFGS; or weights (d,), with several
    learners (d, learners), or the path of a .npy or Parquet file of them. It is moved into the set
    that the rule keeps its weights in.

    Each learner is a dict: learner (its class), rows, loss, mistakes, comparator_loss, regret,
    claims (claim, measured, bound, ratio, source; or null) and the reason why not. Several learners
    are followed by their sum. Null stands where the run is outside what the paper proves.
    """
    spec, plan = model.spec, model.plan
    found = find(shards, order=spec.data.order, storage_options=storage_options)
    past = Past(model, found)
    learners = model.engine.layout.learners
    options = dict(checkpoint_storage_options) if checkpoint_storage_options else None
    given = None
    if not (isinstance(comparator, str) and comparator == "best"):
        given = weights_of(comparator, plan.size, learners)
    reason = why_not(model) or past.unlike(options)
    if reason:
        return [{**_nothing(model, k), "reason": reason} for k in range(learners)]
    told = spec.model
    size = (plan.size, model.engine.classes, learners, plan.bias)
    problem = Problem(past, spec.loss, told.loss_params, *size)
    if given is None:
        note(f"looking for the best fixed weights over {model.metrics.total_rows:,} rows …")
        given = best(problem).u
    return _Certifier(model, past, problem, given).rows()


def _nothing(model: Model, learner: int) -> Row:
    classes = model.plan.classes
    several = model.engine.layout.learners > 1
    name = decode_labels(model.plan, np.array([learner]))[0] if classes and several else None
    known = dict.fromkeys(
        ("loss", "mistakes", "comparator_loss", "regret", "claims", "reason"), None
    )
    name = name.item() if isinstance(name, np.generic) else name
    return {"learner": name, "rows": model.metrics.total_rows, **known}


@dataclass
class _Certifier:
    model: Model
    past: Past
    problem: Problem
    given: Floats

    def __post_init__(self) -> None:
        model = self.model
        self.rule = model.spec.rule
        self.certificate = self.rule.certificate or find_rule(self.rule.name).certificate
        self.h = self.rule.hyper_of(model.engine.params)
        loss, told = self.problem.loss, self.problem.loss_params
        bound = loss.lipschitz(loss.numbers(told)) if loss.lipschitz else math.nan
        self.lipschitz = float(bound)
        self.slots = [self._slots(k) for k in range(self.problem.learners)]
        fit = self.rule.fit or find_rule(self.rule.name).fit
        if fit:
            columns = [fit(u, s, self.h) for u, s in zip(self.given.T, self.slots, strict=True)]
            self.given = np.stack(columns, axis=1)
        gammas = {1.0, *(float(x) for x in (getattr(self.h, "gamma", 1.0), told.get("gamma", 1.0)))}
        self.fixed = Fixed(self.problem, self.given, tuple(sorted(gammas)))
        self.own = Costs.none(self.problem, steep=math.isnan(self.lipschitz))
        self.outside = self._outside()

    def rows(self) -> list[Row]:
        """A row for each learner and, where there are several, their sum."""
        L = self.problem.learners
        if self.problem.loss.coupled:
            return [self._coupled()]
        told = [self._learner(k) for k in range(L)]
        return told if L == 1 else [*told, _sum(told)]

    def _outside(self) -> str:
        """Why the rule's theorem does not apply; empty if it may."""
        rule, spec = self.rule, self.model.spec
        heaviest = 1.0
        if spec.data.weight:
            heaviest = max((float(b.weight.max(initial=0.0)) for b in self.past()), default=0.0)
        self.weighted = bool(spec.data.weight) and any(
            bool((batch.weight != 1.0).any()) for batch in self.past()
        )
        unknown = rule.needs_lipschitz and math.isnan(self.lipschitz)
        if self.problem.learners > 1 or unknown:
            same = self.past.replay(self.own.add)
            if not same:
                return "learning these rows anew leads to another state"
        if self.certificate is None:
            return rule.uncertified
        if spec.model.dtype != "float64":
            return 'its slots are float32, and the theorem does not round: model.dtype = "float64"'
        steepest = self.own.steepest if unknown else heaviest * self.lipschitz
        if rule.needs_lipschitz and steepest > self.h.L * (1.0 + 1e-12):
            return (
                f"the slope of importance times loss reaches {steepest:g}, above L = {self.h.L:g}: "
                "train with a larger L"
            )
        return ""

    def _slots(self, k: int) -> dict[str, Any]:
        state, rule = self.model.state, self.rule
        own = {slot.name: state.slot(slot.name)[:, k] for slot in rule.own_slots}
        shared = {slot.name: state.slot(slot.name) for slot in rule.shared_slots}
        return {**own, **shared, **self._totals(k)}

    def _totals(self, k: int) -> dict[str, float]:
        names = fields(self.rule.totals)
        return dict(zip(names, self.model.state.totals[k].tolist(), strict=False))

    def _run(self, k: int, loss: float, mistakes: float, loss_u: float) -> Run:
        model, state, rule = self.model, self.model.state, self.rule
        return Run(
            own={slot.name: np.array(state.slot(slot.name)[:, k]) for slot in rule.own_slots},
            shared={slot.name: np.array(state.slot(slot.name)) for slot in rule.shared_slots},
            totals=self._totals(k),
            w=model.engine.weights(state, 0, self.problem.size)[:, k],
            h=self.h,
            rows=model.metrics.total_rows,
            loss=loss,
            mistakes=mistakes,
            u=np.array(self.given[:, k]),
            loss_u=loss_u,
            hinge_u=self.fixed.hinge(k),
            square_u=float(self.fixed.costs.square[k]),
            lipschitz=self.lipschitz,
            extra={name: array[k] for name, array in state.extra.items()},
        )

    def _learner(self, k: int) -> Row:
        sums, alone = self.model.metrics.total, self.problem.learners == 1
        loss = float(sums[1] if alone else self.own.loss[k])
        mistakes = float(sums[2] if alone else self.own.mistakes[k])
        if not self.problem.loss.classifies:
            mistakes = math.nan
        loss_u = float(self.fixed.total if alone else self.fixed.costs.loss[k])
        claims, reason = self._claims(self._run(k, loss, mistakes, loss_u))
        return self._told(_nothing(self.model, k), loss, mistakes, loss_u, claims, reason)

    def _coupled(self) -> Row:
        """Learners with one loss together: their bounds add up to that of the whole regret."""
        loss, loss_u, L = (
            float(self.model.metrics.total[1]),
            self.fixed.total,
            self.problem.learners,
        )
        each = [
            self._claims(self._run(k, loss * (k == 0), math.nan, loss_u * (k == 0)))
            for k in range(L)
        ]
        claims, reason = added([claims for claims, _ in each]), each[0][1]
        if claims is not None:
            claims = [claim for claim in claims if claim.name.startswith("regret")]
        row = {**_nothing(self.model, 0), "learner": "all"}
        return self._told(row, loss, math.nan, loss_u, claims, reason)

    def _claims(self, run: Run) -> tuple[list[Claim] | None, str | None]:
        if self.outside or self.certificate is None:
            return None, self.outside
        try:
            claims = self.certificate(run)
        except KeyError:
            if self.model.spec.model.certificate:
                raise
            return None, KEEP
        except ValueError as error:
            return None, str(error)
        if self.weighted:
            claims = [claim for claim in claims if claim.name.startswith("regret")]
            if not claims:
                return None, "the rows have importance weights, and the theorem counts each once"
        return claims, None

    def _told(
        self,
        row: Row,
        loss: float,
        mistakes: float,
        loss_u: float,
        claims: list[Claim] | None,
        reason: str | None,
    ) -> Row:
        known = {"loss": loss, "mistakes": mistakes, "comparator_loss": loss_u}
        told = None if claims is None else [_claim(claim) for claim in claims]
        return {**row, **known, "regret": loss - loss_u, "claims": told, "reason": reason}


def added(each: list[list[Claim] | None]) -> list[Claim] | None:
    """Claims of several learners, measured and bounds added; None if one has none."""
    whole = [claims for claims in each if claims is not None]
    if len(whole) < len(each):
        return None
    return [
        Claim(
            some[0].name, sum(c.measured for c in some), sum(c.bound for c in some), some[0].source
        )
        for some in zip(*whole, strict=True)
    ]


def _claim(claim: Claim) -> Row:
    measured, bound = float(claim.measured), float(claim.bound)
    ratio = bound / measured if measured > 0.0 else None
    numbers = {"measured": measured, "bound": bound, "ratio": ratio}
    return {"claim": claim.name, **numbers, "source": claim.source}


def _sum(told: list[Row]) -> Row:
    lists = [None if one["claims"] is None else [_back(c) for c in one["claims"]] for one in told]
    claims = added(lists)
    reasons = [one["reason"] for one in told if one["reason"]]
    return {
        "learner": "all",
        "rows": told[0]["rows"],
        **{key: sum(one[key] for one in told) for key in SUMMED},
        "claims": None if claims is None else [_claim(claim) for claim in claims],
        "reason": reasons[0] if claims is None and reasons else None,
    }


SUMMED = ("loss", "mistakes", "comparator_loss", "regret")


def _back(told: Row) -> Claim:
    return Claim(told["claim"], told["measured"], told["bound"], told["source"])
