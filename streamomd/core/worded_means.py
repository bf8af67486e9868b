"""The means of columns in a line."""

from __future__ import annotations

from collections.abc import Mapping

from streamomd.core.urls import printable

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
