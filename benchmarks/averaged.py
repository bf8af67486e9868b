"""What do two workers of averaged mode gain over one, next to two bare processes?

Texts as in cluster.py: 8 columns of strings, hashed; NAG. Averaged mode: --parts parts a round,
--rounds rounds, one epoch, on clusters of one and of two workers of one thread each, which run
before. Bare: processes without a cluster decode and learn the same parts, each from an empty state,
in one process, or half of them in each of two; they merge and save nothing. All four run in turn;
wall time and CPU seconds of all processes, medians of --times runs.

--commands instead runs whole commands on --rows rows of 30 numbers a shard, by rule auto:
`streamomd train --processes` 1 and 2, and bare: one plain `train` on all files, and two at the same
time, each on half of the files. "start": --processes on 1,000 rows a shard, which is what the
cluster, imports and the first common part take; the ratio is also printed without it.

Target: one worker ÷ two ≥ 0.92 × what one bare process ÷ two reach in the same run.
"""

from __future__ import annotations

import itertools
import multiprocessing
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import cluster
import common
import numpy as np
import scan
from distributed import Client, LocalCluster
from sharded_exchange import cpu_seconds

import streamomd
from streamomd.distributed.averaged import rounds_of
from streamomd.engine.state import State
from streamomd.features import Names
from streamomd.shards.order import RowRange
from streamomd.sources.find import find
from streamomd.training.model import Model
from streamomd.training.row_stream import rows_of_group

_model: list[Model] = []


def start_bare(spec: Any, plan: Any) -> None:
    """In a bare process: what it needs of the job."""
    _model.append(Model.new(spec, plan))


def learn_bare(parts: list[RowRange]) -> int:
    """In a bare process: learn some parts, one after another, each from an empty state."""
    model, rows = _model[0], 0
    for part in parts:
        state, sums = State.start(model.state.layout), np.zeros(3)
        for span in part.spans:
            where = span.group, span.begin, span.end
            for piece in rows_of_group(model.plan, *where, options={}, names=Names()):
                model.engine.learn(state, sums, piece.value.batch)
                rows += piece.rows
    return rows


def bare(pool: ProcessPoolExecutor, processes: int, rounds: list[list[RowRange]]) -> None:
    """All parts of a round on these processes, each of which takes neighbours; then the next."""
    for parts in rounds:
        cuts = [len(parts) * at // processes for at in range(processes + 1)]
        shares = [parts[low:high] for low, high in itertools.pairwise(cuts)]
        list(pool.map(learn_bare, shares))


def run_commands(commands: list[list[str]]) -> None:
    """Run commands at the same time. Raises CalledProcessError if one fails."""
    running = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for command in commands
    ]
    for process in running:
        if process.wait():
            raise subprocess.CalledProcessError(process.returncode, process.args)


