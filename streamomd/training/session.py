"""How a run is begun, and how it is taken up again: what is refused, what is kept first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from streamomd.checkpoint import (
    Ledger,
    Loaded,
    Writer,
    compare,
    explain,
    open_store,
    read_ledger,
    write_document,
)
from streamomd.checkpoint.documents import repair
from streamomd.config.spec import Spec
from streamomd.core.errors import DataError, DivergedError, ResumeRefusedError
from streamomd.core.finite import NOT_FINITE
from streamomd.core.urls import shown
from streamomd.features import Plan, check_schema, make_plan
from streamomd.shards.dataset import Dataset
from streamomd.shards.digests import Digests
from streamomd.shards.distinct_labels import distinct_labels
from streamomd.shards.shard import ShardSet
from streamomd.training.checkpoint_manager import DIVERGED_REMEDY, CheckpointManager
from streamomd.training.job import change
from streamomd.training.load_model import load_model
from streamomd.training.model import Model
from streamomd.training.progress import note
from streamomd.training.warm_start import begin_at, is_weights

SHARDS_REMEDY = (
    "put them back; a shard that was mended is another shard: train --restart begins anew, "
    "train --start URL goes on from this state with other rows"
)
COLLECTION_REMEDY = (
    "make the collection from the same data by the same steps: then Dask gives its partitions the "
    "same names. It does so for read_parquet, from_pandas, from_map and most others; what comes of "
    "delayed() needs pure=True or dask_key_name=, of a random source a seed or name=, arrays of "
    'read_parquet its filesystem="arrow", and persist() must be the last step'
)


def new_model(spec: Spec, shards: ShardSet, weights: Any = None) -> Model:
    """A model that starts at its beginning, from another's state, or from weights."""
    return begun(spec, plan_of(spec, shards), weights)


def plan_of(spec: Spec, shards: ShardSet) -> Plan:
    """How the columns of a job's shards become coordinates; each shard's schema has been checked.

    Raises DataError and SchemaError, and what ``make_plan`` raises.
    """
    if not shards.rows:
        raise DataError(
            "no rows: the shard is empty"
            if len(shards) == 1
            else f"no rows: all {len(shards)} shards are empty"
        )
    schema = next(iter(shards)).schema
    plan = make_plan(spec.data, spec.model, schema, lambda: _labels(shards, spec.data.label))
    for shard in shards:
        check_schema(plan, shard.schema, shard.url)
    return plan


def begun(spec: Spec, plan: Plan, weights: Any = None) -> Model:
    """A model of these columns that starts at its beginning, or from what ``model.start`` names.

    weights: a fitted linear model, where no name leads to it.
    """
    model = Model.new(spec, plan)
    options = spec.checkpoint.storage_options
    if is_weights(spec.model.start):
        begin_at(model, options, weights)
    elif spec.model.start:
        start, loaded = load_model(
            spec.model.start,
            storage_options=options,
            far=lambda _: spec.train.mode == "sharded",  # its owners may be elsewhere
            finite=True,
        )
        for sequence, reason in loaded.rejected:
            note(f"commit {sequence} rejected: {reason}; starting from {start.sequence}")
        model.start_from(start)
    return model


def _labels(shards: ShardSet, column: str) -> list[Any]:
    found = distinct_labels(shards, column)
    if len(found) == 1:
        note(f"every label of column {column!r} is {found[0]!r}: there is nothing to tell it from")
    return found


def begin(model: Model, shards: Dataset, *, restart: bool) -> CheckpointManager | None:
    """Commit 0: the job, the facts of the shards and the state before the first row."""
    kept = model.spec.checkpoint
    if kept.url == "none":
        return None
    store = open_store(kept.url, kept.storage_options)
    ledger = Ledger.from_fingerprints(shards.fingerprint())
    ledger.add(model.digests)
    names = write_document(store, "names", model.names.to_json())
    document = model.document(segments=ledger.write(store), names=names)
    writer = Writer.begin(store, document, model.parts(), keep=kept.keep, restart=restart)
    model.url = store.url
    return CheckpointManager(model, store, writer, ledger)


