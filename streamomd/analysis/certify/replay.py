"""Replay the rows a model has learned, verified to be the same, and add up losses over rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamomd.analysis.comparator import Problem
from streamomd.checkpoint import Ledger, compare, explain, open_store, read_ledger
from streamomd.checkpoint.commit_reader import read_commit
from streamomd.core.batch import Batch, Floats, SparseBatch
from streamomd.core.errors import CorruptionError
from streamomd.engine.state import State
from streamomd.shards.order import places
from streamomd.shards.renames import check_columns, distinct_schemas
from streamomd.shards.shard import Digests, ShardSet
from streamomd.training.model_data import ModelData
from streamomd.training.row_stream import cache_of, rows_of
from streamomd.training.training_step import learn_rows

OnBatch = Callable[[Batch, Floats], None]


def unreplayable_reason(model: ModelData) -> str:
    """Why the rows cannot be replayed as they were learned; empty if they can."""
    spec, epochs = model.spec, len(model.metrics.rows)
    reasons = {
        f"train.mode is {spec.train.mode!r}: the theorems are about one learner in order": (
            spec.train.mode != "exact"
        ),
        "the run started from another state (model.start): the theorems start at 0": (
            spec.model.start != ""
        ),
        "data.standardize changes the inputs of earlier rows: the theorems are about fixed ones": (
            spec.data.standardize != "none"
        ),
        "model.scale_target changes earlier rows' targets: the theorems are about fixed ones": (
            spec.refers_target
        ),
        "rows were held out (data.holdout): the theorems are about all rows in order": (
            spec.data.holds_out
        ),
        "rows were weighted by class (model.class_weight): the theorems are about given weights": (
            bool(spec.model.class_weight)
        ),
        "rows were sampled (data.sample): the theorems are about all rows in order": (
            bool(spec.data.sample)
        ),
        f"the rows were learned in {epochs} epochs: the theorems are about one pass": epochs > 1,
        "no row was learned yet": not model.metrics.total_rows,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


@dataclass(frozen=True)
class Replay:
    """The learned rows of a model, for any number of passes."""

    model: ModelData
    shards: ShardSet
    digests: Digests = field(default_factory=Digests)
    """Digests of the run and of replayed data: every pass reads the same bytes."""

    def __post_init__(self) -> None:
        for shard in distinct_schemas(self.shards):
            check_columns(self.model.plan, shard)

    def __call__(self) -> Iterator[Batch]:
        """The rows learned so far, in their order."""
        left = self.model.metrics.total_rows
        for batch in self.all():
            yield batch.rows(0, left) if left < len(batch) else batch
            left -= len(batch)
            if left <= 0:
                return

    def filled(self) -> Iterator[Batch]:
        """Yields the learned rows, with missing values replaced as they were when the rows were
        learned."""
        engine = self.model.engine
        state = State(engine.layout, np.empty(0), np.empty(0), means=engine.layout.start_means())
        for batch in self():
            yield engine.filled(state, batch, learns=True)

    def all(self) -> Iterator[Batch]:
        """Every row of the shards, in the order of the first epoch."""
        data = self.model.spec.data
        order = places(data.order, data.seed, len(self.shards), 0)
        cache = cache_of(data, there=True)
        options_of_rows: Any = {"cache": cache, "digests": self.digests}
        pieces = rows_of(self.model.plan.learning, self.shards, order, **options_of_rows)
        try:
            for piece in pieces:
                yield piece.value.batch
        finally:
            pieces.close()

    def differences(self, options: Mapping[str, Any] | None) -> str:
        """Evidence that the shards are not those of the run; empty if there is none.

        options: the storage options of the checkpoint.
        """
        rows = self.model.metrics.total_rows
        if self.shards.rows < rows:
            return f"{rows:,} rows were learned, and the shards have {self.shards.rows:,}"
        ledger = self._saved(options)
        if ledger is None:
            return "" if self.replay() else "learning these rows again gives a different state"
        saved = ledger.shards
        current = self.shards.fingerprint()
        # A copy at another location is valid: contents are compared, not locations.
        moved = [
            {**facts, "url": saved_digest["url"]}
            for facts, saved_digest in zip(current, saved, strict=False)
        ]
        refused = [
            facts for facts in compare(saved, moved + current[len(saved) :]) if facts.refused
        ]
        if refused:
            return f"the shards are not those of the run:\n{explain(refused)}"
        found_digests = {
            saved_digest["url"]: facts["url"]
            for facts, saved_digest in zip(current, saved, strict=False)
        }
        for url, group, digest in ledger.digests():
            self.digests.check_found(found_digests[url], group, digest)
        return ""

    def _saved(self, options: Mapping[str, Any] | None) -> Ledger | None:
        """The ledger that the run's commit names; None if no commit is of this state."""
        model = self.model
        if not model.url or model.sequence < 0:
            return None
        store = open_store(model.url, options)
        try:
            commit = read_commit(store, model.sequence)
        except CorruptionError:  # deleted since, or damaged
            return None
        if commit.document["rows"] != model.metrics.total_rows:
            return None
        return read_ledger(store, commit)

    def replay(self, on_batch: OnBatch = lambda batch, margins: None) -> bool:
        """Learn the rows again; whether the state is bit-identical.

        on_batch: called with each batch and its margins before learning, (rows, learners).
        """
        state_copy = ModelData.new(self.model.spec, self.model.plan)
        if state_copy.cursor.epoch < 0:
            for batch in self.all():
                state_copy.engine.look(state_copy.state, batch)
        state_copy.metrics.begin(0)
        for batch in self():
            on_batch(batch, learn_rows(state_copy, batch))
        return state_copy.state_sha256 == self.model.state_sha256


