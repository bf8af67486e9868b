"""What do two threads win for sixteen classes, or sixteen learners of a sweep?

Wall time of one thread ÷ that of two, next to the same work in two bare processes of one thread,
each with half of the classes or learners: as much as this machine gives at that moment. NAG, rows
of about 75 non-zeros of 2^18 coordinates.

- "engine": one-against-all, logistic loss, the rows in memory: ``engine.learn`` alone;
- "train" and "sweep": whole Python calls over Parquet shards, without a checkpoint; each bare
  process decodes all rows, the threads share them.

All are run in turn; medians. The states of the two threads must be those of one.

Target, on 2 cores: one ÷ two threads ≥ 0.92 × one ÷ two processes.

--small instead shows from which work threads are worth it: a batch by one thread and by two.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import time
from functools import cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import common
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SIZE, WHOLE, HALF = 1 << 18, 16, 8
SPARSE = {"indices": "i", "values": "v", "size": SIZE}
KINDS = ("engine", "train", "sweep")
LINE = 0.92
SMALL = 1 << 12  # coordinates: a batch of few rows is in the cache


def write(folder: Path, rows: int) -> None:
    """Two shards with labels of 16 classes, of 8, and of two."""
    for shard in range(2):
        table = common.lists(shard, rows // 2, SIZE)
        codes = np.random.default_rng(shard).integers(0, WHOLE, table.num_rows).astype(np.int8)
        for classes in (WHOLE, HALF):
            table = table.append_column(f"y{classes}", pa.array(codes % classes))
        path = folder / f"part-{shard}.parquet"
        pq.write_table(table, path, compression="zstd", row_group_size=50_000)


@cache
def rows_of(rows: int, classes: int, size: int = SIZE) -> Any:
    """The same rows, with labels of ``classes`` classes."""
    return common.batch(np.random.default_rng(0), rows, size, classes)


@cache
def walk_of(rows: int, classes: int, threads: int, size: int = SIZE) -> Any:
    """A loop over rows in memory, and its state, divided among threads."""
    from streamomd.engine.divided import DividedState, Threads

    walk = common.Walk("nag", size, "float64", rows_of(rows, classes, size), classes=classes)
    if threads > 1:
        walk.state = DividedState.of(walk.state, Threads(threads))
    return walk


def engine(folder: Path, rows: int, count: int, threads: int) -> list[str]:
    """Learn the rows; a hash of all numbers."""
    import hashlib

    walk, digest = walk_of(rows, count, threads), hashlib.sha256()
    walk()
    walk.state.digest(digest)
    return [digest.hexdigest()]


def job(folder: Path, label: str, threads: int) -> dict[str, Any]:
    """NAG on the pair of lists."""
    others = [name for name in ("y", "y8", "y16") if name != label]
    data = {"shards": [str(folder)], "label": label, "sparse": SPARSE, "ignore": others}
    model = {"rule": "nag", "loss": "logistic"}
    made = {"data": data, "model": model, "train": {"threads": threads}}
    return {**made, "checkpoint": {"url": "none"}}


def train(folder: Path, rows: int, count: int, threads: int) -> list[str]:
    """The whole call, of ``count`` classes."""
    import streamomd

    found = streamomd.train(job(folder, f"y{count}", threads), quiet=True)
    return [found.state_sha256]


def sweep(folder: Path, rows: int, count: int, threads: int) -> list[str]:
    """The whole call, of ``count`` learners."""
    import streamomd
    from streamomd.runs.sweep.grid import values_of

    etas = values_of("eta", f"0.01..10:{WHOLE}")[:count]
    models = streamomd.sweep(job(folder, "y", threads), grid={"eta": etas}, quiet=True)
    return [model.state_sha256 for model in models]


def serve(calls: Connection, folder: Path, rows: int) -> None:
    """Run what is asked for; answer with the hash and CPU seconds."""
    while given := calls.recv():
        kind, count, threads = given
        began = time.process_time()
        found = {"engine": engine, "train": train, "sweep": sweep}[kind](
            folder, rows, count, threads
        )
        calls.send((found, time.process_time() - began))


class Processes:
    """Two processes that wait for work, so that no start is measured."""

    def __init__(self, folder: Path, rows: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.calls, self.all = [], []
        for _ in range(2):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=serve, args=(theirs, folder, rows), daemon=True)
            process.start()
            self.calls.append(ours)
            self.all.append(process)

    def run(self, work: list[tuple[str, int, int]]) -> tuple[float, float, list[Any]]:
        """Each piece of work in a process of its own: wall and CPU seconds, and hashes."""
        began = time.perf_counter()
        for calls, one in zip(self.calls, work, strict=False):
            calls.send(one)
        told = [calls.recv() for calls, _ in zip(self.calls, work, strict=False)]
        wall = time.perf_counter() - began
        return wall, sum(cpu for _, cpu in told), [found for found, _ in told]

    def close(self) -> None:
        for calls, process in zip(self.calls, self.all, strict=True):
            calls.send(None)
            process.join()


def measure(kind: str, processes: Processes, times: int) -> dict[str, Any]:
    """Seconds of each way, in turn; the first round loads what is compiled and is not counted."""
    ways = {
        "one thread": [(kind, WHOLE, 1)],
        "two threads": [(kind, WHOLE, 2)],
        "two processes": [(kind, HALF, 1)] * 2,
    }
    wall: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(times + 1):
        states = {}
        for name, work in ways.items():
            seconds, used, states[name] = processes.run(work)
            if turn:
                wall[name].append(seconds)
                cpu[name].append(used)
        if states["one thread"] != states["two threads"]:
            raise SystemExit(f"{kind}: two threads have not the state of one")
    threads = common.ratio(wall["one thread"], wall["two threads"])
    bare = common.ratio(wall["one thread"], wall["two processes"])
    share = common.ratio(wall["two processes"], wall["two threads"])
    return {"wall": wall, "cpu": cpu, "threads": threads, "processes": bare, "share": share}


def repeat(walk: Any, times: int) -> None:
    """Learn a batch ``times`` times."""
    for _ in range(times):
        walk()


def small(times: int) -> None:
    """µs of a batch by its values times its classes, one thread and two."""
    import streamomd.engine

    streamomd.engine.LEAST_WORK = 0
    lines = []
    for rows, classes in ((1, 3), (4, 4), (8, 8), (16, 8), (32, 8), (32, 16), (64, 16), (256, 16)):
        walks = {f"{n}": walk_of(rows, classes, n, SMALL) for n in (1, 2)}
        for walk in walks.values():
            walk()
        few = max(5, 2_000 // rows)
        jobs = {n: partial(repeat, walk, few) for n, walk in walks.items()}
        seconds = common.in_turn(jobs, times)
        one, two = (1e6 * statistics.median(seconds[n]) / few for n in ("1", "2"))
        work = rows_of(rows, classes, SMALL).values.size * classes
        lines.append([f"{rows} rows, {classes} classes", work, one, two, one / two])
    common.table(["a batch", "values × classes", "one µs", "two µs", "one ÷ two"], lines)


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--times", type=int, default=5, help="runs of each")
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--small", action="store_true", help="the least work for threads")
    args = parser.parse_args()
    if args.small:
        small(args.times)
        return
    lines, figures = [], dict[str, Any](cores=os.cpu_count(), rows=args.rows)
    with tempfile.TemporaryDirectory() as temporary:
        write(Path(temporary), args.rows)
        processes = Processes(Path(temporary), args.rows)
        for kind in args.kinds:
            found = figures[kind] = measure(kind, processes, args.times)
            wall = [statistics.median(found["wall"][way]) for way in found["wall"]]
            cpu = [statistics.median(found["cpu"][way]) for way in found["cpu"]]
            lines.append([f"{kind}, wall s", *wall, found["threads"], found["processes"]])
            lines[-1] += [found["share"], f"≥ {LINE}"]
            lines.append([f"{kind}, CPU s", *cpu, "", "", "", ""])
        processes.close()
    head = [f"16 of NAG, {os.cpu_count()} cores", "one thread", "two threads", "two processes"]
    common.table([*head, "1 ÷ 2 threads", "1 ÷ 2 processes", "share", "target"], lines)
    common.finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