def cpu_of_children() -> float:
    """CPU seconds of all processes that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def commands(folder: Path, rows: int, times: int) -> dict[str, Any]:
    """Seconds of each command in turn."""
    paths = list(
        scan.write_columns(folder / "rows", 30, 0, shards=4, shard_rows=rows, group_rows=50_000)
    )
    few = list(
        scan.write_columns(folder / "few", 30, 0, shards=4, shard_rows=1_000, group_rows=1_000)
    )

    def train(files: list[Path], *more: str) -> list[str]:
        given = [*map(str, files), "--label", "y", *more]
        run = ["--checkpoint", str(folder / f"run-{uuid.uuid4().hex}")]
        return [sys.executable, "-m", "streamomd", "train", *given, *run]

    jobs: dict[str, Callable[[], list[list[str]]]] = {
        "averaged, 1": lambda: [train(paths, "--processes", "1")],
        "averaged, 2": lambda: [train(paths, "--processes", "2")],
        "start, 1": lambda: [train(few, "--processes", "1")],
        "start, 2": lambda: [train(few, "--processes", "2")],
        "bare, 1": lambda: [train(paths)],
        "bare, 2": lambda: [train(paths[:2]), train(paths[2:])],
    }
    wall: dict[str, list[float]] = {name: [] for name in jobs}
    cpu: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(times + 1):
        for name, made in jobs.items():
            began, before = time.perf_counter(), cpu_of_children()
            run_commands(made())
            if turn:  # the first of each compiles
                wall[name].append(time.perf_counter() - began)
                cpu[name].append(cpu_of_children() - before)
    lines = [[name, statistics.median(wall[name]), statistics.median(cpu[name])] for name in jobs]
    common.table([f"{4 * rows:,} rows", "seconds", "CPU s"], lines)
    learned = {
        n: [a - b for a, b in zip(wall[f"averaged, {n}"], wall[f"start, {n}"], strict=True)]
        for n in (1, 2)
    }
    gains = {
        "averaged": common.ratio(wall["averaged, 1"], wall["averaged, 2"]),
        "without start": common.ratio(learned[1], learned[2]),
        "bare": common.ratio(wall["bare, 1"], wall["bare, 2"]),
    }
    shares = [gains[name] / gains["bare"] for name in ("averaged", "without start")]
    common.table(
        ["one ÷ two", *gains, "averaged ÷ bare", "without start", "target"],
        [["medians of pairs", *gains.values(), *shares, "≥ 0.92"]],
    )
    return {"wall": wall, "cpu": cpu, "gains": gains}


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--rows", type=int, default=400_000, help="rows a shard, of four")
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--times", type=int, default=5, help="runs of each")
    parser.add_argument("--commands", action="store_true", help="whole commands, by rule auto")
    args = parser.parse_args()
    if args.commands:
        with tempfile.TemporaryDirectory() as temporary:
            figures = commands(Path(temporary), args.rows, args.times)
        common.finish(figures, as_json=args.json)
        return
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = Path(temporary) / "rows"
        folder.mkdir()
        shape = {"mode": "averaged", "parts": args.parts, "rounds_per_epoch": args.rounds}
        data = cluster.texts(folder, args.rows)
        job = {"data": data, "model": {"rule": "nag"}, "train": shape}

        def train(client: Client) -> Model:
            kept = {"url": str(Path(temporary) / f"run-{uuid.uuid4().hex}")}
            return streamomd.train({**job, "checkpoint": kept}, client=client, quiet=True)

        jobs: dict[str, Callable[[], Any]] = {}
        for workers in (1, 2):
            made = LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0"
            )
            client = stack.enter_context(Client(stack.enter_context(made), set_as_default=False))
            jobs[f"averaged, {workers}"] = partial(train, client)
            model = train(client)
        shards = find(str(folder))
        rounds = rounds_of(shards, range(len(shards)), model.spec, 0)
        for processes in (1, 2):
            pool = ProcessPoolExecutor(
                processes,
                multiprocessing.get_context("spawn"),
                start_bare,
                (model.spec, model.plan),
            )
            jobs[f"bare, {processes}"] = partial(bare, stack.enter_context(pool), processes, rounds)
        wall: dict[str, list[float]] = {name: [] for name in jobs}
        cpu: dict[str, list[float]] = {name: [] for name in jobs}
        for number in range(args.times + 1):
            for name, run in jobs.items():
                began, before = time.perf_counter(), cpu_seconds()
                run()
                if number:  # the first of each loads what is compiled
                    wall[name].append(time.perf_counter() - began)
                    cpu[name].append(cpu_seconds() - before)
    gains = {
        kind: common.ratio(wall[f"{kind}, 1"], wall[f"{kind}, 2"]) for kind in ("averaged", "bare")
    }
    lines = [[name, statistics.median(wall[name]), statistics.median(cpu[name])] for name in jobs]
    common.table([f"{args.parts} parts, {args.rounds} rounds", "seconds", "CPU s"], lines)
    share = gains["averaged"] / gains["bare"]
    common.table(
        ["one ÷ two", "averaged", "bare", "averaged ÷ bare", "target"],
        [["medians of pairs", gains["averaged"], gains["bare"], share, "≥ 0.92"]],
    )
    figures = {"wall": wall, "cpu": cpu, "gains": gains, "share": share}
    common.finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
