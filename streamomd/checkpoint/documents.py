"""Shared documents: JSON or a ledger segment, named by SHA-256, used by many commits, written once.

Many commits depend on one, so each has a second copy; reading uses a copy with the right hash.
"""

from __future__ import annotations

import hashlib
from typing import Any

from streamomd.checkpoint.manifest import Commit, document_names
from streamomd.checkpoint.sealed_json import canonical, parse
from streamomd.checkpoint.stores.contract import (
    Snapshot,
    Store,
    read_twice,
    read_within,
    write_checked,
)
from streamomd.core.errors import CorruptionError, UsageError

LIMIT = 1 << 30
MOST_INLINE = 128 << 10
"""Bytes of documents of a kind that a manifest holds: they take about as long as a request."""


def write_document(store: Store, kind: str, document: Any) -> str:
    """Save JSON under ``kind`` ("dataset" or "names"); return its SHA-256 for a commit's document.

    Retention does not delete a document whose hash is under key ``kind`` of a commit's document.

    Raises UsageError if JSON cannot hold it or it is too large, StorageError.
    """
    return write_shared(store, kind, canonical(document))


def write_shared(store: Store, kind: str, data: bytes) -> str:
    """Save the bytes of a shared document; return their SHA-256. Raises as ``write_document``."""
    if len(data) > LIMIT:
        raise UsageError(f"a {kind} document may have {LIMIT:,} bytes; this has {len(data):,}")
    sha256 = hashlib.sha256(data).hexdigest()
    for name in document_names(kind, sha256):
        # Even if it exists: it may be damaged, or not be durable yet.
        write_checked(store, name, data, sha256)
    return sha256


def save_document(store: Store, kind: str, data: bytes, inline: dict[str, bytes]) -> str:
    """Save the bytes of a shared document, or add a small one of a consistent store to those that
    the manifest is to hold; return their SHA-256. Raises as ``write_document``."""
    if not store.consistent or len(data) > MOST_INLINE:
        return write_shared(store, kind, data)
    sha256 = hashlib.sha256(data).hexdigest()
    inline[sha256] = data
    return sha256


def bytes_of(store: Store, commit: Commit, kind: str, sha256: str) -> bytes:
    """The bytes of a shared document of a commit. Raises CorruptionError as ``read_document``."""
    found = commit.inline.get(sha256)
    return read_bytes(store, kind, sha256) if found is None else found


def read_document(store: Store, kind: str, sha256: str) -> Any:
    """The document with this hash. Raises CorruptionError if it is missing or corrupt."""
    return parse(read_bytes(store, kind, sha256))


def read_bytes(store: Store, kind: str, sha256: str) -> bytes:
    """The bytes of a shared document. Raises CorruptionError as ``read_document``."""
    return read_twice(lambda: read_verified(store, kind, sha256))


def repair(store: Store, kind: str, sha256: str) -> None:
    """Write both copies again unless both are intact. Raises CorruptionError if neither is.

    Of a snapshot both are listed with one size: loading has read one of them.
    """
    if isinstance(store, Snapshot):
        first, second = map(store.size, document_names(kind, sha256))
        if first is not None and first == second:
            return
    data = read_bytes(store, kind, sha256)
    if damaged(store, kind, sha256) or store.size(document_names(kind, sha256)[1]) is None:
        write_shared(store, kind, data)


def read_verified(store: Store, kind: str, sha256: str) -> bytes:
    """A shared document's bytes from an intact copy. Raises CorruptionError if neither is
    intact. Of a snapshot the bytes that were read stay for one more call."""
    if isinstance(store, Snapshot) and sha256 in store.verified:
        return store.verified.pop(sha256)
    problems = []
    for name in document_names(kind, sha256):
        try:
            data = _read(store, name, sha256)
        except CorruptionError as error:
            problems.append(str(error))
            continue
        if isinstance(store, Snapshot):
            store.verified[sha256] = data
        return data
    raise CorruptionError("; ".join(problems))


def damaged(store: Store, kind: str, sha256: str) -> list[str]:
    """Problems of each copy of a readable document. CorruptionError as ``read_verified``.

    A missing second copy is not reported: older versions wrote none.
    """
    read_verified(store, kind, sha256)
    first, second = document_names(kind, sha256)
    problems = []
    for name in (first, second) if store.size(second) is not None else (first,):
        try:
            _read(store, name, sha256)
        except CorruptionError as error:
            problems.append(f"{error}; its other copy is intact")
    return problems


def _read(store: Store, name: str, sha256: str) -> bytes:
    data = read_within(store, name, LIMIT)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise CorruptionError(f"{name} does not have the SHA-256 in its name")
    return data
