"""What the tests of sweeps share: rows, jobs, and a train alone for each learner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from running import write

import streamomd
from streamomd.engine import Engine
from streamomd.runs.sweep.learners import Sweep
from streamomd.training import model_data

GROUP = 16


@contextmanager
def plain() -> Iterator[None]:
    """Engines are plain Python while inside: nothing is compiled, and the bits are the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_data, "Engine", partial(Engine, compiled=False))
        yield


def table(count: int, seed: int = 0) -> pa.Table:
    """y (−1, 1), w, four numbers on several scales, and a text."""
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(count, 4)) * [1.0, 0.3, 0.1, 0.03]
    X[draw.random(X.shape) < 0.2] = 0.0
    margin = X @ [1.0, -2.0, 3.0, 9.0] + 0.3 * draw.normal(size=count)
    return pa.table(
        {
            "y": np.where(margin > 0.0, 1, -1),
            "w": draw.choice([0.5, 1.0, 2.0], count),
            **{name: X[:, at] for at, name in enumerate("abcd")},
            "t": pa.array([f"t{code}" for code in draw.integers(0, 5, count)], pa.string()),
        }
    )


def shards(folder: Path, *sizes: int) -> str:
    """A shard for each size, of row groups of 16."""
    for at, size in enumerate(sizes):
        write(folder / f"{at}.parquet", table(size, at), row_group_size=GROUP)
    return str(folder)


JOB: dict[str, Any] = {
    "data": {"label": "y", "weight": "w", "hashed": ["t"], "numeric": [*"abcd"], "bits": 3},
    "model": {"rule": "nag", "task": "classify"},
}


def job(folder: str, url: str = "none", **tables: Mapping[str, Any]) -> dict[str, Any]:
    """The job of these rows, with more in its tables."""
    told: dict[str, Any] = {**deepcopy(JOB), "checkpoint": {"url": url, "every_seconds": 0}}
    merged = {name: {**told.get(name, {}), **more} for name, more in tables.items()}
    told |= merged
    return {**told, "data": {**told["data"], "shards": [folder]}}


def alone(told: Mapping[str, Any], chosen: Mapping[str, Any], **more: Any) -> streamomd.Model:
    """What ``train`` makes of a learner's job."""
    sets = {_dotted(key): value for key, value in chosen.items()}
    sets |= {"checkpoint.url": "none"}
    return streamomd.train(dict(told), sets=sets, quiet=True, **more)


def _dotted(key: str) -> str:
    return f"model.{key}" if key in ("rule", "loss") else key


def bits(one: streamomd.Model) -> tuple[Any, ...]:
    """All that must be equal of two models: the state, what was learned, and where it stands."""
    figures = one.metrics.result()
    return one.state_sha256, one.metrics.total_rows, str(figures), one.cursor


def chosen(models: Sweep) -> Sequence[Mapping[str, Any]]:
    """What the grid chose, learner by learner."""
    return [learner.chosen for learner in models.learners]
