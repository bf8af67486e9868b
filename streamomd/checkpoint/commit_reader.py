"""The chain of commits: list the sequences, read a commit and its parts, find the newest intact."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from streamomd.checkpoint.documents import read_verified
from streamomd.checkpoint.manifest import (
    COMMITS,
    FORMAT,
    KINDS,
    MAJOR,
    Commit,
    decode,
    manifest_name,
    refuse_newer,
    sequence_of,
)
from streamomd.checkpoint.parts import Part, PartEntry, StoredParts, unpack
from streamomd.checkpoint.sealed_json import LIMIT, Fields, seal, unseal
from streamomd.checkpoint.stores.contract import (
    Snapshot,
    Store,
    in_flight,
    read_twice,
    read_within,
    snapshot_of,
)
from streamomd.core.errors import CorruptionError, NoCommitError, OutputExistsError
from streamomd.core.urls import protocol, shown
from streamomd.core.wording import listed, similar_path

FORMAT_NAME = "FORMAT.json"
RESTARTS = "restarts/"
_MARK = re.compile(r"restarts/([0-9]{12})")


def mark_format(store: Store) -> None:
    """Write FORMAT.json, or check the one that exists.

    Raises OutputExistsError if it is something else, NoCommitError if a newer streamomd wrote it.
    """
    try:
        store.create(FORMAT_NAME, format_mark())
    except FileExistsError:
        try:
            _read_format(store)
        except CorruptionError as error:
            raise OutputExistsError(
                f"{shown(store.url)} is not a streamomd checkpoint ({error}): choose another URL"
            ) from None


def format_mark() -> bytes:
    """The content of FORMAT.json."""
    return seal({"format": {"name": FORMAT, "major": MAJOR}, "uuid": uuid.uuid4().hex})


def check_format(store: Store) -> None:
    """Raises NoCommitError if FORMAT.json says that a newer streamomd wrote here."""
    try:
        _read_format(store)
    except CorruptionError:
        # Every manifest repeats the format.
        return


def _read_format(store: Store) -> None:
    data = read_twice(lambda: read_within(store, FORMAT_NAME, LIMIT))
    try:
        refuse_newer(Fields(unseal(data)[0], FORMAT_NAME))
    except NoCommitError as error:
        raise NoCommitError(f"{shown(store.url)} was {error}") from None


def sequences(store: Store) -> list[int]:
    """The sequences of all manifests, ascending; asks a store that is not consistent for those that
    its listing does not show yet."""
    listed = (sequence_of(name) for name in store.names(COMMITS))
    found = sorted(sequence for sequence in listed if sequence is not None)
    following = found[-1] + 1 if found else 0
    while not store.consistent and store.size(manifest_name(following)) is not None:
        found.append(following)
        following += 1
    return found


def mark_restart(store: Store, sequence: int) -> None:
    """Record that commits before this one belong to another run, even if it becomes unreadable."""
    with suppress(FileExistsError):
        store.create(f"{RESTARTS}{sequence:012d}", b"a new run starts here\n")


def first_sequence_of_run(store: Store, newest: int) -> int:
    """The first sequence of the run that made the newest commit, from its restart mark."""
    marks = (_MARK.fullmatch(name) for name in store.names(RESTARTS))
    starts = (int(mark[1]) for mark in marks if mark)
    return max((sequence for sequence in starts if sequence <= newest), default=0)


def read_commit(store: Store, sequence: int) -> Commit:
    """The commit of a sequence.

    Raises CorruptionError if its manifest is missing or corrupt, NoCommitError if a newer
    streamomd wrote it, StorageError if the store does not answer.
    """
    try:
        return read_twice(lambda: decode(_manifest(store, sequence), sequence))
    except NoCommitError as error:
        raise NoCommitError(f"commit {sequence} of {shown(store.url)} was {error}") from None


def _manifest(store: Store, sequence: int) -> bytes:
    return read_within(store, manifest_name(sequence), LIMIT)


def check_parent(store: Store, commit: Commit) -> None:
    """Raises CorruptionError if the parent commit is readable but is not the recorded one."""
    if commit.parent < 0:
        return
    try:
        parent = read_commit(store, commit.parent)
    except CorruptionError:
        return
    if parent.sha256 != commit.parent_sha256:
        raise CorruptionError(f"it does not follow the existing commit {commit.parent}")


def read_parts(
    store: Store, commit: Commit | StoredParts, entries: Iterable[PartEntry] | None = None
) -> Iterator[Part]:
    """Parts in order, all or those of ``entries``, as ``read_part``; several are read at a time.

    Raises CorruptionError or StorageError for all those in flight that failed.
    """
    wanted = commit.parts if entries is None else entries
    read = partial(read_part, store, commit)
    return in_flight(read, wanted, store.in_flight, lambda entry: entry.memory)


def read_part(store: Store, commit: Commit | StoredParts, entry: PartEntry) -> Part:
    """A part, verified by SHA-256; of a larger object, the rest is not read."""
    name = commit.part_name(entry)
    return read_twice(lambda: unpack(entry, read_within(store, name, entry.size)))


def check_sizes(store: Store, commit: Commit) -> None:
    """Raises CorruptionError if a part is missing or of another size than its manifest says.

    One listing for all parts; what it does not prove, such as a part it does not show yet, is
    checked part by part.
    """
    if not commit.parts:
        return
    listed = store.sizes(f"data/{commit.directory}/")
    for entry in commit.parts:
        if listed.get(commit.part_name(entry)) != entry.size:
            read_twice(partial(_check_size, store, commit, entry))


def _check_size(store: Store, commit: Commit, entry: PartEntry) -> None:
    size = store.size(commit.part_name(entry))
    if size is None:
        raise CorruptionError(f"{commit.part_name(entry)} is missing")
    if size != entry.size:
        raise CorruptionError(f"{entry.name} has {size:,} bytes, not {entry.size:,}")


COMMITS_FOLDER = "commits"
MOST_NAMED = 5  # of runs and files in a message
MOST_LOOKED_AT = 1_000  # entries of a directory
DATA = (".parquet", ".parq", ".pq", ".arrow", ".feather", ".ipc", ".csv", ".gz")


def instead_of_commits(url: str) -> str:
    """What is at a URL without commits, and what to pass; local directories are looked into."""
    known = "" if protocol(url) else _local(url)
    return known or (
        'nothing was saved there; pass the URL that train printed after "saved to", before any '
        "shards"
    )


def _local(path: str) -> str:
    if not os.path.lexists(path):
        near = similar_path(path)
        return f"nothing was saved there{near}" if near else ""
    try:
        with os.scandir(path) as entries:
            children = [entry for entry, _ in zip(entries, range(MOST_LOOKED_AT), strict=False)]
        runs = [
            child for child in children if os.path.isdir(os.path.join(child.path, COMMITS_FOLDER))
        ]
        runs.sort(key=lambda child: -child.stat().st_mtime_ns)
    except OSError:
        return ""
    if runs:
        names = listed([shown(os.path.join(path, child.name)) for child in runs], MOST_NAMED)
        return f"it contains runs, the newest first: {names}; pass one of them"
    if any(child.name.endswith(DATA) for child in children):
        return "it contains data files; the checkpoint's URL comes first, then the shards"
    return ""


Receiver = Callable[[Commit], Callable[[Part], None]]


class Loaded(NamedTuple):
    """commit: the one read. rejected: (sequence, reason) of newer ones, newest first.
    newest: the highest sequence in the store. store: the one that was read, or a snapshot of it."""

    commit: Commit
    rejected: tuple[tuple[int, str], ...]
    newest: int
    store: Store


def load(
    store: Store, receive: Receiver, *, at: int | None = None, needs: Collection[str] = KINDS
) -> Loaded:
    """Pass the newest intact commit, or commit ``at``, to a receiver, part by part.

    ``receive(commit)`` is called when every part exists with the size in the manifest; it compares
    the manifest with what it expects before it allocates, and returns a function that takes the
    parts, each verified by SHA-256. If a later part is corrupt, ``receive`` is called again with an
    older commit and must start from scratch. Only proven corruption leads to an older commit, and
    only to one of the same run. needs: kinds of shared documents that an intact commit must have.

    Raises NoCommitError (none, none intact, or written by a newer streamomd), StorageError.
    """
    view = snapshot_of(store)
    if view is store:  # of a snapshot only the manifest is read, which repeats the format
        check_format(store)
    listed = sequences(view)
    if not listed and view is not store:
        check_format(store)
    require_commits(store, listed)
    while True:
        try:
            return _load(view, receive, listed, at, needs)
        except NoCommitError:
            view = snapshot_of(store)
            before, listed = listed[-1], sequences(view)
            # A running writer deletes old commits while they are read here: then a newer one
            # exists.
            if at is not None or not listed or listed[-1] <= before:
                raise


def _load(
    store: Store, receive: Receiver, sequences: list[int], at: int | None, needs: Collection[str]
) -> Loaded:
    rejected: list[tuple[int, str]] = []
    first = 0 if at is not None else first_sequence_of_run(store, sequences[-1])
    for sequence in _candidates(store, sequences, at):
        try:
            if sequence < first:
                raise CorruptionError("it is of an earlier run, before a restart")
            commit = read_commit(store, sequence)
            _check_complete(store, commit, needs)
            receive_part = receive(commit)
            for part in read_parts(store, commit):
                receive_part(part)
        except CorruptionError as error:
            rejected.append((sequence, str(error)))
        else:
            return Loaded(commit, tuple(rejected), sequences[-1], store)
    reasons = "; ".join(f"commit {sequence}: {reason}" for sequence, reason in rejected[:10])
    raise NoCommitError(f"no usable commit in {shown(store.url)}: {reasons}")


def _candidates(store: Store, found: list[int], at: int | None) -> Iterator[int]:
    """Newest to oldest; a gap between two commits is tried too, so that it is reported."""
    if at is not None:
        if at not in found:
            existing = f"{found[0]} to {found[-1]}"
            raise NoCommitError(f"no commit {at} in {shown(store.url)}: there are {existing}")
        yield at
        return
    for place in range(len(found) - 1, -1, -1):
        yield found[place]
        if place and found[place - 1] != found[place] - 1:
            yield found[place] - 1


def require_commits(store: Store, found: list[int]) -> None:
    """Raises NoCommitError if nothing was ever committed."""
    if not found:
        raise NoCommitError(f"no commit in {shown(store.url)}: {instead_of_commits(store.url)}")


def _check_complete(store: Store, commit: Commit, needs: Collection[str]) -> None:
    """Raises CorruptionError unless everything that a commit names exists."""
    if not (commit.exclusive and isinstance(store, Snapshot)):  # its sequence had one winner
        check_parent(store, commit)
    for kind, sha256 in commit.documents:
        if kind in needs:
            read_twice(partial(read_verified, store, kind, sha256))
    check_sizes(store, commit)
