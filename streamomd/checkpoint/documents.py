"""Shared documents: JSON or a ledger segment, named by SHA-256, used by many commits, written once.

Many commits depend on one, so each has a second copy; reading uses a copy with the right hash.
"""

from __future__ import annotations

import hashlib
from typing import Any

from streamomd.checkpoint.manifest import KINDS, SEGMENTS
from streamomd.checkpoint.sealed_json import canonical, parse
from streamomd.checkpoint.stores.contract import Store, read_twice, read_within, write_checked
from streamomd.core.errors import CorruptionError, UsageError

LIMIT = 1 << 30


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


def read_document(store: Store, kind: str, sha256: str) -> Any:
    """The document with this hash. Raises CorruptionError if it is missing or corrupt."""
    return parse(read_bytes(store, kind, sha256))


def read_bytes(store: Store, kind: str, sha256: str) -> bytes:
    """The bytes of a shared document. Raises CorruptionError as ``read_document``."""
    return read_twice(lambda: read_verified(store, kind, sha256))


def repair(store: Store, kind: str, sha256: str) -> None:
    """Write both copies again unless both are intact. Raises CorruptionError if neither is."""
    data = read_bytes(store, kind, sha256)
    if damaged(store, kind, sha256) or store.size(document_names(kind, sha256)[1]) is None:
        write_shared(store, kind, data)


def read_verified(store: Store, kind: str, sha256: str) -> bytes:
    """A shared document's bytes from an intact copy. Raises CorruptionError if neither is
    intact."""
    problems = []
    for name in document_names(kind, sha256):
        try:
            return _read(store, name, sha256)
        except CorruptionError as error:
            problems.append(str(error))
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


def document_names(kind: str, sha256: str) -> tuple[str, str]:
    """The objects that hold a shared document: the first and the second copy."""
    if kind not in KINDS:
        raise UsageError(f"a shared document is one of {', '.join(KINDS)}, not {kind!r}")
    name = f"{kind}/{sha256}.{'bin' if kind == SEGMENTS else 'json'}"
    return name, f"copies/{name}"


def _read(store: Store, name: str, sha256: str) -> bytes:
    data = read_within(store, name, LIMIT)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise CorruptionError(f"{name} does not have the SHA-256 in its name")
    return data
