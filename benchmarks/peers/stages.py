"""Where the CPU time of streamomd goes, by stage: ns per row on the four data sets of run.py.

Runs streamomd's file of code/ (rule nag) with --profile on each set that ``run.py --make`` has
written into --folder, --times times; of each set the run with the median of all CPU time.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from install import checkout, install
from measure import measured
from tell import table
from tools import SETS, TOOLS

TOOL = TOOLS["streamomd"]
GROUPS = {
    "read, decompress, decode": ("read", "decompress", "decode", "cache", "labels", "gather"),
    "encode: numbers, hash, texts, lists": ("numbers", "hash", "texts", "lists"),
    "learn and metrics": ("learn", "metrics"),
}
ELSE = "commits, start-up, all else"


def profiled(name: str, folder: Path, python: Path, package: Path) -> dict[str, Any]:
    """The profile of one run on a set."""
    rows = folder / "data-all" / name / TOOL.size
    environment = {**TOOL.environment(rows, python, package, ""), "MORE": "--profile"}
    with tempfile.TemporaryDirectory() as place:
        out, log = Path(place) / "model", Path(place) / "log.txt"
        figures, text = measured(TOOL.command(name, rows, out, python, ""), environment, log)
    if figures["status"]:
        raise SystemExit(f"{name} ended with {figures['status']}:\n{text}")
    found: dict[str, Any] = json.loads(text.strip().splitlines()[-1])["profile"]
    return found


def grouped(profile: dict[str, Any]) -> list[float]:
    """ns per row of each group, then of everything else."""
    seconds = profile["stages"]
    found = [sum(seconds.get(stage, 0.0) for stage in stages) for stages in GROUPS.values()]
    found.append(sum(seconds.values()) - sum(found))
    return [1e9 * one / profile["rows"] for one in found]


def main() -> None:
    """Prints a line for each group of stages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="that of run.py")
    parser.add_argument("--times", type=int, default=3, help="runs of each set")
    args = parser.parse_args()
    venvs = args.folder.absolute() / "venvs"
    python = install([TOOL], venvs)[TOOL.venv]
    package = checkout(python, venvs)
    columns = {}
    for name in SETS.values():
        if (args.folder / "data-all" / name).exists():
            runs = [
                profiled(name, args.folder.absolute(), python, package) for _ in range(args.times)
            ]
            columns[name] = grouped(sorted(runs, key=lambda run: run["cpu"])[len(runs) // 2])
    lines = [
        [title, *(f"{column[at]:,.0f}" for column in columns.values())]
        for at, title in enumerate([*GROUPS, ELSE])
    ]
    print(table(["ns per row", *columns], lines))


if __name__ == "__main__":
    main()