def targets(problem: Problem, y: Floats) -> Floats:
    """The target of each learner, (rows, learners): y, or in one-against-all ±1."""
    if problem.learners == 1:
        return y[:, None]
    number = y if problem.classes > 2 else (y > 0.0).astype(np.float64)
    own: Floats = np.where(number[:, None] == np.arange(problem.learners), 1.0, -1.0)
    return own


@dataclass
class TotalLosses:
    """Sums by learner, each row times its importance; a coupled loss has none of its own.

    loss (of one learner: left to the loops), square ((y - p)^2), mistakes (classification).
    hinges: by gamma, of [gamma - y p]_+. widest: the largest abs(p). steep: whether to compute
    ``steepest``, the largest importance times slope.
    """

    problem: Problem
    loss: Floats
    square: Floats
    mistakes: Floats
    widest: Floats
    hinges: dict[float, Floats]
    steep: bool = False
    steepest: float = 0.0

    @classmethod
    def none(
        cls, problem: Problem, gammas: tuple[float, ...] = (), *, steep: bool = False
    ) -> TotalLosses:
        """Sums of no rows."""
        loss, square, mistakes, widest, *hinges = np.zeros((4 + len(gammas), problem.learners))
        by_gamma = dict(zip(gammas, hinges, strict=True))
        return cls(problem, loss, square, mistakes, widest, by_gamma, steep=steep)

    def add(self, batch: Batch, margins: Floats) -> None:
        """Add rows with these margins, (rows, learners)."""
        y, h, p = targets(self.problem, batch.y), batch.weight[:, None], margins
        loss, numbers = self.problem.loss, self.problem.loss.numbers(self.problem.loss_params)
        if self.problem.learners > 1 and not loss.coupled:
            self.loss += (h * _each(loss.value, numbers)(p, y)).sum(axis=0)
        if self.steep:
            slopes = h * np.abs(_each(loss.slope, numbers)(p, y))
            self.steepest = max(self.steepest, float(slopes.max(initial=0.0)))
        self.square += (h * (y - p) ** 2).sum(axis=0)
        self.widest = np.maximum(self.widest, np.abs(p).max(axis=0, initial=0.0))
        self.mistakes += (h * np.where(y > 0.0, ~(p > 0.0), ~(p <= 0.0))).sum(axis=0)
        for gamma in self.hinges:
            self.hinges[gamma] += (h * np.maximum(gamma - y * p, 0.0)).sum(axis=0)


def _each(function: Callable[..., float], numbers: Any) -> Callable[[Floats, Floats], Floats]:
    return np.vectorize(lambda p, y: function(p, y, numbers), otypes=[np.float64])


@dataclass
class FixedWeights:
    """The losses of fixed weights u, (size, learners), over the rows of a problem.

    lower: if they were searched, a lower bound on the loss in the set, by learner.
    """

    problem: Problem
    u: Floats
    gammas: tuple[float, ...]
    lower: Floats | None = None
    total: float = field(init=False)
    costs: TotalLosses = field(init=False)

    def __post_init__(self) -> None:
        self.total, self.costs = self._walk(self.gammas)

    def hinge(self, learner: int) -> Callable[[float], float]:
        """``hinge(learner)(gamma)``: the sum of [gamma - y <u, x>]_+, by a pass if not cached."""

        def of(gamma: float) -> float:
            if gamma not in self.costs.hinges:
                self.costs.hinges |= self._walk((gamma,))[1].hinges
            return float(self.costs.hinges[gamma][learner])

        return of

    def longest(self) -> float:
        """The largest ||x||^2 of a row, the bias included, by a pass."""
        squares = [squared_lengths(batch).max(initial=0.0) for batch in self.problem.batches()]
        return float(max(squares, default=0.0)) + float(self.problem.bias)

    def losses_at(self, rows: Sequence[int]) -> Floats:
        """The loss of u over the first rows, for each of these ascending numbers; a pass."""
        sums, done, found, left = np.zeros(3), 0, [], list(rows)
        objective = self.problem.at(self.problem.loss, self.problem.loss_params)
        objective.state.slot("u")[...] = self.u
        for batch in self.problem.batches():
            low = 0
            while low < len(batch) and left:
                high = min(len(batch), low + left[0] - done)
                objective.engine.predict(objective.state, sums, batch.rows(low, high))
                done, low = done + high - low, high
                if done == left[0]:
                    found.append(float(sums[1]))
                    del left[0]
        return np.array(found, dtype=np.float64)

    def _walk(self, gammas: tuple[float, ...]) -> tuple[float, TotalLosses]:
        sums, costs = np.zeros(3), TotalLosses.none(self.problem, gammas)
        for batch, margins in self._margins(sums):
            costs.add(batch, margins)
        return float(sums[1]), costs

    def _margins(self, sums: Floats) -> Iterator[tuple[Batch, Floats]]:
        """Each batch with the predictions of u; its loss is added to ``sums``."""
        objective = self.problem.at(self.problem.loss, self.problem.loss_params)
        objective.state.slot("u")[...] = self.u
        for batch in self.problem.batches():
            yield batch, objective.engine.predict(objective.state, sums, batch)


def squared_lengths(batch: Batch) -> Floats:
    """||x||^2 of each row, without a bias."""
    if not isinstance(batch, SparseBatch):
        dense = np.asarray(batch.values, dtype=np.float64)
        return np.asarray((dense * dense).sum(axis=1))
    values = np.asarray(batch.values, dtype=np.float64)
    rows = np.repeat(np.arange(len(batch)), np.diff(batch.indptr))
    some = values[batch.indptr[0] : batch.indptr[-1]]
    return np.asarray(np.bincount(rows, weights=some * some, minlength=len(batch)), np.float64)
