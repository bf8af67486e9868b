"""Does resident memory stay the same, however much data there is?

Peak resident memory (``ru_maxrss`` of a process of its own) of a whole ``train`` with a checkpoint
on local disk, a commit every 500,000 rows: on data of 1 and of 10 sizes, at 2^18 and at 2^24
coordinates, and on one row group of 1.2 M rows. About 75 non-zeros a row, zstd. Written into a
temporary folder (3 GB), or kept with --folder.

Targets: 10 sizes ÷ 1 size ≤ 1.05, and each ≤ its state + 450 MB.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import common

MB = 1e6


def child(folder: str, checkpoint: str, power: int) -> None:
    """Train, then say what it took; runs in a process of its own."""
    import streamomd

    sparse = {"indices": "i", "values": "v", "size": 1 << power}
    data = {"shards": [folder], "label": "y", "sparse": sparse}
    kept = {"url": checkpoint, "every_rows": 500_000}
    model = streamomd.train({"data": data, "checkpoint": kept}, quiet=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"peak": peak, "state": model.state.nbytes, "rows": model.result()["rows"]}))


def measure(folder: Path, power: int, times: int) -> dict[str, Any]:
    """The median peak of some runs, each in a process and with a checkpoint of its own."""
    found = []
    for _ in range(times):
        with tempfile.TemporaryDirectory() as kept:
            command = [sys.executable, __file__, "--child", str(folder), f"{kept}/run", str(power)]
            out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found.append(json.loads(out.splitlines()[-1]))
    peak = statistics.median(run["peak"] for run in found)
    return {**found[0], "peak": peak, "peaks": [run["peak"] for run in found]}


def write(folder: Path, power: int, args: argparse.Namespace) -> dict[str, Path]:
    """Data of 1 size, of 10, and in one row group, unless they are there.

    Coordinates up to 2^power, so that nearly every page of the state is touched.
    """
    folder = folder / str(power)
    kinds = {
        "1 size": (1, args.rows, args.group_rows),
        "10 sizes": (10, args.rows, args.group_rows),
        "one row group": (1, args.one_group, args.one_group),
    }
    for name, (shards, shard_rows, group_rows) in kinds.items():
        if not (folder / name).exists():
            made = common.write_shards(
                folder / name,
                shards=shards,
                shard_rows=shard_rows,
                group_rows=group_rows,
                size=1 << power,
            )
            list(made)
    return {name: folder / name for name in kinds}


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="rows of 1 size")
    parser.add_argument("--group-rows", type=int, default=50_000, help="rows a row group")
    parser.add_argument("--one-group", type=int, default=1_200_000, help="rows of the one group")
    parser.add_argument("--powers", type=int, nargs="+", default=[18, 24], help="2^: coordinates")
    parser.add_argument("--times", type=int, default=3, help="runs of each; the median counts")
    parser.add_argument("--folder", type=Path, help="data to use, or to write and keep")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        folder, checkpoint, power = args.child
        child(folder, checkpoint, int(power))
        return
    figures: dict[str, Any] = {}
    lines = []
    with tempfile.TemporaryDirectory() as temporary:
        # ru_maxrss of a process begins with its parent's: this one has to stay small.
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            root = args.folder or Path(temporary)
            folders = {power: pool.submit(write, root, power, args) for power in args.powers}
        for power, written in folders.items():
            for name, folder in written.result().items():
                found = measure(folder, power, args.times)
                figures[f"2^{power}, {name}"] = found
                growth = found["peak"] / figures[f"2^{power}, 1 size"]["peak"]
                found["growth"], found["beside"] = growth, found["peak"] - found["state"]
                megabytes = [found[key] / MB for key in ("peak", "state", "beside")]
                lines.append([f"2^{power}, {name}", found["rows"], *megabytes, growth])
    head = ["MB", "rows", "peak", "state", "peak − state (≤ 450)", "÷ 1 size (≤ 1.05)"]
    common.table(head, lines)
    common.finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
