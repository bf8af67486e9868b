"""Which rules learn with ``data.standardize`` and ``model.scale_target``: those whose weights can
be set."""

from __future__ import annotations

from streamomd.rules.contract import Params, Rule


def standardize_problem(rule: Rule, params: Params) -> str:
    """Why a rule with these parameters cannot learn on standardised inputs; "" if it can.

    A change of reference sets every weight (``Slots.weight`` or ``Slots.rejoin``). So nothing else
    may depend on weights: no matrix, stored rows, sums over all coordinates, or constraint.
    """
    rule = rule.reduced_for(params)
    kind, row, slots = rule.storage.kind, rule.row, rule.state
    problems = {
        "it standardises numeric columns itself": kind == "block",
        "it stores rows": kind == "recent",
        "it has a matrix over the coordinates": kind in ("matrix", "root"),
        "it constrains the weights": rule.constraint is not None or bool(params.get("box")),
        "it has sums over all coordinates": rule.masses > 0 or row.prepare is not None,
        "its predictions are not those of weights alone": row.part is not None,
        "it observes all rows before the first is learned": rule.looks(params),
        "its weights cannot be set": row.catch_up is not None
        or (not slots.weight and slots.rejoin is None),
    }
    return next((text for text, found in problems.items() if found), "")


def target_problem(rule: Rule, params: Params) -> str:
    """Why a rule with these parameters cannot learn a target whose scale changes; "" if it can."""
    if rule.losses.lipschitz:
        return "it needs a bound on the loss's slope"
    return standardize_problem(rule, params)
