"""How near is training from a warm cache to the engine alone?

Parquet shards (zstd) of about 75 non-zeros a row; NAG, 2^18 float64 coordinates, defaults. In turn,
in one process: the engine alone over the same batches, all in memory; a whole ``train`` from a warm
cache; one that fills the cache; one without. Wall and processor time.

Targets: warm ÷ engine alone ≤ 1.3 in wall time; cold ÷ without is what filling costs. Peak memory
of a warm training in a process of its own: ≤ its state + 450 MB.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import common

POWER, SETTLED = 18, 2.5


def job(folder: Path, cache: Path | str) -> dict[str, Any]:
    sparse = {"indices": "i", "values": "v", "size": 1 << POWER}
    data = {"shards": [str(folder)], "label": "y", "sparse": sparse, "cache": str(cache)}
    return {"data": data, "checkpoint": {"url": "none"}}


def child(folder: str, cache: str) -> None:
    """Train from the cache, then say how much memory it took; in a process of its own."""
    import streamomd

    model = streamomd.train(job(Path(folder), cache), quiet=True)
    # Not ru_maxrss: that of a process begins with its parent's.
    status = Path("/proc/self/status").read_text().split("VmHWM:")[1]
    peak = int(status.split()[0]) << 10
    print(json.dumps({"peak": peak, "state": model.state.nbytes}))


def batches(folder: Path) -> list[Any]:
    """The rows as ``train`` has them, in its pieces."""
    from streamomd.config.spec import Spec
    from streamomd.sources.find import find
    from streamomd.training.new_model import plan_columns
    from streamomd.training.row_stream import rows_of

    spec, shards = Spec.parse(job(folder, "")), find(str(folder))
    plan = plan_columns(spec, shards)
    return [piece.value.batch for piece in rows_of(plan, shards, range(len(shards)))]


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--rows", type=int, default=1_600_000)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--group-rows", type=int, default=50_000)
    parser.add_argument("--times", type=int, default=5, help="rounds; the median counts")
    parser.add_argument("--folder", type=Path, help="data to use, or to write and keep")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(*args.child)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary) / "rows"
        if not folder.exists():
            each = args.rows // args.shards
            shape = {"shards": args.shards, "shard_rows": each, "group_rows": args.group_rows}
            list(common.write_shards(folder, **shape, size=1 << POWER))
            time.sleep(SETTLED)  # a younger file is not kept
        measure(folder, Path(temporary) / "kept", args)


def measure(folder: Path, kept: Path, args: Any) -> None:
    import streamomd

    def train(cache: Path | str) -> str:
        return streamomd.train(job(folder, cache), quiet=True).state_sha256

    assert train(kept) == train(kept) == train("")
    size = sum(path.stat().st_size for path in kept.iterdir())
    found = batches(folder)
    rows, nonzeros = sum(map(len, found)), sum(len(batch.indices) for batch in found)

    def alone() -> None:
        walk = common.Walk("nag", 1 + (1 << POWER), "float64", found[0])
        for batch in found:
            walk.batch = batch
            walk()

    jobs = {
        "engine alone": alone,
        "warm": lambda: train(kept),
        "cold": lambda: train(kept),
        "without": lambda: train(""),
    }
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in jobs}
    for _ in range(args.times):
        for name, run in jobs.items():
            if name == "cold":
                shutil.rmtree(kept)
            wall, processor = time.perf_counter(), time.process_time()
            run()
            seconds[name].append((time.perf_counter() - wall, time.process_time() - processor))
    lines, figures = [], {}
    for name, times in seconds.items():
        wall, processor = ([one[at] for one in times] for at in (0, 1))
        base = seconds["without" if name == "cold" else "engine alone"]
        over = [common.ratio(given, [one[at] for one in base])
                for at, given in enumerate((wall, processor))]  # fmt: skip
        each = statistics.median(wall)
        figures[name] = {"seconds": each, "wall ratio": over[0], "processor ratio": over[1]}
        lines.append([name, rows / each, 1e9 * statistics.median(processor) / nonzeros, *over])
    head = ["", "rows/s", "CPU ns a non-zero", "wall ÷", "CPU ÷"]
    common.table(head, lines)
    print("÷ engine alone (warm: ≤ 1.3); cold: ÷ without", flush=True)
    figures["bytes a non-zero"] = size / nonzeros
    print(f"{size / nonzeros:.2f} bytes a non-zero on disk, {size / 1e9:.2f} GB", flush=True)
    command = [sys.executable, __file__, "--child", str(folder), str(kept)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    memory = json.loads(out.splitlines()[-1])
    figures["beside"] = memory["peak"] - memory["state"]
    print(f"peak − state of a warm run: {figures['beside'] / 1e6:.0f} MB (≤ 450)", flush=True)
    common.finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
