"""Training in a loop, in one process, while workers are killed and the store fails.

Run as ``python tests/support/soak.py --minutes 30``. The three modes take turns on a cluster
whose workers are killed at random, with a checkpoint in a store of which one request in thirty
fails, before it is carried out or after. Every run, resumed where it ended with an error, must end
with the bits of an undisturbed one; and memory, open files and threads must be at the end what they
were after the first third. Exits with 1 where that is not so.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import dask
from distributed import Client, LocalCluster
from distributed.core import Status

import streamomd
from streamomd.core.errors import ClusterError, NoCommitError, StorageError

sys.path.insert(0, str(Path(__file__).parents[1] / "oracles"))  # the tests are no package

from clustered import job, spread
from flaky import Registered
from running import rows, write
from sharded_jobs import sharded_job

MORE = {"MiB": 1.05, "files": 1.0, "threads": 1.0}
"""What the last third may have, by what the second had; and four files or threads."""


class Held(NamedTuple):
    """What this process holds."""

    MiB: float
    files: int
    threads: int


def held() -> Held:
    gc.collect()
    status = Path("/proc/self/status").read_text()
    resident = int(status.partition("VmRSS:")[2].split()[0]) / 1024
    return Held(resident, len(os.listdir("/proc/self/fd")), threading.active_count())


def jobs(data: Path, url: str) -> dict[str, dict[str, Any]]:
    """A job of each mode."""
    kept = {"url": url, "every_rows": 2000, "every_seconds": 0}
    options = {"storage_options": {"auto_mkdir": True}} if url.startswith("flaky") else {}
    remote = {"decode": "remote"}
    made = {
        "exact": job(data, cluster=remote),
        "averaged": spread(data, Path(url)),
        "sharded": sharded_job(data, url),
    }
    return {mode: {**table, "checkpoint": {**kept, **options}} for mode, table in made.items()}


def finished(table: dict[str, Any], client: Client) -> tuple[str, int]:
    """The hash of a run that is resumed until it is done, and how often that was needed."""
    kept, given = table["checkpoint"], {"client": client, "quiet": True}
    sets = {f"cluster.{key}": value for key, value in table.get("cluster", {}).items()}
    for again in range(100):
        with suppress(ClusterError, StorageError):
            try:
                options = kept["storage_options"]
                model = streamomd.resume(
                    kept["url"], checkpoint_storage_options=options, sets=sets, **given
                )
            except NoCommitError:
                model = streamomd.train(table, **given)
            return model.state_sha256, again
    raise AssertionError("a run does not end in a hundred resumptions")


def soak(minutes: float, seed: int) -> bool:
    """Print a line a run; whether all was well."""
    draw, samples, wrong, lost = random.Random(seed), [], 0, 0
    # On a busy machine a worker needs more than the 15 seconds after which Dask forgets it.
    dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"})
    # The scheduler, in this process, keeps logs of what it did: full soon, they grow no more.
    dask.config.set(
        {
            "distributed.admin.low-level-log-length": 20,
            "distributed.admin.log-length": 20,
            "distributed.diagnostics.computations.max-history": 2,
        }
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        Registered().setup(None)
        client.register_plugin(Registered())
        data = Path(folder) / "data"
        for i in range(4):
            write(data / f"{i}.parquet", rows(5_000, first=i * 5_000), row_group_size=900)
        expected = {}
        for mode, table in jobs(data, str(Path(folder) / "undisturbed")).items():
            table["checkpoint"]["url"] += mode
            expected[mode] = streamomd.train(table, client=client, quiet=True).state_sha256
        began, number = time.monotonic(), 0
        while time.monotonic() - began < 60 * minutes:
            mode, number = list(expected)[number % 3], number + 1
            run = Path(folder) / f"run-{number}"
            ended = threading.Event()
            killer = threading.Thread(target=kill_some, args=(cluster, draw, ended))
            killer.start()
            found, again = finished(jobs(data, f"flaky://{run}")[mode], client)
            ended.set()
            killer.join()
            shutil.rmtree(run)
            wrong += found != expected[mode]
            lost += again
            samples.append(held())
            now = samples[-1]
            print(
                f"{time.monotonic() - began:6.0f} s  run {number:4} {mode:9} resumed {again}  "
                f"{now.MiB:6.0f} MiB  {now.files} files  {now.threads} threads",
                flush=True,
            )
    third = len(samples) // 3
    grown = []
    for place, name in enumerate(Held._fields):
        before, after = (
            statistics.median(one[place] for one in part)
            for part in (samples[third : 2 * third], samples[2 * third :])
        )
        if after > before * MORE[name] + (0 if name == "MiB" else 4):
            grown.append(f"{name} from {before:.0f} to {after:.0f}")
    print(f"{number} runs, resumed {lost} times; other bits: {wrong}; grown: {grown or 'nothing'}")
    return not (wrong or grown)


def kill_some(cluster: LocalCluster, draw: random.Random, ended: threading.Event) -> None:
    """Kill a worker now and then; its nanny starts another. One that begins is left alone: Dask
    gives up a nanny whose worker dies before it has registered."""
    while not ended.wait(draw.uniform(2.0, 12.0)):
        there = [nanny for nanny in cluster.workers.values() if nanny.status == Status.running]
        known = {str(address) for address in cluster.scheduler.workers}
        alive = [nanny for nanny in there if nanny.worker_address in known]
        if len(alive) == 2:
            with suppress(ProcessLookupError):
                os.kill(draw.choice(alive).process.pid, signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    sys.exit(0 if soak(args.minutes, args.seed) else 1)


if __name__ == "__main__":
    main()
