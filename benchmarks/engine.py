"""Is the fused loop as quick as one written by hand?

The loop that is fused from a rule's and a loss's plain functions (NAG, logistic) ÷ a loop written
out by hand below for just that pair, with the same layout, padding and prefetch. Both run in turn
in this process on the same rows; process CPU time; the median of the pairs' ratios. Coordinates
are log-uniform, distinct and ascending in a row, about 75 non-zeros a row.

Targets: fused ÷ hand ≤ 1.15 at 2^18 and 2^24 coordinates in float32 and float64; in float32 a
non-zero at 2^24 coordinates costs ≤ 2.2 times one at 2^18. For information: one-against-all with
7 classes. Other rules: rules.py; dense rows: dense.py; how near to memory itself: memory_limit.py.
"""

from __future__ import annotations

import math
import statistics
from typing import Any

import common
import numba
import numpy as np

from streamomd.engine.loops import sparse
from streamomd.engine.loops.cache_prefetch import prefetch
from streamomd.engine.loops.row import FAR

AHEAD = sparse.AHEAD
ETA = 0.5


def by_hand(
    cells, totals, sums, hyper, clock, indptr, indices, values, y, importance, margins
):  # fmt: skip
    """NAG with logistic loss and a bias; cells are s, w, G and one of padding."""
    N = totals[0]
    stored = len(indices)
    for i in range(len(y)):
        clock += 1.0
        start = indptr[i] & FAR
        entries = (indptr[i + 1] & FAR) - start + 1
        p = q = 0.0
        for n in range(entries):
            if n < 1:
                at, x = 0, 1.0
            else:
                at, x = indices[start + n - 1] * 4, float(values[start + n - 1]) * 1.0
                if start + n + AHEAD < stored:
                    prefetch(cells, indices[start + n + AHEAD] * 4, 4)
            if x == 0.0:
                continue
            a = abs(x)
            s = float(cells[at]) * 1.0
            w = float(cells[at + 1]) * 1.0
            if a > s:
                w *= s / a
                s = a
                cells[at] = s
                cells[at + 1] = w
            r = x / s
            q += r * r
            p += w * x
        N += q
        margins[i, 0] = p
        z = y[i] * p
        if z > 0.0:
            e = math.exp(-z)
            loss = math.log1p(e)
            slope = -y[i] * (e / (1.0 + e))
        else:
            e = math.exp(z)
            loss = math.log1p(e) - z
            slope = -y[i] / (1.0 + e)
        sums[0] += importance[i]
        sums[1] += importance[i] * loss
        wrong = not p > 0.0 if y[i] > 0.0 else not p <= 0.0
        sums[2] += importance[i] * wrong
        g = importance[i] * slope
        if g == 0.0:
            continue
        step = hyper[0] * math.sqrt(clock / N) * g
        for n in range(entries):
            if n < 1:
                at, x = 0, 1.0
            else:
                at, x = indices[start + n - 1] * 4, float(values[start + n - 1]) * 1.0
            if x == 0.0:
                continue
            z = g * x
            G = float(cells[at + 2]) * 1.0 + z * z
            if G > 0.0:
                s = float(cells[at]) * 1.0
                cells[at + 1] = float(cells[at + 1]) * 1.0 - step * (x / (s * math.sqrt(G)))
                cells[at + 2] = G
    totals[0] = N
    return clock


class Hand(common.Walk):
    """The loop by hand, on a state of its own."""

    def __init__(self, loop: Any, size: int, dtype: str, batch: Any) -> None:
        super().__init__("nag", size, dtype, batch, eta=ETA)
        self.loop, self.hyper = loop, np.array([ETA])

    def __call__(self) -> None:
        state, batch, totals = self.state, self.batch, self.state.totals.reshape(-1)
        margins = np.empty((len(batch), 1))
        moved = (state.cells, totals, self.sums, self.hyper, float(state.clock))
        coordinates = batch.indices.view(np.uint32)
        rows = (batch.indptr, coordinates, batch.values, batch.y, batch.weight)
        state.clock = int(self.loop(*moved, *rows, margins))
        self.margins = margins


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--rows", type=int, default=20_000, help="rows walked in a run")
    parser.add_argument("--pairs", type=int, default=7, help="runs of each loop")
    parser.add_argument("--only-targets", action="store_true", help="leave out what informs only")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    hand = numba.njit(nogil=True, error_model="numpy")(by_hand)
    figures: dict[str, Any] = {"ahead": AHEAD}
    lines = []
    for power, size in ((18, common.SMALL), (24, common.LARGE)):
        batch = common.batch(rng, args.rows, size)
        for dtype in ("float32", "float64"):
            walk = common.Walk("nag", size, dtype, batch, eta=ETA)
            other = Hand(hand, size, dtype, batch)
            walks = {"fused": walk, "hand": other}
            found = common.timed(walks, args.pairs, len(batch.values))
            if not np.array_equal(walk.margins, other.margins):
                raise SystemExit("the loop by hand does not learn what the fused one learns")
            key = f"2^{power} {dtype}"
            fused_ns, hand_ns = (statistics.median(found[name]) for name in ("fused", "hand"))
            figures[key] = {
                "fused_ns": fused_ns,
                "hand_ns": hand_ns,
                "ratio": common.ratio(found["fused"], found["hand"]),
            }
            lines.append([key, fused_ns, hand_ns, figures[key]["ratio"], "≤ 1.15"])
    growth = figures["2^24 float32"]["fused_ns"] / figures["2^18 float32"]["fused_ns"]
    figures["growth"] = growth
    common.table(["NAG, logistic: ns a non-zero", "fused", "by hand", "ratio", "target"], lines)
    common.table(["2^24 ÷ 2^18 in float32", "ratio", "target"], [["fused", growth, "≤ 2.20"]])
    if not args.only_targets:
        figures["classes7"] = side_by_side(rng, args)
    common.finish(figures, as_json=args.json)


def side_by_side(rng: np.random.Generator, args: Any) -> dict[str, Any]:
    """One-against-all with 7 classes, at 2^18 coordinates in float64."""
    batch = common.batch(rng, args.rows, common.SMALL, classes=7)
    walk = common.Walk("nag", common.SMALL, "float64", batch, classes=7)
    ns = statistics.median(common.timed({"nag": walk}, args.pairs, len(batch.values))["nag"])
    common.table(["7 classes", "ns a non-zero", "and learner"], [["nag, float64", ns, ns / 7]])
    return {"ns": ns, "ns_per_learner": ns / 7}


if __name__ == "__main__":
    main()
