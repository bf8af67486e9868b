"""A count with its noun, for messages."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """A number with its noun, which takes an s unless the number is 1.

    >>> counted(1, "shard"), counted(45_211, "row")
    ('1 shard', '45,211 rows')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
