"""How long until something happens? Each in a process of its own, in turn, seen from outside.

import: ``import streamomd`` (< 0.15 s). help: ``streamomd --help`` (< 0.3 s). warm, cold: from the
start of ``streamomd train pipelines/quickstart.toml`` to the line that tells of the first row
learned (< 0.6 s and 0.5 s of processor time, and < 2 s where no compiled loop is saved: a folder of
its own for numba). whole: from the start of a warm ``streamomd train`` on 100 rows of numbers to
its end (< 0.45 s of processor time). Python itself is among all of them, and measured alone. wall:
seconds of the clock; processor: what the process had taken by then, without the second one of a
cold start.
--packages: whose imports a warm start waits for.
"""

from __future__ import annotations

import collections
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[1]
TARGETS = {"python": None, "import": 0.15, "help": 0.3, "warm": 0.6, "whole": None, "cold": 2.0}
PROCESSOR_TARGETS = {"warm": 0.5, "whole": 0.45}
ROWS, COLUMNS = 100, 54
FIRST_ROW = re.compile(r"\s+1 ")  # the line of progress at row 1
IMPORTED = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\w+)")


def started(words: list[str], numba: Path) -> subprocess.Popen[str]:
    """Python with these arguments, in this tree."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(numba), "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # Python keeps bytecode unless told not to
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(words: list[str], numba: Path) -> dict[str, float]:
    """Seconds until such a process has ended."""
    began, before = time.monotonic(), os.times()
    process = started(words, numba)
    process.communicate()
    wall, after = time.monotonic() - began, os.times()
    if process.returncode:
        raise SystemExit(f"{words} ended with {process.returncode}")
    spent = (after.children_user + after.children_system) - (
        before.children_user + before.children_system
    )
    return {"wall": wall, "processor": spent}


def training(kept: Path) -> list[str]:
    """Arguments of Python that train."""
    job = [str(ROOT / "pipelines" / "quickstart.toml"), "--checkpoint", str(kept / "run")]
    return ["-m", "streamomd", "train", *job, "--verbose"]  # lines from the first row on


def learned(numba: Path) -> dict[str, float]:
    """Seconds until the first row is learned; the run goes on to its end, and fills the cache."""
    with tempfile.TemporaryDirectory() as kept:
        began = time.monotonic()
        process = started(training(Path(kept)), numba)
        assert process.stderr is not None
        found: dict[str, float] = {}
        for line in process.stderr:
            if not found and FIRST_ROW.match(line):
                found = {"wall": time.monotonic() - began, "processor": spent_by(process.pid)}
        process.wait()
    if not found:
        raise SystemExit(f"train ended with {process.returncode}, and told of no row")
    return found


def written(folder: Path) -> Path:
    """A shard of few rows."""
    rng = np.random.default_rng(0)
    columns = {f"x{at}": rng.normal(size=ROWS) for at in range(COLUMNS)}
    file = folder / "rows.parquet"
    pq.write_table(pa.table({"y": np.arange(ROWS) % 2, **columns}), file)
    return file


def whole(rows: Path, numba: Path) -> dict[str, float]:
    """Seconds until a run on a shard has ended."""
    with tempfile.TemporaryDirectory() as kept:
        job = [str(rows), "--label", "y", "--checkpoint", str(Path(kept) / "run")]
        return ended(["-m", "streamomd", "train", *job], numba)


def spent_by(pid: int) -> float:
    """Seconds of processor time that a process has taken so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cold() -> dict[str, float]:
    """With nothing compiled."""
    with tempfile.TemporaryDirectory() as numba:
        return learned(Path(numba))


def packages(numba: Path) -> dict[str, float]:
    """ms that imports of each package take until a warm run has ended."""
    with tempfile.TemporaryDirectory() as kept:
        process = started(["-X", "importtime", *training(Path(kept))], numba)
        _, told = process.communicate()
    taken: collections.Counter[str] = collections.Counter()
    for line in told.splitlines():
        if found := IMPORTED.match(line):
            taken[found[2]] += int(found[1])
    common.table(["imports of", "ms"], [[name, ms / 1e3] for name, ms in taken.most_common(15)])
    return {name: ms / 1e3 for name, ms in taken.items()}


def verdict(seconds: float, target: float | None) -> str:
    """Whether a target is met, if there is one."""
    return "" if target is None else f"< {target} {'yes' if seconds < target else 'NO'}"


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--times", type=int, default=7, help="runs of each; the median counts")
    parser.add_argument("--packages", action="store_true", help="what is imported, by package")
    parser.add_argument("--only", choices=TARGETS, nargs="+", default=list(TARGETS))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        numba = Path(folder)
        rows = written(numba)
        learned(numba)  # compiles, and writes Python's own caches
        whole(rows, numba)
        jobs: dict[str, Callable[[], dict[str, float]]] = {
            "python": lambda: ended(["-c", "pass"], numba),
            "import": lambda: ended(["-c", "import streamomd"], numba),
            "help": lambda: ended(["-m", "streamomd", "--help"], numba),
            "warm": lambda: learned(numba),
            "whole": lambda: whole(rows, numba),
            "cold": cold,
        }
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in args.only}
        for _ in range(args.times):
            for name in args.only:
                runs[name].append(jobs[name]())
        figures: dict[str, Any] = {}
        lines = []
        for name, found in runs.items():
            walls, spent = ([one[key] for one in found] for key in ("wall", "processor"))
            wall, target = statistics.median(walls), TARGETS[name]
            processor, limit = statistics.median(spent), PROCESSOR_TARGETS.get(name)
            met = [verdict(wall, target), verdict(processor, limit)]
            lines.append([name, wall, min(walls), processor, min(spent), *met])
            figures[name] = {"wall": walls, "processor": spent}
        titles = ["seconds", "wall", "quickest", "processor", "least", "wall", "processor"]
        common.table(titles, lines)
        if args.packages:
            figures["packages"] = packages(numba)
    common.finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
