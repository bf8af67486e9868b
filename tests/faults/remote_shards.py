"""Shards that change while a run reads them, or between two of its reads: on the disk and in S3."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from kinds import Cases, Verdict, kind
from remote_s3 import PATIENCE, bucket
from remote_training import Place, kept
from running import ROWS, rows

from streamomd.shards.open_shard import OpenShard

Change = Callable[[bytes], bytes | None]
NAME = "b.parquet"
STORES = ("disk", "s3")
TIMES = ("before it is opened", "while it is read", "between two epochs")
"""Of ``NAME``, the second of three shards."""


def removed(whole: bytes) -> bytes | None:
    return None


def emptied(whole: bytes) -> bytes | None:
    return b""


def truncated(whole: bytes) -> bytes | None:
    return whole[: len(whole) // 2]


def appended(whole: bytes) -> bytes | None:
    return whole + b"more"


def replaced(whole: bytes) -> bytes | None:
    return parquet(rows(ROWS + 1, first=9))


def other_rows(whole: bytes) -> bytes | None:
    """Of the same size, with the same footer: only the store's version or time tells."""
    table = pq.read_table(pa.BufferReader(whole))
    other = parquet(table.take(list(range(ROWS))[::-1]))
    assert len(other) == len(whole)
    assert other[-1000:] == whole[-1000:]
    assert other != whole
    return other


CHANGES = (removed, emptied, truncated, appended, replaced, other_rows)
CASES = list(itertools.product(STORES, TIMES, CHANGES))
FLAGS = ("--label", "y", "--weight", "w", "--numeric", "n,k")


def parquet(table: pa.Table) -> bytes:
    """A shard's bytes in four row groups, as many whatever the order of its rows."""
    out = pa.BufferOutputStream()
    group = {"row_group_size": ROWS // 4, "compression": "none"}
    pq.write_table(table, out, **group, use_dictionary=False, write_statistics=False)
    return out.getvalue().to_pybytes()


def shards() -> dict[str, bytes]:
    """Three of them, of numbers alone."""
    kinds = ["y", "w", "n", "k"]
    return {
        f"{name}.parquet": parquet(rows(ROWS, first=at).select(kinds))
        for at, name in enumerate("abc")
    }


@dataclass(frozen=True)
class Ground:
    """Where shards are, how one is written over or removed, and where runs are kept."""

    place: Place
    write: Callable[[str, bytes | None], None]
    runs: str


@contextmanager
def disk(folder: Path) -> Iterator[Ground]:
    """A directory; a shard is written over in place."""
    (folder / "rows").mkdir()

    def write(name: str, content: bytes | None) -> None:
        path = folder / "rows" / name
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)

    place = Place(kept(folder / "none.json", {}), f"{folder}/rows", FLAGS)
    yield Ground(place, write, f"{folder}/runs")


@contextmanager
def s3(folder: Path) -> Iterator[Ground]:
    """A bucket that somebody else writes to."""
    with bucket() as found:
        import s3fs

        other = s3fs.S3FileSystem(**found.calm, skip_instance_cache=True)

        def write(name: str, content: bytes | None) -> None:
            if content is None:
                other.rm_file(f"struck/rows/{name}")
            else:
                other.pipe_file(f"struck/rows/{name}", content)

        place = Place(kept(folder / "calm.json", found.calm), "s3://struck/rows/", FLAGS)
        yield Ground(place, write, "s3://struck/runs")


@contextmanager
def changing(time: str, change: Callable[[], None]) -> Iterator[None]:
    """The change is made at its time by the only thread that reads."""
    name, read_before = {TIMES[0]: ("a", 0), TIMES[1]: ("b", 0), TIMES[2]: ("a", 1)}[time]
    whole, times = OpenShard.read, itertools.count()

    def read(opened: OpenShard, group: int) -> Iterator[pa.RecordBatch]:
        for batch in whole(opened, group):
            here = opened.shard.url.endswith(f"{name}.parquet") and group == 0
            if here and next(times) == read_before:
                change()
            yield batch

    with mock.patch.object(OpenShard, "read", read), mock.patch("os.cpu_count", return_value=1):
        yield


def judge(ground: Ground, url: str, time: str, changed: Change, same: str) -> Verdict:
    """A run during which a shard changes; then a resume as it is, and one when it is put back."""
    whole = shards()
    for name, content in whole.items():
        ground.write(name, content)
    landed = []

    def change() -> None:
        landed.append(time)
        ground.write(NAME, changed(whole[NAME]))

    with changing(time, change):
        done = ground.place.train(url)
    assert landed, "the change never came"
    if done.code == 0:
        return Verdict.SAME if done.result["state_sha256"] == same else Verdict.SILENT
    # A shard that was removed before this process opened it is missing, not changed.
    expected = (2, 3) if changed is removed else (3,)
    if NAME not in done.err or done.code not in expected:
        return Verdict.CRASH
    if changed is not other_rows:
        again = ground.place.resume(url)
        expected = 3 if changed in (removed, replaced) else 2
        if again.code != expected or NAME not in again.err:
            return Verdict.SILENT
    ground.write(NAME, whole[NAME])
    resumed = ground.place.resume(url)
    return Verdict.NAMED if resumed.result["state_sha256"] == same else Verdict.LOST


@kind("shards-change", quick=2)
@contextmanager
def shards_change(folder: Path) -> Iterator[Cases]:
    """A shard is removed, emptied, truncated, extended or replaced while a run reads it."""
    (folder / "s3").mkdir()
    with disk(folder) as on_disk, s3(folder / "s3") as in_s3:
        grounds = {"disk": on_disk, "s3": in_s3}
        for name, content in shards().items():
            on_disk.write(name, content)
        same = on_disk.place.train(f"{on_disk.runs}/undisturbed").result["state_sha256"]

        def run(seed: int) -> Verdict:
            store, time, changed = CASES[seed]
            ground = grounds[store]
            return judge(ground, f"{ground.runs}/{seed}", time, changed, same)

        yield Cases(range(len(CASES)), run, PATIENCE)
