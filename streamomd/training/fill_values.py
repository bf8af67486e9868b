"""What a trained model replaces missing numbers by."""

from __future__ import annotations

import numpy as np

from streamomd.engine import Engine
from streamomd.engine.state import State
from streamomd.features import Plan


def fill_values_of(plan: Plan, engine: Engine, state: State) -> dict[str, float | list[float]]:
    """By column: 0 or the mean; of a vector a list, a value for each element."""
    values = np.zeros(plan.numbers)
    values[list(plan.means)] = engine.fill_values(state)
    found: dict[str, float | list[float]] = {}
    for at, name in enumerate(plan.numeric):
        found[name] = float(values[at])
    at = len(plan.numeric)
    for name, width in plan.vectors:
        found[name] = values[at : at + width].tolist()
        at += width
    return {name: value for name, value in found.items() if plan.nulls_of(name) != "error"}
