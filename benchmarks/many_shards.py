"""What it costs to find the shards of a run, and to find them again when it is resumed.

Local directories ``day=N`` of 1,000 files each: hard links to a few Parquet files of 20 rows and 55
columns (50,000 names each), so that they take no space. Each number of shards in a process of its
own: seconds of the processor for each step, and the most memory that the process ever had.

    list     names, sizes and times
    footers  every footer read, in threads, as ``train`` does
    write    the ledger: as a commit's segments, in memory
    ledger   read from these
    again    the shards found again, as ``resume`` does: no footer is read
    compare  with those of the ledger

Bytes a shard are those of one copy of the ledger. All links have the footer, size and time of their
file; with names, tags, sizes and times at random they are at most 100
(tests/checkpoint/test_ledger.py).
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import common
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamomd.checkpoint import Ledger, Writer, compare, read_commit, read_ledger
from streamomd.checkpoint.stores.contract import open_store
from streamomd.shards import read_footers
from streamomd.shards.read_footers import open_listed
from streamomd.sources.find import find, list_shards
from streamomd.training.holdout import ledger_facts
from streamomd.training.url_trust import by_url

IN_A_DIRECTORY, LINKS = 1_000, 50_000
ROWS, COLUMNS = 20, 54


def make_files(folder: Path, count: int) -> None:
    """Names of a few files."""
    draw = np.random.default_rng(0)
    values = {f"x{at:03}": draw.normal(size=ROWS) for at in range(COLUMNS)}
    table = pa.table({**values, "y": (draw.random(ROWS) < 0.5).astype("i8")})
    (folder / "source").mkdir()
    for at in range(count):
        if at % LINKS == 0:
            file = folder / "source" / f"{at}.parquet"
            pq.write_table(table, file)
        if at % IN_A_DIRECTORY == 0:
            day = folder / "data" / f"day={at // IN_A_DIRECTORY}"
            day.mkdir(parents=True)
        os.link(file, day / f"part-{at:09d}.parquet")


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Add the processor's time of a step."""
    start = time.process_time()
    yield
    seconds[name] = time.process_time() - start


def peak_mib() -> float:
    """Of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(data: str) -> dict[str, float]:
    """The steps, in this process."""
    seconds: dict[str, float] = {}
    before = peak_mib()
    with timed(seconds, "list"):
        listing = list_shards(data)
    with timed(seconds, "footers"):
        shards = open_listed(listing.fs, listing.files)
    found = peak_mib()
    store: Any = open_store("memory://many-shards")
    written = 0
    put = store.put

    def counted(name: str, block: bytes, *more: Any) -> Any:
        nonlocal written
        written += len(block) if name.startswith("segments/") else 0
        return put(name, block, *more)

    store.put = counted
    with timed(seconds, "write"):
        ledger = Ledger.from_fingerprints(ledger_facts(shards, named=True))
        writer = Writer.begin(store, {"rows": 0, "segments": ledger.write(store)}, [])
    count = len(shards)
    del listing, shards, ledger
    with timed(seconds, "ledger"):
        facts = read_ledger(store, read_commit(store, writer.sequence)).shards
    read_footers.read_shard = None  # type: ignore[assignment]  # it is not called
    with timed(seconds, "again"):
        again = find(data, known=by_url(facts))
    with timed(seconds, "compare"):
        assert not compare(facts, ledger_facts(again, named=True))
    return {
        **seconds,
        "ms_a_footer": 1e3 * seconds["footers"] / count,
        "bytes_a_shard": written / count,
        "mib_start": before,
        "mib_found": found,
        "mib": peak_mib(),
    }


def main() -> None:
    """Measure, and print a table."""
    parser = common.arguments(__doc__)
    parser.add_argument("--most", type=int, default=100_000, help="shards")
    parser.add_argument("--folder", help="where files are made and removed; hard links must work")
    parser.add_argument("--measure", help="of this directory, in this process: one line of JSON")
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(given.measure)))
        return
    found: dict[int, dict[str, float]] = {}
    for count in [10**power for power in range(3, 10) if 10**power <= given.most]:
        folder = Path(tempfile.mkdtemp(dir=given.folder))
        try:
            make_files(folder, count)
            command = [sys.executable, __file__, "--measure", str(folder / "data")]
            found[count] = json.loads(subprocess.check_output(command))
        finally:
            shutil.rmtree(folder)
    keys = [*next(iter(found.values()))]
    common.table(
        ["shards", *keys],
        [[f"{count:,}", *(row[key] for key in keys)] for count, row in found.items()],
    )
    common.finish({"shards": found}, as_json=given.json)


if __name__ == "__main__":
    main()
