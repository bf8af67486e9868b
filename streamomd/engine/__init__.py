"""The engine updates a state by batches. No other package has or compiles loops over rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Batch, DenseBatch, SparseBatch
from streamomd.engine import block_state, frozen_rows, standardize
from streamomd.engine.compile import OF_SOLVE, OF_VALUE, work_of
from streamomd.engine.divided import DividedState, is_divisible
from streamomd.engine.loops import block, dense, rebase
from streamomd.engine.loops.reference import standardise_rows
from streamomd.engine.operations import TARGET_C, TARGET_S, rebase_signature, standardise_signature
from streamomd.engine.standardize import Front, StandardizedRows, change_reference, raw_weights
from streamomd.engine.state import State
from streamomd.engine.walks import Walks
from streamomd.rules.common.standardized import LEAD, smoothing
from streamomd.rules.contract import Coordinates

Floats = NDArray[np.float64]


class Engine(Walks):
    """The loops of one rule, loss and layout.

    classes: 1 in regression, else how many. params: hyper-parameters as ``Rule.parse_params`` gives
    them, the same for each learner. compiled: False for plain Python, slow and bit-identical.
    late: what the disk cache lacks is compiled once it is worth it, see ``late``.
    """

    @classmethod
    def side_by_side(cls, engines: Sequence[Self]) -> Self:
        """An engine for several learners, alike but for their hyper-parameters, in one state.

        It only learns and observes; sums are then (learners * 3,), each learner's own.
        """
        layout = replace(engines[0].layout, learners=len(engines))
        made = replace(engines[0], layout=layout)
        made.hyper = np.concatenate([engine.hyper for engine in engines])
        # Implicit steps of any of them rule the loop over columns out for all.
        made._dense = made._dense and all(engine._dense for engine in engines)
        return made

    def begin(self, state: State) -> None:
        """Totals that depend on the number of coordinates or on hyper-parameters, at the start."""
        rule = self.layout.rule
        if rule.state.begin is not None:
            totals = rule.state.begin(float(state.layout.size), self.h)
            state.totals[:, : len(totals)] = totals
        self.renew(state)

    def begin_pass(self, state: State) -> None:
        """Another pass over the same rows begins."""
        if self.layout.block:
            totals = state.totals[0]
            at = rebase.AT
            if totals[at["horizon"]] == 0.0:
                # The importance of one pass: later ones count in units of it.
                totals[at["horizon"]] = totals[at["n"]]
                totals[at["next"]] = totals[at["t"]] + 1.0
            # B alone predicts now: a lead on rows that were learned before says little.
            totals[at["lead"]] = -LEAD

    def renew(self, state: State) -> None:
        """Recompute the totals that are sums over all coordinates."""
        if self.layout.rule.masses:
            loop = self.loop("renew")
            for k in range(self.layout.learners):
                loop(*self._numbers(state), k)

    def align(self, state: State, common: NDArray[Any]) -> None:
        """Carry every coordinate's own slots to common shared ones, which then become its own.

        common: (coordinates, shared slots), of the cells' dtype.
        """
        loop = self.loop("align")
        loop(*self._numbers(state), common.reshape(-1))

    def rejoin(self, state: State, mean: Floats) -> None:
        """Make own slots from mean weights, (coordinates, learners), wherever a slot has moved."""
        loop = self.loop("rejoin")
        loop(*self._numbers(state), state.layout.starts, mean.reshape(-1))

    @property
    def divisible(self) -> bool:
        """Whether threads may learn groups of its classes: see ``engine.divided``."""
        return is_divisible(self.layout, self.loss, self.classes)

    def warm(self, state: State, empty: Batch, *, learning: bool) -> None:
        """Compile, or load from the disk cache, the loops for batches like this empty one.

        Dense batches mostly of zeros need another loop, which is compiled at the first of them.
        """
        walk = self.learn if learning else self.predict
        walk(state, np.zeros(3), empty)

    def learn(self, state: State, sums: Floats, batch: Batch, *, part: bool = False) -> Floats:
        """Predict each row, then learn from it; the margins, (rows, learners), of before learning.

        Moves ``state`` and adds to ``sums``: importance, loss, and mistakes or squared errors.
        part: the state will be merged with others of the same start, so its block takes no more
        coordinates.
        """
        if self.layout.means:
            batch = self.filled(state, batch, learns=True)
        if self.layout.block:
            first = block_state.FirstRows.of(self, state, batch, part=part)
            is_scored = frozen_rows.is_scored(self, state, part=part)
            pieces = frozen_rows.segments(self, state, batch) if is_scored else [batch]
            # In turn: a piece has to be learned before the next one is scored.
            found = [self._learn_block(state, sums, some, first, part=part) for some in pieces]
            first.store(len(batch))
            return found[0] if len(found) == 1 else np.concatenate(found)
        if self.layout.referred:
            return self._learn_referred(state, sums, batch)
        walk = self._walk_recent if self.layout.rule.storage.kind == "recent" else self._walk
        # By the batch's values: mostly zeros are faster row by row, with the same bits.
        by_columns = self._dense and isinstance(batch, DenseBatch) and dense.filled(batch.values)
        margins, clock = walk("dense" if by_columns else "learn", state, sums, batch)
        state.clock = int(clock)
        return margins

    def look(self, state: State, batch: Batch) -> None:
        """Observe rows and do nothing else: scales of all rows, before the first is learned."""
        self._walk("look", state, np.zeros(3), self.filled(state, batch, learns=True))

    def predict(self, state: State, sums: Floats, batch: Batch) -> Floats:
        """Predicts each row as ``learn`` does; nothing is learned."""
        if self.layout.means:
            batch = self.filled(state, batch)
        if self.layout.block:
            return self._predict_block(state, sums, batch)
        if not self.layout.referred:
            return self._walk("predict", state, sums, batch)[0]
        rows = self._standardized(state, batch)
        some = rows.batch.rows(0, rows.write(0, learns=False))
        return self._walk_referred("predict", state, sums, some)[0]

    def predict_second(self, state: State, sums: Floats, batch: Batch) -> Floats:
        """As ``predict``, by the second-order predictor of a block alone."""
        mix = np.zeros(3 + self.layout.learners)
        # All of B, in the block and outside, and nothing of G.
        mix[:2] = 1.0
        return self._predict_block(state, sums, self.filled(state, batch), mix)

    def spread(self, state: State, batch: Batch) -> Floats:
        """x'P x of each row, and its prior's part, (rows, 2 learners): see ``standard_errors``."""
        batch, learners = self.filled(state, batch), self.layout.learners
        rows, found = batch.arrays, np.empty((len(batch), 2 * learners))
        loop = self.loop("spread", isinstance(batch, DenseBatch), rows[2].dtype.name)
        stored = (state.cells, state.totals.reshape(-1), *self._matrices(state))
        moved = (np.zeros(3), self.hyper, float(state.clock))
        loop(*stored, *moved, *rows, batch.y, batch.weight, found)
        return found

    def fill_values(self, state: State) -> Floats:
        """What a missing value is replaced by, for each column of ``layout.means``."""
        return standardize.fill_values(state.means, self._least)

    def filled(self, state: State, batch: Batch, *, learns: bool = False) -> Batch:
        """The rows with their missing values replaced. learns: the means count these rows."""
        if not self.layout.means:
            return batch
        columns = np.array(self.layout.means)
        return standardize.filled(state.means, columns, batch, self._least, learns=learns)

    @property
    def _least(self) -> float:
        """The least magnitude from which the rule learns."""
        return self.layout.rule.row.range.of(self.layout.dtype).least

    def weights(self, state: State, low: int, high: int, first: int = 0) -> Floats:
        """w of coordinates low … high − 1, (high − low, learners), as the next row would use it.

        In raw units, the bias included. first: the model's coordinate that is the state's 0.
        """
        if self.layout.block:
            return block_state.all_weights(self, state, low, high, first)
        state = state.joined()
        found = self.relative_weights(state, low, high)
        if self.layout.standardize and low <= self.layout.numeric:
            front = Front(state, self.h, 1 + self.layout.centred).weights
            found = raw_weights(state, found, low, front)
        if self.layout.scale_target:
            target = state.extra["target"]
            # Back from standard units: first the scale, then the centre, which only the bias has.
            found *= target[TARGET_S]
            if low == 0:
                found[0] += target[TARGET_C]
        return found

    def relative_weights(self, state: State, low: int, high: int) -> Floats:
        """The weights as the rule has them, relative to references."""
        unit = SparseBatch(  # a row for each coordinate, holding it alone with value 1
            indptr=np.arange(high - low + 1, dtype=np.int64),
            indices=np.arange(low, high, dtype=np.int32),
            values=np.ones(high - low),
            y=np.zeros(high - low),
            weight=np.ones(high - low),
        )
        # A prediction may add a part or a clamp to <w, x>; weights are <w, x> alone.
        rule = self.layout.rule
        plain = replace(rule, storage=Coordinates(), row=replace(rule.row, part=None, clamp=None))
        layout = replace(self.layout, rule=plain, standardize=False, scale_target=False, means=())
        # The bias is coordinate 0 of these rows: as an entry of its own it would be added to each.
        walk = replace(self, bias=False, layout=layout)
        return walk.predict(state, np.zeros(3), unit)

    def smoothing(self, state: State) -> float:
        """e of p' = (1 - e) p + e / classes: what the rule's probabilities lose to uniform ones."""
        return smoothing(state.totals[0, 0]) if self.layout.block else 0.0

    def row_losses(
        self,
        rows_before: float,
        margins: Floats,
        y: Floats,
        weight: Floats,
        found: Floats | None = None,
    ) -> Floats:
        """Loss, and mistake or squared error, of each row, (rows, 2), as ``learn`` sums them.

        rows_before: ``rows_learned`` before the first of them. weight: of 0, nothing is learned.
        found: where they are written, if given.
        """
        found = np.empty((len(y), 2)) if found is None else found
        loop = self.loop("row_losses", work=OF_VALUE * margins.size)
        loop(rows_before, self.hyper, y, weight, margins, found)
        return found

    def rows_learned(self, state: State) -> float:
        """Rows of weight above 0 that a rule with a block has learned, on which the smoothing of
        its log loss depends; 0 of other rules."""
        return float(state.totals[0, 0]) if self.layout.block else 0.0

    def _walk(
        self, operation: str, state: State, sums: Floats, batch: Batch, hyper: Floats | None = None
    ) -> tuple[Floats, Any]:
        if isinstance(state, DividedState):
            return self._walk_groups(operation, state, sums, batch)
        margins = np.empty((len(batch), self.layout.learners))
        rows, matrices = batch.arrays, self._matrices(state)
        work = work_of(len(batch), batch.values.size, self.layout.learners, matrices)
        loop = self.loop(operation, isinstance(batch, DenseBatch), rows[2].dtype.name, work)
        stored = (state.cells, state.totals.reshape(-1), *matrices)
        moved = (sums, self.hyper if hyper is None else hyper, float(state.clock))
        return margins, loop(*stored, *moved, *rows, batch.y, batch.weight, margins)

    def _learn_block(
        self, state: State, sums: Floats, batch: Batch, first: block_state.FirstRows, *, part: bool
    ) -> Floats:
        """Learn up to the next change of reference, change it, and go on. first: of the batch that
        this one is the next piece of."""
        margins, rows = np.empty((len(batch), self.layout.learners)), batch.arrays
        matrices = self._matrices(state)
        work = work_of(len(batch), batch.values.size, self.layout.learners, matrices)
        learn = self.loop("learn", isinstance(batch, DenseBatch), rows[2].dtype.name, work)
        *arrays, places, numeric = matrices
        if part:
            # A part takes no more coordinates: states with other blocks could not be merged.
            places = places[: state.used_places]
        stored = (state.cells, state.totals.reshape(-1), *arrays, places, numeric)
        learned = (sums, self.hyper, float(state.clock), *rows, batch.y, batch.weight, margins)
        is_dense, group = isinstance(batch, DenseBatch), arrays[-1].shape[2]
        given = self.layout.learners, places, numeric, rows[0]
        scratch = block.scratch(*given, dense=is_dense)
        table = arrays[1].reshape(-1, arrays[1].shape[2])
        walk = partial(learn, *stored[:3], table, *stored[4:])
        rests = frozen_rows.resting(self, state, part=part)
        row = walk(0, False, rests, *learned, *scratch)
        while row != len(batch):
            change = self._rebase(OF_SOLVE * arrays[-1].size)
            # A new P alone leaves it as it is: then the reference has not changed.
            due = state.totals[0, rebase.AT["next"]]
            change(*stored[:-1], self.kind, *rebase.scratch(places, group))
            if state.totals[0, rebase.AT["next"]] != due:
                block_state.follow_predictions(self, state)
            if row >= 0:
                first.solve(row)
            # The loop says by the sign whether that row has been observed.
            row = walk(row if row >= 0 else ~row, row >= 0, rests, *learned, *scratch)
        first.low += len(batch)
        state.clock += len(batch)
        return margins

    def _predict_block(
        self, state: State, sums: Floats, batch: Batch, mix: Floats | None = None
    ) -> Floats:
        """By the model as it is saved, or mixed so."""
        margins, rows = np.empty((len(batch), self.layout.learners)), batch.arrays
        work = work_of(len(batch), batch.values.size, self.layout.learners, ())
        loop = self.loop("predict", isinstance(batch, DenseBatch), rows[2].dtype.name, work)
        stored = (state.cells, state.totals.reshape(-1), *self._matrices(state))
        moved = (sums, self.hyper, float(state.clock))
        given = (*rows, batch.y, batch.weight, margins)
        loop(*stored, *moved, *given, frozen_rows.saved_mix(self, state) if mix is None else mix)
        return margins

    def _learn_referred(self, state: State, sums: Floats, batch: Batch) -> Floats:
        """Learn up to the next change of reference, change it, and go on."""
        rows = self._standardized(state, batch)
        margins, low, observed = [], 0, False
        while True:
            high = rows.write(low, learns=True, observed=observed)
            some = rows.batch.rows(low, high)
            by_columns = self._dense and isinstance(some, DenseBatch) and dense.filled(some.values)
            learn = "dense" if by_columns else "learn"
            found, clock = self._walk_referred(learn, state, sums, some)
            margins.append(found)
            state.clock = int(clock)
            if high == len(batch):
                return np.concatenate(margins)
            self._change_references(state)
            low, observed = high, True

    def _walk_referred(
        self, operation: str, state: State, sums: Floats, batch: Batch
    ) -> tuple[Floats, Any]:
        """Rows whose columns are standardised already, and whose targets may have to be."""
        if not self.layout.scale_target:
            return self._walk(operation, state, sums, batch)
        target, learns = state.extra["target"], operation != "predict"
        y = standardize.scaled(target, batch) if learns else np.zeros(len(batch))
        rule, scale = self.layout.rule, float(target[TARGET_S])
        hyper = standardize.scaled_parameters(self.hyper, rule, self.loss, scale)
        units = replace(batch, y=y)
        margins, clock = self._walk(operation, state, np.zeros(3), units, hyper)
        given = (target, learns, sums, self.hyper, batch.y, batch.weight, margins)
        self.loop("count", work=OF_VALUE * margins.size)(*given)
        return margins, clock

    def _change_references(self, state: State) -> None:
        with state.front(1 + self.layout.centred) as front:
            change_reference(front, self.h)
        if not self.layout.scale_target:
            return
        target = state.extra["target"]
        c, s = standardize.next_target(target)
        before, shift = float(target[TARGET_S]), float(target[TARGET_C]) - c
        if before > 0.0 and before != s:
            ratio, rule = before / s, self.layout.rule
            known = rule.state.rejoin is not None
            mean = self.relative_weights(state, 0, self.layout.size) * ratio if known else None
            standardize.rescale_slots(state, self.loss, ratio)
            if mean is not None:
                self.rejoin(state, mean)
        if s > 0.0 and shift != 0.0:
            standardize.shift_bias(state, self.h, shift / s)
        target[TARGET_C], target[TARGET_S] = c, s

    def _standardized(self, state: State, batch: Batch) -> StandardizedRows:
        work = work_of(len(batch), batch.values.size, 1, ())
        write = self.function(standardise_rows, standardise_signature(), work)
        return StandardizedRows(write, state, batch)

    def _rebase(self, work: float = math.inf) -> Any:
        return self.function(rebase.rebase, rebase_signature(self.layout.dtype), work)
