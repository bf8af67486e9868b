"""When to commit, and what: the watcher that commits a run."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from streamomd.checkpoint import Commit, Ledger, Part, Store, StoredParts, Writer
from streamomd.checkpoint.documents import save_document
from streamomd.checkpoint.segments import Facts
from streamomd.config.run_tables import Checkpoint
from streamomd.core.errors import (
    ChangedDataError,
    ConcurrentWriterError,
    DivergedError,
    StorageError,
    StreamomdError,
    TooLargeError,
    UsageError,
)
from streamomd.core.profiling import Stage
from streamomd.core.run_events import emit
from streamomd.core.urls import shown
from streamomd.core.wording import counted
from streamomd.shards.shard import Digests, Found
from streamomd.training.metrics import Metrics
from streamomd.training.model_data import ModelData
from streamomd.training.model_document import (
    RemoteState,
    document_of,
    parts_of,
    parts_to_commit,
    refer_to_trees,
    save_trees,
)
from streamomd.training.progress import Watcher, note
from streamomd.training.training_threads import (
    AsyncCommitter,
    CommitAbandonedError,
    async_committer,
)

SHARE = 0.05  # of wall time, at most, where time is the trigger
FAILURES = 3  # of commits in a row, before it is an error
WRONG_INPUT = UsageError.exit_code, ChangedDataError.exit_code
"""Exit codes of errors that another attempt at the same job on the same rows meets again."""
Named = tuple[int, bytes | None]
"""The version of a table of names, and its document if it is not saved yet."""


def diverged_remedy(model: ModelData) -> str:
    """What to do about a diverged run: the command continues from its last finite commit."""
    job = shlex.join(["--label", model.spec.data.label, "--rule", model.spec.model.rule])
    return (
        "Fix extreme values in the shard, or pass a smaller learning rate; to continue from that "
        f"commit: streamomd train SHARDS {job} --start {shown(model.url)} --eta ETA"
    )


def report_commit(commit: Commit, **more: Any) -> None:
    """Emit the event of a commit."""
    rows, size = commit.document["rows"], sum(entry.size for entry in commit.parts)
    emit("commit", "", "info", sequence=commit.sequence, rows=rows, bytes=size, **more)


class CommitSchedule:
    """When a commit is due: by rows exactly; by time, with a limit on the share of time spent."""

    def __init__(self, settings: Checkpoint, rows: int) -> None:
        self._settings = settings
        self.record_commit(rows, 0.0)

    def is_due(self, rows: int) -> bool:
        """Whether a commit is due after this number of rows."""
        return rows >= self.next_row or time.monotonic() >= self.next_time

    def record_commit(self, rows: int, seconds: float) -> None:
        """Plan the next commit after one of this duration."""
        every, pause = self._settings.every_rows, self._settings.every_seconds
        self.next_row = float((rows // every + 1) * every) if every else math.inf
        wait = max(pause, seconds * (1 / SHARE - 1)) if pause else math.inf
        self.next_time = time.monotonic() + wait


class CheckpointManager(Watcher):
    """Commits a model every ``every_rows`` rows or seconds, and on request.

    In exact mode a due commit is asynchronous: learning waits for a copy of the state and
    continues while a thread writes it. One commit is in progress at a time. A commit due by rows
    waits for the one before; a commit due by time is delayed instead.

    spare: bytes of memory available, where more is known than the system reports.
    """

    def __init__(self, model: ModelData, store: Store, writer: Writer, ledger: Ledger) -> None:
        self._model, self._store, self._writer, self.ledger = model, store, writer, ledger
        self._digests = len(model.digests.found())  # how many of those the ledger has
        self.spare = math.inf
        # In the other modes the committing owner waits for the others, between rounds.
        self._may_be_async = model.spec.checkpoint.aside and model.spec.train.mode == "exact"
        self._committer: AsyncCommitter | None = None
        self._failed = 0
        self._started = time.monotonic()
        self._spent = 0.0
        self._warned = False
        self._names: tuple[int, str] = (0, "")
        self._trees = ""
        self._schedule = CommitSchedule(model.spec.checkpoint, model.metrics.total_rows)
        self.next_row = self._schedule.next_row
        report_commit(writer.last)

    def remote_state(self) -> RemoteState:
        """The state of the last commit, not read yet."""
        commit = self._writer.last
        return RemoteState(
            self._model.state.layout, self._store, StoredParts(commit.directory, commit.parts)
        )

    def share(self, digests: Digests) -> None:
        """Have the model use a table that others use too; the ledger takes what it lacks."""
        own = self._model.digests
        self.ledger.add([one for one in digests if own.get(*one[:2]) is None])
        self._model.digests, self._digests = digests, len(digests.found())

    def reserve(self) -> str:
        """A directory of the checkpoint for parts that other processes write."""
        return self._writer.reserve()

    @property
    def shards(self) -> Sequence[Facts]:
        """Facts of every shard of the run's ledger."""
        return self.ledger.shards

    @property
    def sequence(self) -> int:
        """The number of the last commit."""
        return self._writer.sequence

    @property
    def rows(self) -> int:
        """Learned at the last commit."""
        return int(self._writer.last.document["rows"])

    @property
    def nbytes(self) -> int:
        """Size of the parts of the last commit."""
        return sum(entry.size for entry in self._writer.last.parts)

    def update(self, metrics: Metrics) -> None:
        """Commit if it is time.

        Raises the error of the last asynchronous commit, but a StorageError only when it is the
        third in a row: the last good commit remains valid.
        """
        by_rows = metrics.total_rows >= self.next_row
        by_time = time.monotonic() >= self._schedule.next_time
        if self._may_be_async and self._committer is None:
            self._committer = async_committer(self._model.state, self.spare)
            self._may_be_async = self._committer is not None
        began = time.monotonic()
        free = self._committer is None or by_rows or not self._committer.busy
        if free and self._committer:
            self._collect(self._committer)
        if free and (by_rows or by_time):
            if self._committer:
                self._begin(self._committer)
                self._record_commit(began)
            else:
                self.commit()

    def commit(self, *, hurry: bool = False) -> Commit:
        """Commit now, after a commit in progress, or in a hurry after its parts in flight."""
        began = time.monotonic()
        if self._committer:
            self._collect(self._committer, hurry=hurry, last=True)
        model = self._model
        shared = self._names_now(), self._digests_now()
        commit = self._write(
            self._document(), *shared, parts_to_commit(model, self._store.part_bytes)
        )
        model.sequence = commit.sequence
        self._record_commit(began)
        return commit

    def record_list(self) -> Commit:
        """Commit a model whose description and ledger changed, with the parts of the last commit:
        its numbers are the same. No commit may be in progress."""
        began, last = time.monotonic(), self._writer.last
        stored = StoredParts(last.directory, last.parts)
        commit = self._write(self._document(), self._names_now(), self._digests_now(), stored)
        self._model.sequence = commit.sequence
        self._record_commit(began)
        return commit

    def diverged(self, error: DivergedError) -> DivergedError:
        """Name the parts of the last commit, which is finite, in one more that records the error.

        So a resumed run knows that the same rows lead to the same error. Gives the error with that
        commit, which ``resume`` names too, and what to do. No commit may be in progress.
        """
        last = self._writer.last
        job = document_of(self._model)["job"]
        document = {**last.document, "job": job, "diverged": str(error)}
        try:
            self._writer.commit(document, StoredParts(last.directory, last.parts))
        except StorageError as problem:
            text = f"{problem}; the checkpoint does not record that the model diverged"
            note(text, "commit_failed", "warning")
        rows, sequence = last.document["rows"], self._writer.last.sequence
        return DivergedError(
            f"{error}. The last finite commit is {sequence}, after {counted(rows, 'row')}.\n"
            f"{diverged_remedy(self._model)}"
        )

    def failed(self, error: StreamomdError) -> None:
        """Record what ended the run, if that is wrong input before a row was saved."""
        record_failure(self._writer, error)

    def close(self) -> None:
        """Wait for a commit in progress: after an error it is the last one."""
        error = self._committer.outcome() if self._committer else None
        if error and not isinstance(error, StorageError):  # which was reported when it occurred
            note(f"the commit in progress failed: {error}", "commit_failed", "warning")

    def _begin(self, committer: AsyncCommitter) -> None:
        """Copy what a commit saves, all as of one row, and start writing it."""
        state = committer.copy_state(self._model.state)
        parts = parts_of(state, self._model.metrics.copy(), self._store.part_bytes)
        committer.start(
            partial(
                self._write_async,
                self._document(),
                self._names_now(),
                self._digests_now(),
                committer.each(parts),
            )
        )

    def _write_async(
        self, document: dict[str, Any], names: Named, digests: list[Found], parts: Iterable[Part]
    ) -> None:
        try:
            self._write(document, names, digests, parts)
        except StorageError as error:
            self._failed += 1
            last = self._writer.sequence
            text = f"{error}; training continues (last good commit: {last})"
            note(text, "commit_failed", "warning", last=last)
            raise
        self._failed = 0

    def _write(
        self,
        document: dict[str, Any],
        names: Named,
        digests: list[Found],
        parts: Iterable[Part] | StoredParts,
    ) -> Commit:
        (version, data), began = names, time.monotonic()
        self.ledger.add(digests)
        self._digests += len(digests)
        with Stage("commit"):
            inline: dict[str, bytes] = {}
            if data is not None:
                self._names = version, save_document(self._store, "names", data, inline)
            shared = {"names": self._names[1], "segments": self.ledger.write(self._store)}
            inline |= self.ledger.inline
            if self._trees:  # they never change
                refer_to_trees(document, self._trees)
            else:
                self._trees = save_trees(self._model, self._store, document, inline)
            commit = self._writer.commit({**document, **shared}, parts, inline)
        report_commit(commit, seconds=time.monotonic() - began)
        return commit

    def _document(self) -> dict[str, Any]:
        return document_of(self._model)

    def _names_now(self) -> Named:
        names, (version, sha256) = self._model.names, self._names
        if sha256 and names.version == version:
            return version, None
        return names.version, names.document()

    def _digests_now(self) -> list[Found]:
        """Digests that the ledger has not. No commit may be in progress.

        A row group's is found before its first row is given, so those of all rows that were
        learned are among them.
        """
        return self._model.digests.found(self._digests)

    def _collect(
        self, committer: AsyncCommitter, *, hurry: bool = False, last: bool = False
    ) -> None:
        """Collect the asynchronous commit's result. last: the next commit reports its own error."""
        error = committer.outcome(hurry=hurry)
        self._model.sequence = self._writer.sequence
        if isinstance(error, TooLargeError):
            note(f"commits are made while learning waits: {error}", "commit_waits", "warning")
            self._may_be_async, self._committer = False, None
        elif isinstance(error, StorageError):
            if self._failed >= FAILURES and not last:
                raise error
        elif error and not isinstance(error, CommitAbandonedError):
            raise error

    def _record_commit(self, began: float) -> None:
        """Plan the next commit, after one for which learning has waited since then."""
        now = time.monotonic()
        self._spent += now - began
        self._schedule.record_commit(self._model.metrics.total_rows, now - began)
        self.next_row = self._schedule.next_row
        self._warn_if_slow(now)

    def _warn_if_slow(self, now: float) -> None:
        elapsed, every_rows = now - self._started, self._model.spec.checkpoint.every_rows
        if self._warned or not every_rows or elapsed < 5.0:
            return
        if self._spent > SHARE * elapsed:
            self._warned = True
            note(
                f"checkpoints every {every_rows:,} rows take {self._spent / elapsed:.0%} of "
                "the time; a larger checkpoint.every_rows, or every_seconds alone, would cost less",
                "commit_slow",
                "warning",
            )


def record_failure(writer: Writer, error: StreamomdError) -> None:
    """Record in one more commit, with the parts of the last, that wrong input ended a run before it
    saved a row: ``train`` may then start over there. No commit may be in progress."""
    last = writer.last
    if error.exit_code not in WRONG_INPUT or last.document["rows"]:
        return
    with suppress(StorageError, ConcurrentWriterError):  # the error itself is reported
        document = {**last.document, "failed": str(error)}
        writer.commit(document, StoredParts(last.directory, last.parts))
