"""A small made-up stream, for the figures in docstrings and for a first try."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from streamomd.config.spec import Spec
from streamomd.core.batch import DenseBatch
from streamomd.engine import Engine
from streamomd.engine.layout import Layout
from streamomd.engine.state import State
from streamomd.losses.contract import with_lipschitz
from streamomd.rules import find_rule
from streamomd.rules.contract import Block
from streamomd.training.metrics import Metrics

ROWS, COLUMNS = 1000, 12


def stream(classifies: bool, *, least: float | None = None) -> DenseBatch:
    """1000 rows of 12 numbers, a third of them absent, their scales from 1/8 to 8, and a noisy y.

    y: −1 or +1 if ``classifies``, else a number, at least ``least``.
    """
    rng = np.random.default_rng(12)
    rows = rng.standard_normal((ROWS, COLUMNS))
    rows[rng.random(rows.shape) < 1 / 3] = 0.0
    y = rows @ rng.standard_normal(COLUMNS) / 2 + 0.3 * rng.standard_normal(ROWS)
    y = np.where(y > 0, 1.0, -1.0) if classifies else y if least is None else np.maximum(y, least)
    scales = 2.0 ** np.linspace(-3, 3, COLUMNS)
    return DenseBatch(rows * scales, y, np.ones(ROWS))


def score(rule: str, loss: str = "", *, params: dict[str, Any] | None = None, **more: Any) -> float:
    """Progressive error (classification) or rmse of one pass over ``stream``, to three places.

    rule, loss: their names. more: hyper-parameters of the rule. params: of the loss.

    >>> score("nag"), score("nag", "square")
    (0.101, 0.372)
    """
    table = {"rule": rule, "loss": loss, "params": more, "loss_params": params or {}}
    spec = Spec.parse({"model": table})
    model, target = spec.model, spec.loss
    description = find_rule(model.rule).for_loss(model.loss)
    classes, learners = 2 if target.classifies else 1, 2 if target.coupled else 1
    block = isinstance(description.storage, Block)  # the bias has a coordinate, too
    layout = Layout(description, COLUMNS, learners, "float64")
    if block:
        whole = COLUMNS + 1
        layout = replace(layout, size=whole, numeric=COLUMNS, most=whole)
    legal = with_lipschitz(description, target, model.params, model.loss_params)
    # A thousand short rows are learned before their loop is compiled, except where a row is dear.
    compiled = description.storage.kind in ("root", "recent")
    engine = Engine(layout, target, classes, block, legal, model.loss_params, compiled)
    state = State.start(layout)
    engine.begin(state)
    metrics = Metrics(target.classifies)
    metrics.begin(0)
    engine.learn(state, metrics.current, stream(target.classifies, least=target.least))
    figures = metrics.figures(metrics.total)
    return round(figures["error" if target.classifies else "rmse"] or 0.0, 3)
