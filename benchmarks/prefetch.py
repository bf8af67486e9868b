"""How far ahead is a cell best asked for?

NAG's loop over sparse rows, compiled anew for each distance ``engine.loops.AHEAD`` might have, in
turn over the same rows: ns of processor time a non-zero (and, of 8 learners side by side, a
learner), medians. A state beyond half of the memory that is free is left out. Rows as in engine.py.

The bits do not depend on the distance. No target: ``AHEAD`` is what wins where memory is far.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from typing import Any

import common
import numpy as np

from streamomd.core import jit
from streamomd.engine import compile as fuse
from streamomd.engine import operations
from streamomd.engine.loops import sparse as loops

DISTANCES = (0, 4, 8, 16, 32, 64, 128)


def compiled(walk: common.Walk, distance: int) -> Callable[..., float]:
    """The loop with another distance: its name must be its own, and it is kept on no disk."""
    engine, layout = walk.engine, walk.engine.layout
    shape = loops.Shape(layout.learners, engine.classes, layout.width, 1, False)
    usual, loops.AHEAD = loops.AHEAD, distance
    loop: Any = loops.make_learn(layout.rule, engine.loss, shape)
    loop.__name__ = loop.__qualname__ = f"ahead_{distance}_{layout.learners}_{layout.dtype}"
    for function in fuse._reached(loop):
        fuse._name_apart(function, loop.__name__)
        fuse._register(function, "inlined" in function.__dict__)
    signature = operations._rows(layout.rule, layout.dtype, "float32")
    made: Callable[..., float] = jit.compile_one(loop, signature, cached=False)
    loops.AHEAD = usual
    return made


def walks(learners: int, size: int, args: Any, made: dict[Any, Any]) -> Any:
    """A walk for each distance, all over one state."""
    batch = common.batch(np.random.default_rng(0), args.rows, size, max(2, learners))
    walk = common.Walk("nag", size, args.dtype, batch, classes=max(2, learners))
    coordinates = batch.indices.view(np.uint32)
    state, rows = walk.state, (batch.indptr, coordinates, batch.values, batch.y, batch.weight)
    margins = np.empty((len(batch), learners))

    def using(distance: int) -> Callable[[], None]:
        if (learners, distance) not in made:
            made[learners, distance] = compiled(walk, distance)
        loop, moved = made[learners, distance], (state.cells, state.totals.reshape(-1))

        def run() -> None:
            loop(*moved, walk.sums, walk.engine.hyper, 1e6, *rows, margins)

        return run

    return {str(distance): using(distance) for distance in args.distances}, len(batch.values)


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--rows", type=int, default=30_000, help="rows walked in a run")
    parser.add_argument("--runs", type=int, default=5, help="runs of each loop")
    parser.add_argument("--dtype", default="float64", choices=["float64", "float32"])
    parser.add_argument("--distances", type=int, nargs="+", default=DISTANCES)
    parser.add_argument("--powers", type=int, nargs="+", default=range(12, 27, 2))
    parser.add_argument("--learners", type=int, nargs="+", default=[1, 8])
    args = parser.parse_args()
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    figures: dict[str, Any] = {"ahead": loops.AHEAD, "dtype": args.dtype}
    made: dict[Any, Any] = {}
    for learners in args.learners:
        lines = []
        for power in args.powers:
            if (1 << power) * (1 + 2 * learners) * 8 > free / 2:
                continue
            jobs, nonzeros = walks(learners, 1 << power, args, made)
            found = common.timed(jobs, args.runs, nonzeros * learners)
            ns = {name: statistics.median(times) for name, times in found.items()}
            figures[f"2^{power} x {learners}"] = ns
            lines.append([f"2^{power}", *ns.values(), int(min(ns, key=ns.__getitem__))])
        head = [f"NAG, {args.dtype}, L = {learners}: ns", *map(str, args.distances), "best"]
        common.table(head, lines)
    common.finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