def take_over(
    model: Model, loaded: Loaded, shards: Dataset, *, accept_new: bool
) -> CheckpointManager:
    """Compare the shards with those the run was begun on, then fence an older writer.

    Raises ResumeRefusedError telling what differs, field by field.
    """
    kept, found = model.spec.checkpoint, shards.fingerprint()
    store = open_store(model.url, kept.storage_options)
    ledger = read_ledger(store, loaded.commit)
    saved = ledger.shards
    differences = compare(saved, found, accept_new=accept_new)
    refused = [difference for difference in differences if difference.refused]
    if refused:
        raise ResumeRefusedError(
            f"the shards are not those this run was begun on:\n{explain(refused)}\n"
            f"{SHARDS_REMEDY if isinstance(shards, ShardSet) else COLLECTION_REMEDY}"
        )
    if len(found) > len(saved) and model.spec.data.order == "shuffled":
        raise ResumeRefusedError(
            'new shards change the order of those already read, with data.order = "shuffled":\n'
            f"{explain(differences)}\n"
            "take them away, or go on from this state with other rows: train --start URL"
        )
    if differences:
        note(explain(differences))
    for kind, sha256 in loaded.commit.documents:
        repair(store, kind, sha256)
    model.digests = Digests(ledger.digests())
    ledger.replace_shards(found)
    writer = Writer.take_over(store, loaded, keep=kept.keep)
    return CheckpointManager(model, store, writer, ledger)


def divergence(loaded: Loaded) -> str:
    """What was not finite after the commit that was loaded, if the run diverged; else ""."""
    rejected = [reason for _, reason in loaded.rejected if reason.startswith(NOT_FINITE)]
    found = f"the model diverged: {rejected[0].removeprefix(NOT_FINITE)}" if rejected else ""
    return str(loaded.commit.document.get("diverged") or found)


def refuse_diverged_again(model: Model, loaded: Loaded) -> None:
    """Raises DivergedError if the run diverged after the commit loaded, and would do so again.

    model: with the job as it is now. Of what may change on resume, only how bad rows are treated
    changes what is learned.
    """
    problem = divergence(loaded)
    before = loaded.commit.document["job"]["data"].get("on_bad_row", "error")
    if problem and before == model.spec.data.on_bad_row:
        raise DivergedError(
            f"{problem}. The last finite commit is {loaded.commit.sequence}, after "
            f"{model.metrics.total_rows:,} rows; training from it on the same rows "
            f"diverges again.\n{DIVERGED_REMEDY.format(url=shown(model.url))}"
        )


def change_job(
    model: Model,
    sets: Mapping[str, Any],
    storage_options: Mapping[str, Any] | None,
    checkpoint_storage_options: Mapping[str, Any] | None,
    *,
    diverged: bool = False,
) -> bool:
    """Apply what may change on resume; whether there are more epochs than before.

    diverged: then bad rows may be left out from here on.
    """
    secrets = {
        "data.storage_options": dict(storage_options or {}),
        "checkpoint.storage_options": dict(checkpoint_storage_options or {}),
        "checkpoint.url": model.url,
    }
    if "checkpoint.url" in sets:
        raise ResumeRefusedError(
            f"checkpoint.url is {shown(model.url)} and stays so: to go on elsewhere, copy the "
            "whole checkpoint there and resume the copy"
        )
    epochs, on_bad_row = model.spec.train.epochs, model.spec.data.on_bad_row
    more_keys = ("data.on_bad_row",) if diverged else ()
    model.spec = change(model.spec.to_json(), {**sets, **secrets}, more_keys)
    if on_bad_row == "skip" != model.spec.data.on_bad_row:
        raise ResumeRefusedError(
            "data.on_bad_row cannot change from skip: bad rows may have been skipped already"
        )
    model.plan = replace(model.plan, on_bad_row=model.spec.data.on_bad_row)
    if model.spec.train.epochs < epochs:
        raise ResumeRefusedError(
            f"train.epochs was {epochs} and may only grow; got {model.spec.train.epochs}"
        )
    more = model.spec.train.epochs > epochs
    model.finished = model.finished and not more
    return more
