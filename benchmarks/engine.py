"""Is the fused loop as quick as one written by hand?

The loop that is fused from a rule's and a loss's plain functions (NAG, logistic) ÷ a loop written
out by hand below for just that pair, with the same layout, padding and prefetch. Both run in turn
in this process on the same rows; process CPU time; the median of the pairs' ratios. Coordinates
are log-uniform, distinct and ascending in a row, about 75 non-zeros a row.

Targets: fused ÷ hand ≤ 1.15 at 2^18 and 2^24 coordinates in float32 and float64; in float32 a
non-zero at 2^24 coordinates costs ≤ 2.2 times one at 2^18. For information: every rule ÷ NAG, and
one-against-all with 7 classes.
"""

from __future__ import annotations

import math
import statistics
import time
from typing import Any

import common
import numba
import numpy as np

from streamomd.engine import fuse, loops
from streamomd.engine.prefetch import prefetch
from streamomd.losses import find_loss
from streamomd.rules import all_rules, find_rule
from streamomd.state import Layout, State

SMALL, LARGE = 1 << 18, 1 << 24
AHEAD = loops.AHEAD
ETA = 0.5


def by_hand(
    cells, totals, sums, hyper, clock, indptr, indices, values, y, importance, margins
):  # fmt: skip
    """NAG with logistic loss and a bias; cells are s, w, G and one of padding."""
    N = totals[0]
    stored = len(indices)
    for i in range(len(y)):
        clock += 1.0
        start, stop = indptr[i], indptr[i + 1]
        p = q = 0.0
        for n in range(start - 1, stop):
            if n < start:
                at, x = 0, 1.0
            else:
                at, x = indices[n] * 4, float(values[n]) * 1.0
                if n + AHEAD < stored:
                    prefetch(cells, indices[n + AHEAD] * 4)
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
        for n in range(start - 1, stop):
            if n < start:
                at, x = 0, 1.0
            else:
                at, x = indices[n] * 4, float(values[n]) * 1.0
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


class Walk:
    """A loop with a state of its own, and the rows it walks again and again."""

    def __init__(self, loop: Any, layout: Layout, hyper: Any, data: Any, rows: Any) -> None:
        self.loop, self.state = loop, State.start(layout)
        self.sums, self.hyper, self.data, self.rows = np.zeros(3), hyper, data, rows
        self.margins = np.empty((len(rows[0]), layout.learners))

    def __call__(self) -> None:
        state, totals = self.state, self.state.totals.reshape(-1)
        moved = (state.cells, totals, self.sums, self.hyper, float(state.clock))
        state.clock = int(self.loop(*moved, *self.data, *self.rows, self.margins))


def fused(name: str, size: int, dtype: str, data: Any, rows: Any, classes: int = 2) -> Walk:
    """The loop streamomd makes for a rule and its default loss (logistic, where it may)."""
    rule = find_rule(name)
    loss = find_loss(rule.losses[0] if rule.losses else "logistic")
    layout = Layout(rule, size, classes if classes > 2 else 1, dtype)
    shape = loops.Shape(layout.learners, classes, layout.width, 1, False)
    loop = fuse.learn_loop(rule, loss, shape, dtype, data[2].dtype.name)
    hyper = np.tile(rule.hyper_numbers(rule.parse_params({})), layout.learners)
    return Walk(loop, layout, hyper, data, rows)


def timed(walks: dict[str, Walk], times: int, nonzeros: int) -> dict[str, list[float]]:
    """ns a non-zero of each walk, in turn; one round before, to warm the caches."""
    for walk in walks.values():
        walk()
    seconds = common.in_turn(walks, times, time.process_time)
    return {name: [1e9 * s / nonzeros for s in found] for name, found in seconds.items()}


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--rows", type=int, default=20_000, help="rows walked in a run")
    parser.add_argument("--pairs", type=int, default=7, help="runs of each loop")
    parser.add_argument("--only-targets", action="store_true", help="leave out what informs only")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    ones = np.ones(args.rows)
    rows = (common.labels(rng, args.rows).astype(np.float64), ones)
    hand = numba.njit(nogil=True, error_model="numpy")(by_hand)
    figures: dict[str, Any] = {"ahead": AHEAD}
    lines = []
    for power, size in ((18, SMALL), (24, LARGE)):
        data = common.rows(rng, args.rows, size)
        for dtype in ("float32", "float64"):
            walk = fused("nag", size, dtype, data, rows)
            other = Walk(hand, walk.state.layout, walk.hyper, data, rows)
            found = timed({"fused": walk, "hand": other}, args.pairs, len(data[1]))
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
        figures.update(informative(rng, args, rows))
    common.finish(figures, as_json=args.json)


def informative(rng: np.random.Generator, args: Any, rows: Any) -> dict[str, Any]:
    """Every rule ÷ NAG, and one-against-all with 7 classes, at 2^18 coordinates in float64."""
    data = common.rows(rng, args.rows, SMALL)
    nonzeros = len(data[1])
    walks = {name: fused(name, SMALL, "float64", data, rows) for name in all_rules()}
    found = timed(walks, args.pairs, nonzeros)
    rules = {
        name: {"ns": statistics.median(ns), "ratio": common.ratio(ns, found["nag"])}
        for name, ns in found.items()
    }
    lines = [[name, at["ns"], at["ratio"]] for name, at in rules.items()]
    common.table(["rule, 2^18, float64", "ns a non-zero", "÷ nag"], lines)
    y = rng.integers(0, 7, args.rows).astype(np.float64)
    walk = fused("nag", SMALL, "float64", data, (y, rows[1]), classes=7)
    ns = statistics.median(timed({"nag": walk}, args.pairs, nonzeros)["nag"])
    common.table(["7 classes", "ns a non-zero", "and learner"], [["nag, float64", ns, ns / 7]])
    return {"rules": rules, "classes7": {"ns": ns, "ns_per_learner": ns / 7}}


if __name__ == "__main__":
    main()
