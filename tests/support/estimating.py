"""The same rows as arrays, sparse matrices, frames and shards, for tests of the estimators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse
from running import write

import streamomd
from streamomd import OMDClassifier, OMDRegressor
from streamomd.engine import Engine
from streamomd.engine.layout import Layout

N, COLUMNS, EPOCHS = 90, 4, 2
IN_ORDER = {"shuffle": False, "early_stopping": False}
"""Parameters with which ``fit`` learns rows in their order, once, as ``streamomd train`` does."""


def Classifier(*given: Any, **more: Any) -> OMDClassifier:
    """A classifier that learns rows in their order."""
    return OMDClassifier(*given, **{**IN_ORDER, **more})


def Regressor(*given: Any, **more: Any) -> OMDRegressor:
    """A regressor that learns rows in their order."""
    return OMDRegressor(*given, **{**IN_ORDER, **more})


def uncompiled(monkeypatch: pytest.MonkeyPatch, *, dear: bool = True) -> None:
    """Models learn in plain Python, with the bits of compiled loops and no wait for them.

    dear False: but for rules of which a row costs more than its numbers.
    """

    def engine(layout: Layout, *more: Any, late: bool) -> Engine:
        compiled = layout.rule.storage.kind != "coordinates" and not dear
        return Engine(layout, *more, compiled=compiled)

    monkeypatch.setattr("streamomd.training.model_data.Engine", engine)


def made(classes: int, *, seed: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X, a third of it 0, y (numbers if there are no classes) and weights."""
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(N, COLUMNS)) * [1.0, 100.0, 0.01, 3.0]
    X[draw.random(X.shape) < 1 / 3] = 0.0
    told = (X / [1.0, 100.0, 0.01, 3.0]) @ draw.normal(size=(COLUMNS, max(classes, 1)))
    told += 0.3 * draw.normal(size=told.shape)
    y = told.argmax(axis=1) if classes else told[:, 0]
    return X, y, draw.choice([0.0, 0.5, 1.0, 3.0], N)


def in_shards(folder: Path, columns: dict[str, Any] | pa.Table) -> str:
    """Three shards of the rows."""
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    for place, low in enumerate(range(0, len(table), 40)):
        write(folder / f"{place}.parquet", table.slice(low, 40), row_group_size=7)
    return str(folder)


def lists(X: np.ndarray) -> pa.Array:
    """A column of vectors."""
    return pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), X.shape[1])


def pair(X: Any) -> dict[str, pa.Array]:
    """The columns of a sparse pair."""
    rows = scipy.sparse.csr_array(X)
    offsets = pa.array(rows.indptr, pa.int32())
    return {
        "indices": pa.ListArray.from_arrays(offsets, pa.array(rows.indices)),
        "values": pa.ListArray.from_arrays(offsets, pa.array(rows.data)),
    }


def trained(
    shards: str, model: dict[str, Any], *, epochs: int = EPOCHS, **data: Any
) -> streamomd.Model:
    """What ``streamomd train`` makes of shards in two epochs."""
    told = {"shards": shards, "label": "y", **data}
    tables = {"data": told, "model": model, "train": {"epochs": epochs}}
    return streamomd.train({**tables, "checkpoint": {"url": "none"}}, quiet=True)


def bits(estimator: Any) -> str:
    """The hash that a run prints, of what an estimator has learned."""
    return estimator.to_model().state_sha256
