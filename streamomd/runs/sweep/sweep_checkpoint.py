"""The checkpoint of a sweep, from which all of its learners resume at the same row.

    URL/learners/000/   a learner's checkpoint, like that of any run
    URL/commits/        of the sweep: without parts, each names a commit of every learner
    URL/best/           the last commit of the best, once the sweep is finished
    URL/groups/         while tasks of a cluster learn groups of learners: the commits of each
                        group, like those of a sweep. The sweep's own commit names the groups then

A commit of the sweep, or of a group, is made when those of its learners are; after a kill between
them some are ahead of it, and go back. Its learners keep one commit more than they need for that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from streamomd.checkpoint import Commit, Loaded, Part, Store, Writer, list_commits, load, open_store
from streamomd.checkpoint.commit_reader import FORMAT_NAME
from streamomd.checkpoint.commit_writer import newest_replaceable
from streamomd.checkpoint.manifest import COMMITS, GROUPS
from streamomd.checkpoint.retention import delete_all
from streamomd.checkpoint.segments import Facts
from streamomd.checkpoint.stores.contract import in_flight
from streamomd.config.spec import Spec
from streamomd.core.errors import (
    CorruptionError,
    DivergedError,
    NoCommitError,
    StorageError,
    StreamomdError,
    UsageError,
)
from streamomd.core.installed import upgrade_hint
from streamomd.core.run_events import emit, without_events
from streamomd.core.urls import absolute, shown
from streamomd.runs.session import Session
from streamomd.runs.sweep.batched import LearnerGroup
from streamomd.runs.sweep.learners import Division, Learner, Sweep
from streamomd.shards.order import Cursor
from streamomd.shards.shard import Digests
from streamomd.training.checkpoint_manager import CheckpointManager, CommitSchedule, record_failure
from streamomd.training.load_model import load_model
from streamomd.training.model_data import ModelData
from streamomd.training.progress import note

T = TypeVar("T")
LEAST_KEPT = 2
"""Commits of a learner: what the sweep's last commit names, and one that it does not name yet."""
Found = tuple[Sweep, Loaded, dict[ModelData, Loaded]]
"""A sweep or a group, its commit, and those of its learners."""
Remote = Callable[[Spec], bool] | None
"""See ``load_model``."""


class SweepCheckpoint:
    """Commits a sweep, or a group of one, when rows or seconds are due, and on request.

    managers: of the learners; none if tasks commit them.
    """

    def __init__(
        self, sweep: Sweep, writer: Writer, managers: Mapping[ModelData, CheckpointManager]
    ) -> None:
        self._sweep, self._writer, self._managers = sweep, writer, managers
        self._settings = sweep.lead.spec.checkpoint
        self._schedule = CommitSchedule(self._settings, sweep.rows)
        sweep.url, sweep.sequence = writer.store.url, writer.sequence

    @property
    def next_row(self) -> float:
        """The number of rows after which a commit is due."""
        return self._schedule.next_row

    @property
    def shards(self) -> Sequence[Facts]:
        """Facts of every shard of the sweep's ledger, which its learners have alike."""
        managers = [*self._managers.values()]
        return managers[0].shards if managers else ()

    def is_due(self, rows: int) -> bool:
        """Whether a commit is due after this number of rows."""
        return self._schedule.is_due(rows)

    def commit(self, groups: Sequence[LearnerGroup]) -> None:
        """Commit all that learn, in these groups, and then the sweep. What diverged is dropped."""
        began = time.monotonic()
        found: dict[ModelData, str] = {}
        for group in groups:
            for model in group.each():
                try:
                    with without_events("commit"):
                        self._managers[model].commit()
                except DivergedError as error:
                    found[model] = str(error)
        self._sweep.drop_diverged(found)
        self._name_them(began)
        self._schedule.record_commit(self._sweep.rows, time.monotonic() - began)

    def failed(self, error: StreamomdError) -> None:
        """Record what ended the sweep, if that is wrong input before a row was saved."""
        if not self._saved_in_groups():
            record_failure(self._writer, error)

    def _saved_in_groups(self) -> bool:
        """Whether groups have saved rows, or may have: the sweep's own commit knows of none."""
        division, url = self._sweep.division, self._sweep.url
        options = self._settings.storage_options
        try:
            for directory in division.directories if division else ():
                if list_commits(open_store(f"{url}/{directory}", options))[-1]["rows"]:
                    return True
        except (StreamomdError, OSError):
            return True
        return False

    def finish(self, session: Session | None) -> None:
        """The last commits: each model has its own state, and the best is saved once more, with the
        session; None: of a group."""
        began, before = time.monotonic(), self._sweep.division
        with without_events("commit"):
            for learner in self._sweep.active:
                learner.model.finished = True
                if learner.model in self._managers:
                    self._managers[learner.model].commit()
        if session:
            save_best(self._sweep, session)
        self._sweep.finished, self._sweep.division = True, None
        self._name_them(began)
        self._delete_groups(before)

    def begin_groups(self, division: Division) -> None:
        """Commit the groups, and then the sweep that names them: tasks continue from there."""
        began, settings, before = time.monotonic(), self._settings, self._sweep.division

        def begin(part: Sweep) -> None:
            store = open_store(part.url, settings.storage_options)
            Writer.begin(store, part.document(), (), keep=settings.keep)

        self._sweep.division, self._managers = division, {}
        for _ in self._in_flight(begin, self._sweep.parts(division)):
            pass
        self._name_them(began)
        self._delete_groups(before)

    def join_groups(self) -> None:
        """Commit the sweep after all groups: its learners are at one row again."""
        began, before = time.monotonic(), self._sweep.division
        self._sweep.division = None
        self._name_them(began)
        self._delete_groups(before)

    def _delete_groups(self, division: Division | None) -> None:
        """Delete the commits of groups that no commit of the sweep needs any more."""
        store = self._writer.store

        def delete(directory: str) -> None:
            names = store.names(f"{directory}/{COMMITS}")
            delete_all(store, [*names, f"{directory}/{FORMAT_NAME}"])

        try:
            for _ in self._in_flight(delete, division.directories if division else ()):
                pass
        except StorageError as error:
            note(f"old groups of the sweep could not be deleted: {error}", "groups_left", "warning")

    def _in_flight(self, work: Callable[[T], None], items: Sequence[T]) -> Iterator[None]:
        return in_flight(work, items, self._writer.store.in_flight, lambda _: 0)

    def _name_them(self, began: float) -> None:
        """Commit the sweep, whose learners have committed since ``began``."""
        self._sweep.sequence = self._writer.commit(self._sweep.document(), ()).sequence
        self.report(time.monotonic() - began)

    def report(self, seconds: float) -> None:
        """Emit the event of the last commit."""
        sweep, active = self._sweep, {learner.model for learner in self._sweep.active}
        size = sum(one.nbytes for model, one in self._managers.items() if model in active)
        figures = {"sequence": sweep.sequence, "rows": sweep.rows, "bytes": size}
        emit("commit", "", "info", **figures, seconds=seconds)


