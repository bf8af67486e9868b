"""Train a model on rows in memory, or on a Dask collection.

Rows that are held out choose the number; then all rows are learned for that many epochs, so that
the model knows every row. Few rows are learned for ``FEW_EPOCHS``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.class_weight import compute_class_weight

from streamomd.core.batch import Batch, Floats, taken
from streamomd.core.errors import DataError, UnsupportedError, UsageError
from streamomd.core.finite import refuse_diverged
from streamomd.features import make_plan
from streamomd.features.arrow_types import DATES, family
from streamomd.features.curves import ROWS
from streamomd.integrations.sklearn.estimator_job import epochs_of, named_columns, spec_of
from streamomd.integrations.sklearn.inputs import WHERE, Targets, batch_of, labelled
from streamomd.shards.order import Cursor
from streamomd.sources.memory.encoded_frames import first_values_of_trees, numbers_of_memory
from streamomd.sources.memory.frames import FEATURES, INDICES, LABEL, VALUES, WEIGHT, schema_of

if TYPE_CHECKING:
    from streamomd.training.model import Model


OFTEN = 0.1
"""Share of the rows up to which a one-hot column is rare."""
FEWEST_COLUMNS, FEWEST_ROWS = 8, 100
"""Of an array that is looked at for them."""


def is_dask(given: Any) -> bool:
    """Whether it is a Dask collection, without importing Dask."""
    return hasattr(given, "__dask_graph__")


def is_indicators(estimator: Any, rows: Any) -> bool:
    """Whether most columns of an array are 0 or 1, and 1 in a tenth of the rows at most, as
    one-hot encoders make them; and those that are not 0 or 1 are about centred.

    A rare column that is divided by its standard deviation is hardly held back by the prior: such
    arrays are learned as the sparse matrices that they are.
    """
    if type(rows) is not np.ndarray or estimator.nulls not in (None, "error"):
        return False
    few = len(rows) < FEWEST_ROWS or rows.shape[1] < FEWEST_COLUMNS
    if few or estimator.shapes != "none":
        return False
    flags = _flags(rows[:FEWEST_ROWS])
    if 2 * int(flags.sum()) <= len(flags):
        return False  # most arrays, of which no more is read
    flags[flags] = _flags(rows[:, flags])
    numbers = rows[:, ~flags]
    rare = rows[:, flags].mean(axis=0, dtype=np.float64) <= OFTEN
    with np.errstate(over="ignore", invalid="ignore"):
        means, spreads = (of(numbers, axis=0, dtype=np.float64) for of in (np.mean, np.std))
    return 2 * int(rare.sum()) > len(flags) and bool((np.abs(means) <= spreads).all())


def _flags(rows: Any) -> NDArray[np.bool_]:
    """Whether each column is 0 or 1 alone."""
    found: NDArray[np.bool_] = ((rows == 0) | (rows == 1)).all(axis=0)
    return found


def start_model(estimator: Any, rows: Any, name: Any, targets: Targets, weight: Floats) -> Model:
    """A new model of these columns.

    rows: a table, a matrix or a CSR matrix, of which the first ones decide curves, with their
    targets and weights. name: of the label.
    """
    from streamomd.features.grow_trees import ROWS as TREE_ROWS
    from streamomd.training.choose_shapes import trees_of_memory, with_effects, without_harm
    from streamomd.training.model import Model
    from streamomd.training.progress import note

    names = rows.column_names if hasattr(rows, "column_names") else []
    classes = targets.classes
    label = _free(name, names)
    data: dict[str, Any] = {"label": label}
    if hasattr(rows, "indptr"):
        data["sparse"] = {"indices": INDICES, "values": VALUES, "size": rows.shape[1]}
    elif not names:
        data["vectors"] = [FEATURES]
        refuse_indicators(estimator)
    schema = schema_of(rows, {label: targets.kind})
    categorical = named_columns(estimator, "categorical") if names else []
    if names and estimator.dates is None:
        taken = {*categorical, *named_columns(estimator, "ignore")}
        dates = [one.name for one in schema if family(one.type) in DATES and one.name not in taken]
        data |= {"dates": dates} if dates else {}
    if categorical:
        data |= _roles(estimator, categorical, schema, data, classes)
    spec = spec_of(estimator, data, classes, report=note)
    plan = make_plan(spec.data, spec.model, schema, list)
    if (shapes := spec.model.shapes) == "none":
        return Model.new(spec, plan)
    if hasattr(rows, "indptr"):
        raise UsageError(
            f"shapes={shapes!r} is for columns of numbers, and X is a sparse matrix: pass a frame "
            "or an array, or leave shapes out"
        )
    trees = None
    if shapes == "all":
        x = first_values_of_trees(plan, rows)
        trees = trees_of_memory(spec, plan, x, targets.y, weight, WHERE)
    plan = with_effects(spec, plan, lambda: _first(plan, rows, targets.y, weight), len(targets.y))
    some, count = rows[:TREE_ROWS], TREE_ROWS

    def encode(trial: Any) -> list[Batch]:
        return [labelled(batch_of(trial, some), targets.y[:count], weight[:count])]

    return Model.new(spec, without_harm(spec, replace(plan, trees=trees), encode))


def _first(plan: Any, rows: Any, y: Floats, weight: Floats) -> Any:
    """The first rows, which decide curves and pairs."""
    from streamomd.training.curved_columns import FirstRows

    some = rows[:ROWS]

    def encode(trial: Any) -> list[Batch]:
        return [labelled(batch_of(trial, some), y[:ROWS], weight[:ROWS])]

    return FirstRows(numbers_of_memory(plan, some), weight[:ROWS], encode)


def refuse_indicators(estimator: Any) -> None:
    """Raises UsageError for parameters that need named columns, of an array."""
    for name in ("dates", "categorical", "text", "ignore"):
        if named_columns(estimator, name):
            raise UsageError(f"{name} names columns, and X is an array: pass a frame")
    if estimator.nulls not in (None, "error", "zero", "mean"):
        raise UsageError(
            f"nulls={estimator.nulls!r} needs columns with names, and X is an array: pass a frame, "
            'or nulls="mean" or "zero"'
        )


def _roles(
    estimator: Any, categorical: list[Any], schema: Any, data: dict[str, Any], classes: NDArray[Any]
) -> dict[str, Any]:
    """Hashed columns, with those of ``categorical``, and the numeric ones: as they are found in a
    frame without the categorical ones."""
    ignore = [name for name in named_columns(estimator, "ignore") if name not in categorical]
    if {*schema.names} <= {*categorical, *ignore, data["label"]}:
        return {"hashed": categorical}
    for name in categorical:
        if name in schema.names:  # an unknown one is reported with the whole schema
            schema = schema.remove(schema.get_field_index(name))
    spec = spec_of(estimator, {**data, "ignore": ignore}, classes)
    plan = make_plan(spec.data, spec.model, schema, list)
    return {"hashed": [*categorical, *plan.hashed], "numeric": plan.numeric}


def learn_epochs(
    model: Model, rows: Batch, epochs: int, orders: Any, *, tries: bool = False
) -> None:
    """Learn all rows for ``epochs`` more epochs, as ``streamomd train`` reads its shards.

    orders: draws a permutation for each epoch, or None for the given order. tries: whether later
    passes may be undone, as there.
    Raises DivergedError if a number is no longer finite.
    """
    from streamomd.training.training_step import (
        accept_pass,
        begin_epoch,
        is_tried,
        learn_rows,
        try_pass,
    )

    if model.cursor.row:  # what ``learn_more_rows`` learned is an epoch of its own
        model.cursor = Cursor(model.cursor.epoch + 1)
    end = max(model.cursor.epoch, 0) + epochs
    while model.cursor.epoch < end:
        epoch = model.cursor.epoch
        some = rows if orders is None else taken(rows, orders.permutation(len(rows)))
        if epoch < 0:
            model.engine.look(model.state, some)
        else:
            if tries and is_tried(model):
                try_pass(model)
            begin_epoch(model)
            learn_rows(model, some)
        model.cursor = Cursor(epoch + 1)
        if not accept_pass(model):
            break
    refuse_diverged(model.state.problem())


def learn_more_rows(model: Model, rows: Batch) -> None:
    """Learn more rows, in an epoch that has no end yet.

    Raises DivergedError if a number is no longer finite.
    """
    from streamomd.training.training_step import learn_rows

    cursor = model.cursor
    if cursor.epoch < 0:
        raise UnsupportedError(
            f"rule {model.spec.model.rule!r} with {model.spec.model.params} needs a pass over all "
            "rows before training, which partial_fit cannot do: call fit, or use passes=1"
        )
    model.metrics.begin(cursor.epoch)
    learn_rows(model, rows)
    model.cursor = Cursor(cursor.epoch, cursor.place, cursor.row + len(rows))


def report_label_runs(model: Model, epochs: int) -> None:
    """Report labels that come in long runs, which few epochs in the given order learn badly."""
    from streamomd.training.progress import note
    from streamomd.training.row_checks import ENOUGH

    remedy = "Pass shuffle=True, or learn several epochs (max_iter=3)"
    if epochs < ENOUGH and (runs := model.label_runs.warning(remedy)):
        note(runs)


def train_collection(
    estimator: Any, X: Any, y: Any, sample_weight: Any, classes: NDArray[Any]
) -> Model:
    """``streamomd.train`` on a Dask DataFrame with its labels, or on Dask arrays.

    Raises UnsupportedError for options that need all rows in memory or in another order.
    """
    from streamomd.runs.train import train
    from streamomd.training.progress import note

    if getattr(estimator, "warm_start", False):
        raise UnsupportedError(
            "warm_start is for rows in memory, and X is a Dask collection: remove it (rows are "
            "learned in partition order; sample_weight may be another collection)"
        )
    epochs = estimator.max_iter or 1
    given = [y] if sample_weight is None else [y, sample_weight]
    if not all(map(is_dask, given)):
        raise UsageError(
            "X is a Dask collection: y and sample_weight must be Dask collections, too, with "
            "equal partitions"
        )
    if getattr(estimator, "class_weight", None) is not None:
        sample_weight = weighted_by_class(estimator.class_weight, y, sample_weight, classes)
        given = [y, sample_weight]
    if not hasattr(X, "columns"):
        spec = spec_of(estimator, {}, classes, epochs=epochs, report=note)
        return train(_job(spec), shards=(X, *given), quiet=True)
    taken_names = list(X.columns)
    label = _free(getattr(y, "name", None), taken_names)
    data = {"label": label}
    columns = {label: y}
    if sample_weight is not None:
        data["weight"] = _free(WEIGHT, [*taken_names, label])
        columns[data["weight"]] = sample_weight
    return train(
        _job(spec_of(estimator, data, classes, epochs=epochs, report=note)),
        shards=X.assign(**columns),
        quiet=True,
    )


def distinct(y: Any) -> NDArray[Any]:
    """The distinct values of a Dask Series or array, sorted; computes the collection."""
    found: Any = y.unique() if hasattr(y, "unique") else np.unique(y)
    return np.unique(np.asarray(found.compute()))


def _job(spec: Any) -> dict[str, Any]:
    """The job's tables, without the columns that a collection defines."""
    tables: dict[str, Any] = spec.to_json()
    data = tables["data"]
    keys = ("label", "weight", "bits", "nulls", "dates", "text", "ignore")
    tables["data"] = {key: data[key] for key in keys if data[key]}
    return tables


