"""What does it cost to merge two states, in seconds and in memory?

Two states and the start they came from, of 2^18 and 2^22 coordinates in float64, with something in
every slot and another scale at every coordinate: all that can be aligned, or made from mean
weights, is. NAG aligns; FTRL-Proximal, and AdaGrad with a penalty, take mean weights; AdaGrad
without one does neither. Seconds ÷ those of copying the cells of all three states once, in turn,
the median of the pairs. Memory: the peak of what a merge takes beside its three states ÷ one
state, from a run of its own.

Targets: memory ≤ 1.25 states at 2^22 coordinates.
"""

from __future__ import annotations

import statistics
import tracemalloc
from collections.abc import Callable
from typing import Any

import common
import numpy as np

RULES: dict[str, tuple[str, dict[str, Any]]] = {
    "NAG": ("nag", {}),
    "AdaGrad": ("adagrad", {}),
    "AdaGrad, l1": ("adagrad", {"l1": 1e-6}),
    "FTRL-Proximal": ("ftrl_proximal", {}),
}


def filled(rng: np.random.Generator, state: Any) -> Any:
    """A copy that has gone on: weights at random, what grows larger than before."""
    state = state.copy()
    for slot, cells in state.layout.columns():
        numbers = rng.random(state.table[:, cells].shape)
        state.table[:, cells] = numbers - 0.5 if slot.name in ("w", "z") else 1.0 + numbers
    state.totals += 10.0
    state.clock += 1000
    return state


def peak(job: Callable[[], Any]) -> int:
    """Bytes that a job takes at most, what it returns included."""
    tracemalloc.start()
    try:
        job()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def main() -> None:
    from streamomd.engine.merge import merge

    parser = common.arguments(__doc__)
    parser.add_argument("--powers", type=int, nargs="+", default=[18, 22], help="2^: coordinates")
    parser.add_argument("--times", type=int, default=5, help="runs of each; the median counts")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    figures: dict[str, Any] = {}
    lines = []
    for power in args.powers:
        for title, (rule, params) in RULES.items():
            walk = common.Walk(rule, 1 << power, "float64", None, **params)
            start = walk.state
            states = [filled(rng, start) for _ in range(2)]
            into = np.zeros_like(start.cells)

            def merged(engine: Any = walk.engine, states: Any = states, start: Any = start) -> Any:
                return merge(engine, states, start, (1000, 2000))

            def copied(cells: Any = (start, *states), into: Any = into) -> None:
                for state in cells:
                    into[...] = state.cells

            merged(), copied()
            found = common.in_turn({"merge": merged, "copy": copied}, args.times)
            key = f"2^{power}, {title}"
            figures[key] = {
                "seconds": statistics.median(found["merge"]),
                "copy_seconds": statistics.median(found["copy"]),
                "ratio": common.ratio(found["merge"], found["copy"]),
                "states": peak(merged) / start.nbytes,
            }
            ms = [1e3 * figures[key][name] for name in ("seconds", "copy_seconds")]
            lines.append([key, *ms, figures[key]["ratio"], figures[key]["states"]])
    common.table(["ms", "merge", "copy", "merge ÷ copy", "memory ÷ state (≤ 1.25)"], lines)
    common.finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
