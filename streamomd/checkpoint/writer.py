"""Writing commits: parts first, then one manifest, put if absent and read back.

The manifest carries a nonce. Whatever putting it reports, what is found under its name decides:
our nonce, and it is committed, even if the reply was lost; another's, and another writer has taken
over; nothing, and it is tried again.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Self

from streamomd.checkpoint.manifest import MAJOR, Commit, manifest_name, parse
from streamomd.checkpoint.parts import Part, PartEntry, write_part
from streamomd.checkpoint.reader import Loaded, read_commit, sequences
from streamomd.checkpoint.store import Store
from streamomd.errors import (
    ConcurrentWriterError,
    CorruptionError,
    NoCommitError,
    OutputExistsError,
    StorageError,
)

FORMAT = "FORMAT.json"
ATTEMPTS = 4


class Writer:
    """The one writer of a run in this process; made by ``begin`` or ``take_over``."""

    def __init__(self, store: Store, *, run: str, parent: str, sequence: int, keep: int) -> None:
        self._store, self._run, self._parent, self._keep = store, run, parent, keep
        self._next = sequence
        self._commits: list[Commit] = []
        started = datetime.now(UTC).isoformat(timespec="seconds")
        self._identity: dict[str, Any] = {
            "uuid": uuid.uuid4().hex,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started": started,
        }

    @classmethod
    def begin(
        cls,
        store: Store,
        document: Mapping[str, Any],
        parts: Iterable[Part],
        *,
        keep: int = 3,
        restart: bool = False,
    ) -> Self:
        """Make the first commit of a new run; nothing that is there is deleted.

        Raises OutputExistsError if the store holds commits, unless ``restart``.
        """
        store.prepare()
        _check_format(store)
        found = sequences(store)
        if found and not restart:
            raise OutputExistsError(
                f"{store.url} holds a run already; go on with: streamomd resume {store.url}, "
                "begin anew with --restart, or choose another --checkpoint"
            )
        sequence = found[-1] + 1 if found else 0
        writer = cls(store, run=uuid.uuid4().hex, parent="", sequence=sequence, keep=keep)
        writer.commit(document, parts)
        return writer

    @classmethod
    def take_over(cls, store: Store, loaded: Loaded, *, keep: int = 3) -> Self:
        """Go on from a commit: name its parts again under a new number, which fences older writers."""
        store.prepare()
        commit = loaded.commit
        found = sequences(store)
        writer = cls(store, run=commit.run, parent=commit.sha256, sequence=found[-1] + 1, keep=keep)
        for sequence in found:
            try:
                earlier = read_commit(store, sequence)
            except (CorruptionError, NoCommitError):
                continue  # unreadable: nothing it names may be touched
            writer._commits += [earlier] if earlier.run == commit.run else []
        writer._publish(commit.document, commit.parts)
        return writer

    def commit(self, document: Mapping[str, Any], parts: Iterable[Part]) -> Commit:
        """Commit a document and parts, durable on return.

        Raises ConcurrentWriterError if another writer took over, StorageError if the store fails;
        in both cases the commits before stand.
        """
        folder = f"data/{self._next:012d}-{self._identity['uuid'][:8]}-{uuid.uuid4().hex[:8]}"
        entries = tuple(write_part(self._store, folder, part) for part in parts)
        return self._publish(document, entries)

    def _publish(self, document: Mapping[str, Any], parts: tuple[PartEntry, ...]) -> Commit:
        commit = Commit(
            sequence=self._next,
            run=self._run,
            writer=self._identity,
            nonce=uuid.uuid4().hex,
            parent_sha256=self._parent,
            written=datetime.now(UTC).isoformat(timespec="milliseconds"),
            versions=_versions(),
            document=document,
            parts=parts,
        )
        self._put(commit)
        self._next += 1
        self._parent = commit.sha256
        self._commits.append(commit)
        self._retire()
        return commit

    def _put(self, commit: Commit) -> None:
        data = commit.encode()
        reason = "it was taken and is not there"
        for _ in range(ATTEMPTS):
            try:
                self._store.create(commit.name, data)
            except (FileExistsError, StorageError) as error:
                reason = str(error)
            found = self._found(commit.name)
            if found == data:
                return
            if found is not None:
                raise ConcurrentWriterError(_taken_over(self._store, found, commit.sequence))
        raise StorageError(f"commit {commit.sequence} could not be made: {reason}")

    def _found(self, name: str) -> bytes | None:
        try:
            return self._store.read(name)
        except FileNotFoundError:
            return None

    def _retire(self) -> None:
        """Delete this run's commits before the last few, manifest first, then parts no other names."""
        retired, self._commits = self._commits[: -self._keep], self._commits[-self._keep :]
        named = {part.path for commit in self._commits for part in commit.parts}
        for commit in retired:
            self._store.delete(manifest_name(commit.sequence))
            for part in commit.parts:
                if part.path not in named:
                    self._store.delete(part.path)


def _versions() -> dict[str, str]:
    packages = ("streamomd", "numpy", "pyarrow", "numba")
    found = {name: version(name) for name in packages}
    return {**found, "python": platform.python_version(), "machine": platform.machine()}


def _check_format(store: Store) -> None:
    """Mark the store as ours. Raises NoCommitError if a newer version marked it."""
    mark = {"format": "streamomd-checkpoint", "major": MAJOR}
    try:
        store.create(FORMAT, json.dumps(mark).encode())
    except FileExistsError:
        found = parse(store.read(FORMAT))
        if found.get("major") != MAJOR:
            raise NoCommitError(
                f"{store.url} is of checkpoint format {found.get('major')}; this streamomd writes "
                f"format {MAJOR}: use the version that made it, or a newer one"
            ) from None


def _taken_over(store: Store, manifest: bytes, sequence: int) -> str:
    try:
        writer = parse(manifest.partition(b"\n")[0])["writer"]
        who = f"host {writer['host']}, pid {writer['pid']}, started {writer['started']}"
    except (CorruptionError, KeyError, TypeError):
        who = "its manifest cannot be read"
    return f"another streamomd ({who}) took over {store.url} at commit {sequence}"
