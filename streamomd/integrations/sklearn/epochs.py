"""How many epochs an estimator learns: as many as hold-out rows are predicted better.

Rows that are held out choose the number; then all rows are learned for that many epochs, so that
the model knows every row. Few rows are learned for ``FEW_EPOCHS``.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from streamomd.core.batch import Batch, taken
from streamomd.core.errors import UsageError
from streamomd.integrations.sklearn.estimator_job import epochs_of
from streamomd.integrations.sklearn.fit import learn_epochs

if TYPE_CHECKING:
    from streamomd.training.model import Model

FEW_EPOCHS = 3
"""Epochs over rows too few to hold out ``FEWEST_HELD`` of them. From the second epoch on rule auto
learns with the information of at most three."""
FEWEST_HELD = 10


def check_stopping(estimator: Any) -> None:
    """Raises UsageError for parameters of early stopping that cannot be."""
    for name, expected, fits in (
        ("validation_fraction", "a number between 0 and 1", lambda x: 0.0 < x < 1.0),
        ("tol", "a number of 0 or more and below 1", lambda x: 0.0 <= x < 1.0),
        ("n_iter_no_change", "a whole number of 1 or more", lambda x: x >= 1 and x == int(x)),
        ("early_stopping", "True or False", lambda x: isinstance(x, bool | np.bool_)),
        ("shuffle", "True or False", lambda x: isinstance(x, bool | np.bool_)),
    ):
        value = getattr(estimator, name)
        number = isinstance(value, Real | np.bool_)
        if not number or not fits(value):
            raise UsageError(f"{name}={value!r}: expected {expected}")


def chosen_epochs(
    estimator: Any, copy: Callable[[], Model], rows: Batch, draw: np.random.RandomState
) -> int:
    """The number of epochs after which hold-out rows have the least loss.

    copy: makes the model to try with. It ends once ``n_iter_no_change`` epochs in a row did not
    lower the least loss by the share ``tol``.
    """
    most: int = epochs_of(estimator)
    held = round(len(rows) * estimator.validation_fraction)
    if not estimator.early_stopping or most == 1:
        return most
    if held < FEWEST_HELD:
        return min(most, FEW_EPOCHS)
    order = draw.permutation(len(rows))
    validation, learned = taken(rows, np.sort(order[:held])), taken(rows, np.sort(order[held:]))
    model, least, best, worse = copy(), np.inf, 1, 0
    for epoch in range(1, most + 1):
        learn_epochs(model, learned, 1, draw if estimator.shuffle else None)
        loss = _loss(model, validation)
        if loss < least * (1.0 - estimator.tol) or epoch == 1:
            least, best, worse = loss, epoch, 0
            continue
        worse += 1
        if worse == estimator.n_iter_no_change:
            break
    return best


def _loss(model: Model, rows: Batch) -> float:
    """The mean loss of rows that are not learned; infinite if their weights are all 0."""
    sums = np.zeros(3)
    model.engine.predict(model.state, sums, rows)
    return float(sums[1] / sums[0]) if sums[0] > 0.0 else np.inf
