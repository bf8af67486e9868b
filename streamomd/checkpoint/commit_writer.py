"""Writer: makes the commits of a run; a run has one writer at a time.

A commit's parts are written first, each durable; its manifest last, by a create that fails if one
exists. Whatever the store answers, the manifest is read back: our nonce means that the commit is
made, another nonce that another writer has taken over.
"""

from __future__ import annotations

import datetime
import functools
import logging
import os
import platform
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from streamomd.checkpoint.commit_reader import (
    FORMAT_NAME,
    Loaded,
    format_mark,
    mark_format,
    mark_restart,
    read_commit,
    sequences,
)
from streamomd.checkpoint.manifest import (
    GROUPS,
    Brief,
    Commit,
    WriterId,
    decode,
    encode,
    manifest_name,
    named_documents,
)
from streamomd.checkpoint.parts import Part, PartEntry, StoredParts, pack
from streamomd.checkpoint.retention import Retention, delete_all
from streamomd.checkpoint.stores.contract import Snapshot, Store, current, in_flight, write_checked
from streamomd.core.errors import (
    ConcurrentWriterError,
    CorruptionError,
    OutputExistsError,
    StorageError,
)
from streamomd.core.installed import VERSION
from streamomd.core.urls import printable, shown

ATTEMPTS = 3
NONE_INLINE: Mapping[str, bytes] = MappingProxyType({})
_log = logging.getLogger(__name__)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


@functools.cache
def _versions() -> Mapping[str, str]:
    """What writes a commit, reported when it cannot be read."""
    return {"streamomd": VERSION, "numpy": np.__version__, "python": platform.python_version()}


def _this_process() -> WriterId:
    return WriterId(uuid.uuid4().hex, platform.node()[:200], os.getpid(), _now())


def newest_replaceable(store: Store, *, restart: bool) -> tuple[int, Commit | None]:
    """The sequence after the newest commit, and that commit if it can be read: of a new run.

    Raises OutputExistsError if a run is saved there, unless ``restart`` is passed, or that run
    failed before it saved a row: then this is the retry of a job or of data that were corrected.
    """
    listed = sequences(store)
    last = _readable(store, listed[-1]) if listed else None
    if listed and not restart and not _failed_early(last):
        document = {} if last is None else last.document
        empty = document.get("rows") == 0 and GROUPS not in document  # which may have saved rows
        raise OutputExistsError(
            f"{shown(store.url)} already holds a run{' that has saved no rows yet' * empty}: "
            f"continue it with `streamomd resume {shown(store.url)}`, or overwrite it with "
            "--restart (Python: restart=True)"
        )
    return (listed[-1] + 1 if listed else 0), last


def _failed_early(last: Commit | None) -> bool:
    """Whether a run's own writer recorded that wrong input or a diverged model ended it before it
    saved a row. A writer that took over since then made another commit, of kind "open"."""
    if last is None or last.kind != "commit" or last.document.get("rows") != 0:
        return False
    return bool(last.document.get("failed") or last.document.get("diverged"))


