"""Replay the rows a model has learned, and verify that they are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.checkpoint import Ledger, compare, explain, open_store, read_ledger
from streamomd.checkpoint.commit_list import read_commit
from streamomd.core.batch import Batch
from streamomd.core.errors import CorruptionError
from streamomd.engine.state import State
from streamomd.shards.columns import check_columns, distinct_schemas
from streamomd.shards.digests import Digests
from streamomd.shards.order import places
from streamomd.shards.shard import ShardSet
from streamomd.training.model_data import ModelData
from streamomd.training.row_stream import cache_of, rows_of
from streamomd.training.training_step import learn_rows

Floats = NDArray[np.float64]
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
        pieces = rows_of(self.model.plan, self.shards, order, **options_of_rows)
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
