"""What a rule with a block has learned, and the first rows of its stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Batch, StoredRows, taken
from streamomd.engine.compile import OF_SOLVE
from streamomd.engine.frozen_rows import is_fitted, saved_mix
from streamomd.engine.loops import block_predict, rebase
from streamomd.engine.loops.block_row import padded
from streamomd.engine.loops.block_solve import LAST, is_due, solve
from streamomd.engine.loops.rebase import AT
from streamomd.engine.loops.recent_rows import extended
from streamomd.engine.loops.reference import M2, MU
from streamomd.engine.operations import solve_signature
from streamomd.engine.state import State
from streamomd.engine.walks import Walks
from streamomd.rules.common.standardized import of_predictions, precision, sparse_unit
from streamomd.rules.contract import Block

Floats = NDArray[np.float64]


def all_weights(engine: Walks, state: State, low: int, high: int, first: int) -> Floats:
    """Returns what ``Engine.weights`` does: weights of the cells and of the block."""
    rule = engine.layout.rule
    own = [state.slot(slot.name)[low:high] for slot in rule.own_slots]
    make: Any = rule.state.own
    mix = saved_mix(engine, state)
    found = np.array(rule.weight(make(*own), mix[1], mix[2]), np.float64)
    places = state.extra["places"]
    used = np.flatnonzero((places > 0) | (np.arange(len(places)) == 0))
    inside = used[(places[used] >= low + first) & (places[used] < high + first)]
    found[places[inside] - low - first] += weights_of_block(engine, state)[:, inside].T
    return found


def weights_of_block(engine: Walks, state: State) -> Floats:
    """What the block adds to the weights of its coordinates, in raw units, (learners, block).

    All of the weight of the bias and of numeric columns, see ``loops.block_predict.make_raw``.
    """
    layout = engine.layout
    w = np.zeros((layout.learners, layout.most))
    reference, vectors = state.extra["reference"], state.extra["vectors"]
    raw = block_predict.make_raw(layout.rule, engine.loss, engine.shape(dense=False))
    mix = saved_mix(engine, state)
    raw(state.totals.reshape(-1), reference, vectors, layout.numeric, mix, w)
    return w


def moments(state: State) -> tuple[Floats, Floats]:
    """Mean and standard deviation of numeric columns over the rows learned, (columns,) each.

    By importance.
    """
    mean, squares = state.extra["reference"][[MU, M2], 1 : 1 + state.layout.numeric]
    return mean, np.sqrt(squares / max(state.totals[0, 1], 1e-300))


def mixture(engine: Walks, state: State) -> tuple[float, int] | None:
    """The second-order predictor's share of a saved model's predictions, and the row since which
    it, or the other one, has had the larger part; 0 where frozen predictions decide. None for rules
    with one predictor."""
    storage = engine.layout.rule.storage
    if not (isinstance(storage, Block) and storage.first and storage.second):
        return None
    of_B, _, of_G, *_ = saved_mix(engine, state).tolist()
    share = of_B / (of_B + of_G) if of_B + of_G > 0.0 else 1.0
    since = max(int(state.totals[0, rebase.AT["since"]]), 1)
    return share, 0 if is_fitted(engine, state) else since


MOST = 1 << 20
"""Values of the stored rows, 16 MiB: rows of more, as of long texts, are no longer stored."""


def follow_predictions(engine: Walks, state: State) -> None:
    """After a change of reference: the prior of coordinates outside the block follows what would
    have predicted the rows since the last one best, in the first pass, and their w = b / D the
    prior."""
    totals, storage = state.totals[0], cast(Block, engine.layout.rule.storage)
    if not storage.second or totals[AT["horizon"]] > 0.0:
        return
    before, g, R = (float(totals[AT[name]]) for name in ("outside", "outside_g", "outside_R"))
    after = of_predictions(before, g, R, float(totals[AT["t"]]))
    totals[[AT["outside"], AT["outside_g"], AT["outside_R"]]] = after, 0.0, 0.0
    if after == before:
        return
    at = np.flatnonzero((state.slot("n") > 0.0) & (state.slot("place") == 0.0))
    one = float(engine.params["prior_sparse"]) * sparse_unit(engine.loss.quadratic)
    one *= rebase.mean_importance(totals)
    q = np.asarray(state.slot("q")[at, np.newaxis], np.float64)
    S, scale = np.asarray(state.slot("S")[at], np.float64), state.totals[:, AT["scale"]]
    D = [precision(S, q, scale, one * outside) for outside in (before, after)]
    state.slot("w")[at] = np.asarray(state.slot("w")[at], np.float64) * (D[0] / D[1])


@dataclass
class FirstRows:
    """Those of a state, while a batch is learned piece by piece.

    low: rows of the batch before the piece. row: up to which they are stored: they are added when
    a solve needs them and when the batch ends, for each time copies all that are stored.
    """

    engine: Walks
    state: State
    batch: Batch
    stores: bool
    low: int = 0
    row: int = 0

    @classmethod
    def of(cls, engine: Walks, state: State, batch: Batch, *, part: bool) -> FirstRows:
        """Rows are stored while all that were learned are: not by a part of a round, nor in a
        second pass, nor where the block has groups."""
        layout, totals = engine.layout, state.totals[0]
        stores = (
            isinstance(layout.rule.storage, Block)
            and layout.rule.storage.second
            and engine.loss.probabilistic
            and layout.groups == 1
            and not part
            and totals[AT["horizon"]] == 0.0
            and len(state.extra["y"]) == totals[AT["t"]]
        )
        found = cls(engine, state, batch, stores)
        if not stores and "y" in state.extra:
            found.drop()
        return found

    def store(self, row: int) -> None:
        """The rows of the batch before this one, as far as they are learned from."""
        if not self.stores:
            return
        some = self.row + np.flatnonzero(self.batch.weight[self.row : row] > 0.0)
        before = StoredRows(*(self.state.extra[name] for name in StoredRows._fields))
        rows = extended(before, taken(self.batch, some), int(self.engine.bias))
        self.state.extra |= rows._asdict()
        self.row = row
        if len(rows.values) > MOST:
            self.drop()

    def solve(self, row: int) -> None:
        """Before this row of the piece is predicted, which is observed already."""
        state, layout = self.state, self.engine.layout
        if not (self.stores and is_due(state.totals[0, AT["t"]])):
            return
        self.store(self.low + row)
        if not self.stores:
            return
        if self.is_outside():
            self.drop()
            return
        rows = len(state.extra["y"])
        steps = OF_SOLVE * rows * layout.most * layout.learners
        function = self.engine.function(solve, solve_signature(layout.dtype), steps)
        arrays = [state.extra[name] for name in layout.block]
        stored = [state.extra[name] for name in StoredRows._fields[:-1]]
        d, L = layout.most, layout.learners
        scratch = np.zeros((rows, padded(d))), np.zeros((L, rows)), np.zeros((L + 1, rows))
        work = np.zeros((2, d, d)), np.zeros((5, max(rows, padded(d), L)))
        function(
            state.cells, state.totals.reshape(-1), *arrays, self.engine.kind,
            self.engine.loss.coupled, self.engine.classes, *stored, *scratch, *work,
        )  # fmt: skip
        if state.totals[0, AT["t"]] >= LAST:
            self.drop()

    def is_outside(self) -> bool:
        """Whether most values of the stored rows are of coordinates outside of the block, as in
        texts: solved for what is inside alone, its weights would explain what is outside."""
        state, indices = self.state, self.state.extra["indices"]
        others = indices[indices > state.layout.numeric]
        outside = int(np.count_nonzero(state.slot("place")[others] == 0.0))
        return 2 * outside > len(indices) - len(state.extra["y"])

    def drop(self) -> None:
        """No further row is stored."""
        self.stores = False
        if len(self.state.extra["y"]):
            self.state.extra |= StoredRows.none(0)._asdict()
