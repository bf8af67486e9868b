"""Labels that come later, in a sweep: the second cursors of all learners read the rows once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from streamomd.core.batch import Batch, Times
from streamomd.runs.delayed import DelayedRun, Teacher
from streamomd.runs.exact import ExactRun
from streamomd.shards.encoded_rows import Rows
from streamomd.shards.order import places
from streamomd.shards.reader import Piece
from streamomd.shards.shard import ShardSet
from streamomd.training.metrics.by_time import NEVER
from streamomd.training.model import Model
from streamomd.training.row_stream import Source
from streamomd.training.signals import StopRequest
from streamomd.training.teaching import stream_times
from streamomd.training.training_step import Predict


@dataclass(eq=False)
class DelayedLearner(DelayedRun):
    """The second cursor of a learner. pieces: what it reads."""

    pieces: Iterator[Piece[Rows]] | None = None

    def _source(self) -> Source:
        assert self.pieces is not None
        pieces = self.pieces
        return lambda order, start: pieces

    @cached_property
    def _teacher(self) -> Teacher:
        return Teacher(self, self.schedule, 0, all_arrive=self.predicts_all)


class DelayedLearners:
    """The second cursors of models that are at the same row."""

    def __init__(self, models: Sequence[Model], shards: ShardSet) -> None:
        lead = models[0]
        data, at = lead.spec.data, lead.teaching.cursor
        order = places(data.order, data.seed, len(shards), at.epoch)
        source = ExactRun(lead, shards, None, [], StopRequest())
        self._pieces = source._here(order, (at.place, at.row))
        self._found: deque[Piece[Rows]] = deque()
        self._first, self._lock = 0, threading.Lock()
        self._at = dict.fromkeys(models, 0)
        self._runs = {
            model: DelayedLearner(model, shards, None, [], StopRequest(), pieces=self._read(model))
            for model in models
        }

    def stream(self, model: Model, batch: Batch) -> Times:
        """The stream times when rows arrive, after those that the model has predicted."""
        assert batch.time is not None
        known = model.metrics.by_time
        latest = NEVER if known is None or known.latest is None else known.latest
        return stream_times(batch.time, latest)

    def predict(self, model: Model, stream: Times) -> Predict:
        """Of rows that arrive at these stream times, see ``DelayedRun.predict_rows``."""
        return partial(self._runs[model].predict_rows, stream, model.metrics)

    def forget(self, models: Sequence[Model]) -> None:
        """Drop the pieces that all of these models have read."""
        low = min((self._at[model] for model in models), default=self._first)
        for _ in range(low - self._first):
            self._found.popleft()
        self._first = max(self._first, low)

    def close(self) -> None:
        """Stop reading ahead."""
        for run in self._runs.values():
            run._teacher.close()
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()

    def _read(self, model: Model) -> Iterator[Piece[Rows]]:
        """The pieces in order. Learners may be in threads; the first one that needs a piece reads
        it."""
        while True:
            with self._lock:
                at = self._at[model] - self._first
                if at == len(self._found):
                    piece = next(self._pieces, None)
                    if piece is None:
                        return
                    self._found.append(piece)
                self._at[model] += 1
                piece = self._found[at]
            yield piece
