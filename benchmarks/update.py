"""What known shards cost an update: listing and comparing them, and each commit.

Listing: a local directory of that many files in directories ``day=N`` of 1,000 (hard links to a few
Parquet files, so that they take no space), a ledger that knows all of them, and what an update does
before it opens a file: read the ledger, list, compare. Every step is timed once, by itself.

Commits: a ledger of that many shards, then 100 commits that each append one shard and one digest,
over a store in memory: bytes written and time of the processor of one.

Targets: at a million known shards all steps before an update opens a file take 30 s at most; bytes
and time of a commit do not depend on how many are known.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import common
import pyarrow as pa
import pyarrow.parquet as pq

from streamomd.checkpoint import Ledger, Writer, read_commit, read_ledger
from streamomd.checkpoint.stores.contract import open_store
from streamomd.shards.formats.footer import read_shard
from streamomd.sources.arrivals import find_arrivals
from streamomd.sources.find import list_shards
from streamomd.sources.new_files import Choice

IN_A_DIRECTORY = 1_000
LINKS = 50_000
"""Names of one file; ext4 allows 65,000."""
COMMITS = 100


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Add the time of a step."""
    start = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - start


def make_files(folder: Path, count: int) -> None:
    """Parquet files of one row, most of them hard links."""
    table = pa.table({"y": [1.0], "x": [2.0]})
    source = folder / "source"
    source.mkdir()
    for at in range(count):
        if at % LINKS == 0:
            file = source / f"{at}.parquet"
            pq.write_table(table, file)
            os.utime(file, (1e9, 1e9))
        if at % IN_A_DIRECTORY == 0:
            day = folder / "data" / f"day={at // IN_A_DIRECTORY}"
            day.mkdir(parents=True)
        os.link(file, day / f"part-{at:09d}.parquet")


def peak_mib() -> float:
    """Of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def listing(folder: Path, count: int) -> dict[str, float]:
    """Seconds of each step before an update opens a file, of the processor, and peak memory."""
    make_files(folder, count)
    store = open_store(f"memory://benchmark-{count}-{folder.name}")
    facts = []
    listed = list_shards(str(folder / "data"))
    shard = read_shard(listed.fs, listed.files[0].path, listed.files[0].url).fingerprint()
    for at, file in enumerate(listed.files):
        footer = f"{at:032x}" * 2
        times = {"size": file.size, "mtime_ns": file.mtime_ns, "footer_sha256": footer}
        facts.append({**shard, "url": file.url, **times})
    ledger = Ledger.from_fingerprints(facts)
    writer = Writer.begin(store, {"rows": 0, "segments": ledger.write(store)}, [])
    del facts, ledger, listed
    seconds: dict[str, float] = {}
    began = time.process_time()
    with timed(seconds, "ledger"):
        known = read_ledger(store, read_commit(store, writer.sequence)).shards
    with timed(seconds, "list"):
        found = list_shards(str(folder / "data"))
    with timed(seconds, "compare"):
        arrivals = find_arrivals(known, found.fs, found.files, Choice(), now_ns=time.time_ns())
    processor = time.process_time() - began
    assert not len(arrivals.shards)
    assert not arrivals.notes
    return {
        **seconds,
        "sum": sum(seconds.values()),
        "processor": processor,
        "peak_mib": peak_mib(),
    }


def commits(count: int) -> dict[str, float]:
    """Bytes and milliseconds a commit, of 100 that each add a shard, after ``count`` shards."""
    draw = random.Random(7)
    store: Any = open_store(f"memory://commits-{count}-{time.time_ns()}")
    schema = [["y", "double", True], ["x", "double", True]]

    def shard(at: int) -> dict[str, Any]:
        return {
            "url": f"s3://a-bucket/rows/day={at // 1000}/part-{at:09d}.parquet",
            "format": "parquet",
            "size": draw.randrange(10**9),
            "rows": 1000,
            "groups": [1000],
            "schema": schema,
            "footer_sha256": f"{draw.getrandbits(256):064x}",
            "mtime_ns": 1_700_000_000_000_000_000 + draw.randrange(10**15),
        }

    ledger = Ledger.from_fingerprints(map(shard, range(count)))
    ledger.add([(str(one["url"]), 0, draw.randbytes(16)) for one in ledger.shards])
    writer = Writer.begin(store, {"rows": 0, "segments": ledger.write(store)}, [])
    written = 0
    put, create = store.put, store.create

    def counting(write: Callable[..., Any]) -> Callable[..., Any]:
        def counted(name: str, data: bytes, *more: Any) -> Any:
            nonlocal written
            written += len(data)
            return write(name, data, *more)

        return counted

    store.put, store.create = counting(put), counting(create)
    slowest, start = 0.0, time.process_time()
    for at in range(COMMITS):
        began = time.process_time()
        one = {**shard(count + at), "update": 1, "sequence": writer.sequence + 1}
        ledger.append([one])
        ledger.add([(str(one["url"]), 0, draw.randbytes(16))])
        writer.commit({"rows": at, "segments": ledger.write(store)}, [])
        slowest = max(slowest, time.process_time() - began)
    seconds = time.process_time() - start
    return {
        "bytes": written / COMMITS,
        "mean_ms": 1e3 * seconds / COMMITS,
        "slowest_ms": 1e3 * slowest,
    }


def show(rows: dict[int, dict[str, float]]) -> None:
    """A row for each number of known shards."""
    keys = [*next(iter(rows.values()))]
    common.table(
        ["known", *keys],
        [[f"{count:,}", *(row[key] for key in keys)] for count, row in rows.items()],
    )


def main() -> None:
    """Measure, and print two tables."""
    parser = common.arguments(__doc__)
    parser.add_argument("--most", type=int, default=1_000_000, help="known shards")
    parser.add_argument("--folder", help="where files are made and removed; hard links must work")
    given = parser.parse_args()
    counts = [10**power for power in range(3, 10) if 10**power <= given.most]
    found: dict[int, dict[str, float]] = {}
    for count in counts:
        folder = Path(tempfile.mkdtemp(dir=given.folder))
        try:
            found[count] = listing(folder, count)
        finally:
            shutil.rmtree(folder)
    print("listing and comparing known shards: seconds, and MiB at most so far")
    show(found)
    made = {count: commits(count) for count in counts}
    print("a commit of one more shard")
    show(made)
    common.finish({"listing": found, "commits": made}, as_json=given.json)


if __name__ == "__main__":
    main()
