"""The same work by streamomd and by what a user would pick instead.

Installs each tool into an environment of its own, streamomd from this checkout and without extras,
makes the data, runs every tool as its own guide writes it (code/), in turn, and prints the tables
of the README: rows a second by wall and by processor, start-up, peak memory, progressive log loss
at the default and at the best of eight step sizes, lines that a user writes. README.md beside this
says what is fair and what is not.

    python benchmarks/peers/run.py                          # all: half an hour on two quiet cores
    python benchmarks/peers/run.py --make                   # what needs no quiet, before
    python benchmarks/peers/run.py --data i --times 3 --rows 100000 --steps 0
    python benchmarks/peers/run.py --resume                 # what is not measured yet; all tables

Data: i (rcv1-like), ii (Criteo-like), iii (Covertype × 10), iv (20 newsgroups × 10).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import tell
from install import checkout, install, versions
from measure import measured
from tools import OURS, SETS, STEPS, TOOLS, Tool, loss_in

BEGAN = time.monotonic()
HERE = Path(__file__).parent


def say(text: str) -> None:
    """A line of progress, with the time since the beginning."""
    minutes, seconds = divmod(int(time.monotonic() - BEGAN), 60)
    print(f"[{minutes:02}:{seconds:02}] {text}", file=sys.stderr, flush=True)


class Runs:
    """What was measured, by set/tool/kind/number; kept in a file after each run."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}

    def forget(self, sets: list[str], tools: list[str]) -> None:
        """Those of these sets and tools."""
        gone = {(name, tool) for name in sets for tool in tools}
        self.found = {k: v for k, v in self.found.items() if tuple(k.split("/")[:2]) not in gone}

    def add(self, key: str, figures: dict[str, Any]) -> None:
        self.found[key] = figures
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(self.found, indent=1))
        part.replace(self.file)


