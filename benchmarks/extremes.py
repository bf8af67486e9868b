"""Rule auto where numbers get large or rare: 10^7 rows, slots of 32 bits, positives of 1e-6.

    python benchmarks/extremes.py               # a minute or two

Long streams: after every tenfold number of rows, how far P is from the inverse of A + prior, and
B's predictions from those of weighted ridge regression solved at the end (in standard deviations).
Slots of 32 bits: the largest difference of predictions to slots of 64 bits, relative to their
spread, of sparse coordinates outside the block. Rare positives: the predicted share of positives
and the log loss, divided by those of the best constant.
"""

from __future__ import annotations

import argparse

import numpy as np

from streamomd.core.batch import DenseBatch, SparseBatch
from streamomd.engine import Engine
from streamomd.engine.loops.rebase import AT
from streamomd.engine.state import Layout, State
from streamomd.losses import find_loss
from streamomd.rules import find_rule

COLUMNS, CHUNK = 8, 100_000


def started(
    loss: str, size: int, columns: int, most: int, dtype: str = "float64"
) -> tuple[Engine, State]:
    rule, target = find_rule("auto"), find_loss(loss)
    layout = Layout(rule, size, 1, dtype, columns, most)
    engine = Engine(
        layout, target, 2 if target.classifies else 1, True, rule.parse_params({"prefer": "whole"})
    )
    state = State.start(layout)
    engine.begin(state)
    return engine, state


def long_stream(rows: int) -> None:
    print("rows        |P (A + prior) - I|   distance from ridge regression")
    engine, state = started("square", 1 + COLUMNS, COLUMNS, 1 + COLUMNS)
    draw = np.random.default_rng(0)
    mixing, w = draw.normal(size=(COLUMNS, COLUMNS)), draw.normal(size=COLUMNS)
    moments, products, done, due = np.zeros((COLUMNS + 1,) * 2), np.zeros(COLUMNS + 1), 0, 1_000_000
    while done < rows:
        X = draw.normal(size=(CHUNK, COLUMNS)) @ mixing + 100.0
        y = (X - 100.0) @ w + draw.normal(size=CHUNK) + 7.0
        engine.learn(state, np.zeros(3), DenseBatch(X, y, np.ones(CHUNK)))
        Z = np.c_[np.ones(CHUNK), X - 100.0]
        moments, products, done = moments + Z.T @ Z, products + Z.T @ y, done + CHUNK
        if done >= due:
            due *= 10
            A, P = (state.extra[name][0] for name in ("A", "P"))
            prior = np.full(len(A), state.totals[0, AT["lam"]])
            prior[0] = state.totals[0, AT["lam_bias"]]
            off = np.abs(P @ (A + np.diag(prior)) - np.eye(len(A))).max()
            found = engine.predict(state, np.zeros(3), DenseBatch(X, y, np.ones(CHUNK)))[:, 0]
            best = Z @ np.linalg.solve(moments, products)
            print(f"{done:<11,} {off:.1e}               {np.abs(found - best).max() / y.std():.1e}")


def small_slots(rows: int = 200_000, words: int = 5000) -> None:
    draw = np.random.default_rng(1)
    indices = np.minimum(draw.zipf(1.3, (rows, 10)), words).astype(np.int32)
    indices.sort(axis=1)
    w = draw.normal(size=words + 1)
    y = np.where(w[indices].sum(axis=1) + draw.normal(size=rows) > 0.0, 1.0, -1.0)
    ends = np.arange(rows + 1, dtype=np.int64) * 10
    batch = SparseBatch(ends, indices.reshape(-1), np.ones(rows * 10), y, np.ones(rows))
    found = []
    for dtype in ("float64", "float32"):
        engine, state = started("logistic", words + 1, 0, 64, dtype)
        engine.learn(state, np.zeros(3), batch)
        found.append(engine.predict(state, np.zeros(3), batch)[:, 0])
    gap = np.abs(found[1] - found[0]).max() / found[0].std()
    print(f"\nslots of 32 bits, {rows:,} rows of 10 of {words:,} words: {gap:.1e} of the spread")


def rare_positives(rows: int) -> None:
    draw = np.random.default_rng(2)
    engine, state = started("logistic", 1 + COLUMNS, COLUMNS, 1 + COLUMNS)
    positives = 0
    for _ in range(rows // CHUNK):
        X = draw.normal(size=(CHUNK, COLUMNS))
        y = np.where(draw.random(CHUNK) < np.exp(X[:, 0] - 0.5) * 1e-6, 1.0, -1.0)
        positives += int((y > 0.0).sum())
        engine.learn(state, np.zeros(3), DenseBatch(X, y, np.ones(CHUNK)))
    X = draw.normal(size=(CHUNK, COLUMNS))
    p = np.exp(X[:, 0] - 0.5) * 1e-6
    batch = DenseBatch(X, np.ones(CHUNK), np.ones(CHUNK))
    q = 1.0 / (1.0 + np.exp(-engine.predict(state, np.zeros(3), batch)[:, 0]))
    base = positives / rows
    losses = [
        -np.mean(p * np.log(one) + (1.0 - p) * np.log1p(-one)) for one in (q, np.full(CHUNK, base))
    ]
    print(
        f"\n{positives} positives in {rows:,} rows: mean probability {q.mean() / base:.2f} of it, "
        f"log loss {losses[0] / losses[1]:.3f} of the constant's"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    given = parser.parse_args()
    long_stream(given.rows)
    small_slots()
    rare_positives(given.rows)


if __name__ == "__main__":
    main()
