"""Counts and lists of names as a person reads them, for messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamomd.core.urls import printable


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


MOST = 12
"""Columns, and elements of a vector, in a line."""


def worded_means(means: Mapping[str, float | list[float]]) -> str:
    """Means by column, of a vector a list of them.

    >>> worded_means({"age": 41.25, "e": [0.5, 1.0]})
    'age = 41.25, e = [0.5, 1]'
    """
    text = ", ".join(f"{name} = {_worded(means[name])}" for name in [*means][:MOST])
    more = len(means) - MOST
    return printable(f"{text} and {more} more" if more > 0 else text)


def _worded(mean: float | list[float]) -> str:
    if isinstance(mean, float):
        return f"{mean:.6g}"
    text = ", ".join(f"{one:.6g}" for one in mean[:MOST])
    return f"[{text}, …]" if len(mean) > MOST else f"[{text}]"