class Bench:
    """A folder with environments, data and results, and what is run in it."""

    def __init__(self, args: argparse.Namespace, tools: list[Tool]) -> None:
        self.args, self.tools, self.folder = args, tools, args.folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.pythons = install(tools, self.folder / "venvs")
        ours = self.pythons.get(OURS)
        self.package = checkout(ours, self.folder / "venvs") if ours else HERE
        self.data = self.folder / f"data-{args.rows or 'all'}"
        self.runs = Runs(self.folder / f"results-{args.rows or 'all'}.json")

    def make(self, name: str) -> str:
        """Write a data set, if it is not there. Why not, if it can't be."""
        home, part = self.data / name, self.data / f"{name}.part"
        if not (home / "made.json").exists():
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            say(f"{name}: writing rows in every format")
            command = [sys.executable, str(HERE / "make.py"), name, str(self.args.rows), str(part)]
            environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
            made = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
            if made.returncode == 3:
                return made.stdout.strip()
            made.check_returncode()
            part.rename(home)
        made_of = json.loads((home / "made.json").read_text())
        self.runs.add(f"{name}/made", made_of)
        return ""

    def one(self, name: str, tool: Tool, kind: str, at: int, size: str, step: str = "") -> float:
        """A run of a tool, unless there is its result; how long it took."""
        key = f"{name}/{tool.name}/{kind}/{at}"
        if key in self.runs.found and kind != "first" and not self.runs.found[key]["status"]:
            return float(self.runs.found[key]["wall"])
        folder, python = self.data / name / size, self.pythons[tool.venv]
        out = self.folder / f"model-{os.getpid()}"
        command = tool.command(name, folder, out, python, step)
        log = self.folder / f"logs/{key.replace('/', '-')}.txt"
        log.parent.mkdir(exist_ok=True)
        environment = tool.environment(folder, python, self.package, step)
        figures, told = measured(command, environment, log)
        shutil.rmtree(out, ignore_errors=True)
        out.unlink(missing_ok=True)
        rows = self.runs.found[f"{name}/made"]["rows"][size]
        self.runs.add(key, {**figures, "rows": rows, "loss": loss_in(told), "step": step})
        failed = f", status {figures['status']}: see {log}" if figures["status"] else ""
        say(f"{name} {tool.name} {kind} {at}{f' ({step})' if step else ''}: "
            f"{figures['wall']:.1f} s{failed}")  # fmt: skip
        return float(figures["wall"])

    def works(self, name: str, tool: Tool) -> bool:
        """Run a tool once on a hundred rows; on all where it then compiles or fills a cache."""
        self.one(name, tool, "first", 0, "start")
        whole = tool.venv == OURS or bool(tool.keeps)
        if whole:
            self.one(name, tool, "first", 1, tool.size)
        first = self.runs.found[f"{name}/{tool.name}/first/{int(whole)}"]
        return not first["status"]

    def lacks(self, name: str, tool: Tool) -> bool:
        """Whether a run is still to be made."""
        wanted = [f"{kind}/{at}" for kind in ("start", "main") for at in range(self.args.times)]
        wanted += [f"step/{at}" for at in range(len(tool.steps(self.args.steps)))]
        found = (self.runs.found.get(f"{name}/{tool.name}/{run}") for run in wanted)
        return not all(run and not run["status"] for run in found)

    def rounds(self, name: str, tools: list[Tool]) -> None:
        """All tools in turn, again and again; who begins changes."""
        times = self.args.times
        for at in range(times):
            spent = 0.0
            for tool in tools[at % len(tools) :] + tools[: at % len(tools)]:
                spent += self.one(name, tool, "start", at, "start")
                spent += self.one(name, tool, "main", at, tool.size)
            if not at and times > 1:
                say(f"{name}: {times - 1} more rounds, about {(times - 1) * spent / 60:.1f} min")

    def steps(self, name: str, tools: list[Tool]) -> None:
        """Losses on the first rows: at the default, and at each step size."""
        for tool in tools:
            size = "few" if tool.size == "full" else tool.size
            for at, step in enumerate(tool.steps(self.args.steps)):
                self.one(name, tool, "step", at, size, step)

    def measure(self, name: str) -> None:
        """All of one data set."""
        why = self.make(name)
        if why or self.args.make:
            say(f"{name} skipped: {why}" if why else f"{name}: written")
            return
        lacking = [tool for tool in self.tools if name in tool.sets and self.lacks(name, tool)]
        tools = [tool for tool in lacking if self.works(name, tool)]
        if not tools:
            return
        self.rounds(name, tools)
        self.steps(name, tools)
        for tool in tools:
            for size in ("full", "few", "start") if tool.keeps else ():
                kept = self.data / name / size / tool.keeps
                shutil.rmtree(kept, ignore_errors=True)
                if kept.is_file():
                    kept.unlink()


def chosen(texts: list[str], known: list[str], what: str) -> list[str]:
    """Those given, or all. Raises SystemExit naming what is unknown."""
    if unknown := set(texts) - set(known):
        raise SystemExit(f"no {what} {', '.join(sorted(unknown))}: there are {', '.join(known)}")
    return texts or known


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="*", default=[], help="of i ii iii iv; all")
    parser.add_argument("--tools", nargs="*", default=[], help=f"of {' '.join(TOOLS)}; all")
    parser.add_argument("--times", type=int, default=5, help="rounds; medians are told")
    parser.add_argument("--rows", type=int, default=0, help="at most so many rows of each set")
    parser.add_argument("--steps", type=int, default=len(STEPS), help="step sizes tried; 0: none")
    parser.add_argument("--folder", type=Path, help="environments, data, results; kept")
    parser.add_argument("--make", action="store_true", help="install and write data, no more")
    parser.add_argument("--resume", action="store_true", help="keep what was measured already")
    parser.add_argument("--json", type=Path, help="write every figure into this file")
    args = parser.parse_args()
    args.folder = (args.folder or Path(tempfile.gettempdir()) / "streamomd-peers").absolute()
    names = [SETS[one] for one in chosen(args.data, list(SETS), "data")]
    tools = [TOOLS[one] for one in chosen(args.tools, list(TOOLS), "tool")]
    bench = Bench(args, tools)
    if not (args.resume or args.make):
        bench.runs.forget(names, [tool.name for tool in tools])
    for name in names:
        bench.measure(name)
    if args.make:
        return
    installed = versions(TOOLS.values(), args.folder / "venvs")
    print(tell.page(bench.runs.found, installed))
    if args.json:
        told = {"cores": os.cpu_count(), "installed": installed, "runs": bench.runs.found}
        args.json.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
