"""How good is a saved model on rows that come later, of tables in order of time?

A table is learned in its order by ``auto``; at seven cuts the model as it is saved predicts the
next tenth of the rows: by ``prefer`` = auto, recent (the mixture that predicts the next row best)
and whole (the second-order learner alone). Reported is the mean log loss, or the root of the mean
squared error, over the cuts, % above the better one of recent and whole. Tables are in
ordered_sets.py.

    python benchmarks/ordered.py                # tables on which nothing was chosen, and made ones
    python benchmarks/ordered.py --known        # those that constants were chosen on

Required of auto: the median at most +.5 %, the worst at most +5 %.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import common
import numpy as np
import scipy.sparse as sp
from ordered_sets import CUTS, KNOWN_ORDERED, ORDERED, made_sets
from quality import DATA
from quality_learners import LOSS
from quality_sets import CLASSES, REGRESSION, Data
from quality_tables import write

from streamomd.core.batch import SparseBatch
from streamomd.engine import Engine
from streamomd.engine.layout import Layout
from streamomd.engine.state import State
from streamomd.losses import find_loss
from streamomd.rules import find_rule

PREFERENCES = ("auto", "recent", "whole")
CHOSEN_ON = 500
"""The seed of made drifts that constants were chosen on."""


def batch(data: Data, low: int, high: int) -> SparseBatch:
    rows = sp.hstack([sp.csr_matrix(data.numeric[low:high]), data.sparse[low:high]], format="csr")
    indptr, indices = rows.indptr.astype(np.int64), rows.indices.astype(np.int32)
    return SparseBatch(indptr, indices, rows.data, data.y[low:high], np.ones(high - low))


def engine_of(data: Data) -> Engine:
    loss, rule = LOSS[data.task], find_rule("auto")
    params = rule.parse_params({})
    numeric, storage = data.numeric.shape[1], rule.storage
    size = 1 + numeric + data.sparse.shape[1]
    most = max(1 + numeric, min(storage.most(params), size))  # type: ignore[union-attr]
    learners = data.classes if data.task == CLASSES else 1
    layout = Layout(rule, size, learners, "float64", numeric, most)
    return Engine(layout, find_loss(loss), data.classes, True, params)


def losses(data: Data) -> dict[str, float]:
    """Mean over the cuts, by preference."""
    engine, rule = engine_of(data), find_rule("auto")
    engines = {
        name: replace(engine, params=rule.parse_params({"prefer": name})) for name in PREFERENCES
    }
    state, low, n = State.start(engine.layout), 0, len(data.y)
    engine.begin(state)
    found: dict[str, list[float]] = {name: [] for name in PREFERENCES}
    for cut in CUTS:
        high = int(n * cut)
        engine.learn(state, np.zeros(3), batch(data, low, high))
        some = batch(data, high, min(n, high + n // 10))
        for name, one in engines.items():
            sums = np.zeros(3)
            one.predict(state, sums, some)
            found[name].append(float(sums[1] / sums[0]))
        low = high
    means = {name: float(np.mean(values)) for name, values in found.items()}
    if data.task == REGRESSION:
        return {name: (2.0 * value) ** 0.5 for name, value in means.items()}
    return means


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of data sets")
    parser.add_argument("--sets", help="some of the data sets")
    parser.add_argument("--known", action="store_true", help="sets that constants were chosen on")
    args = parser.parse_args()
    every = {**KNOWN_ORDERED, **made_sets(CHOSEN_ON)} if args.known else ORDERED
    names = args.sets.split(",") if args.sets else [*every]
    found: dict[str, Any] = {}
    lines = []
    for name in names:
        try:
            data = every[name](args.data)
        except (FileNotFoundError, ModuleNotFoundError) as error:
            print(f"skipped: {name}: {error}", file=sys.stderr)
            continue
        figures = losses(data)
        best = min(figures["recent"], figures["whole"])
        above = {rule: 100.0 * (value / best - 1.0) for rule, value in figures.items()}
        found[name] = {**figures, "above": above["auto"]}
        lines.append(
            [name, f"{len(data.y):,}", f"{best:.4g}", *(f"{above[r]:+.2f}" for r in above)]
        )
        print(*lines[-1], file=sys.stderr, flush=True)
    write(["set", "rows", "the better one", *PREFERENCES], lines)
    for title, made in (("real", False), ("made", True)):
        some = [one["above"] for name, one in found.items() if name.startswith("m-") == made]
        if some:
            print(
                f"\n{title}, {len(some)}: auto is % above the better one: median "
                f"{np.median(some):+.2f}, mean {np.mean(some):+.2f}, worst {max(some):+.2f}"
            )
    common.finish(found, as_json=args.json)


if __name__ == "__main__":
    main()
