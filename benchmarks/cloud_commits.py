"""How long do a commit and a load take at a store with latency, as a multiple of bytes ÷ bandwidth?

NAG with its slots in float64, every number set. The store is a server of S3's protocol in another
process on this machine: every request waits ``--latency`` ms, all bodies together share one line of
``--bandwidth`` MiB/s. A commit includes the check for finite numbers, SHA-256 of every part, the
manifest and the deletion of the commit before; a load includes SHA-256 and the state's memory.
"one at a time" writes and reads parts of 4 MiB, each checked by a HEAD, as earlier versions did.

Targets: 2 GiB at 30 ms: at most 1.3. Median of ``--times``.
"""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import common
import numpy as np

MIB = 1 << 20
NAG_BYTES = 24  # of a coordinate in a commit: three slots


def serve(pipe: Any, latency: float, bandwidth: float, proof: str) -> None:
    """The server's process, until the pipe is closed."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
    from s3_server import S3Server

    with S3Server(proof=proof, latency=latency, bandwidth=bandwidth, trusting=True) as server:
        pipe.send(server.options)
        while pipe.recv():
            pipe.send((server.most_in_flight(), server.count()))


@contextmanager
def served(*settings: Any) -> Iterator[tuple[dict[str, Any], Callable[[], Any]]]:
    """Storage options of a server, and what counts its requests."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, *settings), daemon=True)
    process.start()
    options = ours.recv()

    def count() -> Any:
        ours.send(True)
        return ours.recv()

    try:
        yield options, count
    finally:
        ours.send(False)
        process.join(10)


def state_of(mib: int) -> Any:
    """A state whose commit has this many MiB."""
    from streamomd.engine.layout import Layout
    from streamomd.engine.state import State
    from streamomd.rules import find_rule

    state = State.start(Layout(find_rule("nag"), mib * MIB // NAG_BYTES, 1, "float64"))
    block = np.random.default_rng(0).random(1 << 16)
    for low in range(0, len(state.cells), len(block)):
        cells = state.cells[low : low + len(block)]
        cells[...] = block[: len(cells)]
    return state


def peak() -> int:
    """The most memory that this process had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def measured(
    state: Any, settings: tuple[Any, ...], times: int, *, sequential: bool
) -> dict[str, Any]:
    """Seconds of each commit and load, requests of the last ones, and the growth of memory."""
    from streamomd.checkpoint import Writer, load, open_store
    from streamomd.checkpoint.stores.remote import RemoteStore
    from streamomd.core.finite import finite_parts

    with served(*settings) as (options, count):
        store = open_store("s3://bucket/run", options)
        if sequential:
            RemoteStore.in_flight, RemoteStore.part_bytes = 1, 0  # type: ignore[method-assign,assignment]
        writer = Writer.begin(store, {"rows": 0}, (), keep=1)
        seconds: dict[str, list[float]] = {"commit": [], "load": []}
        found: dict[str, Any] = {"seconds": seconds}
        before = peak()
        for at in range(times):
            count()
            began = time.perf_counter()
            writer.commit({"rows": at}, finite_parts(state.parts(store.part_bytes)))
            seconds["commit"].append(time.perf_counter() - began)
            found["commit"] = count()
            found["commit grows by MiB"] = (peak() - before) / MIB
            began = time.perf_counter()
            load(store, lambda _: lambda part: state.fill(*part))
            seconds["load"].append(time.perf_counter() - began)
            found["load"] = count()
            found["both grow by MiB"] = (peak() - before) / MIB
        return found


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--mib", type=int, default=256, help="size of a commit in MiB")
    parser.add_argument("--latency", type=float, default=30.0, help="of a request, in ms")
    parser.add_argument("--bandwidth", type=float, default=125.0, help="of the line, in MiB/s")
    parser.add_argument("--times", type=int, default=5, help="commits and loads")
    parser.add_argument("--proof", default="sha256", choices=("sha256", "md5", "none"))
    parser.add_argument("--sequential", action="store_true", help="also measure one at a time")
    args = parser.parse_args()
    state, ideal = state_of(args.mib), args.mib / args.bandwidth
    settings = (args.latency / 1000, args.bandwidth * MIB, args.proof.replace("none", ""))
    figures: dict[str, Any] = {}
    lines = []
    for name, sequential in (("in flight", False), ("one at a time", True)):
        if sequential and not args.sequential:
            continue
        given = (*settings[:2], "") if sequential else settings
        found = measured(state, given, 1 if sequential else args.times, sequential=sequential)
        for deed in ("commit", "load"):
            middle = statistics.median(found["seconds"][deed])
            most, requests = found[deed]
            figures[f"{deed} ÷ (bytes ÷ bandwidth), {name}"] = middle / ideal
            text = " ".join(f"{key} {value}" for key, value in requests.items())
            lines.append((f"{deed}, {name}", middle, middle / ideal, most, text))
        grown = ("commit grows by MiB", "both grow by MiB")
        figures |= {f"{key}, {name}": found[key] for key in grown}
    common.table(("", "seconds", "ratio", "in flight", "requests"), lines)
    common.finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
