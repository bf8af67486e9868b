"""Files that change or are truncated while a process reads them: cache entries, Arrow shards.

Each case is a process of its own: what is mapped into memory ends the process that touches it.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from kinds import Cases, Verdict, kind
from running import Ran, run

CHILD = Path(__file__).with_name("_live_child.py")
PATIENCE = 120.0
SHARDS, GROUPS, GROUP_ROWS = 2, 2, 24_000
PIECES = 12
"""The cases' pieces, of the 32 that a run of two epochs has: the first of a group are small."""
FLAGS = ("--label", "y", "--numeric", "n", "--epochs", "2", "--json", "--set",
         'data.sparse={indices="i", values="v", size=100}')  # fmt: skip


def rows(first: int) -> pa.Table:
    """A shard's rows: some megabytes of pairs, in which a wrong index leads far outside."""
    draw, count = np.random.default_rng(first), GROUPS * GROUP_ROWS
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * 4)
    indices = np.sort(draw.integers(0, 25, (count, 4)) + np.arange(0, 100, 25), axis=1)
    values = pa.array(draw.normal(size=4 * count))
    return pa.table(
        {
            "y": pa.array(draw.integers(0, 2, count)),
            "n": pa.array(draw.normal(size=count)),
            "i": pa.ListArray.from_arrays(offsets, pa.array(indices.ravel().astype(np.int32))),
            "v": pa.ListArray.from_arrays(offsets, values),
        }
    )


def write(folder: Path, suffix: str) -> None:
    """The shards, as if they had been written a while ago: then they are cached."""
    folder.mkdir()
    for at in range(SHARDS):
        path = folder / f"{at}.{suffix}"
        if suffix == "parquet":
            pq.write_table(rows(at), str(path), row_group_size=GROUP_ROWS)
        else:
            with pa.ipc.new_file(str(path), rows(at).schema) as writer:
                writer.write_table(rows(at).combine_chunks(), max_chunksize=GROUP_ROWS)
        os.utime(path, (time.time() - 10,) * 2)


@dataclass(frozen=True)
class Disturbed:
    """A child that ended: its code, its words, and whether the change was made on the way."""

    ran: Ran
    landed: bool


def disturbed(where: str, number: int, change: str, folder: Path, *words: object) -> Disturbed:
    """A command, before whose piece ``number`` every file in the folder changes."""
    given = [where, str(number), change, str(folder), *map(str, words)]
    done = subprocess.run(
        [sys.executable, str(CHILD), *given], capture_output=True, text=True, timeout=PATIENCE
    )
    ran = Ran(done.returncode, done.stdout, done.stderr)
    return Disturbed(ran, "the change was made" in done.stderr)


def entry_cases(folder: Path, changes: Sequence[str]) -> Cases:
    """A run with a warm cache, whose entries change; nothing but the undisturbed run's bits."""
    write(folder / "rows", "parquet")
    flags = (folder / "rows", *FLAGS, "--checkpoint", "none", "--cache")
    same = run("train", *flags, folder / "kept").result["state_sha256"]
    cases = list(itertools.product(changes, range(PIECES)))

    def case(seed: int) -> Verdict:
        change, number = cases[seed]
        cache = folder / f"cache-{seed}"
        shutil.copytree(folder / "kept", cache)
        ran = disturbed("entries", number, change, cache, "train", *flags, cache).ran
        shutil.rmtree(cache)
        if ran.code != 0:
            return Verdict.CRASH
        found = json.loads(ran.out.splitlines()[-1])["state_sha256"]
        return Verdict.SAME if found == same else Verdict.SILENT

    return Cases(range(len(cases)), case, PATIENCE)


@kind("live-entries-changed", quick=1)
@contextmanager
def live_entries_changed(folder: Path) -> Iterator[Cases]:
    """live cache entry changed: other bytes, before each piece is used"""
    yield entry_cases(folder, ("filled", "flipped"))


@kind("live-entries-truncated", quick=1)
@contextmanager
def live_entries_truncated(folder: Path) -> Iterator[Cases]:
    """live cache entry truncated: to a half or to nothing, before each piece is used"""
    yield entry_cases(folder, ("halved", "emptied"))


@kind("live-arrow-shards", quick=1)
@contextmanager
def live_arrow_shards(folder: Path) -> Iterator[Cases]:
    """Arrow shard truncated or rewritten while read, before each piece is used; then restored"""
    write(folder / "rows", "arrow")
    same = run("train", folder / "rows", *FLAGS, "--checkpoint", "none").result["state_sha256"]
    cases = list(itertools.product(("halved", "emptied", "filled", "flipped"), range(PIECES)))

    def case(seed: int) -> Verdict:
        change, number = cases[seed]
        shards, kept = folder / f"rows-{seed}", folder / f"kept-{seed}"
        shutil.copytree(folder / "rows", shards)
        words = ("train", shards, *FLAGS, "--checkpoint", kept)
        done = disturbed("shards", number, change, shards, *words)
        shutil.rmtree(shards)
        shutil.copytree(folder / "rows", shards)
        verdict = _judged(done, kept, same)
        for used in (shards, kept):
            shutil.rmtree(used, ignore_errors=True)
        return verdict

    yield Cases(range(len(cases)), case, PATIENCE)


def _judged(done: Disturbed, kept: Path, same: str) -> Verdict:
    if done.ran.code == 0:
        found = json.loads(done.ran.out.splitlines()[-1])["state_sha256"]
        return Verdict.SAME if found == same else Verdict.SILENT
    # By its time of change, or by the digests of the first epoch where the change came just then.
    named = any(reason in done.ran.err for reason in ("was replaced", "its stored bytes differ"))
    if done.ran.code != 3 or not named or "Traceback" in done.ran.err:
        print(f"exit code {done.ran.code}: {done.ran.err[-2000:]}", file=sys.stderr)
        return Verdict.CRASH
    if not kept.exists():  # it changed as the first labels were looked at
        return Verdict.NAMED
    resumed = run("resume", kept, "--json")
    if resumed.code != 0:
        return Verdict.LOST
    return Verdict.NAMED if resumed.result["state_sha256"] == same else Verdict.SILENT
