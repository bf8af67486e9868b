"""Certificates: the bound that a paper proves for a run, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamomd.analysis.certify.bound import with_least_bounds
from streamomd.analysis.certify.claims import (
    facts_of,
    fitted,
    gammas_of,
    nothing,
    rows_told,
    sets_of,
)
from streamomd.analysis.certify.comparator_file import weights_of
from streamomd.analysis.certify.replay import Replay, why_not
from streamomd.analysis.certify.total_losses import FixedWeights
from streamomd.analysis.comparator import Problem, best, remembered
from streamomd.shards.find import find
from streamomd.training.model import Model
from streamomd.training.progress import note

__all__ = ["certify"]


def certify(
    model: Model,
    shards: str | Sequence[str],
    *,
    comparator: Any = "best",
    storage_options: Mapping[str, Any] | None = None,
    checkpoint_storage_options: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Regret or mistakes of the model's run over these shards and their bounds, for each learner.

    comparator: "best" finds the fixed weights of least loss in the set that the rule constrains its
    weights to; "bound", for each claim, those for which its right-hand side is least (of a regret
    bound: the comparator's loss and the bound together). Or weights (d,), with several learners
    (d, learners), or the path of a .npy or Parquet file of them: the nearest ones in the set count.

    Each learner is a dict: learner (its class), rows, loss, mistakes, comparator_loss, regret,
    comparator_gap (by how much, at most, some weights of the set have less loss, with "best"; None
    otherwise; without a constraint, weights at most twice as long), claims, refused and reason.
    Several learners are followed by their sum, "all".

    A claim is a dict: claim, measured, bound, ratio, source, given (the assumptions that the rows
    were checked for), comparator_loss, trivial (whether the bound holds for any run whatever: it is
    at least limit). refused lists claims that are not finite numbers, with the reason. claims is
    None, and reason says why, where the run is outside of what the rule's paper proves; nothing is
    measured either where the rows are not those that were learned.
    """
    spec, plan = model.spec, model.plan
    found = find(shards, order=spec.data.order, storage_options=storage_options)
    past, learners = Replay(model, found), model.engine.layout.learners
    given, sought = None, isinstance(comparator, str) and comparator in ("best", "bound")
    if not sought:
        given = weights_of(comparator, plan.size, learners)
    reason = why_not(model) or past.unlike(checkpoint_storage_options)
    if reason:
        return [nothing(model, k, reason) for k in range(learners)]
    size = (plan.size, model.engine.classes, learners, plan.bias)
    problem = Problem(remembered(past), spec.loss, spec.model.loss_params, *size)
    facts = facts_of(model, past, problem)
    sets = sets_of(model)
    if given is not None:
        return rows_told(model, facts, FixedWeights(problem, fitted(sets, given), gammas_of(model)))
    note(f"looking for the best fixed weights over {model.metrics.total_rows:,} rows …")
    least = best(problem, sets)
    fixed = FixedWeights(problem, least.u, gammas_of(model), least.lower)
    if comparator == "best":
        return rows_told(model, facts, fixed)
    note("looking for the weights of the least bound …")
    return with_least_bounds(model, facts, fixed, sets)
