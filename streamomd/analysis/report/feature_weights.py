"""The scale of each feature, the heaviest features, and the distribution of all weights.

A rule's shared slot that merges by "max" is the largest abs(x) so far, one that merges by "sum" the
sum of x^2. Learners on standardised inputs store the mean and the standard deviation of numeric
columns, and of the others the mean x^2 over the rows that hold one. The slot G is the sum of
(g x)^2, g the slope of the row's loss times its importance; the bias is 1 in every row, so that
sqrt(G_i / G_bias) is the root of the mean of x_i^2, each row weighted by g^2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Batch, DenseBatch, Floats
from streamomd.engine.block_state import moments
from streamomd.engine.loops.reference import M2, N
from streamomd.engine.state import State
from streamomd.features import Plan, name_of
from streamomd.sources.column_facts import CODES
from streamomd.sources.tables import FILES_OR_TABLES, TableOptions
from streamomd.training.column_importance import (
    CoordinateScales,
    column_importances,
    scales_of_block,
)
from streamomd.training.model_data import ModelData, weight_blocks
from streamomd.training.progress import note
from streamomd.training.row_stream import find_for_model, rows_of

LARGEST = ("s", "b", "M", "x")
"""Name of the slot of the largest abs(x)."""


@dataclass(frozen=True)
class FeatureScales:
    """Scales of each coordinate, NaN if unknown.

    largest: abs(x). typical: root of the mean of x^2 over all rows. low, high: least and greatest
    value of the coordinates before the hashed ones. present: the share of rows where it is not 0.
    spread: standard deviation of each coordinate, or of the first ones; None if it is unknown: then
    ``unit`` does not say how far a contribution spreads. rows: how many these are. of: of which
    rows, in words. source: a sentence that says where they are from.
    mean: of each coordinate; empty if unknown.
    codes: (2, coordinates before the hashed ones), the least and greatest of CODES in a column, NaN
    for none; rest: (2, as codes), the least and greatest other value; empty if unknown.
    """

    largest: Floats
    typical: Floats
    low: Floats
    high: Floats
    present: Floats
    rows: int
    source: str
    of: str = ""
    spread: Floats | None = None
    mean: Floats = field(default_factory=lambda: np.empty(0))
    codes: Floats = field(default_factory=lambda: np.empty((2, 0)))
    rest: Floats = field(default_factory=lambda: np.empty((2, 0)))

    @cached_property
    def size(self) -> Floats:
        """The typical, else the largest value."""
        return np.where(np.isnan(self.typical), self.largest, self.typical)

    @cached_property
    def unit(self) -> Floats:
        """The factor that makes weights comparable: the standard deviation, else ``size``.

        What is equal in all rows moves no prediction away from the others: the bias takes it.
        """
        unit = self.size.copy()
        if self.spread is not None:
            unit[: len(self.spread)] = self.spread
        return unit


def scales_from_slots(model: ModelData) -> FeatureScales:
    """Scales from the slots of the model's rule."""
    rule, state = model.spec.rule, model.state
    if model.engine.layout.block:
        return _scales_of_block(model)
    merges = {slot.name: slot.merge for slot in rule.shared_slots}
    largest = next((name for name in LARGEST if merges.get(name) == "max"), "")
    fields, sources = _unknown(model.plan), []
    if largest:
        fields["largest"] = np.asarray(state.slot(largest), dtype=np.float64)
        sources.append(f"largest absolute values (slot {largest})")
    typical, how = _typical(model, state, merges)
    if how:
        fields["typical"] = typical
        sources.append(how)
    if state.layout.standardize:
        _take_reference(fields, state)
        sources = ["standard deviations of numeric columns, which are centred"]
    source = f"Rule {rule.name} stores {' and '.join(sources)}." if sources else (
        f"Rule {rule.name} stores no feature scales: pass the shards to the report to measure them."
    )  # fmt: skip
    centred = slice(0, 1 + state.layout.numeric) if state.layout.standardize else None
    return FeatureScales(
        fields["largest"], fields["typical"], fields["low"], fields["high"], fields["present"],
        model.metrics.total_rows, source,
        spread=None if centred is None else fields["typical"][centred],
    )  # fmt: skip


def _scales_of_block(model: ModelData) -> FeatureScales:
    """Scales from the moments of numeric columns and the mean squares of the others."""
    _, typical, deviation = scales_of_block(model)
    mean, spread = moments(model.state)
    fields, first = _unknown(model.plan), int(model.plan.bias)
    low = fields["low"].copy()
    low[first : first + len(mean)][spread == 0.0] = mean[spread == 0.0]  # constant
    return FeatureScales(
        fields["largest"], typical, low, low, fields["present"], model.metrics.total_rows,
        f"Rule {model.spec.rule.name} stores means and standard deviations of numeric columns, "
        "and mean squares of the others.",
        spread=deviation,
    )  # fmt: skip


