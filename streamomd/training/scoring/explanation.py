"""Why a row has its margin: what each feature adds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamomd.training.scoring.margins import Margins
from streamomd.training.scoring.row_encoder import Entries, Source

Contribution = tuple[str, Any, float]


@dataclass(frozen=True)
class Explanation:
    """A row's margin and what each feature adds to it.

    margin: a float; with a margin for each class a list. contributions: (feature, value,
    contribution), the largest first, that sum to the margin; with a margin for each class a list of
    such lists. value: the row's number, category or text; None where it is missing, and of the
    bias. A feature that adds nothing has a contribution of 0.
    """

    margin: Any
    contributions: list[Any]


def explanation_of(margins: Margins, entries: Entries, sources: list[Source]) -> Explanation:
    """The explanation of an encoded row."""
    pieces, start, found = margins.explained(entries)
    by_place = dict(zip(entries.coordinates, pieces, strict=True))
    shares = _shares(sources)
    lists = []
    for k in range(margins.learners):
        parts: list[Contribution] = [
            (name, value, by_place[at][k] * share)
            for (name, value, at, _), share in zip(sources, shares, strict=True)
        ]
        if start[k] != 0.0 or margins.bias:
            parts.append(("bias", None, start[k]))
        lists.append(sorted(parts, key=lambda one: -abs(one[2])))
    if margins.learners == 1:
        return Explanation(found[0], lists[0])
    return Explanation(found, lists)


def _shares(sources: Sequence[Source]) -> list[float]:
    """Each feature's share of what its coordinate adds: all of it, where it is alone."""
    totals: dict[int, list[float]] = {}
    for _, _, at, x in sources:
        totals.setdefault(at, []).append(x)
    found = []
    for _, _, at, x in sources:
        those = totals[at]
        whole = math.fsum(those) if len(those) > 1 else 0.0
        found.append(x / whole if whole else 1.0 / len(those))
    return found
