"""Shared documents: JSON, or a segment, named by its SHA-256 and by many commits; written once.

Many commits depend on one, so each has a second copy, and reading takes whichever has the hash.
"""

from __future__ import annotations

import hashlib
from typing import Any

from streamomd.checkpoint.manifest import KINDS, SEGMENTS
from streamomd.checkpoint.sealed_json import canonical, parse
from streamomd.checkpoint.stores.contract import Store, confirmed, put_whole, read_within
from streamomd.core.errors import CorruptionError, UsageError

LIMIT = 1 << 30


def keep_document(store: Store, kind: str, document: Any) -> str:
    """Save JSON under ``kind`` ("dataset" or "names"); its SHA-256, for a commit's document.

    A commit whose document has this hash under the key ``kind`` keeps the shared document alive.

    Raises UsageError for what JSON cannot hold or is too large, StorageError.
    """
    return keep_bytes(store, kind, canonical(document))


def keep_bytes(store: Store, kind: str, data: bytes) -> str:
    """Save a shared document of any form; its SHA-256. Raises as ``keep_document``."""
    if len(data) > LIMIT:
        raise UsageError(f"a {kind} document may have {LIMIT:,} bytes; this has {len(data):,}")
    sha256 = hashlib.sha256(data).hexdigest()
    for name in document_names(kind, sha256):
        # Also if it is there: it may be damaged, or not be durable yet.
        put_whole(store, name, data)
    return sha256


def read_document(store: Store, kind: str, sha256: str) -> Any:
    """The document of that hash. Raises CorruptionError if it is missing or not what it was."""
    return parse(read_bytes(store, kind, sha256))


def read_bytes(store: Store, kind: str, sha256: str) -> bytes:
    """The bytes of a shared document. Raises CorruptionError as ``read_document``."""
    return confirmed(lambda: verified(store, kind, sha256))


def repair(store: Store, kind: str, sha256: str) -> None:
    """Write both copies again unless both are whole. Raises CorruptionError if none is."""
    data = read_bytes(store, kind, sha256)
    if damaged(store, kind, sha256) or store.size(document_names(kind, sha256)[1]) is None:
        keep_bytes(store, kind, data)


def verified(store: Store, kind: str, sha256: str) -> bytes:
    """A shared document's bytes, from the copy that has its hash. CorruptionError if none has."""
    problems = []
    for name in document_names(kind, sha256):
        try:
            return _read(store, name, sha256)
        except CorruptionError as error:
            problems.append(str(error))
    raise CorruptionError("; ".join(problems))


def damaged(store: Store, kind: str, sha256: str) -> list[str]:
    """What is wrong with each copy of a document that can be read. CorruptionError as `verified`.

    A missing second copy is not reported: older versions wrote none.
    """
    verified(store, kind, sha256)
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
        raise CorruptionError(f"{name} does not have the SHA-256 it is named by")
    return data
