"""Is the fused loop over dense rows as quick as one written by hand?

NAG with logistic loss and a bias, slots in float64: the engine ÷ a loop written out below for just
that, with the layout the engine takes for such rows: blocks of columns side by side, or, where most
values are 0 (as in Covertype: 12 of 54 are not, 42 in columns of 0 and 1), a row of cells a
coordinate. Beside them the engine made to walk row by row, and other rules. In turn, processor
time, the median of the pairs' ratios; all must end in the same bits.

Target: fused ÷ hand ≤ 1.15 for each.
"""

from __future__ import annotations

import math
import statistics
from typing import Any

import common
import numba
import numpy as np

from streamomd.core.batch import DenseBatch
from streamomd.engine.loops.dense import filled

ETA = 0.5
BLOCK = 64
S, W, G, X, PX, Q = (n * BLOCK for n in range(6))


@numba.njit
def stepped(p, q, i, N, clock, eta, sums, y, importance):
    """What a row's sums lead to: slope and step."""
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
    return g, eta * math.sqrt(clock / N) * g


@numba.njit(nogil=True, error_model="numpy")
def by_columns(cells, totals, sums, hyper, clock, values, y, importance, margins):
    """Blocks of columns; in a block the lines s, w, G, x, w x and (x / s)^2."""
    rows, columns = values.shape
    d = columns + 1
    blocks = (d + BLOCK - 1) // BLOCK
    table = np.zeros((blocks, 6 * BLOCK))
    for j in range(d):
        for m in range(3):
            table[j // BLOCK, m * BLOCK + j % BLOCK] = cells[j * 4 + m]
    table[0, X] = 1.0
    N = totals[0]
    for i in range(rows):
        clock += 1.0
        p = q = 0.0
        for b in range(blocks):
            t = table[b]
            here = min(BLOCK, d - b * BLOCK)
            size = min(BLOCK, (here + 7) // 8 * 8)
            skip = 1 if b == 0 else 0
            given = values[i, b * BLOCK + skip - 1 : b * BLOCK + here - 1]
            line = t[X + skip :]
            for c in range(len(given)):
                line[c] = given[c]
            for c in range(size):
                x, s, w = t[X + c], t[S + c], t[W + c]
                a = abs(x)
                larger = a if a > s else s
                w = w * (s / larger) if a > s else w
                r = x / larger
                t[S + c] = larger
                t[W + c] = w
                t[PX + c] = w * x if x != 0.0 else 0.0
                t[Q + c] = r * r if x != 0.0 else 0.0
            for c in range(here):
                p += t[PX + c]
                q += t[Q + c]
        N += q
        margins[i, 0] = p
        g, step = stepped(p, q, i, N, clock, hyper[0], sums, y, importance)
        if g == 0.0:
            continue
        for b in range(blocks):
            t = table[b]
            for c in range(min(BLOCK, (min(BLOCK, d - b * BLOCK) + 7) // 8 * 8)):
                x = t[X + c]
                z = g * x
                grown = t[G + c] + z * z
                w = t[W + c] - step * (x / (t[S + c] * math.sqrt(grown)))
                moves = x != 0.0 and grown > 0.0
                t[W + c] = w if moves else t[W + c]
                t[G + c] = grown
    totals[0] = N
    for j in range(d):
        for m in range(3):
            cells[j * 4 + m] = table[j // BLOCK, m * BLOCK + j % BLOCK]
    return clock


@numba.njit(nogil=True, error_model="numpy")
def by_rows(cells, totals, sums, hyper, clock, values, y, importance, margins):
    """Coordinate by coordinate; cells are s, w, G and one of padding."""
    rows, columns = values.shape
    N = totals[0]
    for i in range(rows):
        clock += 1.0
        p = q = 0.0
        for j in range(columns + 1):
            x = float(values[i, j - 1]) * 1.0 if j else 1.0
            if x == 0.0:
                continue
            at = j * 4
            s, w, a = cells[at], cells[at + 1], abs(x)
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
        g, step = stepped(p, q, i, N, clock, hyper[0], sums, y, importance)
        if g == 0.0:
            continue
        for j in range(columns + 1):
            x = float(values[i, j - 1]) * 1.0 if j else 1.0
            if x == 0.0:
                continue
            at, z = j * 4, g * x
            grown = cells[at + 2] + z * z
            if grown > 0.0:
                cells[at + 1] -= step * (x / (cells[at] * math.sqrt(grown)))
                cells[at + 2] = grown
    totals[0] = N
    return clock


class Hand(common.Walk):
    """A loop by hand, on a state of its own."""

    def __init__(self, loop: Any, batch: Any) -> None:
        super().__init__("nag", batch.values.shape[1], "float64", batch, eta=ETA)
        self.loop, self.hyper = loop, np.array([ETA])

    def __call__(self) -> None:
        state, batch, totals = self.state, self.batch, self.state.totals.reshape(-1)
        self.margins = np.empty((len(batch), 1))
        moved = (state.cells, totals, self.sums, self.hyper, float(state.clock))
        rows = (batch.values, batch.y, batch.weight)
        state.clock = int(self.loop(*moved, *rows, self.margins))


def batch(columns: int, dtype: str, count: int, *, covertype: bool = False) -> DenseBatch:
    """Normal values; or 10 of them, one of 4 columns that is 1 and one of 40, in runs of rows."""
    rng = np.random.default_rng(columns)
    X = rng.standard_normal((count, columns)).astype(dtype)
    if covertype:
        X[:, 10:] = 0.0
        runs = np.arange(count) // 20
        X[np.arange(count), 10 + rng.permutation(count)[runs] % 4] = 1.0
        X[np.arange(count), 14 + rng.permutation(count)[runs] % 40] = 1.0
    y = np.where(X[:, 0] + rng.standard_normal(count) > 0.0, 1.0, -1.0)
    return DenseBatch(X, y, np.ones(count))


def compared(given: DenseBatch, pairs: int) -> dict[str, float]:
    """Engine, by hand, engine row by row: ns a value, and the ratio of the first two."""
    count, columns = given.values.shape
    hand = Hand(by_columns if filled(given.values) else by_rows, given)
    walks = {name: common.Walk("nag", columns, "float64", given, eta=ETA) for name in "fr"}
    walks["r"].engine._dense = False
    found = common.timed({"f": walks["f"], "h": hand, "r": walks["r"]}, pairs, count * columns)
    ends = {walk.state.cells.tobytes() for walk in (hand, *walks.values())}
    if len(ends) > 1:
        raise SystemExit("the loop by hand does not learn what the fused one learns")
    fused, by, rowwise = (statistics.median(found[name]) for name in "fhr")
    return {
        "fused_ns": fused,
        "hand_ns": by,
        "ratio": common.ratio(found["f"], found["h"]),
        "row_by_row_ns": rowwise,
    }


def others(given: DenseBatch, pairs: int) -> list[list[Any]]:
    """Other rules: column beside column, row by row."""
    count, columns = given.values.shape
    lines = []
    for rule in ("ogd", "adagrad", "arow_diag", "ftrl_proximal", "snag"):
        walks = {name: common.Walk(rule, columns, "float64", given) for name in "cr"}
        walks["r"].engine._dense = False
        found = common.timed(walks, pairs, count * columns)
        side, rowwise = (statistics.median(found[name]) for name in "cr")
        lines.append([f"{rule}, {columns}", side, rowwise, common.ratio(found["r"], found["c"])])
    return lines


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--values", type=int, default=1_000_000, help="values walked in a run")
    parser.add_argument("--pairs", type=int, default=7, help="runs of each loop")
    parser.add_argument("--only-targets", action="store_true", help="leave out what informs only")
    args = parser.parse_args()
    figures: dict[str, Any] = {}
    lines = []
    for columns, dtype, sparse in [
        (54, "float64", False), (54, "float32", False), (500, "float64", False),
        (500, "float32", False), (54, "float32", True),
    ]:  # fmt: skip
        given = batch(columns, dtype, args.values // columns, covertype=sparse)
        key = f"{columns} {dtype}{', 42 zero' if sparse else ''}"
        figures[key] = found = compared(given, args.pairs)
        lines.append([key, *found.values(), "≤ 1.15"])
    head = ["NAG, logistic: ns a value", "fused", "by hand", "ratio", "row by row", "target"]
    common.table(head, lines)
    if not args.only_targets:
        more = [
            line
            for columns in (54, 500)
            for line in others(batch(columns, "float32", args.values // columns), args.pairs)
        ]
        common.table(["ns a value", "by columns", "by rows", "ratio"], more)
        figures["others"] = more
    common.finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
