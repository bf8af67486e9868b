"""The table of faults: ``python -m tests.faults [--help] [KIND [SEED …]]``."""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from kinds import KINDS, Unavailable, Verdict, every_kind
from mutants import MUTANTS, killed
from tally import Tally, run_kind

BROKEN = (Verdict.SILENT, Verdict.LOST, Verdict.HANG, Verdict.CRASH)
COLUMNS = ("kind of fault", "cases", "silent", "lost", "hangs", "other", "seconds")


def main() -> int:
    """0 if every case kept the promise."""
    kinds = every_kind()
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the quick run's cases alone")
    parser.add_argument("--mutants", action="store_true", help="which kind kills each mutant")
    parser.add_argument("--seconds", type=float, default=math.inf, help="at most, for each kind")
    parser.add_argument("kind", nargs="?", choices=kinds, help="one kind alone")
    parser.add_argument("seed", nargs="*", type=int, help="these cases alone")
    asked = parser.parse_args()
    if asked.mutants:
        return graveyard()
    print(line(*COLUMNS))
    print(line("---", *["--:"] * 6))
    whole, kept = Tally("all"), True
    # Each kind in a process of its own: one that left a mess would be another's fault.
    with ProcessPoolExecutor(
        os.cpu_count(), mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        running = partial(run, quick=asked.quick, seeds=tuple(asked.seed), most=asked.seconds)
        for name, tally in pool.map(running, [asked.kind] if asked.kind else kinds):
            if isinstance(tally, str):
                print(f"| {name}: not here: {tally} |", flush=True)
                continue
            print(row(f"**{name}**: {kinds[name].about}", tally), *tally.bad, sep="\n", flush=True)
            whole.counts += tally.counts
            whole.of += tally.of
            whole.seconds += tally.seconds
            kept = kept and tally.kept
    print(row("all", whole))
    same, named = whole.counts[Verdict.SAME], whole.counts[Verdict.NAMED]
    print(f"\n{same:,} ended with the same bits, {named:,} with a named error or a told fall-back.")
    return 0 if kept else 1


def run(name: str, *, quick: bool, seeds: tuple[int, ...], most: float) -> tuple[str, Tally | str]:
    """A kind's tally, or why it cannot be had here."""
    every_kind()
    try:
        return name, run_kind(KINDS[name], quick=quick, seeds=seeds, most=most)
    except Unavailable as why:
        return name, str(why)


def graveyard() -> int:
    """0 if every mutant was killed."""
    print(line("mutant", "killed by", "verdict", "after cases"), line(*["---"] * 4), sep="\n")
    alive = 0
    for mutant in MUTANTS:
        tally = killed(mutant)
        verdicts = [str(one) for one in BROKEN if tally.counts[one]] or ["lives"]
        print(line(mutant.name, mutant.killer, *verdicts, str(tally.cases)), flush=True)
        alive += tally.kept
    return 1 if alive else 0


def row(name: str, tally: Tally) -> str:
    """A line of the table."""
    counts = [tally.counts[verdict] for verdict in BROKEN]
    cases = f"{tally.cases:,}" + (f" of {tally.of:,}" if tally.cases < tally.of else "")
    return line(name, cases, *map(str, counts), f"{tally.seconds:,.0f}")


def line(*cells: str) -> str:
    """A line of a table in Markdown."""
    return f"| {' | '.join(cells)} |"
