"""What do sixteen learners cost in one reading?

Wall time of ``streamomd.sweep`` over 16 step sizes of NAG ÷ that of one ``streamomd.train``, and ÷
that of the 16 trains one after another (whole Python calls, nothing compiled in them; no
checkpoint, quiet, the page cache warm). Each learner of the sweep must have the state of the one
trained alone. Sweeps are run among the trains; the medians are compared.

Data: that of scan.py: zstd, 4 shards of 400,000 rows of about 75 non-zeros.

Targets, on 2 cores: sweep ÷ one train ≤ 5; sweep ÷ 16 trains ≤ 1/3.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import common
import scan

import streamomd
from streamomd.runs.sweep.grid import values_of

ETAS = values_of("eta", "0.01..10:16")


def job(folder: Path, dtype: str) -> dict[str, Any]:
    """The job of scan.py."""
    data = {"shards": [str(folder)], "label": "y", "sparse": scan.SPARSE}
    return {"data": data, "model": {"rule": "nag", "dtype": dtype}, "checkpoint": {"url": "none"}}


def sweep(folder: Path, dtype: str) -> list[str]:
    """The states of all learners."""
    models = streamomd.sweep(job(folder, dtype), grid={"eta": ETAS}, quiet=True)
    return [model.state_sha256 for model in models]


def train(folder: Path, dtype: str, eta: float) -> str:
    """The state of one."""
    return streamomd.train(job(folder, dtype), eta=eta, quiet=True).state_sha256


def measure(folder: Path, dtype: str, times: int) -> dict[str, Any]:
    """Seconds of the sweeps and of each train. Raises SystemExit if a state differs."""
    wall: dict[str, list[float]] = {"sweep": [], "train": []}
    cpu: dict[str, list[float]] = {"sweep": [], "train": []}

    def timed(name: str, job: Callable[[], Any]) -> Any:
        began, spent = time.perf_counter(), time.process_time()
        done = job()
        wall[name].append(time.perf_counter() - began)
        cpu[name].append(time.process_time() - spent)
        return done

    told: list[str] = []
    states: list[str] = []
    for at, eta in enumerate(ETAS):
        if at % max(1, len(ETAS) // times) == 0 and len(wall["sweep"]) < times:
            told = timed("sweep", lambda: sweep(folder, dtype))
        states.append(timed("train", partial(train, folder, dtype, eta)))
    if told != states:
        raise SystemExit("a learner of the sweep has not the state of the one trained alone")
    found: dict[str, Any] = {"all": wall, "all_cpu": cpu}
    for name, seconds in (("wall", wall), ("cpu", cpu)):
        took = statistics.median(seconds["sweep"])
        one, whole = statistics.median(seconds["train"]), sum(seconds["train"])
        found[name] = {
            "sweep": took,
            "train": one,
            "per_train": took / one,
            "per_all": took / whole,
        }
    return found


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--rows", type=int, default=400_000, help="rows a shard")
    parser.add_argument("--group-rows", type=int, default=100_000, help="rows a row group")
    parser.add_argument("--times", type=int, default=3, help="sweeps among the 16 trains")
    parser.add_argument("--dtype", default="float64", help="float64 or float32")
    parser.add_argument("--folder", type=Path, help="shards to use, or to write and keep")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary) / "rows"
        scan.write(folder, args)
        few = Path(temporary) / "few"
        list(common.write_shards(few, shards=1, shard_rows=99, group_rows=99, size=scan.SIZE))
        sweep(few, args.dtype)  # compiles
        train(folder, args.dtype, 0.5)  # compiles, and warms the page cache
        found = measure(folder, args.dtype, args.times)
    wall, cpu = found["wall"], found["cpu"]
    common.table(
        [f"16 NAG, {args.dtype}, {os.cpu_count()} cores", "wall", "target", "processors"],
        [
            ["sweep, seconds", wall["sweep"], "", cpu["sweep"]],
            ["one train, seconds", wall["train"], "", cpu["train"]],
            ["sweep ÷ one train", wall["per_train"], "≤ 5.00", cpu["per_train"]],
            ["sweep ÷ 16 trains", wall["per_all"], "≤ 0.33", cpu["per_all"]],
        ],
    )
    common.finish({"cores": os.cpu_count(), **found}, as_json=args.json)


if __name__ == "__main__":
    main()