def _free(name: Any, names: list[str]) -> str:
    """An unused column name: this one if it is free."""
    free = name if isinstance(name, str) and name else LABEL
    while free in names:
        free += "_"
    return free


def weighted_by_class(class_weight: Any, y: Any, sample_weight: Any, labels: NDArray[Any]) -> Any:
    """The weights of the rows, a collection in the partitions of the labels.

    As in scikit-learn, "balanced" counts the labels of all rows: the collection is computed.
    labels: all there are, sorted.
    """
    balanced = isinstance(class_weight, str) and class_weight == "balanced"
    counts = label_counts(y, labels) if balanced else np.ones(len(labels), np.int64)
    weights = weights_of_labels(class_weight, labels, counts)
    if hasattr(y, "map"):  # a Series; a label that is missing is reported as a bad row
        table = dict(zip(labels.tolist(), weights.tolist(), strict=True))
        found = y.map(table, meta=(None, "float64")).astype("float64").fillna(1.0)
    else:
        found = y.map_blocks(_weights_of_block, labels, weights, dtype=np.float64)
    return found if sample_weight is None else found * sample_weight


def label_counts(y: Any, labels: NDArray[Any]) -> NDArray[np.int64]:
    """How many rows of a Dask Series or array have each label."""
    if hasattr(y, "value_counts"):
        return np.asarray(y.value_counts().compute().reindex(labels), np.int64)
    counts: Any = np.unique(y, return_counts=True)[1]  # which NumPy leaves to Dask
    return np.asarray(counts.compute(), np.int64)


def weights_of_labels(class_weight: Any, labels: NDArray[Any], counts: NDArray[np.int64]) -> Floats:
    """What a row of each label counts for. Raises as scikit-learn does, and DataError below 0."""
    found: Floats = compute_class_weight(class_weight, classes=labels, y=labels)
    if isinstance(class_weight, str):  # as compute_class_weight, without the labels of all rows
        found = counts.sum() / (len(labels) * counts.astype(np.float64))
    if not (found >= 0.0).all():
        raise DataError(f"class_weight holds {found.min()}, expected 0 or more")
    return found


def _weights_of_block(block: Any, labels: NDArray[Any], weights: Floats) -> Floats:
    places = np.minimum(np.searchsorted(labels, block), len(labels) - 1)
    return np.where(labels[places] == block, weights[places], 1.0)


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
