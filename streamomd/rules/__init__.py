"""The rules. A file here (or an entry point of group ``streamomd.rules``) is its registration."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from streamomd.core.errors import CorruptionError, NoCommitError, UsageError
from streamomd.core.installed import find, load, offers
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


GROUP = "streamomd.rules"
_SCALED = "adagrad and nag scale each coordinate, as it does; auto needs no learning rate"
_BATCH = "it needs all rows in memory; laplace and auto take second-order steps row by row"
ELSEWHERE = {
    **dict.fromkeys(("adam", "adamw", "nadam", "rmsprop", "adadelta"), _SCALED),
    **dict.fromkeys(("lbfgs", "newton", "newton-cg", "liblinear", "irls"), _BATCH),
    **dict.fromkeys(("sag", "saga", "svrg"), _BATCH),
}
"""Optimizers of other programs that are no rules, and what to choose instead."""
ALIASES = {
    "dual_averaging": "da",
    "exponentiated_gradient": "eg",
    "ftrl": "ftrl_proximal",
    "online_newton_step": "ons",
    "passive_aggressive": "pa",
    "recursive_least_squares": "rls",
    "sgd": "ogd",
}
"""Other accepted names; jobs and lists have the canonical ones."""


@functools.cache
def all_rules() -> dict[str, Rule]:
    """Every rule by name, in the order of names."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    own = [module.RULE for module in modules if hasattr(module, "RULE")]
    return {rule.name: rule for rule in sorted([*own, *load(GROUP)], key=lambda rule: rule.name)}


def find_rule(name: str) -> Rule:
    """The rule of that name or alias. Raises UsageError with the nearest name.

    >>> find_rule("nag").source
    'Ross, Mineiro & Langford 2013, algorithm 2'
    >>> find_rule("sgd").name
    'ogd'
    """
    rule = _own(ALIASES.get(name, name))
    if rule is None:
        rules = all_rules()
        aliases = {alias: rules[own] for alias, own in ALIASES.items() if own in rules}
        if name in ELSEWHERE and not offers(GROUP):
            raise UsageError(f"unknown rule {name!r}: {ELSEWHERE[name]}")
        rule = find("rule", name, {**aliases, **rules})
    return rule


@functools.cache
def _own(name: str) -> Rule | None:
    """The rule in the file of that name: importing all of them takes 0.1 s more.

    None where other packages register rules: one of theirs may have that name.
    """
    files = (module.name for module in pkgutil.iter_modules(__path__))
    if name not in files or offers(GROUP):
        return None
    return getattr(importlib.import_module(f"{__name__}.{name}"), "RULE", None)
