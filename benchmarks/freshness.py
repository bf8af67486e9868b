"""How long from a file's rename to its commit? And: do kills while files arrive change a bit?

Files of --rows rows are renamed into a directory that ``streamomd follow --settle 0`` watches, one
a second (--files of them). freshness: seconds from the rename to the commit, seen from outside and
as the log has it; the goal is at most 2.

--soak: files arrive at random times within --seconds, and the process is killed (SIGKILL) every
--kill-every seconds on average, and started again. State, metrics and counters must be those of one
``train`` over the same files in the order of the ledger. Exits with 1 where a goal is missed. The
whole: --soak --files 1000 --rows 1000 --seconds 600 --kill-every 4.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import common
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

GOAL = 2.0
SAME = ("rows", "loss", "error", "auc", "epochs", "skipped", "state_sha256")
JOB = ("--label", "y", "--rule", "nag", "--set", "checkpoint.every_seconds=1")
PATIENCE = 120.0


def write(path: Path, rows: int, seed: int) -> Path:
    """A shard of ten numbers and a category."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, 10))
    columns: dict[str, Any] = {f"x{at}": x[:, at] for at in range(10)}
    columns["city"] = np.char.add("city ", draw.integers(0, 50, rows).astype(str))
    columns["y"] = (x[:, 0] + draw.normal(size=rows) > 0.0).astype(np.int64)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), str(path))
    return path


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "streamomd", *map(str, words)]


def told(*words: object) -> dict[str, Any]:
    """The JSON of a command."""
    done = subprocess.run(
        command(*words, "--json"), capture_output=True, text=True, check=False, timeout=3600
    )
    if done.returncode:
        raise SystemExit(f"{words} ended with {done.returncode}:\n{done.stderr}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def follow(url: Path, log: Path, out: Path) -> subprocess.Popen[bytes]:
    """A process that follows."""
    words = ("follow", url, "--settle", "0", "--every", "2s", "--log", log)
    with out.open("ab") as file:
        return subprocess.Popen(
            command(*words), stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            start_new_session=True,
        )  # fmt: skip


def updates(log: Path) -> list[dict[str, Any]]:
    """The events of updates; a line may be incomplete after a kill."""
    found = []
    for line in log.read_text().splitlines() if log.exists() else ():
        try:
            event = json.loads(line[line.rfind('{"time"') :])
        except ValueError:
            continue
        if event["event"] == "update":
            found.append(event)
    return found


def wait_for(process: subprocess.Popen[bytes], log: Path, rows: int) -> None:
    """Until so many rows are committed."""
    end = time.monotonic() + PATIENCE
    while not any(one["rows"] >= rows for one in updates(log)):
        if process.poll() is not None or time.monotonic() > end:
            raise SystemExit(f"follow ended or does not get to {rows} rows")
        time.sleep(0.05)


def freshness(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Renames at even times, and when each was committed."""
    shards, aside, url, log = (folder / name for name in ("shards", "aside", "run", "log.jsonl"))
    write(shards / "0.parquet", given.rows, 0)
    told("train", shards, *JOB, "--checkpoint", url)
    process = follow(url, log, folder / "out")
    renamed: dict[int, float] = {}
    try:
        time.sleep(5.0)  # until it watches
        for number in range(1, given.files + 1):
            file = write(aside / f"{number}.parquet", given.rows, number)
            renamed[number] = time.time()
            file.rename(shards / file.name)
            time.sleep(max(0.0, 1.0 - (time.time() - renamed[number])))
        wait_for(process, log, (given.files + 1) * given.rows)
    finally:
        process.terminate()
        process.wait(PATIENCE)
    events, seconds = updates(log), []
    for number, at in renamed.items():
        first = next(one for one in events if one["rows"] >= (number + 1) * given.rows)
        seconds.append(first["time"] - at)
    logged = [one["freshness"] for one in events if one["freshness"] is not None]
    common.table(
        ["seconds from rename to commit", "median", "max"],
        [
            ["from outside", statistics.median(seconds), max(seconds)],
            ["in the log", statistics.median(logged), max(logged)],
        ],
    )
    found = {"median": statistics.median(seconds), "max": max(seconds), "updates": len(events)}
    return {**found, "ok": found["max"] <= GOAL}


def soak(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Files at random times and kills at random times, then the bits of one run."""
    draw = random.Random(given.seed)
    shards, aside, url, log = (folder / name for name in ("shards", "aside", "run", "log.jsonl"))
    write(shards / "0.parquet", given.rows, 0)
    told("train", shards, *JOB, "--checkpoint", url)
    due = sorted(draw.uniform(0.0, given.seconds) for _ in range(given.files))
    process, kills, number = follow(url, log, folder / "out"), 0, 0
    begin = time.monotonic()
    kill_at = draw.expovariate(1.0 / given.kill_every)
    try:
        while number < given.files:
            now = time.monotonic() - begin
            if now >= kill_at:
                process.kill()
                if process.wait(PATIENCE) != -9:
                    raise SystemExit(f"follow ended: {(folder / 'out').read_text()[-2000:]}")
                process, kills = follow(url, log, folder / "out"), kills + 1
                kill_at = now + 1.0 + draw.expovariate(1.0 / given.kill_every)
            elif now >= due[number]:
                number += 1
                # Names that do not sort as they arrive.
                file = write(aside / f"{draw.random():.9f}-{number}.parquet", given.rows, number)
                file.rename(shards / file.name)
            else:
                time.sleep(min(due[number] - now, max(0.0, kill_at - now), 0.05))
    finally:
        process.kill()
        process.wait(PATIENCE)
    followed = told("update", url, "--settle", "0")
    order = [one["url"] for one in ledger(url)]
    again = told(
        "train", *order, *JOB, "--set", 'data.order="given"', "--checkpoint", folder / "whole"
    )
    different = [key for key in SAME if followed.get(key) != again.get(key)]
    once = sorted(order) == sorted(map(str, shards.glob("*.parquet")))
    common.table(
        ["files", "rows", "kills", "updates", "each once", "different"],
        [[str(given.files), followed["rows"], kills, len(updates(log)), once, different or "no"]],
    )
    return {"files": given.files, "kills": kills, "ok": once and not different}


def ledger(url: Path) -> list[dict[str, Any]]:
    """The shards of a run in learned order."""
    from streamomd.training.load_model import load_model
    from streamomd.training.open_checkpoint import open_ledger

    model, loaded = load_model(str(url))
    return [dict(one) for one in open_ledger(model, loaded)[1].shards]


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--files", type=int, default=60)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--soak", action="store_true")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--kill-every", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = (soak if given.soak else freshness)(Path(os.path.realpath(folder)), given)
    common.finish(found, as_json=given.json)
    if not found["ok"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