@dataclass(eq=False)
class Writer:
    """The only writer of a run; created by ``begin`` or ``take_over``."""

    store: Store
    run: str
    retention: Retention
    _next: int
    _last: Commit | None
    _self: WriterId = field(default_factory=_this_process)
    _abandoned: dict[str, list[str]] = field(default_factory=dict)
    """Objects of attempts that failed, by directory."""
    _listed: list[int] | None = None
    """Sequences in the store after the last commit, if they were listed."""

    @classmethod
    def begin(
        cls,
        store: Store,
        document: Mapping[str, Any],
        parts: Iterable[Part],
        *,
        keep: int = 3,
        keep_updates: int = 0,
        restart: bool = False,
        inline: Mapping[str, bytes] = NONE_INLINE,
    ) -> Self:
        """Begin a run with its first commit. An incomplete first commit is overwritten.

        restart: begin another run after the existing commits; they stay. A run that failed before
        it saved a row is followed by another one without it: the retry of a job that was corrected.
        inline: shared documents that the manifest holds.

        Raises OutputExistsError if there are commits, ConcurrentWriterError, StorageError.
        """
        following, last = newest_replaceable(store, restart=restart)
        mark_format(store)
        if following:
            mark_restart(store, following)
        retention = Retention(store, keep, keep_updates)
        writer = cls(store, uuid.uuid4().hex, retention, following, last)
        writer.commit(document, parts, inline)
        return writer

    @classmethod
    def take_over(
        cls,
        store: Store,
        loaded: Loaded,
        *,
        keep: int = 3,
        keep_updates: int = 0,
        commits_next: bool = False,
    ) -> Self:
        """Continue after a commit: another commit that repeats it stops every older writer.

        commits_next: the caller commits before it does anything else; that commit stops them.

        Raises ConcurrentWriterError if another writer committed since it was loaded, StorageError.
        """
        commit, store = loaded.commit, current(store)
        retention = Retention(store, keep, keep_updates)
        if store.consistent and loaded.newest == commit.sequence:
            briefs = (*commit.earlier, Brief.of(commit))
            retention.known |= {brief.sequence: brief for brief in briefs}
        writer = cls(store, commit.run, retention, loaded.newest + 1, commit)
        if isinstance(loaded.store, Snapshot) and loaded.store.size(FORMAT_NAME) is not None:
            store.probe(FORMAT_NAME, format_mark())
        if not (commits_next and store.consistent):
            writer._claim("open", uuid.uuid4().hex, commit.document, commit.directory, commit.parts)
        return writer

    @property
    def sequence(self) -> int:
        """Sequence of the last commit."""
        return self._next - 1

    @property
    def last(self) -> Commit:
        """The last commit."""
        assert self._last is not None
        return self._last

    def reserve(self) -> str:
        """A directory for the next commit's parts; other processes ``write_parts`` into it."""
        directory = f"{self._next:012d}-{self._self.uuid[:8]}-{uuid.uuid4().hex[:8]}"
        self._abandoned[directory] = []
        return directory

    def commit(
        self,
        document: Mapping[str, Any],
        parts: Iterable[Part] | StoredParts,
        inline: Mapping[str, bytes] = NONE_INLINE,
    ) -> Commit:
        """Commit a document and parts, given lazily; delete commits older than the last ``keep``.

        ``StoredParts`` (in a reserved directory or in that of the last commit) are not written
        again. inline: shared documents that the manifest is to hold, but for those that the one
        before holds. After StorageError the last commit is intact, and ``commit`` may be called
        again.

        Raises ConcurrentWriterError once another writer has taken over.
        """
        nonce = uuid.uuid4().hex
        if isinstance(parts, StoredParts):
            directory, entries = parts
        else:
            directory = self.reserve()
            written = self._abandoned[directory]
            entries = write_parts(self.store, directory, parts, written)
        commit, sure = self._claim("commit", nonce, document, directory, entries, inline)
        if sure and self._listed is not None:
            self._clean(commit)
        return commit

    def _claim(
        self,
        kind: str,
        nonce: str,
        document: Mapping[str, Any],
        directory: str,
        parts: Sequence[PartEntry],
        inline: Mapping[str, bytes] = NONE_INLINE,
    ) -> tuple[Commit, bool]:
        """Make the next commit; False if the store reported an error but the commit is there."""
        self._refuse_overwritten()
        known = {**self._last.inline, **inline} if self._last else inline
        repeats = self._last is not None and self._last.directory == directory
        inline = {one: known[one] for _, one in named_documents(document) if one in known}
        while True:
            last = (-1, "") if self._last is None else (self._last.sequence, self._last.sha256)
            made = Commit(
                self._next, kind, self.run, self._self, nonce, *last, _versions(), directory,
                document, tuple(parts), _now(), "", inline,
                exclusive=self.store.consistent and self.store.exclusive,
                earlier=tuple(self.retention.earlier()) if self.store.consistent else (),
            )  # fmt: skip
            data = encode(made)
            # Never write a manifest that could not be read.
            decode(data, self._next)
            commit, sure = self._publish(data)
            self._accept(commit)
            if commit.nonce == nonce:
                self._listed = None
                # A listing is a request, and a commit with parts of its own follows this one.
                if not (repeats and self.store.consistent):
                    self._refuse_late(commit)
                return commit, sure
            # An earlier attempt that had reported an error did succeed: commit after it.

    def _publish(self, data: bytes) -> tuple[Commit, bool]:
        """The commit that exists afterwards, ours or another writer's."""
        problem: Exception | None = None
        for _ in range(ATTEMPTS):
            try:
                if self.store.create(manifest_name(self._next), data):
                    return decode(data, self._next), problem is None
            except FileExistsError as error:
                problem = error
            except StorageError as error:
                # It may exist and still be lost: only a successful create proves that it is
                # durable.
                problem = error
                continue
            if self.store.size(manifest_name(self._next)) is not None:
                return self._read_back(), problem is None
        raise StorageError(f"commit {self._next} of {shown(self.store.url)} failed: {problem}")

    def _read_back(self) -> Commit:
        try:
            return read_commit(self.store, self._next)
        except CorruptionError:
            # It existed a moment ago: a writer that took over may have deleted it.
            later = [sequence for sequence in sequences(self.store) if sequence > self._next]
            if later:
                raise self._overtaken(read_commit(self.store, later[-1])) from None
            raise

    def _accept(self, commit: Commit) -> None:
        if commit.writer.uuid != self._self.uuid:
            raise self._overtaken(commit)
        self._last, self._next = commit, commit.sequence + 1
        self.retention.known[commit.sequence] = Brief.of(commit)
        self._abandoned.pop(commit.directory, None)

    def _overtaken(self, by: Commit) -> ConcurrentWriterError:
        who = by.writer
        other = printable(f"{who.host}, pid {who.pid}, started {who.started}")
        return ConcurrentWriterError(
            f"another streamomd ({other}) took over {shown(self.store.url)} at commit "
            f"{by.sequence}: this run stops here, and what it learned since its last commit is lost"
        )

    def _refuse_overwritten(self) -> None:
        """In a store without exclusive creation, check that our last commit is still ours."""
        if self.store.exclusive or self._last is None:
            return
        there = read_commit(self.store, self._last.sequence)
        if there.nonce != self._last.nonce:
            raise self._overtaken(there)

    def _refuse_late(self, commit: Commit) -> None:
        """Refuse a commit whose sequence another writer had used and deleted.

        The commits after it do not descend from ours, and retention would never delete ours.
        """
        self._listed = sequences(self.store)
        later = [sequence for sequence in self._listed if sequence > commit.sequence]
        if not later:
            return
        after = [_readable(self.store, sequence) for sequence in later]
        if after[0] is None or after[0].parent_sha256 != commit.sha256:
            self._withdraw(commit, after)
            raise self._overtaken(read_commit(self.store, later[-1]))

    def _withdraw(self, commit: Commit, after: Sequence[Commit | None]) -> None:
        """Delete our commit; its parts stay if a later commit may have been resumed from it."""
        self.store.delete(manifest_name(commit.sequence))
        if commit.kind == "commit" and all(
            one and one.directory != commit.directory for one in after
        ):
            for entry in commit.parts:
                self.store.delete(commit.part_name(entry))

    def _clean(self, commit: Commit) -> None:
        try:
            self.retention.apply(commit, self._listed if self.store.consistent else None)
            # In a store without exclusive creation a failed attempt may still appear later.
            if self.store.exclusive:
                self._delete_abandoned()
        except StorageError as error:
            _log.warning("older commits could not be deleted: %s", error)

    def _delete_abandoned(self) -> None:
        while self._abandoned:
            directory, names = next(iter(self._abandoned.items()))
            # Only the store knows what other processes wrote there.
            delete_all(self.store, names or self.store.names(f"data/{directory}/"))
            del self._abandoned[directory]


def write_parts(
    store: Store, directory: str, parts: Iterable[Part], written: list[str] | None = None
) -> tuple[PartEntry, ...]:
    """Write parts, given lazily, into a directory that the committing process has reserved.

    Several are in flight at a time; all are durable on return. written: gets the name of every
    object before it is written. Raises StorageError for all those in flight that failed.
    """

    def packed(part: Part) -> tuple[PartEntry, str, bytes]:
        entry, data = pack(part)
        name = f"data/{directory}/{entry.name}"
        if written is not None:
            written.append(name)
        return entry, name, data

    def write(item: tuple[PartEntry, str, bytes]) -> PartEntry:
        entry, name, data = item
        write_checked(store, name, data, entry.sha256)
        return entry

    return tuple(in_flight(write, map(packed, parts), store.in_flight, lambda item: len(item[2])))


def _readable(store: Store, sequence: int) -> Commit | None:
    try:
        return read_commit(store, sequence)
    except CorruptionError:
        return None
