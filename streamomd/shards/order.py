"""The order in which shards are read: bytewise by path, or permuted by (seed, epoch)."""

from __future__ import annotations

import hashlib


def path_key(path: str) -> bytes:
    """Sort key of a path: its bytes, never the order in which a store lists it."""
    return path.encode("utf-8", "surrogateescape")


def places(order: str, seed: int, shards: int, epoch: int) -> list[int]:
    """The shards of an epoch, in order; epoch −1, of a rule's observation pass, is sorted."""
    if order == "shuffled" and epoch >= 0:
        return permutation(shards, seed, epoch)
    return list(range(shards))


def permutation(n: int, seed: int, epoch: int) -> list[int]:
    """Indexes ``0 … n-1`` as permuted in this epoch; the same on every machine and version.

    They are sorted by the SHA-256 of the text ``seed:epoch:index``.
    """
    return sorted(range(n), key=lambda i: hashlib.sha256(f"{seed}:{epoch}:{i}".encode()).digest())
