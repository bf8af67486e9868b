"""Start from weights: a Parquet file of them, or a fitted linear model, as the first state."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.checkpoint import open_store
from streamomd.checkpoint.commit_reader import read_commit, require_commits, sequences
from streamomd.config.build_job import inherited_tables
from streamomd.core.batch import Floats
from streamomd.core.errors import CorruptionError, DataError, SweepError, UsageError
from streamomd.core.urls import absolute, shown
from streamomd.shards.output_files import read_metadata
from streamomd.shards.reader import Piece, ShardBatch, read_batches
from streamomd.sources.find import find
from streamomd.sources.tables import TableOptions
from streamomd.sources.text.text_cache import is_text
from streamomd.training.model_data import ModelData
from streamomd.training.progress import copying
from streamomd.training.warm_start.weights import (
    StartWeights,
    columns_of,
    places_of,
    slots_of,
    why_scales,
)

IN_MEMORY = "weights://"
"""What ``model.start`` begins with where the weights were an object: no file can be read again."""
_EXECUTABLE = (".pkl", ".pickle", ".joblib", ".skops")


def split_weights(flags: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """Flags with a name in the place of a model that is given as ``start``, and that model."""
    start = flags.get("start")
    if start is None or isinstance(start, str):
        return dict(flags), None
    kind = type(start)
    return {**flags, "start": f"{IN_MEMORY}{kind.__module__}.{kind.__qualname__}"}, start


def start_from_weights(
    model: ModelData, storage_options: Mapping[str, Any] | None, given: Any = None
) -> None:
    """Set the weights of ``model.start``, a Parquet file, or of ``given``, a fitted linear model.

    Raises UsageError, DataError and UnsupportedError telling what does not fit, and what would.
    """
    # Few jobs start from weights.
    from streamomd.training.warm_start.weights import set_start_weights

    url = model.spec.model.start
    if given is not None:
        set_start_weights(model, [weights_in(model, given)])
    else:
        set_start_weights(model, read(model, url, storage_options))


def is_weights(url: str) -> bool:
    """Whether ``model.start`` names weights, and not a checkpoint.

    Raises UsageError for a file that would have to be executed to be read.
    """
    if url.endswith(_EXECUTABLE):
        raise UsageError(
            f"--start {shown(url)}: a pickle may run anything when it is read, and is never read "
            "here. Load it in Python, if you trust it, and pass the object: "
            "streamomd.train(…, start=model); or write its weights to Parquet"
        )
    return url.startswith(IN_MEMORY) or url.endswith(".parquet")


def weights_in(model: ModelData, fitted: Any) -> StartWeights:
    """``coef_`` and ``intercept_``, by ``feature_names_in_`` where it has names.

    Raises UsageError where it has other features, classes or learners than the job.
    """
    kind = type(fitted).__name__
    if not hasattr(fitted, "coef_"):
        raise UsageError(
            f"start is a {kind}, expected a checkpoint's URL, a Parquet file of weights, or a "
            "fitted linear model (coef_, intercept_)"
        )
    scales = slots_of(model)[1]
    if scales:
        raise UsageError(f"{kind} has weights; expected each{why_scales(model, scales)}")
    bias = int(model.plan.bias)
    weights = _by_class(model, fitted, kind)
    if not bias and weights[:, -1].any():
        raise UsageError(f"{kind} has an intercept, and the job no bias: set model.bias = true")
    places = _features(model, fitted, kind, weights.shape[1] - 1)
    if bias:
        return StartWeights(np.append(places, 0), weights.T, {}, kind)
    return StartWeights(places, weights[:, :-1].T, {}, kind)


def _by_class(model: ModelData, fitted: Any, kind: str) -> Floats:
    """(learners, features + 1), the intercept last, in the order of the job's classes."""
    coef = fitted.coef_.toarray() if hasattr(fitted.coef_, "toarray") else fitted.coef_
    coef = np.atleast_2d(np.asarray(coef, dtype=np.float64))
    intercept = np.broadcast_to(np.ravel(getattr(fitted, "intercept_", 0.0)), len(coef))
    weights, learners = np.column_stack([coef, intercept]), model.engine.layout.learners
    if len(weights) != learners:
        raise UsageError(f"{kind} has weights of {len(coef)} learners, and the job {learners}")
    ours, theirs = list(model.plan.classes), np.asarray(getattr(fitted, "classes_", [])).tolist()
    if len(ours) != len(theirs) or any(one not in theirs for one in ours):
        raise UsageError(f"{kind} predicts {theirs or 'numbers'}, and the job {ours or 'numbers'}")
    if learners > 1:
        return np.asarray(weights[[theirs.index(one) for one in ours]])
    return weights if ours == theirs else -weights


def _features(model: ModelData, fitted: Any, kind: str, count: int) -> NDArray[np.int64]:
    names = getattr(fitted, "feature_names_in_", None)
    if names is not None:
        return places_of(model, [str(name) for name in names], kind)
    bias, size = int(model.plan.bias), model.plan.size
    if count != size - bias:
        raise UsageError(
            f"{kind} has {count} weights without names, and the job has {size - bias} coordinates "
            "in addition to the bias"
        )
    return np.arange(bias, size)


_PLACES = (
    "bias", "numeric", "vectors", "hashed", "sparse", "nulls", "nulls_by", "bits", "hash_seed",
    "text", "crosses", "dates", "classes", "curves", "trees", "bins", "pairs",
)  # fmt: skip
"""What of a plan decides which feature a coordinate is, and whose weight it has."""


