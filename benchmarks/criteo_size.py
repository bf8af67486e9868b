"""What does a whole job on Criteo-shaped data take, at 10^6, 10^7, 10^8 rows?

Rows of 13 counts and 26 raw strings (those of benchmarks/peers, set ii), as `convert` stores them:
one shard of 10^6 rows, generated once, and hard links to it, so that all is decoded and learned
again but little lies on the disk. For each number of rows, in a process of its own: `train` with
NAG, 2^18 coordinates and a commit a minute, with its start and its end; and the bare decode of the
same files, one thread that drops what it decoded. Then the line seconds = start + rows × slope
through the runs, how far each is off it, and what it says of 4.2 × 10^9 rows (Criteo's terabyte).

Target: every run within 5 % of the line, by processor time and by the clock. 10^8 rows take five
minutes and more:

    python benchmarks/criteo_size.py --rows 1000000 3000000 10000000 100000000
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import common
import numpy as np
import pyarrow.parquet as pq
from growth import of_status
from growth_data import linked

PEERS = Path(__file__).parent / "peers"
TERABYTE_ROWS = 4_200_000_000
RECORDS = (
    ("Vowpal Wabbit 8.3, about 1.7 cores", "155,000 … 169,000"),
    ("Spark, 512 cores", "524,000"),
    ("TensorFlow, 89 machines", "1,000,000"),
    ("Snap ML, 16 V100", "46,000,000"),
)
"""Published rows a second on Criteo's terabyte, on other hardware."""


def written(path: Path, rows: int) -> None:
    """A shard, as `convert` stores it."""
    sys.path.insert(0, str(PEERS))
    from rows import clicks

    from streamomd.sources.text.output_formats import FORMS

    form, writer = FORMS["parquet"], None
    for table in clicks.tables(rows):
        table = table.combine_chunks()
        writer = writer or form.begin(str(path), table.schema, table.to_batches()[0], None)
        form.write(writer, table)
    assert writer is not None
    writer.close()


def train(folder: str) -> dict[str, Any]:
    """The whole job."""
    import streamomd

    data = {"shards": [folder], "label": "y", "nulls": "zero"}
    with tempfile.TemporaryDirectory() as saved:
        job = {"data": data, "model": {"rule": "nag"}, "checkpoint": {"url": f"{saved}/run"}}
        model = streamomd.train(job, quiet=True)
        return {"rows": model.metrics.total_rows}


def decode(folder: str) -> dict[str, Any]:
    """Every row, by pyarrow alone; strings as dictionaries, as training reads them."""
    rows = 0
    for path in sorted(Path(folder).iterdir()):
        names = pq.read_schema(path).names
        texts = [name for name in names if name.startswith("C")]
        with pq.ParquetFile(path, read_dictionary=texts, pre_buffer=False) as parquet:
            for batch in parquet.iter_batches(batch_size=20_000, use_threads=False):
                rows += batch.num_rows
    return {"rows": rows}


JOBS = {"train": train, "decode": decode}


def child(job: str, folder: str) -> None:
    """Run a job, then print what this process took for it."""
    found = JOBS[job](folder)
    [read] = [line for line in Path("/proc/self/io").read_text().splitlines() if "rchar" in line]
    found |= {"peak_mb": of_status("status", "VmHWM"), "read_gb": int(read.split()[1]) / 1e9}
    print(json.dumps(found))


def run(job: str, folder: Path) -> dict[str, float]:
    """What ``child`` prints, with the seconds of the whole process."""
    command = [sys.executable, __file__, "--child", job, str(folder)]
    began, before = time.monotonic(), spent()
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, float] = json.loads(out.splitlines()[-1])
    return {**found, "wall": time.monotonic() - began, "cpu": spent() - before}


def spent() -> float:
    """Processor seconds of the children that have ended."""
    import resource

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def line_through(rows: Sequence[float], seconds: Sequence[float]) -> tuple[float, float, float]:
    """Start, slope, and the largest relative distance of a run from the line; the same share of
    each counts for all.

    >>> line_through([1.0, 2.0, 3.0], [5.0, 7.0, 9.0])
    (3.0, 2.0, 0.0)
    """
    x, y = np.array(rows, float), np.array(seconds, float)
    sides = np.stack([np.ones(len(x)), x], axis=1)
    (start, slope), *_ = np.linalg.lstsq(sides / y[:, None], np.ones(len(y)), rcond=None)
    off = np.abs((sides @ [start, slope]) / y - 1.0).max()
    return round(float(start), 9), round(float(slope), 12), round(float(off), 9)


def report(runs: Sequence[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Print the tables in Markdown; the lines."""
    head = ["rows", "seconds", "CPU-s", "rows/s", "rows/CPU-s", "peak MB", "GB read",
            "decode, CPU-s", "train ÷ decode, CPU"]  # fmt: skip
    lines = []
    for one in runs:
        made, bare = one["train"], one["decode"]
        rows = made["rows"]
        lines.append([
            f"{rows:,.0f}", f"{made['wall']:.1f}", f"{made['cpu']:.1f}",
            f"{rows / made['wall']:,.0f}", f"{rows / made['cpu']:,.0f}", f"{made['peak_mb']:,.0f}",
            f"{made['read_gb']:.2f}", f"{bare['cpu']:.1f}", f"{made['cpu'] / bare['cpu']:.2f}",
        ])  # fmt: skip
    print(markdown(head, lines), end="\n\n")
    if len(runs) < 3:
        return {}
    rows = [one["train"]["rows"] for one in runs]
    found: dict[str, Any] = {}
    lines = []
    for clock in ("wall", "cpu"):
        start, slope, off = line_through(rows, [one["train"][clock] for one in runs])
        whole = start + slope * TERABYTE_ROWS
        met = "met" if off <= 0.05 else "missed"
        lines.append([
            clock, f"{start:.2f}", f"{1e6 * slope:.3f}", f"{100 * off:.1f} %: {met}",
            f"{whole / 3600:.2f} h", f"{TERABYTE_ROWS / whole:,.0f}",
        ])  # fmt: skip
        found[clock] = {"start": start, "slope": slope, "off": off, "terabyte_seconds": whole}
    head = ["", "start, s", "µs a row", "off the line (≤ 5 %)", "4.2 × 10^9 rows", "rows/s of them"]
    print(markdown(head, lines), end="\n\n")
    print(markdown(["published, other hardware", "rows/s"], [list(one) for one in RECORDS]))
    return found


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table as docs/performance.md has it."""
    rule = ["---"] * len(head)
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *lines))


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10**6, 3 * 10**6, 10**7])
    parser.add_argument("--shard-rows", type=int, default=10**6, help="rows of the one shard")
    parser.add_argument("--folder", type=Path, help="where the shard is; made if it is not")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(*args.child)
        return
    runs = []
    with tempfile.TemporaryDirectory(dir=args.folder) as made:
        shard = (args.folder or Path(made)) / f"clicks-{args.shard_rows}.parquet"
        if not shard.exists():
            written(shard, args.shard_rows)
        for at, rows in enumerate(sorted(args.rows)):
            folder = linked(Path(made) / f"rows-{at}", shard, max(1, rows // args.shard_rows))
            if not at:
                run("train", folder)  # compiles, and fills the page cache
            runs.append({job: run(job, folder) for job in JOBS})
            print(f"{rows:,} rows: {runs[-1]['train']['wall']:.1f} s", file=sys.stderr, flush=True)
    found = report(runs)
    common.finish({"runs": runs, "lines": found}, as_json=args.json)


if __name__ == "__main__":
    main()
