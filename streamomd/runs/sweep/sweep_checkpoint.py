"""How a sweep is kept, so that all of its learners go on from one row.

    URL/learners/000/   a learner's checkpoint, like that of any run
    URL/commits/        of the sweep: without parts, each names a commit of every learner
    URL/best/           the last commit of the best, once the sweep is finished

A commit of the sweep is made when those of its learners are; after a kill between them some are
ahead of it, and go back. Its learners keep one commit more than they need for that.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from streamomd.checkpoint import Commit, Loaded, Part, Writer, load, open_store
from streamomd.checkpoint.commit_list import sequences
from streamomd.config.spec import Spec
from streamomd.core.errors import (
    CorruptionError,
    DivergedError,
    NoCommitError,
    OutputExistsError,
    StreamomdError,
    UsageError,
)
from streamomd.core.urls import absolute, shown
from streamomd.runs.sweep.batched import LearnerGroup
from streamomd.runs.sweep.learners import Learner, Sweep
from streamomd.shards.cursor import Cursor
from streamomd.shards.digests import Digests
from streamomd.shards.shard import ShardSet
from streamomd.training.checkpoint_manager import SHARE, CheckpointManager
from streamomd.training.load_model import load_model
from streamomd.training.model import Model
from streamomd.training.session import begin, take_over

LEAST_KEPT = 2
"""Commits of a learner: what the sweep's last commit names, and one that it does not name yet."""


