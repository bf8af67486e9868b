"""When to commit, and what: the watcher that keeps a run."""

from __future__ import annotations

import time

from streamomd.checkpoint import Commit, Put, Store, Writer, keep_document
from streamomd.far import Far
from streamomd.metrics import Metrics
from streamomd.model import Model
from streamomd.report import note

SHARE = 0.05  # of wall time, at most, where time is the trigger


class Keeper:
    """Commits a model every so many rows or seconds, and when told to."""

    def __init__(self, model: Model, store: Store, writer: Writer, dataset: str) -> None:
        self._model, self._store, self._writer, self._dataset = model, store, writer, dataset
        self._every_rows = model.spec.checkpoint.every_rows
        self._every_seconds = model.spec.checkpoint.every_seconds
        self._started = time.monotonic()
        self._spent = 0.0
        self._warned = False
        self._names: tuple[int, str] = (0, "")
        self._due_at = self._started + self._every_seconds
        self._plan_next(model.metrics.total_rows)

    def far(self) -> Far:
        """The state of the last commit, left where it is."""
        commit = self._writer.last
        return Far(self._model.state.layout, self._store, Put(commit.directory, commit.parts))

    def reserve(self) -> str:
        """A directory of the checkpoint for parts that others put."""
        return self._writer.reserve()

    @property
    def sequence(self) -> int:
        """Of the last commit."""
        return self._writer.sequence

    def update(self, metrics: Metrics) -> None:
        """Commit if it is time."""
        by_time = self._every_seconds > 0 and time.monotonic() >= self._due_at
        if metrics.total_rows >= self.next_row or by_time:
            self.commit()

    def commit(self) -> Commit:
        """Commit now."""
        began = time.monotonic()
        model = self._model
        document = model.document(dataset=self._dataset, names=self._keep_names())
        commit = self._writer.commit(document, model.kept())
        model.sequence = commit.sequence
        now = time.monotonic()
        self._spent += now - began
        self._due_at = now + max(self._every_seconds, (now - began) * (1 / SHARE - 1))
        self._plan_next(model.metrics.total_rows)
        self._warn_if_slow(now)
        return commit

    def finish(self, metrics: Metrics) -> None:
        """The last commit is made by who knows that the run is finished."""

    def close(self) -> None:
        """Nothing is left open."""

    def _plan_next(self, rows: int) -> None:
        every = self._every_rows
        self.next_row = float((rows // every + 1) * every) if every else float("inf")

    def _keep_names(self) -> str:
        names = self._model.names
        if names.version != self._names[0] or not self._names[1]:
            self._names = names.version, keep_document(self._store, "names", names.to_json())
        return self._names[1]

    def _warn_if_slow(self, now: float) -> None:
        elapsed = now - self._started
        if self._warned or not self._every_rows or elapsed < 5.0:
            return
        if self._spent > SHARE * elapsed:
            self._warned = True
            note(
                f"checkpoints every {self._every_rows:,} rows take {self._spent / elapsed:.0%} of "
                "the time; a larger checkpoint.every_rows, or every_seconds alone, would cost less"
            )