def save_best(sweep: Sweep, session: Session) -> None:
    """Save the best model of a sweep and its extensions once more, if the sweep has a URL."""
    if not sweep.url:
        return
    best = sweep.best
    checkpoint = best.spec.checkpoint.model_copy(update={"url": f"{sweep.url}/best"})
    spec = best.spec.model_copy(update={"checkpoint": checkpoint})
    with without_events("commit"):
        session.begin(replace(best, spec=spec), restart=True)


def with_checkpoint(spec: Spec, url: str) -> Spec:
    """The job of a learner, whose checkpoint is at ``url`` if the sweep has one."""
    settings = spec.checkpoint
    if settings.url == "none":
        return spec
    changed = settings.model_copy(update={"url": url, "keep": max(settings.keep, LEAST_KEPT)})
    return spec.model_copy(update={"checkpoint": changed})


def begin_sweep(sweep: Sweep, session: Session, *, restart: bool) -> SweepCheckpoint | None:
    """Make the first commits, of each learner and then of the sweep.

    The session's job has the sweep's checkpoint. An interrupted beginning is overwritten. Raises
    OutputExistsError if a sweep or a run is saved there.
    """
    settings = session.spec.checkpoint
    if settings.url == "none":
        return None
    store = open_store(settings.url, settings.storage_options)
    newest_replaceable(store, restart=restart)
    managers: dict[ModelData, CheckpointManager] = {}
    for model in sweep:
        with without_events("commit"):
            manager = session.begin(model, restart=True)
        assert manager is not None
        managers[model], model.sequence = manager, manager.sequence
    began = time.monotonic()
    writer = Writer.begin(store, sweep.document(), (), keep=settings.keep, restart=restart)
    checkpoint = SweepCheckpoint(sweep, writer, managers)
    checkpoint.report(time.monotonic() - began)
    return checkpoint


def resume_sweep_checkpoint(
    sweep: Sweep,
    loaded: Loaded,
    commits: Mapping[ModelData, Loaded],
    session: Session,
    *,
    accept_new: bool,
) -> SweepCheckpoint:
    """Continue after a commit of the sweep: the learners' writers, then its own, are fenced.

    Raises ResumeRefusedError if the shards differ from those of the checkpoint.
    """
    managers: dict[ModelData, CheckpointManager] = {}
    for learner in sweep.active:
        model = learner.model
        with without_events("commit"):
            managers[model] = session.resume(model, commits[model], accept_new=accept_new)
        model.sequence = managers[model].sequence
    known = Digests(digest for learner in sweep.active for digest in learner.model.digests)
    for each in managers.values():
        each.share(known)
    settings = sweep.lead.spec.checkpoint
    store = open_store(sweep.url, settings.storage_options)
    writer = Writer.take_over(store, loaded, keep=settings.keep)
    checkpoint = SweepCheckpoint(sweep, writer, managers)
    checkpoint._name_them(
        time.monotonic()
    )  # what it named before may be retired with the next commit
    return checkpoint


