"""Covertype: is the error what it should be, and how many rows a second are learned?

UCI Covertype (581,012 rows × 54, 7 classes), read from ../shared/data/covertype beside the checkout
or from --source, converted to 16 Parquet shards and trained in file order with NAG and logistic
loss, one-against-all, eta = 1.5. Without the file there is nothing to do: it says so and ends.

Targets: rows = 581012; progressive 0–1 error of one epoch between 0.20 and 0.23; over 5 epochs, on
2 cores and apart from compilation, ≥ 500,000 rows/s (the median of some runs, no checkpoint).
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import common

import streamomd
from streamomd.sources.text.convert import convert

SOURCE = Path(__file__).parents[2] / "shared/data/covertype/covtype.csv.gz"


def train(folder: Path, label: str, epochs: int, dtype: str) -> Any:
    """One run; its result."""
    job = {"data": {"shards": [str(folder)], "label": label}}
    more = {"epochs": epochs, "dtype": dtype, "checkpoint": "none", "quiet": True}
    model = streamomd.train(job, rule="nag", eta=1.5, **more)
    return model.result()


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--source", type=Path, default=SOURCE, help="covtype.csv.gz")
    parser.add_argument("--label", default="Cover_Type", help="its label column")
    parser.add_argument("--runs", type=int, default=5, help="runs of 5 epochs; the median counts")
    parser.add_argument("--dtype", default="float64", choices=["float64", "float32"])
    args = parser.parse_args()
    if not args.source.exists():
        print("skipped: no covtype.csv.gz there; give its place with --source", file=sys.stderr)
        common.finish({"skipped": "no covtype.csv.gz"}, as_json=args.json)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "shards"
        made = convert([str(args.source)], source_format="csv", to=str(folder), shards=16)
        one = train(folder, args.label, 1, args.dtype)
        speeds = [
            train(folder, args.label, 5, args.dtype)["rows_per_second"] for _ in range(args.runs)
        ]
    speed = statistics.median(speeds)
    lines = [
        ["rows", one["rows"], "581012"],
        ["progressive error", f"{one['error']:.4f}", "0.20 … 0.23"],
        ["progressive loss", f"{one['loss']:.4f}", ""],
        ["rows/s over 5 epochs", f"{speed:,.0f}", "≥ 500,000"],
        ["rows/s, slowest … fastest", f"{min(speeds):,.0f} … {max(speeds):,.0f}", ""],
        ["rows/s of the conversion", f"{made.rows / made.seconds:,.0f}", ""],
    ]
    common.table([f"Covertype, {os.cpu_count()} cores", "", "target"], lines)
    figures = {key: one[key] for key in ("rows", "error", "loss", "state_sha256")}
    figures |= {"rows_per_second": speed, "runs": speeds, "cores": os.cpu_count()}
    common.finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
