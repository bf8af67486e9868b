"""What a rule with a block has learned: weights in raw units, moments of columns, its mixture."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.engine.frozen_rows import is_fitted, saved_mix
from streamomd.engine.loops import block_predict, rebase
from streamomd.engine.loops.reference import M2, MU
from streamomd.engine.state import State
from streamomd.engine.walks import Walks
from streamomd.rules.contract import Block

Floats = NDArray[np.float64]


def all_weights(engine: Walks, state: State, low: int, high: int, first: int) -> Floats:
    """As ``Engine.weights``: those of the cells and those of the block."""
    rule = engine.layout.rule
    own = [state.slot(slot.name)[low:high] for slot in rule.own_slots]
    make: Any = rule.state.own
    mix = saved_mix(engine, state)
    found = np.array(rule.weight(make(*own), mix[1], mix[2]), np.float64)
    places = state.extra["places"]
    used = np.flatnonzero((places > 0) | (np.arange(len(places)) == 0))
    inside = used[(places[used] >= low + first) & (places[used] < high + first)]
    found[places[inside] - low - first] += weights_of_block(engine, state)[:, inside].T
    return found


def weights_of_block(engine: Walks, state: State) -> Floats:
    """What the block adds to the weights of its coordinates, in raw units, (learners, block).

    All of the weight of the bias and of numeric columns, see ``loops.block_predict.make_raw``.
    """
    layout = engine.layout
    w = np.zeros((layout.learners, layout.most))
    reference, vectors = state.extra["reference"], state.extra["vectors"]
    raw = block_predict.make_raw(layout.rule, engine.loss, engine.shape(dense=False))
    mix = saved_mix(engine, state)
    raw(state.totals.reshape(-1), reference, vectors, layout.numeric, mix, w)
    return w


def moments(state: State) -> tuple[Floats, Floats]:
    """Mean and standard deviation of numeric columns over the rows learned, (columns,) each.

    By importance.
    """
    mean, squares = state.extra["reference"][[MU, M2], 1 : 1 + state.layout.numeric]
    return mean, np.sqrt(squares / max(state.totals[0, 1], 1e-300))


def mixture(engine: Walks, state: State) -> tuple[float, int] | None:
    """The second-order predictor's share of a saved model's predictions, and the row since which
    it, or the other one, has had the larger part; 0 where frozen predictions decide. None for rules
    with one predictor."""
    storage = engine.layout.rule.storage
    if not (isinstance(storage, Block) and storage.first and storage.second):
        return None
    of_B, _, of_G, *_ = saved_mix(engine, state).tolist()
    share = of_B / (of_B + of_G) if of_B + of_G > 0.0 else 1.0
    since = max(int(state.totals[0, rebase.AT["since"]]), 1)
    return share, 0 if is_fitted(engine, state) else since
