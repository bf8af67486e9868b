"""The table of faults: ``python -m tests.faults [--quick] [KIND [SEED …]]``."""

from __future__ import annotations

import argparse

from kinds import Unavailable, Verdict, every_kind
from tally import Tally, run_kind

BROKEN = (Verdict.SILENT, Verdict.LOST, Verdict.HANG, Verdict.CRASH)
WIDTH = 62


def main() -> int:
    """0 if every case kept the promise."""
    kinds = every_kind()
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the quick run's cases alone")
    parser.add_argument("kind", nargs="?", choices=kinds, help="one kind alone")
    parser.add_argument("seed", nargs="*", type=int, help="these cases alone")
    asked = parser.parse_args()
    tallies = []
    print(line("kind of fault", "cases", "silent", "lost", "hangs", "other", "seconds"))
    for kind in [kinds[asked.kind]] if asked.kind else kinds.values():
        try:
            tally = run_kind(kind, quick=asked.quick, seeds=asked.seed)
        except Unavailable as why:
            print(f"| {kind.name}: not here: {why} |", flush=True)
            continue
        tallies.append(tally)
        print(row(f"{kind.name}: {kind.about}", tally), flush=True)
        print("\n".join(tally.bad), end="\n" if tally.bad else "")
    whole = Tally("all")
    for tally in tallies:
        whole.counts += tally.counts
        whole.seconds += tally.seconds
    print(row(f"{len(tallies)} kinds", whole))
    same, named = whole.counts[Verdict.SAME], whole.counts[Verdict.NAMED]
    print(f"\n{same:,} ended with the same bits, {named:,} with a named error or a told fall-back.")
    return 0 if all(tally.kept for tally in tallies) else 1


def row(name: str, tally: Tally) -> str:
    """A line of the table."""
    counts = [tally.counts[verdict] for verdict in BROKEN]
    return line(name, f"{tally.cases:,}", *map(str, counts), f"{tally.seconds:,.0f}")


def line(name: str, *cells: str) -> str:
    """Cells in columns."""
    return f"| {name:<{WIDTH}} | " + " | ".join(f"{cell:>7}" for cell in cells) + " |"
