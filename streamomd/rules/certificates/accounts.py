"""Accounts: slots that a certificate needs in addition to a learner's own.

``with_accounts`` makes the same rule with these slots after the learner's: its functions get and
return their own numbers, and what is added to the accounts is computed separately, from the numbers
before and after. So a rule's module contains only its update. Accounts that cost nothing next to a
row are always there; the others belong to the form that ``model.certificate`` asks for.

A slice makes a plain tuple of a NamedTuple: compiled code adds no others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, get_type_hints

from streamomd.rules.certificates.certificate import Claim, Run
from streamomd.rules.contract import (
    Coordinates,
    Functions,
    Nothing,
    Numbers,
    Observe,
    Params,
    Rule,
    fields,
)

Claims = Callable[[Run], list[Claim]]


def certified(rule: Rule, claims: Claims, accounted: Rule | None = None) -> Rule:
    """The rule with its claims, and its form with accounts."""
    certificate = replace(rule.certificate, claims=claims)
    if accounted is not None:
        accounted = replace(accounted, certificate=certificate)
    return replace(rule, certificate=replace(certificate, accounted=accounted))


def with_free_form(whole: Rule, free: Rule, needed: Callable[[Params], bool]) -> Rule:
    """The rule, which takes the form ``free``, with and without accounts, unless ``needed``."""

    def unless_needed(form: Rule | None) -> Coordinates:
        return Coordinates(reduced=lambda params: None if needed(params) else form)

    certificate, accounted = whole.certificate, whole.certificate.accounted
    if accounted is not None:
        accounted = replace(accounted, storage=unless_needed(free.certificate.accounted))
        certificate = replace(certificate, accounted=accounted)
    return replace(whole, certificate=certificate, storage=unless_needed(free))


def with_accounts(
    rule: Rule,
    *,
    own: Numbers = Nothing,
    shared: Numbers = Nothing,
    totals: Numbers = Nothing,
    update: Functions | None = None,
    align: Functions | None = None,
    step: Functions | None = None,
    observe: Functions | None = None,
    terms: Functions | None = None,
    gathers: int = 0,
) -> Rule:
    """The rule with more slots, and functions that give their new numbers::

        update(own, after, shared, x, move, clock, h)   own before and after the learner's update
        align(own, old, new, clock, h)                  where shared slots have changed
        step(row, totals, active, move, clock, h)       each row, totals before it
        observe(shared, x, clock, h)                    each value, before the prediction

    ``terms`` and ``gathers`` are those of ``RowHooks``.
    """
    made = rule if own is Nothing else _with_own(rule, own, update, align)
    made = made if totals is Nothing else _with_totals(made, totals, step)
    made = made if shared is Nothing else _with_shared(made, shared, observe)
    if terms is not None:
        made = replace(made, row=replace(made.row, terms=terms, gathers=gathers))
    return made


def _with_own(rule: Rule, extra: Numbers, account: Any, account_align: Any) -> Rule:
    Base: Any = rule.state.own
    Whole, n = joined(Base, extra), len(fields(Base))
    update, align = rule.update, rule.align or _align
    refresh: Any = rule.sums.refresh if rule.sums else None

    def widened(function: Any) -> Any:
        """A function of six arguments that returns own slots, the accounts as they are."""

        def carried(own: Any, a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
            after = function(Base(*own[:n]), a, b, c, d, e)
            return Whole(*(after[:] + own[n:]))

        return named(carried, f"{rule.name}_{function.__name__}_widened") if function else None

    def updated(own: Any, shared: Any, x: float, move: Any, clock: float, h: Any) -> Any:
        after = update(Base(*own[:n]), shared, x, move, clock, h)
        return Whole(*(after[:] + account(own, after, shared, x, move, clock, h)[:]))

    def aligned(own: Any, old: Any, new: Any, totals: Any, clock: float, h: Any) -> Any:
        after = align(Base(*own[:n]), old, new, totals, clock, h)
        return Whole(*(after[:] + account_align(own, old, new, clock, h)[:]))

    def refreshed(own: Any, shared: Any, totals: Any, clock: float, h: Any) -> Any:
        after = refresh(Base(*own[:n]), shared, totals, clock, h)
        return Whole(*(after[:] + own[n:]))

    sums, constraint = rule.sums, rule.constraint
    if sums is not None and sums.refresh:
        sums = replace(sums, refresh=named(refreshed, f"{rule.name}_refreshed"))
    if constraint is not None:
        constraint = replace(constraint, project=widened(constraint.project))
    return replace(
        rule,
        state=replace(rule.state, own=Whole, rejoin=widened(rule.state.rejoin)),
        update=named(updated, f"{rule.name}_updated") if account else widened(update),
        align=named(aligned, f"{rule.name}_aligned") if account_align else widened(rule.align),
        row=replace(rule.row, catch_up=widened(rule.row.catch_up)),
        sums=sums,
        constraint=constraint,
    )


def _with_totals(rule: Rule, extra: Numbers, account: Any) -> Rule:
    Base: Any = rule.state.totals
    Whole, n = joined(Base, extra), len(fields(Base))
    step, begin = rule.step, rule.state.begin
    prepare: Any = rule.row.prepare
    rebase: Any = rule.sums.rebase if rule.sums else None
    settle: Any = rule.constraint.settle if rule.constraint else None

    for function in (step, account):  # once a row: see ``engine.loops.load_store.inlined``
        function.__dict__["inlined"] = True

    def stepped(row: Any, totals: Any, clock: float, h: Any) -> Any:
        active, move, after = step(row, Base(*totals[:n]), clock, h)
        return active, move, Whole(*(after[:] + account(row, totals, active, move, clock, h)[:]))

    def stepped_alone(row: Any, totals: Any, clock: float, h: Any) -> Any:
        """Of a learner without totals of its own: compiles in less time."""
        active, move, _ = step(row, (), clock, h)
        return active, move, account(row, totals, active, move, clock, h)

    def start_totals(d: float, h: Any) -> Any:
        return Whole(*begin(d, h), *extra()) if begin else Whole()

    def prepared(q: Any, totals: Any, clock: float, h: Any) -> Any:
        after = prepare(q, Base(*totals[:n]), clock, h)
        return Whole(*(after[:] + totals[n:]))

    def rebased(totals: Any, peak: float, clock: float, h: Any) -> Any:
        after = rebase(Base(*totals[:n]), peak, clock, h)
        return Whole(*(after[:] + totals[n:]))

    def settled(totals: Any, mu: float, h: Any) -> Any:
        after = settle(Base(*totals[:n]), mu, h)
        return Whole(*(after[:] + totals[n:]))

    def mine(function: Any, made: Any) -> Any:
        return named(made, f"{rule.name}_{made.__name__}") if function else None

    sums, constraint = rule.sums, rule.constraint
    if sums is not None:
        sums = replace(sums, rebase=mine(rebase, rebased))
    if constraint is not None:
        constraint = replace(constraint, settle=mine(settle, settled))
    return replace(
        rule,
        state=replace(rule.state, totals=Whole, begin=start_totals if begin else None),
        step=mine(step, stepped if n else stepped_alone),
        row=replace(rule.row, prepare=mine(prepare, prepared)),
        sums=sums,
        constraint=constraint,
    )


def _with_shared(rule: Rule, extra: Numbers, account: Any) -> Rule:
    Base: Any = rule.state.shared
    Whole, n = joined(Base, extra), len(fields(Base))
    given = rule.observe or Observe(_nothing)
    observe = given.function

    def observed(shared: Any, x: float, clock: float, h: Any) -> Any:
        after, q = observe(Base(*shared[:n]), x, clock, h)
        return Whole(*(after[:] + account(shared, x, clock, h)[:])), q

    return replace(
        rule,
        state=replace(rule.state, shared=Whole),
        observe=replace(given, function=named(observed, f"{rule.name}_observed")),
    )


def _align(own: Any, old: Any, new: Any, totals: Any, clock: float, h: Any) -> Any:
    return own


def _nothing(shared: Any, x: float, clock: float, h: Any) -> Any:
    return shared, ()


def joined(base: Numbers, extra: Numbers) -> Any:
    """A NamedTuple of the fields of both."""
    if not fields(base):
        return extra
    hints = {**get_type_hints(base, include_extras=True)}
    hints |= get_type_hints(extra, include_extras=True)
    made: Any = NamedTuple(base.__name__, [*hints.items()])  # type: ignore[misc]
    starts = {**base._field_defaults, **extra._field_defaults}  # type: ignore[attr-defined]
    made.__new__.__defaults__ = tuple(starts.values())
    made._field_defaults = starts
    return made


def named(function: Any, name: str) -> Any:
    """With a name of its own: see ``engine.compile._name_apart``."""
    function.__name__ = function.__qualname__ = name
    return function
