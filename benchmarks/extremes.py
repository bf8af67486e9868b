"""Where numbers get large or rare, and rows come together: rule auto and the other rules.

    python benchmarks/extremes.py               # some minutes

Long streams: after every tenfold number of rows, how far P is from the inverse of A + prior, and
B's predictions from those of weighted ridge regression solved at the end (in standard deviations).
Slots of 32 bits: the largest difference of predictions to slots of 64 bits, relative to their
spread, of sparse coordinates outside the block. Rare positives: the predicted share of positives
and the log loss, divided by those of the best constant. Counters: states whose clock is near 2^31
and 2^53 learn 1,000 rows more. Merges: auto in averaged mode, 16 merges of several parts, against
one run of the same rows. Micro-batches: the progressive loss of sharded mode, divided by that of
exact mode. Units: the largest change of a progressive prediction, in spreads, when columns and
targets become a x + b. Ties: a stream of days whose rows have one time each, labels a day later, in
two orders within the days.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from streamomd.core.batch import DenseBatch, SparseBatch
from streamomd.engine import Engine
from streamomd.engine.layout import Layout
from streamomd.engine.loops.rebase import AT
from streamomd.engine.merge import tree
from streamomd.engine.state import State
from streamomd.losses import find_loss
from streamomd.rules import all_rules, find_rule, standardize_problem, target_problem
from streamomd.training.microbatch_rounds import Share, micro_batches

COLUMNS, CHUNK = 8, 100_000


def started(
    loss: str,
    size: int,
    columns: int,
    most: int,
    dtype: str = "float64",
    prefer: str = "whole",
) -> tuple[Engine, State]:
    rule, target = find_rule("auto"), find_loss(loss)
    layout = Layout(rule, size, 1, dtype, columns, most)
    params = rule.parse_params({"prefer": prefer} if prefer else {})
    engine = Engine(layout, target, 2 if target.classifies else 1, True, params)
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
        engine, state = started("logistic", words + 2, 0, 64, dtype)  # and the bias
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


def plain(
    rule: str, loss: str, size: int, columns: int = 0, *, standardize: bool = False,
    scale_target: bool = False, **params: Any,
) -> tuple[Engine, State]:  # fmt: skip
    """An engine with a bias, of a rule without a block, and its state before the first row."""
    found, target = find_rule(rule), find_loss(loss)
    given = found.parse_params(params)
    layout = Layout(
        found.reduced_for(given), size, 1, "float64", columns, 0, standardize, scale_target
    )
    engine = Engine(layout, target, 2 if target.classifies else 1, True, given)
    state = State.start(layout)
    engine.begin(state)
    return engine, state


def counters(rows: int = 1000) -> None:
    draw = np.random.default_rng(3)
    X = draw.normal(size=(rows, 3))
    y = np.where(X[:, 0] + draw.normal(size=rows) > 0.0, 1.0, -1.0)
    batch = DenseBatch(X, y, np.ones(rows))
    print("\ncounters: rows counted of 1,000 from 2^k - 500 on, and the margins' distance from the")
    print("formula with integer counters")
    for power in (31, 32, 53):
        first = 2**power - rows // 2
        for rule in ("ogd", "da"):
            engine, state = plain(rule, "logistic", 4, eta=1e4)
            state.clock = first
            found = engine.learn(state, np.zeros(3), batch)[:, 0]
            w, theta, expected = np.zeros(4), np.zeros(4), []
            for t, (x, label) in enumerate(zip(np.c_[np.ones(rows), X], y, strict=True), first + 1):
                if rule == "da":
                    w = theta * (1e4 / math.sqrt(t - 1))
                m = float(w @ x)
                expected.append(m)
                g = -label / (1.0 + math.exp(label * m))
                theta = theta - g * x
                w = w - 1e4 / math.sqrt(t) * g * x
            off = np.abs(found - expected).max() / np.abs(expected).max()
            print(f"2^{power}, {rule:<4} {state.clock - first:>5,} counted, margins {off:.0e}")


def merges(rows: int = 8000) -> None:
    print(
        "\nauto in averaged mode, 16 merges: excess error on new rows of 2, 4 and 8 parts, divided"
    )
    print("by that of one run; median of 5 seeds (excess: over the true mean's or probability's)")
    for kind in ("square", "logistic", "words"):
        for importances in ("none", "0.1 to 10"):
            ratios: dict[int, list[float]] = {parts: [] for parts in (2, 4, 8)}
            for seed in range(5):
                alone = averaged(kind, importances, seed, 1, rows)
                for parts, found in ratios.items():
                    found.append(averaged(kind, importances, seed, parts, rows) / alone)
            shown = ", ".join(f"{np.median(found):.3f}" for found in ratios.values())
            print(f"{kind:<9} importances {importances:<10} {shown}")


def averaged(
    kind: str, importances: str, seed: int, parts: int, rows: int, rounds: int = 16
) -> float:
    """Excess error on new rows after one epoch of ``parts`` that merge ``rounds`` times.

    kind: the loss, on dense columns; "words": logistic, rows of 10 of 2,000 words, which are more
    than the block of auto takes.
    """
    draw, new = np.random.default_rng([seed, 4]), 20_000
    count, words = rows + new, 2000
    h = np.ones(count) if importances == "none" else 10.0 ** draw.uniform(-1.0, 1.0, count)
    batch: DenseBatch | SparseBatch
    if kind == "words":
        places = np.minimum(draw.zipf(1.3, (count, 10)), words).astype(np.int32)
        places.sort(axis=1)
        truth = 0.7 * draw.normal(size=words + 1)[places].sum(axis=1)
        ends = np.arange(count + 1, dtype=np.int64) * 10
        y = np.where(draw.random(count) < 1.0 / (1.0 + np.exp(-truth)), 1.0, -1.0)
        batch = SparseBatch(ends, places.reshape(-1), np.ones(count * 10), y, h)
        engine, state = started("logistic", words + 2, 0, 64, prefer="")
    else:
        X = draw.normal(size=(count, COLUMNS)) + 10.0
        truth = (X - 10.0) @ draw.normal(size=COLUMNS) * 0.5
        y = truth + 3.0 * draw.normal(size=count)
        if kind == "logistic":
            y = np.where(draw.random(count) < 1.0 / (1.0 + np.exp(-truth)), 1.0, -1.0)
        batch = DenseBatch(X, y, h)
        engine, state = started(kind, 1 + COLUMNS, COLUMNS, 1 + COLUMNS, prefer="")
    edges = np.linspace(0, rows, rounds * parts + 1).astype(int).tolist()
    pieces = list(pairwise(edges))
    for low in range(0, len(pieces), parts):
        states, counts = [], []
        for a, b in pieces[low : low + parts]:
            one = state.copy()
            engine.learn(one, np.zeros(3), batch.rows(a, b), part=parts > 1)
            states.append(one)
            counts.append(b - a)
        state = tree(engine, states, state, counts)
    m = engine.predict(state, np.zeros(3), batch.rows(rows, count))[:, 0]
    ideal = truth[rows:]
    if kind == "square":
        return float(np.sqrt(np.mean((m - ideal) ** 2)))
    p = 1.0 / (1.0 + np.exp(-ideal))
    lost, least = (p * np.logaddexp(0.0, -q) + (1.0 - p) * np.logaddexp(0.0, q) for q in (m, ideal))
    return float(np.mean(lost - least))


def small_batches(rows: int = 65_536, words: int = 5000) -> None:
    draw = np.random.default_rng(5)
    indices = np.minimum(draw.zipf(1.3, (rows, 10)), words).astype(np.int32)
    indices.sort(axis=1)
    w = draw.normal(size=words + 1)
    y = np.where(w[indices].sum(axis=1) + draw.normal(size=rows) > 0.0, 1.0, -1.0)
    ends = np.arange(rows + 1, dtype=np.int64) * 10
    batch = SparseBatch(ends, indices.reshape(-1), np.ones(rows * 10), y, np.ones(rows))
    sizes = (1, 16, 128, 1024, 8192)
    print(f"\nprogressive loss of micro-batches of {', '.join(map(str, sizes))} rows, divided by")
    print(f"that of exact mode; {rows:,} rows of 10 of {words:,} words")
    for rule in ("adagrad", "ftrl_proximal", "nag", "ogd", "arow_diag"):
        loss = find_rule(rule).losses.default
        engine, state = plain(rule, loss, words + 2)
        exact = np.zeros(3)
        engine.learn(state, exact, batch)
        ratios = []
        for size in sizes:
            engine, state = plain(rule, loss, words + 2)
            share, sums = Share.whole(engine, state, 16), np.zeros(3)
            for some, *_ in micro_batches([(batch, 0, 0)], size):
                moves, _ = share.decide(some, sums, share.sense(some).numbers)
                share.apply(some, moves)
            ratios.append(f"{sums[1] / exact[1]:.3f}")
        print(f"{rule:<14} {', '.join(ratios)}")


def units(rows: int = 5000) -> None:
    draw = np.random.default_rng(6)
    X = draw.normal(size=(rows, 3)) * [3.0, 0.01, 1.0] + [50.0, -2.0, 0.0]
    y = (X - [50.0, -2.0, 0.0]) @ [1.0, 100.0, 2.0] + draw.normal(size=rows) + 100.0
    h = draw.choice([0.5, 1.0, 2.0], rows)
    rules = all_rules()
    columns = (np.array([1e6, -1e-6, 1.0]), np.array([1e9, 1e-5, -1e3]))
    worst: dict[str, tuple[float, str]] = {}
    for name, rule in sorted(rules.items()):
        given = rule.parse_params({})
        if not standardize_problem(rule, given):
            label = y if not rule.losses.names else np.where(y > 100.0, 1.0, -1.0)
            found = []
            for a, b in ((np.ones(3), np.zeros(3)), columns):
                loss = "square" if not rule.losses.names else rule.losses.default
                engine, state = plain(name, loss, 4, 3, standardize=True)
                found.append(engine.learn(state, np.zeros(3), DenseBatch(X * a + b, label, h)))
            off = float(np.abs(found[1] - found[0]).max() / found[0].std())
            worst["data.standardize"] = max(worst.get("data.standardize", (0.0, "")), (off, name))
        if not rule.losses.names and not target_problem(rule, given):
            for a, b in ((250.0, -1e6), (1e-5, 3.0), (-2.0, 1e4)):
                found = []
                for scale, offset in ((1.0, 0.0), (a, b)):
                    engine, state = plain(name, "square", 4, 3, standardize=True, scale_target=True)
                    target = DenseBatch(X, scale * y + offset, h)
                    m = engine.learn(state, np.zeros(3), target)[1:]
                    found.append((m - offset) / scale)
                off = float(np.abs(found[1] - found[0]).max() / found[0].std())
                key = "model.scale_target"
                worst[key] = max(worst.get(key, (0.0, "")), (off, name))
    print("\nunits: largest change of a progressive prediction, in spreads, of all rules that can")
    for key, (off, name) in worst.items():
        print(f"{key:<20} {off:.1e} ({name})")


def ties(days: int = 20, rows: int = 500) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    import streamomd

    draw = np.random.default_rng(7)
    X = draw.normal(size=(days * rows, 3))
    y = X @ [1.0, -2.0, 0.5] + draw.normal(size=len(X))
    day = np.repeat(np.arange(days), rows)
    print(f"\nties: {days} days of {rows} rows with one time each, labels known a day later")
    for what in ("as they are", "in another order within each day"):
        order = np.arange(len(X))
        if what != "as they are":
            order = np.concatenate([d * rows + draw.permutation(rows) for d in range(days)])
        times = pa.array((day * 86_400 + 1_767_225_600).astype("datetime64[s]"))
        table = {f"x{i}": X[order, i] for i in range(3)} | {"y": y[order], "ts": times}
        with tempfile.TemporaryDirectory() as folder:
            pq.write_table(pa.table(table), Path(folder) / "rows.parquet")
            model = streamomd.train(
                folder, label="y", loss="square", time="ts", delay="24h", rule="ogd",
                checkpoint="none", quiet=True,
            )  # fmt: skip
        weight, loss, _ = model.metrics.current
        told = model.result()["delay"]
        print(
            f"{what:<33} loss {loss / weight:.15g}, learned {told['learned']:,}, "
            f"waiting {told['waiting']:,}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    given = parser.parse_args()
    long_stream(given.rows)
    small_slots()
    rare_positives(given.rows)
    counters()
    merges()
    small_batches()
    units()
    ties()


if __name__ == "__main__":
    main()
