"""What does a round of sharded mode cost beside its arithmetic?

Two processes of one owner each, on loopback: in a round each sends the partial margins of its half
of 16 partitions for a micro-batch of B rows, and waits for the other's. Nothing else is done, so
the time of a round is what the exchange adds to it. For comparison, the same bytes through Dask's
own comms are not measured here: they are for clusters where only Dask's ports are open.

Target: the median round at B = 256 takes at most 150 µs.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from contextlib import closing
from typing import Any

import common
import numpy as np

from streamomd.distributed.allreduce_zmq import ZmqMesh
from streamomd.distributed.curve_keys import CurveKeys, new_keys

PARTS, GANG, HOST = 16, bytes(16), "127.0.0.1"


def owner(number: int, keys: CurveKeys, pipe: Any, rows: int, rounds: int) -> None:
    """Joins the other and makes rounds; sends the seconds of each."""
    found = np.random.default_rng(number).normal(size=(PARTS // 2, rows, 1))
    whole = np.empty((PARTS, rows, 1))
    mine = slice(number * PARTS // 2, (number + 1) * PARTS // 2)
    theirs = slice((1 - number) * PARTS // 2, (2 - number) * PARTS // 2)
    with closing(ZmqMesh(HOST, GANG, number, 2, keys)) as mesh:
        pipe.send(mesh.endpoint)
        mesh.join(pipe.recv())
        seconds = np.empty(rounds)
        for i in range(rounds):
            began = time.perf_counter()
            mesh.send(1 - number, found.tobytes())
            whole[mine] = found
            whole[theirs] = np.frombuffer(mesh.receive(1 - number)).reshape(found.shape)
            seconds[i] = time.perf_counter() - began
        pipe.send(seconds)


def microseconds(rows: int, rounds: int) -> list[float]:
    """Median and 99th hundredth of the rounds of two owners."""
    spawn = multiprocessing.get_context("spawn")
    pipes, processes, keys = [], [], new_keys()
    for number in range(2):
        here, there = spawn.Pipe()
        pipes.append(here)
        processes.append(spawn.Process(target=owner, args=(number, keys, there, rows, rounds)))
        processes[-1].start()
    endpoints = [pipe.recv() for pipe in pipes]
    for pipe in pipes:
        pipe.send(endpoints)
    seconds = np.concatenate([pipe.recv()[rounds // 10 :] for pipe in pipes])
    for process in processes:
        process.join()
    return [1e6 * float(np.percentile(seconds, percent)) for percent in (50, 99)]


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=5_000)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    lines, figures = [], {}
    for rows, target in ((1, ""), (256, "≤ 150"), (4096, "")):
        found = [microseconds(rows, args.rounds) for _ in range(args.runs)]
        half, worst = (statistics.median(one[i] for one in found) for i in range(2))
        lines.append([f"{rows:,}", f"{half:.0f}", f"{worst:.0f}", target])
        figures[f"B={rows}"] = {"median": half, "p99": worst, "runs": found}
    common.table(["rows a micro-batch", "µs a round", "99 of 100 within", "target"], lines)
    common.finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
