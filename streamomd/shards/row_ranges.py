"""Split an epoch into ranges of rows for parallel learners."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from streamomd.shards.group_jobs import Group, jobs_of
from streamomd.shards.shard import ShardSet

NEAR = 0.25  # of a range: the most by which a boundary moves to the edge of a row group


@dataclass(frozen=True)
class ShardRange:
    """Rows ``begin`` … ``end`` − 1 of a shard, which lie in one group."""

    group: Group
    begin: int
    end: int


@dataclass(frozen=True)
class RowRange:
    """Consecutive rows of an epoch. begin: position in the order, and row of that shard."""

    begin: tuple[int, int]
    spans: tuple[ShardRange, ...]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(span.end - span.begin for span in self.spans)


def split_rows(
    shards: ShardSet, places: Sequence[int], count: int, begin: int = 0, end: int | None = None
) -> list[RowRange]:
    """All rows of the shards at ``places``, in order, as ``count`` ranges of about equal length;
    fewer if there are fewer rows. begin, end: of rows ``begin`` … ``end`` − 1 of that order only.

    They depend on the shards and the count only. A boundary is at the edge of a row group if one is
    near, because a range that starts inside a group must skip its earlier rows.
    """
    jobs = [*jobs_of(shards, places)]
    edges = [0]
    for job in jobs:
        edges.append(edges[-1] + job.group.rows)
    found = []
    for low, high in pairwise(_cuts(edges, count, begin, edges[-1] if end is None else end)):
        if low == high:
            continue
        spans, first_row = [], None
        for at in range(max(0, bisect_left(edges, low + 1) - 1), len(jobs)):
            if edges[at] >= high:
                break
            job, first = jobs[at], jobs[at].group.row - edges[at]
            first_row = first_row or (job.position, first + max(low, edges[at]))
            spans.append(
                ShardRange(job.group, first + max(low, edges[at]), first + min(high, edges[at + 1]))
            )
        assert first_row is not None
        found.append(RowRange(first_row, tuple(spans)))
    return found


def _cuts(edges: list[int], count: int, begin: int, end: int) -> list[int]:
    """Boundaries of the ranges, in rows from the first."""
    rows = end - begin
    cuts = [begin]
    for k in range(1, count):
        ideal = begin + k * rows // count
        after = bisect_left(edges, ideal)
        near = min(edges[max(0, after - 1) : after + 1], key=lambda edge: abs(edge - ideal))
        cuts.append(near if abs(near - ideal) * count <= NEAR * rows else ideal)
    return [*cuts, end]
