"""The heaviest coordinates of a state, and the slots of its rule at each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.engine import Engine
from streamomd.engine.standard_errors import has_errors, weight_errors
from streamomd.engine.state import State
from streamomd.features import Names, Plan, name_of

Floats = NDArray[np.float64]
ROWS = 1 << 20  # coordinates whose weights are computed at a time


def weight_blocks(engine: Engine, state: State) -> Iterator[tuple[int, Floats]]:
    """All weights, a stretch of coordinates at a time: where it begins, (coordinates, learners)."""
    size = state.layout.size
    for low in range(0, size, ROWS):
        yield low, engine.weights(state, low, min(low + ROWS, size))


def heaviest(
    plan: Plan, engine: Engine, state: State, names: Names, top: int
) -> list[dict[str, Any]]:
    """The ``top`` with the largest absolute weight that is not 0, the heaviest first, and of equals
    the first: coordinate, name, weight and slots of each learner. Of rules with a covariance of the
    weights also error, their standard errors, and z, weight over error; None where it is unknown.
    """
    found: list[tuple[float, int, list[float]]] = []
    for low, weights in weight_blocks(engine, state):
        size = np.nan_to_num(np.abs(weights).max(axis=1), nan=np.inf, posinf=np.inf)
        some = [int(at) for at in np.argsort(-size, kind="stable")[:top] if size[at] > 0.0]
        found += [(-float(size[at]), low + at, weights[at].tolist()) for at in some]
        found = sorted(found)[:top]
    return [
        {
            "coordinate": at,
            "name": name_of(plan, names, at),
            "weight": weight,
            **_errors(engine, state, at, weight),
            "slots": _slots(state, at),
        }
        for _, at, weight in found
    ]


def _errors(engine: Engine, state: State, at: int, weight: list[float]) -> dict[str, Any]:
    if not has_errors(engine):
        return {}
    errors = weight_errors(engine, state, at, at + 1)[0].tolist()
    known = [error if math.isfinite(error) and error > 0.0 else None for error in errors]
    z = [w / error if error else None for w, error in zip(weight, known, strict=True)]
    return {"error": known, "z": z}


def _slots(state: State, at: int) -> dict[str, list[float]]:
    return {
        slot.name: np.atleast_1d(state.slot(slot.name)[at]).tolist()
        for slot, _ in state.layout.columns()
    }