class SweepCheckpoint:
    """Commits a sweep every so many rows or seconds, and when told to."""

    def __init__(
        self, sweep: Sweep, writer: Writer, keepers: Mapping[Model, CheckpointManager]
    ) -> None:
        self._sweep, self._writer, self._keepers = sweep, writer, keepers
        kept = sweep.lead.spec.checkpoint
        self._every_rows, self._every_seconds = kept.every_rows, kept.every_seconds
        sweep.url, sweep.sequence = writer.store.url, writer.sequence
        self._plan_next(0.0)

    def due(self, rows: int) -> bool:
        """Whether it is time."""
        return rows >= self.next_row or time.monotonic() >= self._due_at

    def commit(self, sides: Sequence[LearnerGroup]) -> None:
        """Commit all that learn, in these sides, and then the sweep. What diverged is dropped."""
        began = time.monotonic()
        found: dict[Model, str] = {}
        for side in sides:
            for model in side.each():
                try:
                    self._keepers[model].commit()
                except DivergedError as error:
                    found[model] = str(error)
        self._sweep.drop_diverged(found)
        self._name_them()
        self._plan_next(time.monotonic() - began)

    def finish(self, shards: ShardSet) -> None:
        """The last commits: each model has its own state, and the best is kept once more."""
        for learner in self._sweep.active:
            learner.model.finished = True
            self._keepers[learner.model].commit()
        best = self._sweep.best
        kept = best.spec.checkpoint.model_copy(update={"url": f"{self._sweep.url}/best"})
        spec = best.spec.model_copy(update={"checkpoint": kept})
        begin(replace(best, spec=spec), shards, restart=True)
        self._sweep.finished = True
        self._name_them()

    def _name_them(self) -> None:
        self._sweep.sequence = self._writer.commit(self._sweep.document(), ()).sequence

    def _plan_next(self, took: float) -> None:
        wait = max(self._every_seconds, took * (1 / SHARE - 1)) if self._every_seconds else math.inf
        self._due_at = time.monotonic() + wait
        every, rows = self._every_rows, self._sweep.rows
        self.next_row = float((rows // every + 1) * every) if every else math.inf


def kept_in(spec: Spec, url: str) -> Spec:
    """The job of a learner that is kept there, if at all."""
    kept = spec.checkpoint
    if kept.url == "none":
        return spec
    changed = kept.model_copy(update={"url": url, "keep": max(kept.keep, LEAST_KEPT)})
    return spec.model_copy(update={"checkpoint": changed})


def begin_sweep(
    sweep: Sweep, root: Spec, shards: ShardSet, *, restart: bool
) -> SweepCheckpoint | None:
    """The first commits, of each learner and then of the sweep; a half-made beginning is begun
    anew.

    root: a job whose checkpoint is the sweep's. Raises OutputExistsError if a run is kept there.
    """
    kept = root.checkpoint
    if kept.url == "none":
        return None
    store = open_store(kept.url, kept.storage_options)
    if not restart and sequences(store):
        place = shown(store.url)
        raise OutputExistsError(
            f"{place} holds a run already: go on with `streamomd resume {place}`, or begin anew "
            "with --restart"
        )
    keepers: dict[Model, CheckpointManager] = {}
    for model in sweep:
        keeper = begin(model, shards, restart=True)
        assert keeper is not None
        keepers[model], model.sequence = keeper, keeper.sequence
    writer = Writer.begin(store, sweep.document(), (), keep=kept.keep, restart=restart)
    return SweepCheckpoint(sweep, writer, keepers)


def take_over_sweep(
    sweep: Sweep,
    loaded: Loaded,
    commits: Mapping[Model, Loaded],
    shards: ShardSet,
    *,
    accept_new: bool,
) -> SweepCheckpoint:
    """Go on after a commit of the sweep: the learners' writers, then its own, are fenced.

    Raises ResumeRefusedError if the shards are not those it was begun on.
    """
    keepers: dict[Model, CheckpointManager] = {}
    for learner in sweep.active:
        model = learner.model
        keepers[model] = take_over(model, commits[model], shards, accept_new=accept_new)
        model.sequence = keepers[model].sequence
    known = Digests(one for learner in sweep.active for one in learner.model.digests)
    for each in keepers.values():
        each.share(known)
    kept = sweep.lead.spec.checkpoint
    store = open_store(sweep.url, kept.storage_options)
    keeper = SweepCheckpoint(sweep, Writer.take_over(store, loaded, keep=kept.keep), keepers)
    keeper._name_them()  # what it named before may be retired with the next commit
    return keeper


def load_sweep(
    url: str, storage_options: Mapping[str, Any] | None
) -> tuple[Sweep, Loaded, dict[Model, Loaded]]:
    """The sweep of the newest commit that is whole, and the commits it is made of.

    Raises UsageError if it is no sweep, NoCommitError if there is none, StorageError.
    """
    store = open_store(absolute(url), storage_options)
    found: list[tuple[Sweep, dict[Model, Loaded]]] = []

    def receive(commit: Commit) -> Callable[[Part], None]:
        if "sweep" not in commit.document:
            raise UsageError(f"{shown(store.url)} is no sweep: go on with streamomd.resume")
        found.append(_read(commit.document, store.url, storage_options))
        return lambda part: None

    loaded = load(store, receive)
    sweep, commits = found[-1]
    sweep.url, sweep.sequence = store.url, loaded.commit.sequence
    return sweep, loaded, commits


def _read(
    document: Mapping[str, Any], url: str, storage_options: Mapping[str, Any] | None
) -> tuple[Sweep, dict[Model, Loaded]]:
    learners, commits = [], {}
    try:
        for told in document["learners"]:
            name, at = str(told["name"]), int(told["sequence"])
            if not name.isdecimal():
                raise ValueError(f"no learner is called {name!r}")
            model, loaded = load_model(
                f"{url}/learners/{name}", storage_options=storage_options, at=at
            )
            mark = np.array([float.fromhex(number) for number in told["mark"]])
            dropped, diverged = int(told["dropped"]), str(told.get("diverged", ""))
            learners.append(Learner(name, told["chosen"], model, dropped, mark, diverged))
            commits[model] = loaded
        halve, cursor = int(document["sweep"]["halve"]), Cursor.from_json(document["cursor"])
        sweep = Sweep(learners, halve, cursor, finished=bool(document["finished"]))
        rows = {learner.model.metrics.total_rows for learner in sweep.active}
        if rows != {int(document["rows"])}:
            raise ValueError("its learners are not all after the same row")
    except NoCommitError as error:
        raise CorruptionError(f"a learner's commit is lost, or it went on alone: {error}") from None
    except StreamomdError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CorruptionError(f"it tells of no sweep that is known here: {error}") from None
    return sweep, commits
