"""Every registered rule that fits some rows, with its parameters chosen on those rows alone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from common import Rows, error, learn, taken

from streamomd.core.jit import recording
from streamomd.errors import StreamomdError
from streamomd.losses import all_losses, find_loss
from streamomd.rules import all_rules
from streamomd.rules.contract import Rule, fields

# Parameters that are searched for, each alone, in this order; the others keep their defaults.
GRIDS: dict[str, tuple[float, ...]] = {
    "eta": (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
    "alpha": (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
    "C": (0.001, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0),
    "U": (1.0, 10.0, 100.0, 1000.0),
    "r": (0.1, 1.0, 10.0, 100.0),
    "gamma": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
    "epsilon": (0.1, 1.0, 10.0, 100.0),
    "confidence": (0.55, 0.7, 0.8, 0.9, 0.99),
    "a": (0.01, 0.1, 1.0, 10.0),
    "p": (2.0, 3.0, 5.0, 10.0),
    "radius": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
}
SLOW_SECONDS = 10.0  # `auto` on 20 classes takes 9.5 on a slow machine
FEW, SAMPLE = 5, 200


class Learner(NamedTuple):
    """A rule with a loss it learns with."""

    rule: Rule
    loss: str

    @property
    def tuned(self) -> list[str]:
        """Its parameters that are searched for."""
        found = [name for name in GRIDS if name in fields(self.rule.hyper)]
        if {"eta", "alpha"} & set(found):  # there a radius is of a ball, off by default
            found = [name for name in found if name != "radius"]
        return found


def learners(size: int, only: Sequence[str] = (), *, coupled: bool = False) -> Iterator[Learner]:
    """Every rule willing to have ``size`` coordinates, with its own loss; or with a coupled one."""
    losses = all_losses()
    for rule in all_rules().values():
        if only and rule.name not in only:
            continue
        most = rule.largest(rule.parse_params({}))
        if most is not None and most < size:
            continue
        if "most" in fields(rule.hyper):  # keeps every row, and goes over all of them at each
            continue
        if coupled:
            names = [name for name in rule.losses.names or losses if losses[name].coupled]
        else:
            names = list(rule.losses.names) or ["logistic"]
            names = [name for name in names if find_loss(name).classifies] or names
            names = [name for name in names if not losses[name].coupled]
        if names:
            yield Learner(rule, names[0])


def seconds_a_pass(rows: Rows, learner: Learner) -> float:
    """An estimate, from the first rows, without the time to make a model."""

    def seconds(count: int) -> float:
        few = taken(rows, np.arange(min(count, len(rows))))
        began = time.process_time()
        learn(few, learner.rule.name, learner.loss)
        return time.process_time() - began

    with recording():  # few rows would be learned uncompiled
        seconds(1)  # compiles
        count = FEW if seconds(FEW) > SLOW_SECONDS else SAMPLE
        return max(0.0, seconds(count) - seconds(1)) * max(1.0, len(rows) / count)


def choose(rows: Rows, learner: Learner) -> dict[str, Any]:
    """The parameters of least progressive error on these rows, one after the other.

    Where an end of a grid is the best, the search goes on beyond it.
    """
    params: dict[str, Any] = {}
    least = error(learn(rows, learner.rule.name, learner.loss))

    def better(changed: dict[str, Any]) -> bool:
        """Whether this is the best so far; then it is kept."""
        nonlocal params, least
        try:
            found = error(learn(rows, learner.rule.name, learner.loss, changed))
        except StreamomdError:
            return False  # not a legal value of this rule's parameter
        if found < least:
            params, least = changed, found
            return True
        return False

    for name in learner.tuned:
        before, grid = params, GRIDS[name]
        for value in grid:
            better({**before, name: value})
        for end, factor in ((grid[0], 0.3), (grid[-1], 3.0)):
            value = end
            while params.get(name) == value and better({**before, name: value * factor}):
                value *= factor
    return params


def told(chosen: Sequence[Mapping[str, Any]]) -> str:
    """The chosen parameters of some runs, as ranges; those that stayed at their defaults are not.

    >>> told([{"eta": 0.1}, {"eta": 1.0, "C": 3.0}])
    'eta 0.1 … 1, C 3'
    """
    words = []
    for name in GRIDS:
        values = [some[name] for some in chosen if name in some]
        if values:
            low, high = min(values), max(values)
            words.append(f"{name} {low:g}" if low == high else f"{name} {low:g} … {high:g}")
    return ", ".join(words)
