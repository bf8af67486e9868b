"""What ``model.shapes`` would bring, by the first rows."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec

from streamomd.config.spec import Spec
from streamomd.core.trees import MOST_MARGINS
from streamomd.features import Plan
from streamomd.features.grow_trees import OBJECTIVES
from streamomd.shards.reader import ShardBatch
from streamomd.shards.shard import ShardSet
from streamomd.training.column_pairs import choose_pairs, no_pairs_of
from streamomd.training.curved_columns import choose_curves, first_pieces, none_of, rows_of

FEWEST, LEAST_GAIN = 2_000, 0.02
"""Rows, and the share of their loss, from which on a line says that shapes would help."""


def shape_advice(spec: Spec, plan: Plan, pieces: Iterable[ShardBatch], total: int) -> list[str]:
    """A line if ``model.shapes`` would lower the loss of the second half of the first rows, each
    predicted before it is learned. pieces: of shards. total: rows of the run."""
    if spec.model.shapes != "none" or spec.train.mode == "sharded":
        return []
    curves, pairs = none_of(plan), no_pairs_of(plan)
    if curves and pairs:  # nothing is read
        return []
    first = rows_of(plan, pieces)
    rows = len(first.weights)
    if rows < FEWEST:
        return []
    curves = curves or choose_curves(spec, plan, first, total)
    pairs = pairs or choose_pairs(spec, replace(plan, curves=curves.curves), first, total)
    gain = 1.0 - (1.0 - curves.gain) * (1.0 - pairs.gain)
    which = f"lowers the loss of rows {rows // 2 + 1:,} to {rows:,} by"
    curved, paired = curves.gain >= LEAST_GAIN, gain - max(curves.gain, 0.0) >= LEAST_GAIN
    if curved:
        line = f"curved columns: --shapes columns {which} {curves.gain:.0%}"
        line += f", --shapes pairs by {gain:.0%}" if paired else ""
    elif paired:
        line = f"pairs of columns: --shapes pairs {which} {gain:.0%}"
    else:
        return []
    return [line + _trees_too(spec, plan)]


def _trees_too(spec: Spec, plan: Plan) -> str:
    """More of the line, where trees can be grown."""
    classes = len(plan.classes)
    fits = classes <= MOST_MARGINS if classes else spec.loss.name in OBJECTIVES
    if not fits or find_spec("lightgbm") is None:
        return ""
    return "; --shapes all also grows boosted trees, whose gain was not measured"


def advice_of_shards(spec: Spec, plan: Plan, shards: ShardSet) -> list[str]:
    """The same, of a run's shards."""
    with closing(first_pieces(plan, shards)) as pieces:
        return shape_advice(spec, plan, pieces, shards.rows - shards.unread_rows)
