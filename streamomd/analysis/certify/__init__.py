"""Certificates: a run's proven bounds and the measured values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamomd.analysis.certify.claims import (
    candidate_gammas,
    claim_rows,
    facts_of,
    fitted,
    nothing,
    sets_of,
)
from streamomd.analysis.certify.replay import FixedWeights, Replay, unreplayable_reason
from streamomd.analysis.comparator import Problem, best, cache_batches
from streamomd.core.batch import Floats
from streamomd.core.errors import InputNotFoundError, UsageError
from streamomd.core.wording import named_keywords
from streamomd.shards.reader import read_batches
from streamomd.sources.find import find
from streamomd.sources.tables import FILES_OR_TABLES, TableOptions
from streamomd.training.model_data import ModelData
from streamomd.training.progress import note
from streamomd.training.row_stream import find_for_model

__all__ = ["certify"]


@named_keywords
def certify(
    model: ModelData,
    shards: str | Sequence[str],
    *,
    comparator: Any = "best",
    storage_options: Mapping[str, Any] | None = None,
    version: int | None = None,
    as_of: str = "",
    as_files: bool = False,
    csv: Mapping[str, Any] | None = None,
    checkpoint_storage_options: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Regret or mistakes of the model's run over these shards and their bounds, for each learner.

    comparator: "best" finds the fixed weights of least loss in the rule's constraint set. Or
    weights (d,), for several learners (d, learners), or the path of a .npy or Parquet file of
    them: they are projected onto the set. version, as_of, as_files, csv: as ``Model.evaluate``; a
    Delta table is read in the version that the run learned unless one is given.

    Each learner is a dict: learner (its class), rows, loss, mistakes, comparator_loss, regret,
    comparator_gap (with "best", the most by which other weights of the set have less loss, else
    None; without a constraint, weights at most twice as long), claims, refused and reason.
    Several learners are followed by their sum, "all".

    A claim is a dict: claim, measured, bound, ratio, source, given (the assumptions checked on
    the rows), comparator_loss, trivial (whether the bound holds for every run: it is at least
    limit). refused lists claims that are not finite numbers, with the reason. claims is None, and
    reason says why, if the rule's theorem does not cover the run; nothing is measured if the rows
    are not those that were learned.
    """
    return measure(
        model,
        shards,
        comparator=comparator,
        storage_options=storage_options,
        tables=TableOptions.for_model(
            model.spec.data, model.table_versions, version, as_of, as_files, csv or {}
        ),
        checkpoint_storage_options=checkpoint_storage_options,
    )[0]


def measure(
    model: ModelData,
    shards: str | Sequence[str],
    *,
    comparator: Any = "best",
    storage_options: Mapping[str, Any] | None = None,
    tables: TableOptions = FILES_OR_TABLES,
    checkpoint_storage_options: Mapping[str, Any] | None = None,
) -> tuple[list[dict[str, Any]], FixedWeights | None]:
    """``certify``, and the comparator with its losses; None if nothing was measured."""
    spec, plan = model.spec, model.plan
    # The rows that were learned: the run's own filter, on its shards.
    where, order = spec.data.where, spec.data.order
    replayed = find_for_model(
        plan,
        shards,
        storage_options=storage_options,
        where=where,
        order=order,
        tables=tables,
        versions=None if tables.chooses_version else model.table_versions,
    )
    past, learners = Replay(model, replayed), model.engine.layout.learners
    is_best = isinstance(comparator, str) and comparator == "best"
    given = None if is_best else load_comparator(comparator, plan.size, learners)
    reason = unreplayable_reason(model) or past.differences(checkpoint_storage_options)
    if reason:
        return [nothing(model, k, reason) for k in range(learners)], None
    size = (plan.size, model.engine.classes, learners, plan.bias)
    problem = Problem(cache_batches(past.filled), spec.loss, spec.model.loss_params, *size)
    facts = facts_of(model, past, problem)
    sets = sets_of(model)
    if given is not None:
        fixed = FixedWeights(problem, fitted(sets, given), candidate_gammas(model))
        return claim_rows(model, facts, fixed), fixed
    note(f"searching the best fixed weights over {model.metrics.total_rows:,} rows …")
    least = best(problem, sets)
    fixed = FixedWeights(problem, least.u, candidate_gammas(model), least.lower)
    return claim_rows(model, facts, fixed), fixed


def load_comparator(source: Any, size: int, learners: int) -> Floats:
    """(size, learners) from an array, a .npy file, or a Parquet file with one column per learner.

    Raises UsageError saying what is expected, InputNotFoundError.
    """
    weights = _read(source) if isinstance(source, str) else np.asarray(source)
    expected = f"{size:,} weights, in the order of coordinates (the bias first, if there is one)"
    if learners > 1:
        expected += (
            f", for each of {learners} learners: shape ({size}, {learners}), or one column each"
        )
    if weights.shape == (size,) and learners == 1:
        weights = weights[:, None]
    if weights.shape != (size, learners):
        raise UsageError(f"the comparator has shape {weights.shape}; expected {expected}")
    try:
        u = np.ascontiguousarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise UsageError(f"the comparator holds {weights.dtype}; expected {expected}") from None
    if not np.isfinite(u).all():
        raise UsageError(f"the comparator holds a number that is not finite; expected {expected}")
    return u


def _read(path: str) -> Any:
    if not path.endswith(".npy"):
        return _columns(path)
    try:
        return np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise InputNotFoundError(f"no file of weights {path!r}") from None
    except (OSError, ValueError):  # numpy's text suggests to load pickled objects
        raise UsageError(f"{path!r} is not a .npy file of weights: expected numbers") from None


def _columns(path: str) -> Any:
    shards = find(path, tables=TableOptions(as_files=True))
    names = list(next(iter(shards)).schema.names)

    read = [
        np.column_stack([rows.batch.column(name).to_numpy(zero_copy_only=False) for name in names])
        for rows in read_batches(shards, places=range(len(shards)), columns=names)
    ]
    return np.concatenate(read) if read else np.empty((0, len(names)))
