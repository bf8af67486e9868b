"""What do the rounds of averaged mode cost auto in held-out loss, by parts and rounds?

Sets of quality_sets.py, one epoch of their first split in memory: parts learned in turn from the
common start, merged in a tree, with the exact stretches of ``streamomd.distributed.averaged``.

    python benchmarks/rounds.py [--rule auto] [--epochs 1] [SETS ...]
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np
import quality_sets
import scipy.sparse as sp
from quality_sets import BINARY, CLASSES, REGRESSION, Data

from streamomd.core.batch import SparseBatch
from streamomd.distributed.averaged import EXACT_ROWS, FIRST_ROWS
from streamomd.engine import Engine
from streamomd.engine.layout import Layout
from streamomd.engine.merge import tree
from streamomd.engine.state import State
from streamomd.losses import find_loss
from streamomd.rules import find_rule
from streamomd.rules.contract import Block

DATA = Path(__file__).parents[2] / "shared/data"
SETS = ("covertype", "bank", "census", "20news-comp", "w8a")
LOSS = {BINARY: "logistic", CLASSES: "softmax", REGRESSION: "square"}
ROWS = 4096


def batch_of(data: Data, at: np.ndarray) -> SparseBatch:
    """Numeric columns after the bias, then the others; zeros of numeric columns are left out."""
    rows = sp.hstack([sp.csr_matrix(data.numeric[at]), data.sparse[at]], format="csr")
    rows.sort_indices()
    indptr, indices = rows.indptr.astype(np.int64), rows.indices.astype(np.int32)
    y = data.y[at].astype(float)
    return SparseBatch(indptr, indices, rows.data.astype(float), y, np.ones(len(at)))


def engine_of(data: Data, rule_name: str) -> Engine:
    """With the rule's default parameters."""
    rule, loss = find_rule(rule_name), find_loss(LOSS[data.task])
    assert isinstance(rule.storage, Block)
    params, numeric = rule.parse_params({}), data.numeric.shape[1]
    size = 1 + numeric + data.sparse.shape[1]
    most = max(1 + numeric, min(rule.storage.most(params), size))
    learners = data.classes if loss.coupled else 1
    classes = 1 if data.task == REGRESSION else data.classes
    layout = Layout(rule, size, learners, "float64", numeric, most)
    return Engine(layout, loss, classes, True, params)


def learn(engine: Engine, state: State, rows: SparseBatch, part: bool = False) -> State:
    """Moves the state, and returns it."""
    for low in range(0, len(rows), ROWS):
        few = rows.rows(low, min(low + ROWS, len(rows)))
        engine.learn(state, np.zeros(3), few, part=part)
    return state


def averaged(engine: Engine, rows: SparseBatch, parts: int, rounds: int, epochs: int) -> State:
    """As ``averaged.rounds_of`` divides the rows, but for the edges of row groups."""
    state = State.start(engine.layout)
    engine.begin(state)
    first = min(FIRST_ROWS, len(rows))
    learn(engine, state, rows.rows(0, first))
    for epoch in range(epochs):
        edges = np.linspace(0 if epoch else first, len(rows), rounds + 1).astype(int)
        for low, high in pairwise(edges):
            middle = max(low, high - EXACT_ROWS)
            cuts = np.linspace(low, middle, parts + 1).astype(int)
            states = [
                learn(engine, state.copy(), rows.rows(a, b), part=True) for a, b in pairwise(cuts)
            ]
            state = tree(engine, states, state, [1] * parts)
            learn(engine, state, rows.rows(middle, high))
    return state


def held_out(engine: Engine, state: State, rows: SparseBatch) -> float:
    """Mean loss, with the smoothed probabilities of a classifier."""
    sums = np.zeros(3)
    engine.predict(state, sums, rows)
    return float(sums[1] / sums[0])


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("sets", nargs="*", default=SETS)
    options.add_argument("--rule", default="auto")
    options.add_argument("--epochs", type=int, default=1)
    given = options.parse_args()
    cases = [(parts, rounds) for parts in (4, 16) for rounds in (1, 2, 4, 8, 16)]
    print("| set | exact |", " | ".join(f"P={parts} R={rounds}" for parts, rounds in cases), "|")
    for name in given.sets:
        data = quality_sets.SETS[name](DATA)
        train, test = (batch_of(data, at) for at in data.splits[0])
        engine = engine_of(data, given.rule)
        alone = State.start(engine.layout)
        engine.begin(alone)
        for _ in range(given.epochs):
            learn(engine, alone, train)
        exact = held_out(engine, alone, test)
        losses = [
            held_out(engine, averaged(engine, train, *case, given.epochs), test) for case in cases
        ]
        found = " | ".join(f"{loss / exact - 1.0:+.2%}" for loss in losses)
        print(f"| {name} ({len(train):,}) | {exact:.5f} | {found} |", flush=True)


if __name__ == "__main__":
    main()
