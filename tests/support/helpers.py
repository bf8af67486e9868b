"""Small makers shared by tests: batches, engines and states for any rule and loss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from streamomd.core.batch import Batch, DenseBatch, SparseBatch
from streamomd.engine import Engine
from streamomd.engine.state import Layout, State
from streamomd.losses import Loss, all_losses, find_loss
from streamomd.losses.lipschitz import with_lipschitz
from streamomd.rules import all_rules, find_rule
from streamomd.rules.contract import Rule


def pairs() -> Iterator[tuple[str, str]]:
    """Every rule with every loss it learns with."""
    for rule in all_rules().values():
        for loss in rule.losses.names or all_losses():
            yield rule.name, loss


def some_pairs() -> Iterator[tuple[str, str]]:
    """Every rule with its first loss, and every loss with NAG: what a quick run compiles."""
    for rule in all_rules().values():
        yield rule.name, rule.losses.default
    for loss in all_losses():
        if loss != "logistic":
            yield "nag", loss


def marked_pairs() -> list[Any]:
    """Every pair; those that are not among ``some_pairs`` are for the long run."""
    quick = set(some_pairs())
    return [
        pytest.param(*pair, marks=() if pair in quick else pytest.mark.slow) for pair in pairs()
    ]


def legal(
    rule: Rule, loss: Loss, params: dict[str, Any], loss_params: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Parameters as an engine takes them; a loss without a Lipschitz constant is given one."""
    given = rule.parse_params(params)
    if rule.losses.lipschitz and loss.lipschitz is None and not given["L"]:
        given["L"] = 50.0
    return with_lipschitz(rule, loss, given, loss_params or {})


def sparse(X: Any, y: Any, weight: Any = None) -> SparseBatch:
    """CSR rows of a dense matrix; explicit zeros are left out."""
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


class Learner:
    """An engine with its state and sums."""

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
    ) -> None:
        rule = find_rule(rule) if isinstance(rule, str) else rule
        loss = find_loss(loss) if isinstance(loss, str) else loss
        learners = classes if classes > 2 or loss.coupled else 1
        layout = Layout(rule, size, learners, dtype)
        numbers = legal(rule, loss, params or {}, loss_params)
        self.engine = Engine(layout, loss, classes, bias, numbers, loss_params or {}, compiled)
        self.state = State.start(layout)
        self.engine.begin(self.state)
        self.sums = np.zeros(3)

    def learn(self, batch: Batch) -> np.ndarray:
        """Margins of before learning."""
        return self.engine.learn(self.state, self.sums, batch)

    def bits(self) -> tuple[Any, ...]:
        """Everything the run leaves, as bytes."""
        state = self.state
        return (
            *(array.tobytes() for array in state.extra.values()),
            state.table[:, : state.layout.used].tobytes(),
            state.totals.tobytes(),
            state.clock,
            (self.sums.tobytes()),
        )
