"""Checks for authors of a rule, a loss, a file format or a source, in this package or in a plug-in.

``check_rule`` compares a rule with its oracle and holds it to what the engine relies on;
``check_loss``, ``check_shards`` and ``check_source`` do the same for losses, file formats and
sources of shards. Each raises
AssertionError, whose message says what differs, where, and what to look at, and returns nothing.

>>> from streamomd.losses import find_loss
>>> check_loss(find_loss("huber"))
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from streamomd.analysis.plugin_checks.laws import loss_problems, merge_problems
from streamomd.analysis.plugin_checks.learner import legal, variants_of
from streamomd.analysis.plugin_checks.oracle_rows import Oracle, OracleRow
from streamomd.analysis.plugin_checks.rule_case import KINDS, RuleCase, scale_free
from streamomd.losses import Loss, all_losses, find_loss
from streamomd.rules.contract import Rule

__all__ = ["OracleRow", "check_loss", "check_rule", "check_shards", "check_source"]


def check_rule(
    rule: Rule,
    oracle: Oracle,
    *,
    params: Sequence[Mapping[str, Any]] | None = None,
    losses: Sequence[str | Loss] | None = None,
    streams: int = 2,
    compiled: bool = True,
    seed: int = 0,
) -> None:
    """Raise AssertionError unless a rule does what its oracle does and what the engine relies on.

    oracle: ``oracle(d, rows, **params)``, the algorithm as the paper prints it. It walks ``rows``;
    of each ``row`` it forms w, the dense weights of the round, and calls ``row.slope(w)``, which
    predicts <w, x> and gives the derivative of importance * loss there. ``row.x``, ``row.y``,
    ``row.t`` (from 1), ``row.importance`` and, once predicted, ``row.margin`` and ``row.loss`` are
    the row's numbers. It may return its final slots, arrays by name, which are compared too.

    params: parameters to try; None: the defaults, and each parameter at other values. losses: None:
    all that the rule allows. streams: how many for each loss and parameters; the defaults with the
    first loss get one of each kind. compiled: whether to compile it, which takes seconds.

    In turn: predictions and slots are the oracle's; rows may be split into batches in any way;
    importances mean what the rule declares; a rule whose range has a least feature value does not
    depend on units; annotations say how states merge; compiled loops are bit-identical to
    plain Python.
    """
    tried = [dict(one) for one in (variants_of(rule) if params is None else params)]
    known = [find_loss(one) if isinstance(one, str) else one for one in losses or losses_of(rule)]
    kinds, seeds = itertools.cycle(KINDS), itertools.count(seed)
    for at, loss in enumerate(known):
        others = tried[1:]
        for given in tried if at == 0 else [tried[0], *others[at % max(1, len(others)) :][:1]]:
            case = RuleCase(rule, loss, legal(rule, loss, given))
            count = max(streams, len(KINDS)) if at == 0 and given is tried[0] else streams
            for kind in itertools.islice(kinds, count):
                case.compare_with_oracle(oracle, kind, next(seeds))
    cases = [RuleCase(rule, known[0], legal(rule, known[0], given)) for given in tried]
    for case in cases:
        case.check_splits(seed)
    first = cases[0]
    first.check_importance(seed)
    if scale_free(rule):
        first.check_units(seed)
    merges_by_slot = "averaged" in rule.modes and rule.storage.kind != "block"
    if merges_by_slot and not first.loss.coupled:
        reduced = rule.reduced_for(first.params)
        for problem in merge_problems(reduced, first.loss, first.params):
            raise AssertionError(f"{first}: {problem}")
    if compiled:
        first.check_compiled(seed)


def losses_of(rule: Rule) -> list[Loss]:
    """The losses a rule learns with, its default first."""
    own = rule.losses.default
    names = rule.losses.names or (own, *(name for name in all_losses() if name != own))
    return [find_loss(name) for name in names]


def check_loss(loss: Loss, *, params: Sequence[Mapping[str, Any]] | None = None) -> None:
    """Raise AssertionError unless a loss is convex and its functions fit each other.

    params: parameters to try; None: the defaults, and each parameter at other values.

    ``slope`` is the derivative of ``value``, and at a kink lies between those on both sides; it
    never falls, and stays within ``lipschitz``; both are finite at margins of ±700, and a NaN stays
    NaN; ``mean`` never falls and inverts the link: predicted means have an expected slope of 0;
    ``along`` shortens a step, and two half steps are one; ``couple`` writes the gradient of what it
    returns, for two classes and for more.
    """
    for problem in loss_problems(loss, params):
        raise AssertionError(f"loss {loss.name!r}{problem}")


def check_shards(write: Callable[[str, Any, int], None], suffix: str) -> None:
    """Raise AssertionError unless files of a format are found and read as the reader relies on.

    write: ``write(path, table, rows)`` writes a pyarrow table in groups of this many rows. suffix:
    of the files' names, such as ".parquet".

    ``find`` reads the number of rows, the groups and the schema from the footer; any columns come
    in the order asked for; rows come in order, whatever the size of a slice, and any group can be
    read first; a truncated file, or one with damaged bytes, is refused with a StreamomdError or,
    in a format without checksums, has as many rows as before.
    """
    from streamomd.sources.plugin_laws import shard_problems

    with tempfile.TemporaryDirectory(prefix="streamomd-check-") as folder:
        for problem in shard_problems(write, suffix, Path(folder)):
            raise AssertionError(f"format {suffix!r}: {problem}")


def check_source(
    source: Any,
    url: str,
    add: Callable[[int], Sequence[Mapping[str, Any]]],
    *,
    missing: str,
    change: Callable[[], object] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Raise AssertionError unless a source of shards does what training and updates rely on.

    source: a `Source`, installed or not. url: what it takes.
    add: ``add(n)`` for n = 0, 1, 2 adds rows to what the URL names, and returns them in order, each
    as a dict; they become files of their own. missing: a URL of the source that names nothing.
    change: changes rows that are listed; None where that cannot happen. storage_options: for it.

    In turn: two listings are equal, and a listed URL alone lists that file; rows are those that
    were added, in order, and also from a copy, as workers get; the position is the same after JSON,
    and after it only new files are listed, at it only those that were there; fingerprints change if
    content changes and only then; each key without effect is refused by name; the error on
    ``missing`` is a StreamomdError with that URL.
    """
    from streamomd.sources.plugin_laws import SourceCase

    case = SourceCase(source, url, add, change, missing, storage_options or {})
    for problem in case.problems():
        raise AssertionError(f"source {source.name!r}: {problem}")
