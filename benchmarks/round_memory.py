"""How many states does a worker of averaged mode hold, and how long does a round take?

NAG with --bits of hashed coordinates in float64, --rounds rounds, on clusters of workers of one
thread each on this machine; as many parts as workers, and twice as many. Merged in pieces, and as
whole states (as before). Few rows, so that rounds are copies and merges. Memory: the largest
resident size of a worker while the run lasts, beyond what it has before, ÷ one state; the largest
of all workers. A worker's messages and commits are part of it.

Target: about 2 states with as many parts as workers.
"""

from __future__ import annotations

import gc
import shutil
import statistics
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import cluster
import common
from distributed import Client, LocalCluster

import streamomd
from streamomd.distributed import averaged_worker

STATUS = Path("/proc/self/status")


def begin() -> int:
    """On a worker: free what is free; resident bytes, from which the largest size starts again."""
    import ctypes

    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return size("VmRSS")


def largest() -> int:
    """On a worker: the largest resident size since then."""
    return size("VmHWM")


def size(name: str) -> int:
    """Bytes of a line of the process's status."""
    lines = (line.split() for line in STATUS.read_text().splitlines())
    return next(int(words[1]) << 10 for words in lines if words[0] == f"{name}:")


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--bits", type=int, default=23)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--times", type=int, default=3, help="runs of each; the median counts")
    args = parser.parse_args()
    most = averaged_worker.MOST_PIECES
    lines, figures = [], {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "rows"
        folder.mkdir()
        data = {**cluster.texts(folder, 5_000), "bits": args.bits}
        for workers in args.workers:
            with (
                LocalCluster(
                    n_workers=workers, threads_per_worker=1, memory_limit=0, dashboard_address=None
                ) as made,
                Client(made, set_as_default=False) as client,
            ):
                for parts in (workers, 2 * workers):
                    found: dict[str, Any] = {}
                    for _ in range(args.times):
                        for how, pieces in (("whole", 0), ("pieces", most)):
                            averaged_worker.MOST_PIECES = pieces
                            url = Path(temporary) / f"run-{uuid.uuid4().hex}"
                            shape = {
                                "mode": "averaged", "parts": parts, "rounds_per_epoch": args.rounds
                            }  # fmt: skip
                            job = {
                                "data": data, "model": {"rule": "nag"}, "train": shape,
                                "checkpoint": {"url": str(url), "keep": 1},
                            }  # fmt: skip
                            before = client.run(begin)
                            began = time.perf_counter()
                            model = streamomd.train(job, client=client, quiet=True)
                            seconds = time.perf_counter() - began
                            after = client.run(largest)
                            peak = max(after[one] - before[one] for one in after)
                            states = peak / model.state.nbytes
                            found.setdefault(how, []).append((states, seconds, model.state_sha256))
                            del model
                            shutil.rmtree(url)
                    assert len({one[2] for runs in found.values() for one in runs}) == 1
                    figures[f"{workers} workers, {parts} parts"] = found
                    medians = [
                        statistics.median(one[at] for one in found[how])
                        for at in (0, 1)
                        for how in ("whole", "pieces")
                    ]
                    lines.append([f"{workers} workers, {parts} parts", *medians])
    head = ["states of a worker", "whole", "pieces", "seconds, whole", "pieces"]
    common.table(head, lines)
    common.finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