def read(
    model: ModelData, url: str, storage_options: Mapping[str, Any] | None
) -> Iterator[StartWeights]:
    """The file's weights, piece by piece. Raises UsageError for other columns than expected."""
    shards = find(url, storage_options=storage_options, tables=TableOptions(as_files=True))
    first, where = next(iter(shards)), shown(url)
    names = first.schema.names
    by = next((name for name in ("coordinate", "feature") if name in names), "")
    scales = [f"slot.{name}" for name in slots_of(model)[1]]
    wanted = [*columns_of(model), *scales]
    missing = [name for name in wanted if name not in names]
    others = [name for name in names if name.split("[")[0] == "weight" and name not in wanted]
    if not by or missing or others:
        which = f"coordinate or feature, and {', '.join(wanted)}"
        raise UsageError(
            f"{where} has the columns {', '.join(names)}; expected {which}: one weight for each "
            f"learner of the job{why_scales(model, scales)}"
        )
    if by == "coordinate":
        metadata = read_metadata(first.schema)
        _refuse_other_plan(model, metadata, where)
        _take_means(model, metadata, where)
    report = copying()
    batches = read_batches(shards, places=range(len(shards)), columns=[by, *wanted])
    for piece in batches.map(partial(_given, model, by, scales, where)):
        yield piece.value
        report(piece.row + piece.rows, 0, 0)


def _given(
    model: ModelData, by: str, scales: list[str], where: str, rows: ShardBatch
) -> Piece[StartWeights]:
    table, row = rows.batch, rows.row
    if by == "feature":
        places = places_of(model, table.column(by).to_pylist(), f"{where}, row {row} and after")
    else:
        places = table.column(by).to_numpy(zero_copy_only=False)
        if places.dtype.kind not in "iu":
            raise DataError(
                f"{where}: column coordinate holds {places.dtype}, expected whole numbers, no nulls"
            )
    weights = [_numbers(table, name, where) for name in columns_of(model)]
    slots = {name.removeprefix("slot."): _numbers(table, name, where) for name in scales}
    given = StartWeights(np.asarray(places, np.int64), np.stack(weights, axis=1), slots, where)
    return Piece(rows.position, row, table.num_rows, given, rows.nbytes)


def _numbers(table: Any, name: str, where: str) -> Any:
    found = table.column(name).to_numpy(zero_copy_only=False)
    if found.dtype.kind not in "fiu":
        raise DataError(f"{where}: column {name} holds {found.dtype}, expected numbers")
    return found.astype(np.float64)


def _refuse_other_plan(model: ModelData, metadata: Mapping[str, Any], where: str) -> None:
    """An exported file describes its coordinates; those of another file are trusted."""
    theirs = metadata.get("plan", {})
    if not theirs or not isinstance(theirs, dict):
        return
    ours = json.loads(
        json.dumps(model.plan.to_json(brief=True))
    )  # as the file's went: lists, no tuples
    differ = [key for key in _PLACES if theirs.get(key) != ours.get(key)]
    if differ:
        lines = "; ".join(
            f"{key}: {theirs.get(key)!r} there, {ours.get(key)!r} here" for key in differ
        )
        raise UsageError(
            f"{where}: its coordinates are not this job's ({lines}). To match features by their "
            "names, leave out its column coordinate"
        )


def _take_means(model: ModelData, metadata: Mapping[str, Any], where: str) -> None:
    """Continue the means of missing numbers, if the file has them. Raises DataError."""
    if not model.plan.means or "means" not in metadata:
        return
    try:
        means = np.array(metadata["means"], np.float64)
        legal = means.shape == model.state.means.shape and bool(np.isfinite(means).all())
    except (TypeError, ValueError):
        legal = False
    if not legal or (means[1] < 0.0).any():
        raise DataError(
            f"{where}: its means of missing numbers are no sums and counts of "
            f"{len(model.plan.means)} columns: export the model again"
        )
    model.state.means[...] = means


def started_job(tables: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a job takes over from the checkpoint that its ``model.start`` names; None: no such.

    The newest manifest that can be read says it. Whether the commit is whole is seen when its state
    is loaded. Raises NoCommitError if there is none, StorageError if the store does not answer.
    """
    start = (tables.get("model") or {}).get("start")
    if not start or not isinstance(start, str) or is_weights(start):
        return None
    options = (tables.get("checkpoint") or {}).get("storage_options")
    store = open_store(absolute(start), options)
    numbers = sequences(store)
    require_commits(store, numbers)
    for sequence in reversed(numbers):
        try:
            document = read_commit(store, sequence).document
        except CorruptionError:
            continue
        if "sweep" in document:
            place = shown(store.url)
            raise SweepError(f"{place} is a sweep, of many models: start from {place}/best")
        theirs = inherited_tables(document["job"], document["plan"])
        shards = (tables.get("data") or {}).get("shards") or ()
        if any(map(is_text, [shards] if isinstance(shards, str) else shards)):
            columns = document["plan"].get("types", ())
            texts = {name: "string" for name, kind, *_ in columns if kind == "string"}
            csv = theirs["data"].get("csv", {})
            theirs["data"]["csv"] = {**csv, "types": {**texts, **csv.get("types", {})}}
        return theirs
    return None  # loading it says why no commit is usable
