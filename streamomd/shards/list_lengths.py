"""The length of the longest list in the first rows of a column."""

from __future__ import annotations

from contextlib import closing

from streamomd.features.lists import elements_of
from streamomd.shards.reader import ShardBatch, read_batches
from streamomd.shards.shard import ShardSet


def longest_list(shard_set: ShardSet, column: str) -> int:
    """Of the first row group with an element; 0 without any. Raises what reading raises."""
    for place, shard in enumerate(shard_set):
        batches = read_batches(shard_set, places=[place], columns=[column], threads=1)
        longest = end = group = 0
        with closing(batches.map(_row_and_length)) as found:
            for row, length in found:
                while row >= end:
                    if longest:
                        return longest
                    end, group = end + shard.groups[group], group + 1
                longest = max(longest, length)
        if longest:
            return longest
    return 0


def _row_and_length(rows: ShardBatch) -> tuple[int, int]:
    begins, _ = elements_of(rows.batch.column(0))
    return rows.row, int((begins[1:] - begins[:-1]).max(initial=0))
