"""Certificates: what a paper proves of a run, beside what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamomd.certify.claims import facts_of, fitted, gammas_of, nothing, rows_told
from streamomd.certify.given import weights_of
from streamomd.certify.past import Past, why_not
from streamomd.certify.sums import Fixed
from streamomd.comparator import Problem, best, remembered
from streamomd.model import Model
from streamomd.report import note
from streamomd.shards.find import find

__all__ = ["certify"]


def certify(
    model: Model,
    shards: str | Sequence[str],
    *,
    comparator: Any = "best",
    storage_options: Mapping[str, Any] | None = None,
    checkpoint_storage_options: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """What is proven of the model's run over these shards, for each learner.

    comparator: "best" finds the best fixed weights by L-BFGS; or weights (d,), with several
    learners (d, learners); or the path of a .npy or Parquet file of them. It is moved into the set
    that the rule keeps its weights in.

    Each learner is a dict: learner (its class), rows, loss, mistakes, comparator_loss, regret,
    claims (claim, measured, bound, ratio, source) and reason. Several learners are followed by
    their sum, "all". claims is None, and reason says why, where the run is outside what the rule's
    paper proves; nothing is measured either where the rows are not those that were learned.
    """
    spec, plan = model.spec, model.plan
    found = find(shards, order=spec.data.order, storage_options=storage_options)
    past, learners = Past(model, found), model.engine.layout.learners
    given = None
    if not (isinstance(comparator, str) and comparator == "best"):
        given = weights_of(comparator, plan.size, learners)
    reason = why_not(model) or past.unlike(checkpoint_storage_options)
    if reason:
        return [nothing(model, k, reason) for k in range(learners)]
    size = (plan.size, model.engine.classes, learners, plan.bias)
    problem = Problem(remembered(past), spec.loss, spec.model.loss_params, *size)
    facts = facts_of(model, past, problem)
    if given is None:
        note(f"looking for the best fixed weights over {model.metrics.total_rows:,} rows …")
        given = best(problem).u
    return rows_told(model, facts, Fixed(problem, fitted(model, given), gammas_of(model)))
