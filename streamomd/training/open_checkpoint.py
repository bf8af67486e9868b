"""Open the checkpoint of a run for writing: at commit 0, or after its last commit."""

from __future__ import annotations

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
from streamomd.core.errors import ResumeRefusedError
from streamomd.shards.dataset import Dataset
from streamomd.shards.digests import Digests
from streamomd.shards.filtered_shards import unread_of
from streamomd.shards.shard import ShardSet
from streamomd.training.checkpoint_manager import CheckpointManager
from streamomd.training.model import Model
from streamomd.training.model_document import document_of, parts_of
from streamomd.training.progress import note

SHARDS_REMEDY = (
    "restore them; a repaired shard is another shard: train --restart starts over, "
    "train --start URL continues from this state with other rows"
)
COLLECTION_REMEDY = (
    "make the collection from the same data by the same steps: then Dask gives its partitions the "
    "same names. It does so for read_parquet, from_pandas, from_map and most others; what comes of "
    "delayed() needs pure=True or dask_key_name=, of a random source a seed or name=, arrays of "
    'read_parquet its filesystem="arrow", and persist() must be the last step'
)


def begin_checkpoint(model: Model, shards: Dataset, *, restart: bool) -> CheckpointManager | None:
    """Make commit 0: the job, the fingerprint of the shards and the state before the first row.

    None if the job has no checkpoint. Raises OutputExistsError if one exists, unless ``restart``.
    """
    _count_unread(model, shards)
    settings = model.spec.checkpoint
    if settings.url == "none":
        return None
    store = open_store(settings.url, settings.storage_options)
    ledger = Ledger.from_fingerprints(shards.fingerprint())
    ledger.add(model.digests)
    names = write_document(store, "names", model.names.to_json())
    document = document_of(model, segments=ledger.write(store), names=names)
    writer = Writer.begin(
        store, document, parts_of(model.state, model.metrics), keep=settings.keep, restart=restart
    )
    model.url = store.url
    return CheckpointManager(model, store, writer, ledger)


def resume_checkpoint(
    model: Model, loaded: Loaded, shards: Dataset, *, accept_new: bool
) -> CheckpointManager:
    """Compare the shards with those of the checkpoint, then fence an older writer.

    Raises ResumeRefusedError with every field that differs.
    """
    settings, found = model.spec.checkpoint, shards.fingerprint()
    store = open_store(model.url, settings.storage_options)
    ledger = read_ledger(store, loaded.commit)
    saved = ledger.shards
    differences = compare(saved, found, accept_new=accept_new)
    refused = [difference for difference in differences if difference.refused]
    if refused:
        raise ResumeRefusedError(
            f"the shards differ from those this run started with:\n{explain(refused)}\n"
            f"{SHARDS_REMEDY if isinstance(shards, ShardSet) else COLLECTION_REMEDY}"
        )
    if len(found) > len(saved) and model.spec.data.order == "shuffled":
        raise ResumeRefusedError(
            'new shards change the order of those already read, with data.order = "shuffled":\n'
            f"{explain(differences)}\n"
            "remove them, or continue from this state with other rows: train --start URL"
        )
    if differences:
        note(explain(differences))
    for kind, sha256 in loaded.commit.documents:
        repair(store, kind, sha256)
    model.digests = Digests(ledger.digests())
    _count_unread(model, shards)
    ledger.replace_shards(found)
    writer = Writer.take_over(store, loaded, keep=settings.keep)
    return CheckpointManager(model, store, writer, ledger)


def _count_unread(model: Model, shards: Dataset) -> None:
    if isinstance(shards, ShardSet):
        model.unread = unread_of(shards)
