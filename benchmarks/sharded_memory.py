"""What does each process hold when owners share a state?

Peak resident memory (VmHWM) of client, scheduler and each of two workers in sharded mode: 2^26
coordinates, NAG, float64; rows of 75 coordinates drawn alike. Scheduler, workers and client are
processes of their own. "train" is read at the last moment before the first commit on the way,
"checkpoint" when the run has ended, with some commits; "resume" is another cluster that goes on
for an epoch. --power 28 --dtype float32 --limit 6GB: a model of 4 GiB over two workers that may
have no more than that: Dask is told so, and so is the kernel (RLIMIT_DATA).

Targets: a worker ≤ its share of the state + 450 MB; client and scheduler ≤ 450 MB.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import common
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from dask.utils import parse_bytes

MB = 1e6
BESIDE = 450.0
START_SECONDS = 60.0  # for a scheduler, before it is given up


def write(folder: Path, rows: int, size: int) -> None:
    """Two shards; ``common.rows`` would look at every coordinate for each."""
    folder.mkdir()
    draw = np.random.default_rng(0)
    for shard in range(2):
        shape = (rows // 2, common.NONZEROS)
        indices = np.sort(draw.integers(0, size, shape, dtype=np.int32), axis=1).ravel()
        offsets = pa.array(np.arange(shape[0] + 1, dtype=np.int32) * shape[1])
        values = draw.standard_normal(indices.size, np.float32)
        columns = {
            "i": pa.ListArray.from_arrays(offsets, pa.array(indices)),
            "v": pa.ListArray.from_arrays(offsets, pa.array(values)),
            "y": pa.array(common.labels(draw, shape[0]).astype(np.int8)),
        }
        path = folder / f"{shard}.parquet"
        pq.write_table(pa.table(columns), path, compression="zstd", row_group_size=50_000)


def peak() -> float:
    """Of this process, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024 / MB


def at_most(nbytes: int) -> None:
    """Hold this process and those it starts to so much memory of their own."""
    resource.setrlimit(resource.RLIMIT_DATA, (nbytes, nbytes))


def bounds(dask_worker: Any) -> dict[str, Any]:
    """What a worker may have: by Dask, and by the kernel (-1: all there is)."""
    kernel, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return {"dask": dask_worker.memory_manager.memory_limit, "kernel": kernel}


def child(phase: str, address: str, data: str, url: str, dtype: str, power: int, rows: int) -> None:
    """Train or resume, as a client of that scheduler; prints what each process has held."""
    from distributed import Client

    import streamomd
    from streamomd.distributed.sharded import PartitionOwners

    hear, before = PartitionOwners._on_message, {}

    def peaks() -> dict[str, float]:
        workers = sorted(client.run(peak).values())
        named = {f"worker {number}": found for number, found in enumerate(workers)}
        return {"client": peak(), "scheduler": client.run_on_scheduler(peak), **named}

    def looking(self: Any, message: dict[str, Any]) -> Any:
        if message["kind"] == "rows" and phase == "train" and "committed" not in before:
            before.update(peaks())
        if message["kind"] == "commit":
            before["committed"] = 1.0
        return hear(self, message)

    PartitionOwners._on_message = looking  # type: ignore[method-assign]
    with Client(address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=300)
        if phase == "train":
            sparse = {"indices": "i", "values": "v", "size": 1 << power}
            job = {
                "data": {"shards": [data], "label": "y", "sparse": sparse},
                "model": {"rule": "nag", "dtype": dtype},
                "train": {"mode": "sharded"},
                "checkpoint": {"url": url, "every_rows": rows, "every_seconds": 0},
            }
            model = streamomd.train(job, client=client, quiet=True)
        else:
            model = streamomd.resume(url, client=client, sets={"train.epochs": 2}, quiet=True)
        begun = time.monotonic()
        sha256 = model.state_sha256
        found = {"state": model.state.layout.nbytes / MB, "rows": model.metrics.total_rows}
        found |= {"sha256": sha256, "hashing": time.monotonic() - begun}
        found["bounds"] = list(client.run(bounds).values())
        before.pop("committed", None)
        print(json.dumps({**found, "before": before, "after": peaks()}))


@contextlib.contextmanager
def cluster(folder: Path, limit: str) -> Iterator[str]:
    """A scheduler and two workers of one thread, each held to a limit; its address."""
    dask, at = [sys.executable, "-m", "dask"], folder / "scheduler.json"
    at.unlink(missing_ok=True)
    host = ["--host", "127.0.0.1"]
    scheduler = ["scheduler", "--scheduler-file", str(at), "--port", "0", *host, "--no-dashboard"]
    worker = ["worker", "--scheduler-file", str(at), "--nthreads", "1", *host, "--no-dashboard"]
    worker += ["--local-directory", str(folder), "--memory-limit", limit]
    bound = None if limit == "auto" else functools.partial(at_most, parse_bytes(limit))
    quiet = {"stderr": subprocess.DEVNULL}
    started = [subprocess.Popen([*dask, *scheduler], **quiet)]
    try:
        deadline = time.monotonic() + START_SECONDS
        while not (at.exists() and at.read_text().strip()):
            if started[0].poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the scheduler does not start")
            time.sleep(0.05)
        started += [subprocess.Popen([*dask, *worker], preexec_fn=bound, **quiet) for _ in range(2)]
        yield json.loads(at.read_text())["address"]
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()


def phase(name: str, folder: Path, data: Path, args: argparse.Namespace) -> dict[str, Any]:
    """A cluster and a client of their own."""
    with cluster(folder, args.limit) as address:
        given = [address, data, folder / "run", args.dtype, args.power]
        given.append(args.rows // args.commits)
        command = [sys.executable, __file__, "--child", name, *map(str, given)]
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--power", type=int, default=26, help="2^: coordinates")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float64")
    parser.add_argument("--limit", default="auto", help="memory of a worker, as 6GB; auto: Dask's")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--commits", type=int, default=2, help="on the way")
    parser.add_argument("--child", nargs=7, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        *given, power, rows = args.child
        child(*given, int(power), int(rows))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder, data = Path(temporary), Path(temporary) / "data"
        write(data, args.rows, 1 << args.power)
        trained, resumed = (phase(name, folder, data, args) for name in ("train", "resume"))
    columns = {
        "train": trained["before"],
        "checkpoint": trained["after"],
        "resume": resumed["after"],
    }
    share, lines = trained["state"] / 2, []
    for process in trained["after"]:
        limit = BESIDE + (share if process.startswith("worker") else 0.0)
        peaks = [column.get(process, 0.0) for column in columns.values()]
        lines.append([process, *peaks, limit, "yes" if max(peaks) <= limit else "NO"])
    for told in trained["bounds"]:
        print(f"a worker may have {told['dask'] / MB:,.0f} MB (Dask), {told['kernel']:,} (kernel)")
    print(f"state {trained['state']:,.0f} MB, {trained['rows']:,} rows, then {resumed['rows']:,}")
    common.table(["MB", *columns, "≤", ""], lines)
    told = {"state": trained["state"], "bounds": trained["bounds"]}
    common.finish({**told, **columns}, as_json=args.json)


if __name__ == "__main__":
    main()
