"""Why a row has its margin: what each feature adds."""

from __future__ import annotations

import math
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
    by_place = dict(zip(entries.coordinates, zip(entries.values, pieces, strict=True), strict=True))
    lists = []
    for k in range(margins.learners):
        parts: list[Contribution] = []
        for name, value, at, x in sources:
            whole, piece = by_place[at]
            # Features at one coordinate share what it adds.
            alone = x == whole or math.isnan(whole)
            parts.append((name, value, piece[k] if alone else _share(x, whole, piece[k])))
        if start[k] != 0.0 or margins.bias:
            parts.append(("bias", None, start[k]))
        lists.append(sorted(parts, key=lambda one: -abs(one[2])))
    if margins.learners == 1:
        return Explanation(found[0], lists[0])
    return Explanation(found, lists)


def _share(x: float, whole: float, piece: float) -> float:
    return piece * (x / whole) if whole else 0.0
