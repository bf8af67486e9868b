"""What does sharded mode cost in CPU time, next to exact mode?

Covertype (see covertype.py), repeated, one epoch of NAG: CPU seconds of all processes, of exact
mode in one process and of sharded mode on a cluster of this machine with K owners, in turn; the
ratio of their medians. The cluster is started, and loops are compiled, before.

Target: K = 3: at most 2.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import common
import psutil
from covertype import SOURCE
from distributed import Client, LocalCluster

import streamomd
from streamomd.sources.text.convert import convert


def cpu_seconds() -> float:
    """Of this process and its children."""
    here = psutil.Process()
    return sum(
        sum(one.cpu_times()[:2])
        for one in (here, *here.children(recursive=True))
        if one.is_running()
    )


def repeated(source: Path, folder: Path, times: int) -> Path:
    """Shards of the rows, each copied as often as that."""
    once, many = folder / "once", folder / "many"
    convert([str(source)], source_format="csv", to=str(once), shards=4)
    many.mkdir()
    for number in range(times):
        for shard in once.glob("*.parquet"):
            shutil.copy(shard, many / f"{number:02d}-{shard.name}")
    return many


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--source", type=Path, default=SOURCE, help="covtype.csv.gz")
    parser.add_argument("--times", type=int, default=10, help="how often the rows are repeated")
    parser.add_argument("--owners", type=int, default=3)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rows", type=int, default=256, help="rows of a micro-batch")
    args = parser.parse_args()
    if not args.source.exists():
        print("skipped: no covtype.csv.gz there; give its place with --source", file=sys.stderr)
        common.finish({"skipped": "no covtype.csv.gz"}, as_json=args.json)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shards = repeated(args.source, folder, args.times)
        runs = 0

        def train(mode: str, client: Any, **more: Any) -> tuple[float, str]:
            nonlocal runs
            runs += 1
            job: dict[str, Any] = {
                "data": {"shards": [str(shards)], "label": "Cover_Type"},
                "model": {"rule": "nag", "loss": "logistic", "params": {"eta": 1.5}},
                "train": {"mode": mode, **more},
                "checkpoint": {"url": str(folder / f"run-{runs}")},
            }
            before = cpu_seconds()
            model = streamomd.train(job, client=client, quiet=True)
            return cpu_seconds() - before, model.state_sha256

        cluster = LocalCluster(
            n_workers=args.owners, threads_per_worker=1, dashboard_address=None, memory_limit=0
        )
        with cluster, Client(cluster, set_as_default=False) as client:
            batch = {"batch_rows": args.rows}
            train("exact", None)
            expected = train("sharded", client, **batch)[1]
            exact, sharded = [], []
            for _ in range(args.runs):
                exact.append(train("exact", None)[0])
                seconds, found = train("sharded", client, **batch)
                sharded.append(seconds)
                assert found == expected
    ratio = statistics.median(sharded) / statistics.median(exact)
    lines = [
        ["exact mode", f"{statistics.median(exact):.1f}", ""],
        [f"sharded mode, {args.owners} owners", f"{statistics.median(sharded):.1f}", ""],
        ["ratio", f"{ratio:.2f}", "<= 2"],
    ]
    if not args.json:
        common.table(["CPU seconds", "median", "target"], lines)
    figures = {"exact": exact, "sharded": sharded, "ratio": ratio}
    common.finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
