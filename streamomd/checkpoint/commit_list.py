"""The chain of commits: which there are, reading one, reading its parts."""

from __future__ import annotations

import re
import uuid
from contextlib import suppress

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
from streamomd.checkpoint.stores.contract import Store, confirmed, read_within
from streamomd.checkpoint.validated_json import Fields
from streamomd.core.errors import CorruptionError, NoCommitError, OutputExistsError
from streamomd.core.urls import shown

FORMAT_NAME = "FORMAT.json"
RESTARTS = "restarts/"
_MARK = re.compile(r"restarts/([0-9]{12})")


def mark_format(store: Store) -> None:
    """Write FORMAT.json, or make sure that the one there is ours.

    Raises OutputExistsError if it is something else, NoCommitError if it is of a newer streamomd.
    """
    mark = {"format": {"name": FORMAT, "major": MAJOR}, "uuid": uuid.uuid4().hex}
    try:
        store.create(FORMAT_NAME, seal(mark))
    except FileExistsError:
        try:
            _read_format(store)
        except CorruptionError as error:
            raise OutputExistsError(
                f"{shown(store.url)} is in use by something else ({error}): choose another URL"
            ) from None


def check_format(store: Store) -> None:
    """Raises NoCommitError if FORMAT.json says that a newer streamomd wrote here."""
    try:
        _read_format(store)
    except CorruptionError:
        # Every manifest says again what it is.
        return


def _read_format(store: Store) -> None:
    data = confirmed(lambda: read_within(store, FORMAT_NAME, LIMIT))
    try:
        refuse_newer(Fields(unseal(data)[0], FORMAT_NAME))
    except NoCommitError as error:
        raise NoCommitError(f"{shown(store.url)} was {error}") from None


def sequences(store: Store) -> list[int]:
    """The sequences of all manifests, ascending; what a listing has not yet is probed for."""
    listed = (sequence_of(name) for name in store.names(COMMITS))
    found = sorted(sequence for sequence in listed if sequence is not None)
    following = found[-1] + 1 if found else 0
    while store.size(manifest_name(following)) is not None:
        found.append(following)
        following += 1
    return found


def mark_restart(store: Store, sequence: int) -> None:
    """Tell that the commits before this one are of another run, even if it cannot be read."""
    with suppress(FileExistsError):
        store.create(f"{RESTARTS}{sequence:012d}", b"a run was begun anew here\n")


def begun_at(store: Store, newest: int) -> int:
    """The sequence the run of the newest commit was begun with, by its mark."""
    marks = (_MARK.fullmatch(name) for name in store.names(RESTARTS))
    begun = (int(mark[1]) for mark in marks if mark)
    return max((sequence for sequence in begun if sequence <= newest), default=0)


def read_commit(store: Store, sequence: int) -> Commit:
    """The commit of a sequence.

    Raises CorruptionError if its manifest is missing or not what was committed, NoCommitError if
    it was written by a newer streamomd, StorageError if the store does not answer.
    """
    try:
        return confirmed(lambda: decode(_manifest(store, sequence), sequence))
    except NoCommitError as error:
        raise NoCommitError(f"commit {sequence} of {shown(store.url)} was {error}") from None


def _manifest(store: Store, sequence: int) -> bytes:
    return read_within(store, manifest_name(sequence), LIMIT)


def check_parent(store: Store, commit: Commit) -> None:
    """Raises CorruptionError if the commit it follows is there, whole, and another one."""
    if commit.parent < 0:
        return
    try:
        parent = read_commit(store, commit.parent)
    except CorruptionError:
        return
    if parent.sha256 != commit.parent_sha256:
        raise CorruptionError(f"it does not follow the commit {commit.parent} that is there")


def read_part(store: Store, commit: Commit | StoredParts, entry: PartEntry) -> Part:
    """A part, proven; an object larger than its entry says is not read."""
    name = commit.part_name(entry)
    return confirmed(lambda: unpack(entry, read_within(store, name, entry.size)))


def check_size(store: Store, commit: Commit | StoredParts, entry: PartEntry) -> None:
    """Raises CorruptionError if a part is missing or of another size than its manifest says."""
    size = store.size(commit.part_name(entry))
    if size is None:
        raise CorruptionError(f"{commit.part_name(entry)} is missing")
    if size != entry.size:
        raise CorruptionError(f"{entry.name} has {size:,} bytes, not {entry.size:,}")
