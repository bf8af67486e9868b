"""The order in which shards are read: bytewise by path, natural, or permuted by (seed, epoch)."""

from __future__ import annotations

import hashlib
import re

_DIGITS = re.compile(rb"([0-9]+)")


def path_key(path: str) -> bytes:
    """Sort key of a path: its bytes, never the order in which a store lists it."""
    return path.encode("utf-8", "surrogateescape")


def natural_key(path: str) -> tuple[tuple[tuple[int, bytes], ...], bytes]:
    """Sort key in which digits compare as numbers, all else bytewise; ties bytewise.

    >>> sorted(["hour=10", "hour=2", "hour=02", "day"], key=natural_key)
    ['day', 'hour=02', 'hour=2', 'hour=10']
    """
    name = path_key(path)
    # Every second part is digits. A number of any length compares by its length, then its digits.
    parts = (
        (len(digits := part.lstrip(b"0")), digits) if place % 2 else (0, part)
        for place, part in enumerate(_DIGITS.split(name))
    )
    return tuple(parts), name


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
