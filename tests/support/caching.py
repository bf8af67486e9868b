"""Caches of decoded rows, for tests: data to fill them from, and all that is read through them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from streamomd.config.spec import Spec
from streamomd.core.batch import Batch
from streamomd.features import Plan, make_plan
from streamomd.shards.cache.cached_reader import Cache
from streamomd.shards.cache.folder import CacheFolder
from streamomd.sources.find import find
from streamomd.training.row_stream import rows_of

DATA = {
    "sparse": {"label": "y", "weight": "w", "numeric": ["n", "k"], "hashed": ["h"], "bits": 10,
               "sparse": {"indices": "i", "values": "v", "size": 100}},
    "dense": {"label": "y", "numeric": ["n", "k"]},
}  # fmt: skip
AGO = 10.0  # seconds; a younger shard may yet change with nobody told


def settled(folder: Path) -> None:
    """Its files were written some time ago."""
    for path in folder.rglob("*.*"):
        os.utime(path, (time.time() - AGO,) * 2)


def plan_of(data: Path, kind: str, **more: Any) -> Plan:
    """A plan for the rows there."""
    spec = Spec.parse({"data": {**DATA[kind], "shards": str(data), **more}})
    return make_plan(spec.data, spec.model, find(str(data)).shards[0].schema, lambda: [0, 1])


def entries(folder: Path) -> list[Path]:
    """Its entries; nothing else is in it."""
    found = sorted(folder.iterdir()) if folder.exists() else []
    assert all(len(path.name) == 70 and path.suffix == ".arrow" for path in found)
    return found


def cache_in(folder: Path, *, bound: int = 0, said: list[str] | None = None) -> Cache:
    """As a run has it. said: what it tells."""
    return Cache(CacheFolder(str(folder), bound, ([] if said is None else said).append))


Row = tuple[int, int, int, tuple[bytes, ...]]


def read(
    plan: Plan, data: Path, cache: Cache | None, start: tuple[int, int] = (0, 0), **more: Any
) -> list[Row]:
    """Every row, wherever pieces end."""
    found, told = find(str(data)), []
    for piece in rows_of(plan, found, range(len(found)), start=start, cache=cache, **more):
        assert piece.rows == piece.value.batch.passed
        told += rows_in(piece.value.batch, piece.row, piece.position)
    return told


def rows_in(batch: Batch, first: int, position: int = 0) -> list[Row]:
    """Its rows: shard, row, why it is bad or −1, and its bytes."""
    bad = dict(zip(batch.skipped.places.tolist(), batch.skipped.reasons.tolist(), strict=True))
    low, told = 0, []
    for place in range(batch.passed):
        one: tuple[bytes, ...] = ()
        if place not in bad:
            row = batch.rows(low, low + 1)
            names = [name for name in row.__dataclass_fields__ if name != "skipped"]
            arrays = [getattr(row, name) for name in names]
            one = tuple(array.tobytes() for array in arrays if array is not None)  # no times
            low += 1
        told.append((position, first + place, bad.get(place, -1), one))
    return told
