"""Which pairs of columns get an effect of their own: those that a score test on the first rows asks
for, as FAST of GA2M (Lou et al. 2013) ranks them.

Rule ``auto`` learns the first rows with the curves of single columns. The slopes g of the losses by
the margins, of rows that it predicted before it learned them, are summed in the cells of two
columns: numbers in bins, categories by value, rare ones together. With G the sums of g and V those
of g^2 by cell, X = sum V (G / V - a - b)^2, where a and b, of the one and of the other column, make
it least. Where two columns act each on its own, X is about chi-squared with k = cells - rows -
columns + 1 degrees of freedom. It depends on the unit of neither losses nor weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamomd.config.spec import Spec
from streamomd.core.batch import Batch, Floats
from streamomd.core.scalars import Bins
from streamomd.core.wording import counted
from streamomd.features import Plan
from streamomd.features.curves import MOST_BINS, MOST_NUMBERS, codes_of, edges_of
from streamomd.features.plan import number_at, number_name
from streamomd.training.curved_columns import (
    CREDIBLE,
    FEWEST_ROWS,
    LATER_GAIN,
    FirstRows,
    later_loss,
    learned_first,
)
from streamomd.training.progress import note

Codes = NDArray[np.int64]
MOST_COLUMNS = 64
"""Columns of which pairs are tested: of more, those that alone explain most of the labels."""
MOST_PAIRS = 32
CELLS = 16
"""Codes of a column: of the commonest values of a category, and one of all rarer ones; of bins."""
HARM, LASTING = 0.005, 0.5
"""What pairs save of the loss of later rows must be this share of what they save of the next row's,
up to a difference of ``HARM``."""
DEVIATIONS = 3.0
"""Standard deviations of X - k that chance alone seldom reaches."""
SWEEPS = 12
"""Of alternating least squares, for a and b."""


class PairChoice(NamedTuple):
    """Chosen pairs and the bins of their numbers, or why there are none, and the share of the loss
    of the second half of the first rows that they save."""

    pairs: tuple[tuple[str, str], ...]
    bins: tuple[Bins, ...] = ()
    reason: str = ""
    gain: float = 0.0


def no_pairs_of(plan: Plan) -> PairChoice | None:
    """No pairs, of fewer than two columns or too many to test, whose rows need not be read."""
    count = plan.given_numbers + len(plan.single)
    if 2 <= count <= MOST_NUMBERS:
        return None
    return PairChoice((), reason=f"{counted(count, 'column')}, expected 2 to {MOST_NUMBERS:,}")


def choose_pairs(spec: Spec, plan: Plan, first: FirstRows, total: int) -> PairChoice:
    """The pairs of a plan's columns. plan: with its curves. total: rows of the run, at least the
    first ones.

    None where they add to the loss of the first rows what later rows will not make good.
    """
    rows = len(first.weights)
    if rows < FEWEST_ROWS:
        return PairChoice(
            (), reason=f"there are {counted(rows, 'row')}, fewer than {FEWEST_ROWS:,}"
        )
    alone, slopes = learned_first(spec, plan, first)
    members, codes = _members(plan, first)
    if len(members) > MOST_COLUMNS:
        best = _most_informative(codes, first.encode(plan), len(plan.classes))
        members, codes = [members[at] for at in best], codes[best]
    chosen = _chosen(slopes, codes[:, -len(slopes) :], total) if len(members) > 1 else []
    known = {frozenset(cross) for cross in plan.crosses}
    names = [number_name(plan, one.place) if isinstance(one, Bins) else one for one in members]
    chosen = [(a, b) for a, b in chosen if frozenset((names[a], names[b])) not in known]
    if not chosen:
        return PairChoice((), reason=f"the first {rows:,} rows show none that act together")
    used = [one for at, one in enumerate(members) if any(at in pair for pair in chosen)]
    bins = tuple(one for one in used if isinstance(one, Bins))
    pairs = tuple((names[a], names[b]) for a, b in chosen)
    trial = replace(plan, bins=bins, pairs=pairs)
    paired, _ = learned_first(spec, trial, first)
    gain = 1.0 - paired / alone if alone > 0.0 else 0.0
    if gain < -LATER_GAIN * (1.0 - min(1.0, rows / total)):
        return PairChoice((), reason=f"they add {-gain:.1%} to the loss of the first {rows:,} rows")
    # Consecutive rows may resemble each other: pairs then fit relations that later rows lack.
    later = 1.0 - later_loss(spec, trial, first) / (later_loss(spec, plan, first) or 1.0)
    if later < LASTING * gain - HARM:
        by = f"{gain:.1%} less loss when each is predicted before it is learned, {later:.1%}"
        which = f"rows {rows // 2 + 1:,} to {rows:,} have {by} by a model of earlier rows"
        return PairChoice((), reason=which)
    return PairChoice(pairs, bins, gain=gain)


def with_pairs(plan: Plan, found: PairChoice) -> Plan:
    """The plan with chosen pairs; prints a line where there are none."""
    if not found.pairs:
        note(f"no pairs of columns (model.shapes): {found.reason}")
    return replace(plan, bins=found.bins, pairs=found.pairs)


def _members(plan: Plan, first: FirstRows) -> tuple[list[Bins | str], Codes]:
    """What may be paired: numbers with bins, and names of what has one category a row; and the code
    of each row's, (members, rows), below ``CELLS``."""
    read = [batch.columns for batch in first.encode(replace(plan, tree_columns=True))]
    of_single = [columns.numbers for columns in read if columns is not None]
    coordinates = np.concatenate(of_single) if plan.single else first.numbers
    weights, members, codes = first.weights, list[Bins | str](), []
    taken = {*plan.categorical, *plan.single}
    for place, values in enumerate(first.numbers.T):
        edges = edges_of(values, weights)
        if edges and number_name(plan, place) not in taken:
            column, _ = number_at(plan, place)
            filled = 0.0 if plan.nulls_of(column) == "zero" else np.nan
            members.append(Bins(place, edges))
            codes.append(codes_of(np.where(np.isnan(values), filled, values), edges))
    for at, name in enumerate(plan.single, plan.given_numbers):
        _, of = np.unique(coordinates[:, at], return_inverse=True)
        rank = np.argsort(np.argsort(-np.bincount(of, weights), kind="stable"))
        members.append(name)
        codes.append(np.minimum(rank[of], CELLS - 1))
    assert MOST_BINS < CELLS
    return members, np.array(codes, np.int64).reshape(len(codes), len(weights))


