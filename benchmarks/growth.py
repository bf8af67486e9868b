"""Does a row cost the same, whatever there is of rows, of non-zeros and of coordinates?

rows: a whole ``train`` (zstd Parquet, input checks, commits each minute, NAG) over 10^8 rows of 60
non-zeros, hard links of one shard, so that all is decoded anew but little lies on the disk. Rows/s
and peak resident memory at 2·10^6, 4·10^6 … 10^8 rows; before and after it a run of 2·10^6 alone.
Decoded, these rows take more than 100 × 450 MB.
nonzeros: processor time a row of such a ``train``, rows of 5 … 500 non-zeros, and how far each is
off the line through them. Start-up apart: what five links take more than one.
coordinates: ns a non-zero of the engine alone, float32, 2^10 … 2^27 coordinates, which rows of 75
draw alike from all ("uniform") or mostly from the low ones ("log-uniform"). A state that the kernel
does not give in huge pages costs 30 ns more where it is large: their share is told.

Targets: rows/s at 10^8 rows ÷ at 2·10^6 in 0.90 … 1.10; peak ≤ state + 450 MB; each cost within
10 % of the line; the dearest ÷ the cheapest up to the cache's size ≤ 1.25.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import common
import numpy as np
from growth_data import POWER, linked, spread, written

MB = 1e6
BESIDE = 450.0  # MB that a run may hold beside its state
ROWS_NONZEROS = 60  # 10^8 rows of them: 48 GB
SHORT = 2_000_000
CELL_BYTES = 16  # of a coordinate: NAG in float32


class Looking:
    """A callback: figures at doubling rows from ``first`` on, with what they took so far."""

    def __init__(self, first: int) -> None:
        self.first, self.seen, self.began = first, list[dict[str, float]](), 0.0

    def on_progress(self, figures: dict[str, Any]) -> None:
        rows, now = figures["rows"], time.process_time()
        self.began = self.began or now  # when the first row is learned
        if rows >= self.first:
            while rows >= self.first:
                self.first *= 2
        elif figures["state"] != "finished":
            return
        told = {"rows": rows, "seconds": figures["seconds"], "peak": peak()}
        self.seen.append({**told, "processor": now - self.began})


def peak() -> float:
    """What this process has held at most, in MB. (``ru_maxrss`` begins with its parent's.)"""
    return of_status("status", "VmHWM")


def of_status(file: str, key: str) -> float:
    """A figure that the kernel has of this process, in MB."""
    lines = Path("/proc/self", file).read_text().splitlines()
    [line] = [line for line in lines if line.startswith(key)]
    return int(line.split()[1]) * 1024 / MB


def child(folder: str, first: int) -> None:
    """Train on all shards of a folder, then say what was seen; runs in a process of its own."""
    import streamomd

    looking = Looking(first)
    with tempfile.TemporaryDirectory() as kept:
        sparse = {"indices": "i", "values": "v", "size": 1 << POWER}
        data = {"shards": [folder], "label": "y", "sparse": sparse}
        job = {"data": data, "checkpoint": {"url": f"{kept}/run"}}
        model = streamomd.train(job, callbacks=[looking], quiet=True)
    told = {"seconds": model.seconds, "rows": model.metrics.total_rows, "cpu": time.process_time()}
    print(json.dumps({**told, "state": model.state.nbytes / MB, "seen": looking.seen}))


def trained(folder: Path, first: int = 1 << 62) -> dict[str, Any]:
    """What ``child`` says."""
    command = [sys.executable, __file__, "--child", str(folder), str(first)]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def of_rows(root: Path, args: argparse.Namespace) -> dict[str, Any]:
    """A long run, and short ones before and after it."""
    shard_rows = 20_000 if args.quick else 200_000
    short_rows = SHORT // (10 if args.quick else 1)
    rows = args.rows or (1_000_000 if args.quick else 100_000_000)
    shard = written(root / "one", shard_rows, ROWS_NONZEROS)
    short = linked(root / "short", shard, short_rows // shard_rows)
    long = linked(root / "long", shard, rows // shard_rows)
    trained(short)  # compiles
    alone = [trained(short) for _ in range(args.times)]
    found = trained(long, short_rows)
    alone += [trained(short) for _ in range(args.times)]
    seen, state = found["seen"], found["state"]
    seen[-1]["seconds"] = found["seconds"]  # with the last commit, as those of the short ones
    rates = [run["rows"] / run["seconds"] for run in alone]
    lines = [[f"{short_rows:,} alone", statistics.median(rates), "", "", ""]]
    before = {"rows": 0, "seconds": 0.0}
    for one in seen:
        since = (one["rows"] - before["rows"]) / max(one["seconds"] - before["seconds"], 1e-9)
        each = 1e6 * one["processor"] / one["rows"]
        lines.append([f"{one['rows']:,}", rate(one), since, each, one["peak"]])
        before = one
    head = ["rows", "rows/s so far", "since the line above", "processor µs a row", "peak MB"]
    common.table(head, lines)
    growth = found["rows"] / found["seconds"] / statistics.median(rates)
    decoded = found["rows"] * (8.0 * ROWS_NONZEROS + 5.0) / MB
    beside = seen[-1]["peak"] - state
    first, last = (one["processor"] / one["rows"] for one in (seen[0], seen[-1]))
    dearer = last / first
    lines = [
        ["rows/s ÷ those of short runs", growth, "0.90 … 1.10"],
        ["rows/s ÷ those of its own beginning", rate(seen[-1]) / rate(seen[0]), "0.90 … 1.10"],
        ["processor time a row ÷ that of its beginning", dearer, "0.90 … 1.10"],
        ["peak ÷ peak after its beginning", seen[-1]["peak"] / seen[0]["peak"], "≤ 1.05"],
        [f"peak − state ({state:,.0f} MB), MB", beside, f"≤ {BESIDE:.0f}"],
        [f"decoded ({decoded:,.0f} MB) ÷ {BESIDE:.0f} MB", decoded / BESIDE, "≥ 100"],
    ]
    common.table(["the long run", "", "target"], lines)
    told = {
        "growth": growth,
        "dearer": dearer,
        "beside": beside,
        "state": state,
        "decoded": decoded,
    }
    return {**told, "alone": rates, "seen": seen}


def rate(seen: dict[str, float]) -> float:
    """Rows a second up to there."""
    return seen["rows"] / seen["seconds"]


def of_nonzeros(root: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Processor time a row, of what five links take more than one."""
    total = 2_000_000 if args.quick else 20_000_000  # non-zeros of a shard
    counts = [5, 20, 100, 500] if args.quick else [5, 10, 20, 50, 100, 200, 500]
    costs: dict[int, list[float]] = {count: [] for count in counts}
    jobs: dict[str, Callable[[], Any]] = {}
    for count in counts:
        folder, rows = root / f"of-{count}", total // count
        shard = written(folder / "shard", rows, count)
        once, often = linked(folder / "once", shard, 1), linked(folder / "often", shard, 5)

        jobs[str(count)] = partial(measure, once, often, 4 * rows, costs[count])
    common.in_turn(jobs, args.times)
    ns = np.array([statistics.median(costs[count]) for count in counts])
    weights = 1.0 / ns  # the same share counts for all
    lines_of = np.stack([np.ones(len(counts)), np.array(counts, float)], axis=1)
    (fixed, each), *_ = np.linalg.lstsq(lines_of * weights[:, None], ns * weights, rcond=None)
    off = ns / (lines_of @ [fixed, each]) - 1.0
    lines = [
        [str(count), cost, cost / count, f"{100 * share:+.1f} %"]
        for count, cost, share in zip(counts, ns, off, strict=True)
    ]
    common.table(["non-zeros", "ns a row", "ns a non-zero", "off the line"], lines)
    worst = float(np.abs(off).max())
    print(f"ns a row = {fixed:,.1f} + {each:,.2f} × non-zeros; off by at most {worst:.0%} (≤ 10 %)")
    told = {"fixed": float(fixed), "each": float(each), "worst": worst}
    return {**told, "nonzeros": counts, "ns": ns.tolist(), "all": costs}


def measure(once: Path, often: Path, rows: int, costs: list[float]) -> None:
    """Add what a row costs that one run has more of than the other, in ns of processor time."""
    more = trained(often)["cpu"] - trained(once)["cpu"]
    costs.append(1e9 * more / rows)


def of_coordinates(_: Path, args: argparse.Namespace) -> dict[str, Any]:
    """ns a non-zero of the engine alone."""
    from streamomd.core.batch import SparseBatch

    powers = [10, 14, 18, 22] if args.quick else list(range(10, 28))
    rows, n = (2_000 if args.quick else 40_000), common.NONZEROS
    draw, found, huge = np.random.default_rng(0), dict[str, list[float]](), list[float]()
    y, ones = common.labels(draw, rows).astype(np.float64), np.ones(rows)
    indptr, values = np.arange(rows + 1) * n, draw.standard_normal(rows * n, np.float32)
    for power in powers:  # a state each; the two draws in turn
        drawn = {
            name: spread(draw, rows, (1 << power) - 1, n, log=name == "log-uniform")
            for name in ("uniform", "log-uniform")
        }
        walks = {
            name: common.Walk(
                "nag", 1 << power, "float32", SparseBatch(indptr, at, values, y, ones)
            )
            for name, at in drawn.items()
        }
        for name, ns in common.timed(walks, args.times, rows * n).items():
            found.setdefault(name, []).append(statistics.median(ns))
        states = 2 * (CELL_BYTES << power) / MB
        huge.append(min(1.0, of_status("smaps_rollup", "AnonHugePages") / states))
    lines = [
        [f"2^{power}", (CELL_BYTES << power) / MB, *(found[name][at] for name in found), huge[at]]
        for at, power in enumerate(powers)
    ]
    head = ["coordinates", "state MB", *(f"{name}, ns" for name in found), "in huge pages"]
    common.table(head, lines)
    cached = [
        ns
        for power, ns in zip(powers, found["uniform"], strict=True)
        if CELL_BYTES << power <= cache()
    ]
    flat = max(cached) / min(cached)
    print(f"states up to the last cache ({cache() / MB:,.0f} MB): dearest ÷ cheapest {flat:.2f}")
    return {
        "powers": powers,
        "cache": cache(),
        "cell": CELL_BYTES,
        "flat": flat,
        "huge": huge,
        **found,
    }


def cache() -> int:
    """Bytes of the processor's last cache; 32 MiB where nobody tells."""
    sizes = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"))
    return int(sizes[-1].read_text().rstrip("K\n")) << 10 if sizes else 32 << 20


PARTS = {"rows": of_rows, "nonzeros": of_nonzeros, "coordinates": of_coordinates}


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--part", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--quick", action="store_true", help="a hundredth of it")
    parser.add_argument("--rows", type=int, help="of the long run")
    parser.add_argument("--times", type=int, default=3, help="runs of each; the median counts")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="growth-PART.svg of each")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        folder, first = args.child
        child(folder, int(first))
        return
    figures: dict[str, Any] = {}
    for part in args.part:
        with tempfile.TemporaryDirectory() as root:
            figures[part] = PARTS[part](Path(root), args)
        if args.plots:
            from growth_plots import plot

            plot(part, figures[part], args.plots)
    common.finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
