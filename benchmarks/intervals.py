"""How often an interval of 95 % holds the true mean: by signal strength, rows, and importances.

Streams of 5 columns; the true margin is a linear function with the given standard deviation (the
signal; labels have it as log odds, numbers a noise of 1). A model learns the rows once; of 500 new
rows, the share whose true margin is within 1.96 standard errors of the predicted one. rms z: of
(predicted - true) / error, 1 if errors are right. Means over the streams.

    python benchmarks/intervals.py              # about two minutes
    python benchmarks/intervals.py --streams 100 --signals 1,8 --rows 2000
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np

from streamomd.core.batch import DenseBatch
from streamomd.engine import Engine
from streamomd.engine.layout import Layout
from streamomd.engine.standard_errors import margin_errors
from streamomd.engine.state import State
from streamomd.losses import find_loss
from streamomd.rules import find_rule

COLUMNS, TEST = 5, 500
IMPORTANCES = {
    "1": lambda draw, n: np.ones(n),
    "4": lambda draw, n: np.full(n, 4.0),
    "0.01": lambda draw, n: np.full(n, 0.01),
    "uneven": lambda draw, n: draw.lognormal(0.0, 1.0, n),
}


def engine_of(rule: str, loss: str) -> tuple[Engine, Layout]:
    found, target = find_rule(rule), find_loss(loss)
    given = found.parse_params({})
    layout = Layout(found, 1 + COLUMNS, 1, "float64", COLUMNS, 1 + COLUMNS)
    return Engine(layout, target, 2 if target.classifies else 1, True, given), layout


def scores(
    engine: Engine, layout: Layout, seed: int, n: int, signal: float, kind: str
) -> np.ndarray:
    """(predicted - true) / error of new rows."""
    draw = np.random.default_rng([seed, n, int(8 * signal)])
    X = draw.normal(size=(n + TEST, COLUMNS))
    w = draw.normal(size=COLUMNS)
    f = X @ (w * signal / np.linalg.norm(w))
    if engine.loss.name == "square":
        y = f + draw.normal(size=len(f))
    else:
        y = np.where(draw.random(len(f)) < 1.0 / (1.0 + np.exp(-f)), 1.0, -1.0)
    h = np.concatenate([IMPORTANCES[kind](draw, n), np.ones(TEST)])
    state = State.start(layout)
    engine.begin(state)
    past, new = (DenseBatch(X[at], y[at], h[at]) for at in (slice(n), slice(n, None)))
    engine.learn(state, np.zeros(3), past)
    predicted = engine.predict(state, np.zeros(3), new)[:, 0]
    found = margin_errors(engine, state, new)
    return (predicted + found.shifts[:, 0] - f[n:]) / found.errors[:, 0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=30)
    parser.add_argument("--signals", default="0.5,1,3,5,8")
    parser.add_argument("--rows", default="2000,10000")
    given = parser.parse_args()
    signals = [float(text) for text in given.signals.split(",")]
    sizes = [int(text) for text in given.rows.split(",")]
    print("loss      rule     rows    signal  importances  coverage  rms z")
    for loss, rule in itertools.product(("square", "logistic"), ("auto", "laplace")):
        engine, layout = engine_of(rule, loss)
        for n, signal in itertools.product(sizes, signals):
            for kind in IMPORTANCES if signal == 1.0 else ("1",):
                z = [scores(engine, layout, seed, n, signal, kind) for seed in range(given.streams)]
                inside, rms = np.mean(np.abs(z) < 1.96), np.sqrt(np.mean(np.square(z)))
                print(f"{loss:9} {rule:8} {n:<7} {signal:<7g} {kind:12} {inside:8.3f} {rms:7.2f}")


if __name__ == "__main__":
    main()
