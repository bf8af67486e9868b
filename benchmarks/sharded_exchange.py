"""What does a round of sharded mode cost, and how much CPU time more than exact mode?

Made rows, ten numbers and five categories of 1,000 values, one epoch of NAG: of exact mode in one
process and of sharded mode on clusters of this machine with 2 and 4 owners, in turn. Of sharded
mode: seconds per round by the clock and CPU time of all processes, decoding and learning of its
rows included, and CPU time in relation to exact mode. Clusters are started, and loops compiled,
before.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import common
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client, LocalCluster

import streamomd

ROWS, SHARDS = 1 << 18, 4


def cpu_seconds() -> float:
    """Of this process and its children."""
    here = psutil.Process()
    return sum(
        sum(one.cpu_times()[:2])
        for one in (here, *here.children(recursive=True))
        if one.is_running()
    )


def write_rows(folder: Path) -> None:
    """Shards of made rows; the label depends on a number and a category."""
    draw = np.random.default_rng(0)
    numbers = draw.normal(size=(ROWS, 10))
    categories = draw.integers(0, 1000, (ROWS, 5))
    margins = numbers[:, 0] + 0.3 * (categories[:, 0] % 7 - 3)
    columns: dict[str, Any] = {f"number_{i}": numbers[:, i] for i in range(10)}
    columns |= {f"category_{i}": categories[:, i].astype(str) for i in range(5)}
    table = pa.table(columns | {"y": (margins + draw.normal(size=ROWS) > 0).astype(int)})
    each = ROWS // SHARDS
    for i in range(SHARDS):
        pq.write_table(table.slice(i * each, each), folder / f"{i}.parquet", row_group_size=1 << 14)


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--owners", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rows", type=int, nargs="+", default=[256, 4096], help="of a micro-batch")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_rows(folder)
        runs = 0

        def train(mode: str, client: Any, **more: Any) -> tuple[float, float, str]:
            nonlocal runs
            runs += 1
            job: dict[str, Any] = {
                "data": {"shards": [str(folder / "*.parquet")], "label": "y"},
                "model": {"rule": "nag", "loss": "logistic", "params": {"eta": 1.5}},
                "train": {"mode": mode, **more},
                "checkpoint": {"url": str(folder / f"run-{runs}")},
            }
            wall, cpu = time.perf_counter(), cpu_seconds()
            model = streamomd.train(job, client=client, quiet=True)
            return time.perf_counter() - wall, cpu_seconds() - cpu, model.state_sha256

        for owners in args.owners:
            cluster = LocalCluster(
                n_workers=owners, threads_per_worker=1, dashboard_address=None, memory_limit=0
            )
            with cluster, Client(cluster, set_as_default=False) as client:
                for rows in args.rows:
                    train("exact", None)
                    expected = train("sharded", client, batch_rows=rows)[2]
                    exact, walls, cpus = [], [], []
                    for _ in range(args.runs):
                        exact.append(train("exact", None)[1])
                        wall, cpu, sha256 = train("sharded", client, batch_rows=rows)
                        assert sha256 == expected
                        walls.append(wall)
                        cpus.append(cpu)
                    rounds, cpu = ROWS / rows, statistics.median(cpus)
                    found.append(
                        {
                            "owners": owners,
                            "rows": rows,
                            "round ms": 1e3 * statistics.median(walls) / rounds,
                            "round CPU ms": 1e3 * cpu / rounds,
                            "CPU / exact": cpu / statistics.median(exact),
                        }
                    )
    if not args.json:
        lines = [[f"{value:.3g}" for value in one.values()] for one in found]
        common.table([*found[0]], lines)
    common.finish({"rounds": found}, as_json=args.json)


if __name__ == "__main__":
    main()
