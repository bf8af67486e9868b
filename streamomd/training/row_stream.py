"""Rows for a plan: shards read ahead and encoded, in order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from math import ceil
from typing import Any, NamedTuple

from streamomd.config.spec import Data
from streamomd.core.batch import Batch
from streamomd.features import Names, Plan, encode
from streamomd.shards.cache.cached_reader import Cache, between
from streamomd.shards.cache.folder import GIB, CacheFolder
from streamomd.shards.digests import Digests
from streamomd.shards.prediction_files import empty_rows, kept_rows
from streamomd.shards.reader import Piece, read_units
from streamomd.shards.shard import Shard, ShardSet
from streamomd.training.progress import note

# A thread that decodes a unit holds about four times as much: larger ones cost memory and win no
# time, smaller ones cost time (2 MiB: 10 % of a whole training).
UNIT_BYTES = 4 << 20
# Five times as much wins no time that could be measured (docs/performance.md).
AHEAD_BYTES = 32 << 20


class Rows(NamedTuple):
    """Consecutive rows of a shard: a batch, and the columns kept as they were."""

    batch: Batch
    kept: Any

    @property
    def nbytes(self) -> int:
        """Bytes held, for the bound on what is read ahead."""
        return self.batch.nbytes + (self.kept.nbytes if self.kept is not None else 0)


Source = Callable[[Sequence[int], tuple[int, int]], Iterator[Piece[Rows]]]
"""``source(places, start)``: pieces of the shards at ``places``, in order, from ``start`` on."""


def rows_of(
    plan: Plan,
    shards: ShardSet,
    places: Sequence[int],
    *,
    start: tuple[int, int] = (0, 0),
    labelled: bool = True,
    keep: Sequence[str] = (),
    names: Names | None = None,
    ahead_bytes: int = AHEAD_BYTES,
    cut: Callable[[Batch], Batch] | None = None,
    cache: Cache | None = None,
    digests: Digests | None = None,
) -> Iterator[Piece[Rows]]:
    """Pieces of the shards at ``places``, from place and row ``start`` on.

    labelled: with labels and weights. keep: columns to hand on as they are. names: told of hashed
    values. ahead_bytes: bound on what is decoded and waits. cut: what is wanted of a batch.
    digests: of row groups, recorded and verified; for the labelled columns alone.
    cache: where labelled rows are looked for, and kept, if nothing else is kept of them.
    """
    columns = plan.columns if labelled else plan.features

    def encoded(table: Any, shard: Shard, row: int, names: Names | None) -> Batch:
        return encode(plan, table, shard=shard.url, row=row, labelled=labelled, names=names)

    def handed(batch: Batch, kept: Any = None) -> Rows:
        return Rows(batch if cut is None else cut(batch), kept)

    def convert(table: Any, shard: Shard, row: int) -> Rows:
        kept = kept_rows(table, shard, keep) if keep else None
        return handed(encoded(table, shard, row, names), kept)

    kept_in = cache if labelled and not keep else None
    return read_units(
        shards,
        places=places,
        columns=[*columns, *(name for name in keep if name not in columns)],
        dictionary=plan.dictionary,
        start=start,
        convert=convert,
        threads=os.cpu_count() or 1,
        budget_bytes=ahead_bytes,
        unit_bytes=UNIT_BYTES,
        digests=digests,
        between=between(kept_in, shards, plan, names, encoded, handed),
    )


def cache_of(data: Data, *, there: bool = False) -> Cache | None:
    """The cache that a job names, for one run, if it names one; ``there``: and it is there."""
    if not data.cache or (there and not os.path.isdir(data.cache)):
        return None
    return Cache(CacheFolder(data.cache, ceil(data.cache_gib * GIB), note))


def no_rows(plan: Plan, shards: ShardSet, *, labelled: bool = True) -> Batch:
    """A batch of no rows, of the kind these shards give."""
    shard = next(iter(shards))
    table = empty_rows(shard, plan.columns if labelled else plan.features)
    return encode(plan, table, shard=shard.url, row=0, labelled=labelled)
