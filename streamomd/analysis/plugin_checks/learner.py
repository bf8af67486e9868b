"""A rule with a loss, ready to learn batches: what checks and tests run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from streamomd.core.batch import Batch, DenseBatch, SparseBatch
from streamomd.core.errors import UsageError
from streamomd.engine import Engine
from streamomd.engine.layout import Layout
from streamomd.engine.state import State
from streamomd.losses import Loss, find_loss
from streamomd.losses.contract import with_lipschitz
from streamomd.rules import find_rule
from streamomd.rules.contract import Block, Rule
from streamomd.rules.params import Above, Between, Choice, Kind, kinds

STEEPEST = 50.0
"""Stands for the Lipschitz constant of a loss that has none, where a rule needs one."""


class Learner:
    """An engine with its state and sums.

    classes: 2, also in regression, or how many; with more than 2, or with a coupled loss, there is
    a learner a class. compiled: False for plain Python. A rule with a block always has a bias,
    which is a coordinate more than ``size`` where ``bias`` is false; ``numeric`` of the coordinates
    after it are numeric columns, half of all by default.
    """

    def __init__(
        self,
        rule: str | Rule,
        loss: str | Loss,
        size: int,
        *,
        classes: int = 2,
        bias: bool = False,
        dtype: str = "float64",
        params: dict[str, Any] | None = None,
        loss_params: dict[str, Any] | None = None,
        compiled: bool = True,
        numeric: int | None = None,
    ) -> None:
        rule = find_rule(rule) if isinstance(rule, str) else rule
        loss = find_loss(loss) if isinstance(loss, str) else loss
        numbers = legal(rule, loss, params or {}, loss_params)
        learners = learners_of(loss, classes)
        layout = Layout(rule, size, learners, dtype)
        if isinstance(rule.storage, Block):
            size, bias = size + (not bias), True
            p = size // 2 if numeric is None else numeric
            most = max(1 + p, min(rule.storage.most(numbers), size))
            layout = Layout(rule, size, learners, dtype, p, most)
        self.engine = Engine(layout, loss, classes, bias, numbers, loss_params or {}, compiled)
        self.state = State.start(layout)
        self.engine.begin(self.state)
        self.sums = np.zeros(3)

    def learn(self, batch: Batch) -> NDArray[np.float64]:
        """Margins of before learning, (rows, learners)."""
        return self.engine.learn(self.state, self.sums, batch)

    def look(self, batch: Batch) -> None:
        """Observe the rows first, where the rule needs that with these parameters."""
        if self.engine.layout.rule.looks(self.engine.params):
            self.engine.look(self.state, batch)

    def weights(self) -> NDArray[np.float64]:
        """Weights as the next row meets them, (coordinates, learners)."""
        return self.engine.weights(self.state, 0, self.state.layout.size)

    def bits(self) -> tuple[Any, ...]:
        """Everything a run leaves, as bytes."""
        state = self.state
        return (
            *(array.tobytes() for array in state.extra.values()),
            state.table[:, : state.layout.used].tobytes(),
            state.totals.tobytes(),
            state.clock,
            (self.sums.tobytes()),
        )


def learners_of(loss: Loss, classes: int) -> int:
    """How many learners there are side by side."""
    return classes if classes > 2 or loss.coupled else 1


def legal(
    rule: Rule, loss: Loss, params: Mapping[str, Any], loss_params: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Parameters as an engine takes them; a loss without a Lipschitz constant is given one."""
    given, bound = rule.parse_params(params), rule.losses.lipschitz
    if bound and loss.lipschitz is None and not given[bound]:
        given[bound] = STEEPEST
    return with_lipschitz(rule, loss, given, loss_params or {})


def is_legal(rule: Rule, params: Mapping[str, Any]) -> bool:
    """Whether a state can begin with these parameters, which may exclude each other."""
    try:
        given = rule.parse_params(params)
        if rule.state.begin is not None:
            rule.state.begin(2.0, rule.hyper_of(given))
    except UsageError:
        return False
    return True


def variants_of(rule: Rule) -> list[dict[str, Any]]:
    """The defaults; each parameter at other values, alone; all of them together, where legal.

    >>> from streamomd.rules import find_rule
    >>> variants_of(find_rule("nag"))
    [{}, {'eta': 0.25}, {'implicit': True}, {'eta': 0.25, 'implicit': True}]
    """
    defaults = rule.parse_params({})
    others = {name: others_of(kind, defaults[name]) for name, kind in kinds(rule.hyper).items()}
    alone = [{name: value} for name, values in others.items() for value in values]
    together = [{name: values[0] for name, values in others.items() if values}]
    variants: list[dict[str, Any]] = [{}]
    for params in [*alone, *together]:
        if params not in variants and is_legal(rule, params):
            variants.append(params)
    return variants


def others_of(kind: Kind, default: Any) -> list[Any]:
    """Values that are not the default: every other word, or a number near it."""
    if isinstance(kind, Choice):
        return [word for word in kind.words if word != default]
    if isinstance(kind, Above):
        return [0.5 * (kind.low + default)] if default > kind.low else [kind.low + 0.1]
    if isinstance(kind, Between):
        if kind.whole:
            return [default + 1 if default < kind.high else default - 1]
        return [0.5 * (default + (kind.high if default <= kind.low else kind.low))]
    return [not default]


def sparse(X: Any, y: Any, weight: Any = None) -> SparseBatch:
    """CSR rows of a dense matrix; without explicit zeros."""
    rows = scipy.sparse.csr_array(np.asarray(X, dtype=np.float64))
    rows.sort_indices()
    return SparseBatch(
        rows.indptr.astype(np.int64),
        rows.indices.astype(np.int32),
        rows.data,
        np.asarray(y, dtype=np.float64),
        np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64),
    )


def dense(X: Any, y: Any, weight: Any = None) -> DenseBatch:
    """The same rows as a matrix."""
    weights = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
    matrix = np.ascontiguousarray(X, dtype=np.float64)
    return DenseBatch(matrix, np.asarray(y, dtype=np.float64), weights)


def doubled(loss: Loss) -> Loss:
    """Twice the loss."""
    value, slope, lipschitz = loss.value, loss.slope, loss.lipschitz
    return replace(
        loss,
        name=f"twice_{loss.name}",
        quadratic=False,
        value=lambda p, y, h: 2.0 * value(p, y, h),
        slope=lambda p, y, h: 2.0 * slope(p, y, h),
        lipschitz=None if lipschitz is None else (lambda h: 2.0 * lipschitz(h)),
    )


def straight(loss: Loss) -> Loss:
    """-y margin: its slope does not depend on the weights, so a part learns what one pass does."""
    return replace(
        loss,
        name="straight",
        quadratic=False,
        kinked=False,
        value=lambda p, y, h: -y * p,
        slope=lambda p, y, h: -y,
        lipschitz=lambda h: STEEPEST,
        couple=None,
        along=None,
    )
