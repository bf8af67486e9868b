"""Counts and lists of names as a person reads them, for messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def counted(count: int, noun: str) -> str:
    """A number with its noun, which takes an s unless the number is 1.

    >>> counted(1, "shard"), counted(45_211, "row")
    ('1 shard', '45,211 rows')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are.

    >>> listed(["a", "b", "c"], 3), listed(["a", "b", "c"], 2)
    ('a, b, c', 'a, b and 1 more')
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def worded(skipped: Mapping[str, int]) -> str:
    """Counts by reason as a person reads them.

    >>> worded({"nan": 1200, "null": 3})
    'nan 1,200, null 3'
    """
    return ", ".join(f"{reason} {count:,}" for reason, count in skipped.items())