def _take_reference(fields: dict[str, Floats], state: State) -> None:
    """Sizes of numeric columns in raw units: the rule's slots know standardised ones. A centred
    column moves predictions by its standard deviation, wherever its mean is."""
    front = slice(1, 1 + state.layout.numeric)
    n = float(state.extra["schedule"][N])
    for name in ("largest", "typical"):
        fields[name] = fields[name].copy()
        fields[name][front] = np.nan
    if n > 0.0:
        fields["typical"][front] = np.sqrt(state.extra["reference"][M2, 1:] / n)


def _typical(model: ModelData, state: State, merges: dict[str, str]) -> tuple[Any, str]:
    if merges.get("s") == "sum" and state.clock:
        squares = np.asarray(state.slot("s"), dtype=np.float64)
        return np.sqrt(squares / state.clock), "mean squares (slot s)"
    curvature = model.spec.rule.state.curvature
    if model.plan.bias and curvature:
        slopes = np.asarray(state.slot(curvature), dtype=np.float64).sum(axis=1)
        if slopes[0] > 0.0:
            how = "typical values estimated from squared gradients (slot G), weighted by slopes"
            return np.sqrt(slopes / slopes[0]), how
    return None, ""


def scales_of_shards(
    plan: Plan,
    shards: str | Sequence[str],
    storage_options: Mapping[str, Any] | None = None,
    tables: TableOptions = FILES_OR_TABLES,
) -> FeatureScales:
    """Scales in all rows of some shards. Raises what ``Model.evaluate`` raises."""
    found = find_for_model(plan, shards, storage_options=storage_options, tables=tables)
    note(f"measuring feature scales in {found.rows:,} rows …")
    pieces = rows_of(plan.timeless, found, range(len(found)))
    return measure_scales(plan, (piece.value.batch for piece in pieces))


def measure_scales(plan: Plan, batches: Iterable[Batch]) -> FeatureScales:
    """Scales measured on rows, each with weight 1."""
    size, front, bias = plan.size, plan.hashed_offset, int(plan.bias)
    squares, largest, seen, sums, missing = (np.zeros(size) for _ in range(5))
    codes, rest = (np.tile([[np.inf], [-np.inf]], front) for _ in range(2))
    low, high, rows = np.full(front, np.inf), np.full(front, -np.inf), 0
    for batch in batches:
        coordinates, x = _entries(batch, bias)
        rows += len(batch)
        if plan.means:  # a missing value has no scale: it is the mean
            np.add.at(missing, coordinates[np.isnan(x)], 1.0)
            coordinates, x = coordinates[~np.isnan(x)], x[~np.isnan(x)]
        np.add.at(squares, coordinates, x * x)
        np.add.at(sums, coordinates, x)
        np.maximum.at(largest, coordinates, np.abs(x))
        np.add.at(seen, coordinates, 1.0)
        unhashed = coordinates < front
        np.minimum.at(low, coordinates[unhashed], x[unhashed])
        np.maximum.at(high, coordinates[unhashed], x[unhashed])
        code = np.isin(x, CODES)
        for ends, some in ((codes, unhashed & code), (rest, unhashed & ~code)):
            np.minimum.at(ends[0], coordinates[some], x[some])
            np.maximum.at(ends[1], coordinates[some], x[some])
    if bias:
        squares[0], largest[0], seen[0], low[0], high[0] = rows, 1.0, rows, 1.0, 1.0
        sums[0] = rows
    somewhere = seen[:front] < rows  # it is 0 in some row
    low = np.where(somewhere, np.minimum(low, 0.0), low)
    high = np.where(somewhere, np.maximum(high, 0.0), high)
    zero = (seen + missing)[:front] < rows
    rest[:, zero] = np.minimum(rest[0, zero], 0.0), np.maximum(rest[1, zero], 0.0)
    count = max(rows, 1)
    source = f"Counted in the {rows:,} rows given."
    typical, present = np.sqrt(squares / count), seen / count
    known = np.maximum(rows - missing, 1.0)
    mean = sums / known
    # Of all rows, those with the mean in place of a missing value included, as the model sees them.
    spread = np.sqrt(np.maximum((squares - sums * mean) / count, 0.0))
    of = " of those given"
    return FeatureScales(
        largest, typical, low, high, present, rows, source, of=of, spread=spread, mean=mean,
        codes=codes, rest=rest,
    )  # fmt: skip


