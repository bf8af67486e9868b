"""What a rule can do: learn standardised columns and targets, and resume saved states."""

from __future__ import annotations

from streamomd.core.errors import CorruptionError, NoCommitError
from streamomd.rules.contract import Params, Rule, Saved


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


def refuse_other_state(rule: Rule, saved: Saved) -> None:
    """Raise NoCommitError for a state of a newer version or an older one that cannot be converted,
    CorruptionError for what is no version.

    An accepted older state has the numbers of the current version, to the last bit.
    """
    found, known = saved.version, rule.state.version
    if type(found) is not int or found < 1:
        raise CorruptionError(f"state version {found!r} of rule {rule.name!r}: expected 1 or more")
    if found > known:
        raise NoCommitError(
            f"a state of rule {rule.name!r} of version {found}; this streamomd knows version "
            f"{known}: upgrade streamomd"
        )
    reason = rule.state.older(saved) if found < known else ""
    if reason:
        raise NoCommitError(
            f"a state of rule {rule.name!r} of version {found}, where {reason}; this streamomd "
            f"has version {known} and cannot convert it: train again, or continue with the "
            "streamomd that wrote it"
        )
