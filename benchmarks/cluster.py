"""What does a cluster cost, or win?

Exact mode: wall time of ``streamomd.train`` with two workers of one thread each on this machine,
which may decode (``cluster.decode = "auto"``: both ways are tried on the first rows), ÷ wall time
of the same call in one process. Pairs run in turn; the median of their ratios. The cluster is
started before.

Data, written into a temporary folder: "numbers" are rows of about 75 non-zeros as in scan.py;
"texts" are 8 columns of strings, hashed, which cost more to decode than to learn.

Target: auto ÷ one process ≤ 1.10. For information: everything decoded by the workers.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

import common
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client, LocalCluster

import streamomd

SIZE = 1 << 18
TEXTS = 8


def numbers(folder: Path, rows: int) -> dict[str, Any]:
    """Sparse rows; their job."""
    made = common.write_shards(folder, shards=4, shard_rows=rows, group_rows=50_000, size=SIZE)
    list(made)  # they are written as they are asked for
    sparse = {"indices": "i", "values": "v", "size": SIZE}
    return {"shards": [str(folder)], "label": "y", "sparse": sparse}


def texts(folder: Path, rows: int) -> dict[str, Any]:
    """Strings, most of them seldom seen; their job."""
    draw = np.random.default_rng(0)
    for shard in range(4):
        columns: dict[str, Any] = {"y": draw.integers(0, 2, rows)}
        for n in range(TEXTS):
            codes = draw.zipf(1.3, rows) % 1_000_000
            columns[f"c{n}"] = [f"value-{code}" for code in codes]
        path = folder / f"part-{shard}.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=50_000, compression="zstd")
    return {"shards": [str(folder)], "label": "y", "hashed": [f"c{n}" for n in range(TEXTS)]}


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--rows", type=int, default=400_000, help="rows a shard")
    parser.add_argument("--pairs", type=int, default=5, help="runs of each")
    args = parser.parse_args()
    lines, figures = [], {}
    with (
        tempfile.TemporaryDirectory() as temporary,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        for make in (numbers, texts):
            folder = Path(temporary) / make.__name__
            folder.mkdir()
            data = make(folder, args.rows)

            def train(
                data: dict[str, Any] = data, decode: str = "auto", given: Any = client
            ) -> None:
                job = {"data": data, "cluster": {"decode": decode}}
                streamomd.train(job, client=given, checkpoint="none", quiet=True)

            train(decode="remote")  # compiles, and fills the page cache
            seconds = common.in_turn(
                {
                    "one process": lambda: train(given=None),
                    "auto": train,
                    "remote": lambda: train(decode="remote"),
                },
                args.pairs,
            )
            for name, target in (("one process", ""), ("auto", "≤ 1.10"), ("remote", "")):
                ratio = common.ratio(seconds[name], seconds["one process"])
                label = f"{make.__name__}, {name}"
                lines.append([label, statistics.median(seconds[name]), ratio, target])
                figures[label] = {"seconds": seconds[name], "ratio": ratio}
    common.table(["2 workers × 1 thread", "seconds", "÷ one process", "target"], lines)
    common.finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
