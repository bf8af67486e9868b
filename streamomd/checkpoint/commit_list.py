"""The chain of commits: list the sequences, read a commit, read its parts."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial

from streamomd.checkpoint.manifest import (
    COMMITS,
    FORMAT,
    MAJOR,
    Commit,
    decode,
    manifest_name,
    refuse_newer,
    sequence_of,
)
from streamomd.checkpoint.parts import Part, PartEntry, StoredParts, unpack
from streamomd.checkpoint.sealed_json import LIMIT, seal, unseal
from streamomd.checkpoint.stores.contract import Store, read_twice, read_within
from streamomd.checkpoint.transfers import in_flight
from streamomd.checkpoint.validated_json import Fields
from streamomd.core.errors import CorruptionError, NoCommitError, OutputExistsError
from streamomd.core.urls import shown

FORMAT_NAME = "FORMAT.json"
RESTARTS = "restarts/"
_MARK = re.compile(r"restarts/([0-9]{12})")


def mark_format(store: Store) -> None:
    """Write FORMAT.json, or check the one that exists.

    Raises OutputExistsError if it is something else, NoCommitError if a newer streamomd wrote it.
    """
    mark = {"format": {"name": FORMAT, "major": MAJOR}, "uuid": uuid.uuid4().hex}
    try:
        store.create(FORMAT_NAME, seal(mark))
    except FileExistsError:
        try:
            _read_format(store)
        except CorruptionError as error:
            raise OutputExistsError(
                f"{shown(store.url)} is not a streamomd checkpoint ({error}): choose another URL"
            ) from None


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
    """The sequences of all manifests, ascending; probes for objects a listing does not show yet."""
    listed = (sequence_of(name) for name in store.names(COMMITS))
    found = sorted(sequence for sequence in listed if sequence is not None)
    following = found[-1] + 1 if found else 0
    while store.size(manifest_name(following)) is not None:
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
    return in_flight(read, wanted, store.in_flight, lambda entry: entry.size)


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
