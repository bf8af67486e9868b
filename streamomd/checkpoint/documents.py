"""Documents shared by commits: named by their own hash, so they are never written over."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from streamomd.checkpoint.store import Store
from streamomd.errors import CorruptionError

KINDS = ("dataset", "names")


def keep_document(store: Store, kind: str, content: Any) -> str:
    """Put a JSON document if it is not there yet; its SHA-256."""
    assert kind in KINDS
    data = json.dumps(content, sort_keys=True, allow_nan=False, separators=(",", ":")).encode()
    sha256 = hashlib.sha256(data).hexdigest()
    name = f"{kind}/{sha256}.json"
    if store.size(name) != len(data):
        try:
            store.create(name, data)
        except FileExistsError:
            read_document(store, kind, sha256)
    return sha256


def read_document(store: Store, kind: str, sha256: str) -> Any:
    """A document, proven to be the one that was put. Raises CorruptionError."""
    name = f"{kind}/{int(sha256, 16):064x}.json"
    try:
        data = store.read(name)
    except FileNotFoundError:
        raise CorruptionError(f"{store.url}/{name} is missing") from None
    if hashlib.sha256(data).hexdigest() != sha256:
        raise CorruptionError(f"{store.url}/{name} does not have the sha256 in its name")
    return json.loads(data)
