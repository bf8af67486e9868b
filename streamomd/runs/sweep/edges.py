"""A best value at an end of its grid: which key, which end, and what values lie beyond."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

BEYOND = 3
"""Values beyond an end that an extension tries."""
NEAR = 1e-3  # relative difference of equal steps


class Edge(NamedTuple):
    """The best value of a key is the largest or smallest of those tried with its rule."""

    key: str
    value: float
    largest: bool
    beyond: tuple[float, ...]

    def __str__(self) -> str:
        end, more = ("largest", "larger") if self.largest else ("smallest", "smaller")
        return (
            f"the best {self.key}, {self.value}, is the {end} of those tried: try {more} ones, or "
            "pass --extend"
        )


def find_edges(best: Mapping[str, Any], tried: Sequence[Mapping[str, Any]]) -> list[Edge]:
    """The keys whose best value is at an end of the values tried, next to the best's other texts.

    >>> find_edges({"eta": 10.0}, [{"eta": 0.1}, {"eta": 1.0}, {"eta": 10.0}])
    [Edge(key='eta', value=10.0, largest=True, beyond=(100.0, 1000.0, 10000.0))]
    >>> find_edges({"eta": 1.0}, [{"eta": 0.1}, {"eta": 1.0}, {"eta": 10.0}])
    []
    """
    words = {key: value for key, value in best.items() if not _is_number(value)}
    alike = [one for one in tried if all(one.get(key) == words[key] for key in words)]
    return list(_edges(best, alike))


def _edges(best: Mapping[str, Any], alike: Sequence[Mapping[str, Any]]) -> Iterator[Edge]:
    for key, value in best.items():
        values = sorted({one[key] for one in alike if _is_number(one.get(key))})
        if not _is_number(value) or len(values) < 2:
            continue
        if value in (values[0], values[-1]):
            largest = value == values[-1]
            yield Edge(key, value, largest, tuple(_beyond(values, largest=largest)))


def _beyond(values: Sequence[float], *, largest: bool) -> Iterator[float]:
    """Yields values beyond an end: as many times the one before, or as much more, as the last two
    values are."""
    end, before = (values[-1], values[-2]) if largest else (values[0], values[1])
    whole = all(isinstance(value, int) for value in values)
    for step in range(1, BEYOND + 1):
        if _even(values) or end <= 0.0 or before <= 0.0:
            found = end + (end - before) * step
        else:
            found = end * _ratio(values, end, before) ** step
        if math.isfinite(found):
            yield round(found) if whole and found == round(found) else float(f"{found:.6g}")


def _ratio(values: Sequence[float], end: float, before: float) -> float:
    """The last step; of equal ones, as of a..b:n, that of all, which were not rounded."""
    count = len(values) - 1
    steps = [high / low for low, high in itertools.pairwise(values)] if values[0] > 0.0 else []
    if not steps or max(steps) > (1.0 + NEAR) * min(steps):
        return end / before
    whole: float = (values[-1] / values[0]) ** (1.0 / count)
    return whole if end > before else 1.0 / whole


def _even(values: Sequence[float]) -> bool:
    """Whether at least three values are in equal steps."""
    steps = [high - low for low, high in itertools.pairwise(values)]
    return len(steps) > 1 and max(steps) - min(steps) <= NEAR * max(steps)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
