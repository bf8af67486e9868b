"""The history of a run from its checkpoint: commits, their times, and the shards."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from streamomd import checkpoint
from streamomd.checkpoint import Store, list_commits, open_store, read_commit, read_ledger
from streamomd.core.errors import CorruptionError
from streamomd.training.metrics import Metrics
from streamomd.training.model_data import ModelData
from streamomd.training.progress import note
from streamomd.training.update_record import UpdateRecord


@dataclass(frozen=True)
class Commit:
    """A commit in the checkpoint: its sequence, rows learned, when it was written, bytes."""

    sequence: int
    rows: int
    written: datetime
    nbytes: int


@dataclass(frozen=True)
class Update:
    """An update of the run: its number, when its last commit was written, and what the metrics had
    before it: rows, and sums of importance, loss and mistakes."""

    number: int
    written: datetime
    rows: int
    sums: tuple[float, float, float]


@dataclass(frozen=True)
class History:
    """commits: oldest first, those that can be used. updates: oldest first, those that commits are
    of. host, started: of the process that wrote the model's own. diverged: what was not finite
    after the model's commit, "" if the run did not diverge. shards: their facts, in the order of
    the run; empty where they cannot be read, and of a model in memory."""

    commits: tuple[Commit, ...] = ()
    updates: tuple[Update, ...] = ()
    host: str = ""
    started: str = ""
    version: str = ""
    diverged: str = ""
    shards: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)

    @property
    def rows(self) -> int:
        """Rows of all shards; 0 if unknown, as for a Dask collection."""
        counts: list[Any] = [shard.get("rows") for shard in self.shards]
        return 0 if None in counts else sum(counts)


def history(model: ModelData, storage_options: Mapping[str, Any] | None = None) -> History:
    """The history of the run that a model was loaded from. Raises as ``streamomd.load`` does."""
    if not model.url:
        return History()
    store = open_store(model.url, storage_options)
    listed = [
        commit
        for commit in list_commits(store)
        if commit["ok"] and commit["sequence"] <= model.sequence
    ]
    newest = read_commit(store, model.sequence)
    commits = tuple(
        Commit(
            commit["sequence"],
            commit["rows"] or 0,
            datetime.fromisoformat(commit["written"]),
            commit["bytes"],
        )
        for commit in listed
        if commit["run"] == newest.run
    )
    version = str(newest.versions.get("streamomd", ""))
    numbers = {
        commit["update"]: commit["sequence"] for commit in listed if commit["run"] == newest.run
    }
    updates = tuple(_updates(store, numbers))
    return History(
        commits,
        updates,
        newest.writer.host,
        newest.writer.started,
        version,
        str(newest.document.get("diverged") or ""),
        _shards(store, newest),
    )


def _updates(store: Store, last: Mapping[int, int]) -> Iterator[Update]:
    """last: the last commit of each update."""
    for number, sequence in sorted(last.items()):
        with suppress(CorruptionError, KeyError, TypeError, ValueError):
            commit = read_commit(store, sequence)
            record = UpdateRecord.from_json(commit.document.get("update"))
            yield Update(number, datetime.fromisoformat(commit.written), record.rows, record.sums)


def _shards(store: Store, commit: checkpoint.Commit) -> tuple[Mapping[str, Any], ...]:
    """Fingerprints of the shards. A report shows the model without them."""
    try:
        return tuple(read_ledger(store, commit).shards)
    except CorruptionError as error:
        note(f"the list of shards is corrupt; the report omits it: {error}")
        return ()


def rows_passed(metrics: Metrics) -> int:
    """Rows passed: learned, held out, skipped as bad, or dropped by a filter."""
    held = sum(metrics.held.rows) if metrics.held is not None else 0
    return metrics.total_rows + held + int(metrics.bad.sum())


def speeds(commits: tuple[Commit, ...]) -> list[tuple[Commit, float]]:
    """Rows per second between consecutive commits, if both rows and time differ."""
    found = []
    for before, after in itertools.pairwise(commits):
        seconds = (after.written - before.written).total_seconds()
        if seconds > 0.0 and after.rows > before.rows:
            found.append((after, (after.rows - before.rows) / seconds))
    return found