def _most_informative(codes: Codes, batches: Sequence[Batch], classes: int) -> list[int]:
    """The members whose cells explain most of the labels' variance, of each class for several, in
    their order."""
    y = np.concatenate([batch.y for batch in batches])
    weight = np.concatenate([batch.weight for batch in batches])
    aims = (y[:, None] == np.arange(classes)) * 1.0 if classes > 2 else y[:, None]
    total = weight.sum() or 1.0
    aims = aims / (np.abs(aims).max() or 1.0)  # squares of large labels overflow
    aims = weight[:, None] / total * (aims - weight @ aims / total)
    explained = []
    for one in codes:
        mass = np.bincount(one, weight / total)
        sums = np.array([np.bincount(one, aim) for aim in aims.T])[:, mass > 0.0]
        explained.append(float((sums**2 / mass[mass > 0.0]).sum()))
    return sorted(np.argsort(-np.array(explained), kind="stable")[:MOST_COLUMNS].tolist())


def _chosen(slopes: Floats, codes: Codes, total: int) -> list[tuple[int, int]]:
    """The best pairs of members, at most ``MOST_PAIRS``, the best first. codes: (members, rows)."""
    members, rows = codes.shape
    a, b = np.triu_indices(members, 1)
    X, k = np.zeros(len(a)), np.zeros(len(a))
    for g in slopes.T:
        scale = float(np.sqrt(np.mean(g * g)))
        if not 0.0 < scale < np.inf:  # the run diverges, and says so
            continue
        more = _together(*(_by_cell(codes, a, b, one) for one in (g / scale, (g / scale) ** 2)))
        X, k = X + more[0], k + more[1]
    worth = (X - k) * max(1.0, total / rows) - CREDIBLE * k
    # Without degrees of freedom, as of a constant, X is what the sweeps have left.
    chance = DEVIATIONS * np.sqrt(2.0 * np.maximum(k, 0.0))
    credible = (k > 0.0) & (worth > 0.0) & (X - k > chance)
    best = [at for at in np.argsort(-worth, kind="stable").tolist() if credible[at]]
    return [(int(a[at]), int(b[at])) for at in best[:MOST_PAIRS]]


def _by_cell(codes: Codes, a: Codes, b: Codes, values: Floats) -> Floats:
    """The sums of rows' values in cells, (pairs, cells, cells), in the order of rows."""
    found = np.empty((len(a), CELLS * CELLS))
    for at, (first, second) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        found[at] = np.bincount(codes[first] * CELLS + codes[second], values, CELLS * CELLS)
    return found.reshape(-1, CELLS, CELLS)


def _together(G: Floats, V: Floats) -> tuple[Floats, Floats]:
    """(X, k) of pairs by the sums of their cells, (pairs, cells, cells)."""
    there, of_rows, of_columns = V > 0.0, V.sum(2), V.sum(1)
    rows = np.divide(1.0, of_rows, where=of_rows > 0.0, out=np.zeros_like(of_rows))
    columns = np.divide(1.0, of_columns, where=of_columns > 0.0, out=np.zeros_like(of_columns))
    b = np.zeros_like(columns)
    for _ in range(SWEEPS):
        a = rows * (G.sum(2) - (V * b[:, None, :]).sum(2))
        b = columns * (G.sum(1) - (V * a[:, :, None]).sum(1))
    mean = np.divide(G, V, where=there, out=np.zeros_like(G))
    off = mean - a[:, :, None] - b[:, None, :]
    k = there.sum((1, 2)) - (of_rows > 0.0).sum(1) - (of_columns > 0.0).sum(1) + 1
    return (V * off * off).sum((1, 2)), k.astype(np.float64)
