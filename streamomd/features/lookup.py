"""From a feature's name back to its coordinate: the inverse of ``name_of``."""

from __future__ import annotations

from collections.abc import Sequence

from streamomd.features.hashed import category, coordinate, cross_name
from streamomd.features.names import Names, name_of
from streamomd.features.plan import Plan

UNKNOWN = -1


def coordinates_of(plan: Plan, names: Sequence[str]) -> list[int]:
    """The coordinate of each name; ``UNKNOWN`` where the plan has no such feature.

    A name is one that ``name_of`` gives: bias, age, embedding[3], i:17, age is null; a hashed
    feature has the text that is hashed, job=admin., or job is null.
    """
    hashed = (
        *plan.hashed,
        *(name for date in plan.dates for name in date.names),
        *map(cross_name, plan.crosses),
        *(text.column for text in plan.text),
    )
    known = _dense(plan)
    return [known[n] if n in known else _other(plan, hashed, n) for n in names]


def _dense(plan: Plan) -> dict[str, int]:
    """Bias, numbers, vectors, indicators: few enough to be listed."""
    places = (*range(plan.hashed_offset), *range(plan.indicator_offset, plan.size))
    return {name_of(plan, Names(), place): place for place in places}


def _other(plan: Plan, hashed: Sequence[str], name: str) -> int:
    if plan.sparse:
        column, _, index = name.rpartition(":")
        if column == plan.sparse.indices and index.isdecimal() and int(index) < plan.sparse.size:
            return plan.sparse_offset + int(index)
    for column in hashed:
        of_null = name == f"{column} is null"
        if of_null or name.startswith(f"{column}="):
            text = category(column, None) if of_null else name.encode()
            return plan.hashed_offset + coordinate(text, plan.hash_seed, plan.bits)
    return UNKNOWN