def take_over_sweep(sweep: Sweep, loaded: Loaded) -> SweepCheckpoint:
    """Continue after a commit of the sweep, whose learners tasks take over."""
    settings = sweep.lead.spec.checkpoint
    store = open_store(sweep.url, settings.storage_options)
    found = SweepCheckpoint(sweep, Writer.take_over(store, loaded, keep=settings.keep), {})
    found._name_them(time.monotonic())
    return found


def load_sweep(url: str, storage_options: Mapping[str, Any] | None, remote: Remote = None) -> Found:
    """The sweep of the newest commit that is whole, and the commits it is made of.

    Learners of groups are at the rows of their groups' commits. remote: as in ``load_model``.
    Raises UsageError if it is no sweep, NoCommitError if there is none, StorageError.
    """
    store = open_store(absolute(url), storage_options)
    return _load(store, partial(_read, store.url, storage_options, remote))


def load_group(
    url: str,
    directory: str,
    names: Sequence[str],
    storage_options: Mapping[str, Any] | None,
    remote: Remote = None,
) -> Found:
    """Loads a group of the sweep at ``url``, as ``load_sweep`` does; it has the learners of these
    names."""
    place = absolute(url)
    store = open_store(f"{place}/{directory}", storage_options)
    found, loaded, commits = _load(store, partial(_read, place, storage_options, remote))
    if tuple(names) != (there := tuple(learner.name for learner in found.learners)):
        raise CorruptionError(f"{directory} has the learners {', '.join(there)[:200]}")
    return found, loaded, commits


def _load(
    store: Store, read: Callable[[Mapping[str, Any]], tuple[Sweep, dict[ModelData, Loaded]]]
) -> Found:
    whole: list[tuple[Sweep, dict[ModelData, Loaded]]] = []

    def receive(commit: Commit) -> Callable[[Part], None]:
        if "sweep" not in commit.document:
            raise UsageError(f"{shown(store.url)} is no sweep: resume it with streamomd.resume")
        writer = commit.versions.get("streamomd", "")
        with upgrade_hint(writer, f"commit {commit.sequence} was "):
            whole.append(read(commit.document))
        return lambda part: None

    loaded = load(store, receive)
    sweep, commits = whole[-1]
    sweep.url, sweep.sequence = store.url, loaded.commit.sequence
    return sweep, loaded, commits


def _read(
    url: str, storage_options: Mapping[str, Any] | None, remote: Remote, document: Mapping[str, Any]
) -> tuple[Sweep, dict[ModelData, Loaded]]:
    """The sweep, or the group, of a document. url: of the sweep."""
    learners: list[Learner] = []
    commits: dict[ModelData, Loaded] = {}
    try:
        division = Division.from_json(document[GROUPS]) if GROUPS in document else None
        grouped: dict[str, Learner] = {}
        for at, names in enumerate(division.names if division else ()):
            assert division is not None
            given = (url, division.directory(at), names, storage_options, remote)
            part, _, part_commits = load_group(*given)
            grouped |= {learner.name: learner for learner in part.learners}
            commits |= part_commits
        for entry in document["learners"]:
            name, at = str(entry["name"]), int(entry["sequence"])
            if not name.isdecimal():
                raise ValueError(f"no learner is called {name!r}")
            if name in grouped:
                learners.append(grouped.pop(name))
                continue
            model, loaded = load_model(
                f"{url}/learners/{name}", storage_options=storage_options, at=at, remote=remote
            )
            mark = np.array([float.fromhex(number) for number in entry["mark"]])
            dropped, diverged = int(entry["dropped"]), str(entry.get("diverged", ""))
            learners.append(Learner(name, entry["chosen"], model, dropped, mark, diverged))
            commits[model] = loaded
        if grouped:
            raise ValueError(f"its groups have other learners, {', '.join(grouped)[:200]}")
        halve, cursor = int(document["sweep"]["halve"]), Cursor.from_json(document["cursor"])
        sweep = Sweep(learners, halve, cursor, finished=bool(document["finished"]))
        sweep.division = division
        rows = {learner.model.metrics.total_rows for learner in sweep.active}
        if division is None and rows != {int(document["rows"])}:
            raise ValueError("its learners are not all after the same row")
    except NoCommitError as error:
        raise CorruptionError(
            f"a learner's commit is lost, or it was resumed alone: {error}"
        ) from None
    except StreamomdError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CorruptionError(f"it describes no known sweep: {error}") from None
    return sweep, commits