def _entries(batch: Batch, bias: int) -> tuple[NDArray[np.int64], Floats]:
    """Coordinates and values that are not 0."""
    if isinstance(batch, DenseBatch):
        _, column = np.nonzero(batch.values)
        values = batch.values[batch.values != 0.0]
    else:
        there = batch.values != 0.0
        column, values = batch.indices[there], batch.values[there]
    return column.astype(np.int64) + bias, values.astype(np.float64)


def _unknown(plan: Plan) -> dict[str, Floats]:
    nothing, front = np.full(plan.size, np.nan), np.full(plan.hashed_offset, np.nan)
    return {
        "largest": nothing, "typical": nothing, "low": front, "high": front, "present": nothing
    }  # fmt: skip


Counts = NDArray[np.int64]
DECADE = 8  # bins
EDGES: Floats = np.logspace(-15, 15, 30 * DECADE + 1)
MOST = 32  # bins that are drawn


@dataclass(frozen=True)
class Feature:
    """A coordinate: its name, weight by learner, and its typical effect on a margin.

    moves: the largest abs(weight) times the feature's unit; share: of the sum over all features.
    """

    coordinate: int
    name: str
    weight: tuple[float, ...]
    moves: float
    share: float

    @property
    def heaviest(self) -> float:
        """The weight of the learner with the largest absolute weight."""
        return max(self.weight, key=abs)


@dataclass(frozen=True)
class Weights:
    """top: features that move predictions most. edges: of abs(weight), ascending; below, above:
    number of weights under and over 0 in each bin. zeros, broken: number that are 0, or not
    finite."""

    top: tuple[Feature, ...]
    edges: Floats
    below: Counts
    above: Counts
    zeros: int
    broken: int
    by_unit: bool
    centred: bool
    """Whether ``moves`` is a standard deviation; else it is a weight times a size."""
    importances: Mapping[str, float]
    """By column, the standard deviation of what it adds to the margin; empty unless the scales were
    measured on rows."""


def weigh(model: ModelData, sizes: FeatureScales, top: int = 25) -> Weights:
    """Read every weight once, in blocks of about a million coordinates."""
    unit, counts = sizes.unit, np.zeros((2, len(EDGES) - 1), np.int64)
    by_unit = not np.isnan(unit).all()
    heavy: list[tuple[float, int, tuple[float, ...]]] = []
    total, zeros, broken = 0.0, 0, 0
    for low, block in weight_blocks(model.engine, model.state):
        used = np.flatnonzero((block != 0.0).any(axis=1))
        zeros += int((block == 0.0).sum())
        weights = block[used]
        legal = np.isfinite(weights)
        broken += int((~legal).sum())
        for side, some in enumerate((-weights[legal], weights[legal])):
            inside = np.clip(some[some > 0.0], EDGES[0], EDGES[-1])
            counts[side] += np.histogram(inside, EDGES)[0]
        moves = np.abs(np.where(legal, weights, 0.0)).max(axis=1, initial=0.0)
        if by_unit:
            moves *= np.nan_to_num(unit[low + used])
        moves[low + used < int(model.plan.bias)] = (
            0.0  # equal in every row: it does not distinguish rows
        )
        total += float(moves.sum())
        order = [int(at) for at in np.argsort(-moves, kind="stable")[:top] if moves[at] > 0.0]
        heavy += [
            (float(moves[at]), low + int(used[at]), tuple(weights[at].tolist())) for at in order
        ]
        heavy = sorted(heavy, key=lambda entry: (-entry[0], entry[1]))[:top]
    top_features = tuple(
        Feature(at, name_of(model.plan, model.names, at), weight, moves, moves / total)
        for moves, at, weight in heavy
    )
    centred = by_unit and sizes.spread is not None
    importances = _column_importances(model, sizes)
    return Weights(top_features, *_trimmed(counts), zeros, broken, by_unit, centred, importances)


def _column_importances(model: ModelData, sizes: FeatureScales) -> dict[str, float]:
    """``column_importances``; {} unless the scales were measured on rows."""
    if len(sizes.mean) < model.plan.size or sizes.spread is None:
        return {}
    return column_importances(model, CoordinateScales(sizes.mean, sizes.typical, sizes.spread))


def _trimmed(counts: Counts) -> tuple[Floats, Counts, Counts]:
    """Edges and counts of the non-empty decades, in about thirty bins."""
    there = np.flatnonzero(counts.sum(axis=0)) // DECADE
    if not len(there):
        none = np.zeros(0, np.int64)
        return np.zeros(0), none, none
    low, high = int(there[0]) * DECADE, (int(there[-1]) + 1) * DECADE
    wide = next(one for one in (1, 2, 4, 8) if (high - low) // one <= MOST or one == DECADE)
    below, above = counts[:, low:high].reshape(2, -1, wide).sum(axis=2)
    return EDGES[low : high + 1 : wide], below, above
