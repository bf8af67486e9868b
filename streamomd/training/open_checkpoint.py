"""Open the checkpoint of a run for writing: at commit 0, or after its last commit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from streamomd.checkpoint import (
    Ledger,
    Loaded,
    Store,
    Writer,
    compare,
    explain,
    open_store,
    read_ledger,
)
from streamomd.checkpoint.commit_reader import sequences
from streamomd.checkpoint.documents import repair, save_document
from streamomd.checkpoint.stores.contract import current
from streamomd.config.build_job import change_job
from streamomd.config.field_types import as_renames
from streamomd.config.flags import dotted
from streamomd.core.errors import (
    ConcurrentWriterError,
    CorruptionError,
    DivergedError,
    ResumeRefusedError,
    UsageError,
)
from streamomd.core.finite import NOT_FINITE
from streamomd.core.installed import upgrade_hint
from streamomd.core.urls import shown
from streamomd.core.wording import counted
from streamomd.features.infer_plan import nearest
from streamomd.shards.filtered_shards import filter_columns, unread_of
from streamomd.shards.order import Dataset
from streamomd.shards.shard import Digests, ShardSet
from streamomd.sources.find import options_for
from streamomd.training.checkpoint_manager import CheckpointManager, diverged_remedy
from streamomd.training.holdout import ledger_facts
from streamomd.training.model_data import ModelData
from streamomd.training.model_document import document_of, is_named, parts_of, save_trees
from streamomd.training.progress import note
from streamomd.training.row_stream import view_shards
from streamomd.training.url_trust import find_list


def begin_checkpoint(
    model: ModelData, shards: Dataset, *, restart: bool
) -> CheckpointManager | None:
    """Make commit 0: the job, the fingerprint of the shards and the state before the first row.

    None if the job has no checkpoint. Raises OutputExistsError if one exists, unless ``restart``
    is passed or it is of a run that failed before it saved a row.
    """
    _count_unread(model, shards)
    settings = model.spec.checkpoint
    if settings.url == "none":
        return None
    store = open_store(settings.url, settings.storage_options)
    if not isinstance(shards, ShardSet):  # partitions and streams have no names
        model.holdout_by = "position"
    ledger = Ledger.from_fingerprints(ledger_facts(shards, named=is_named(model)))
    ledger.add(model.digests)
    inline: dict[str, bytes] = {}
    names = save_document(store, "names", model.names.document(), inline)
    document = document_of(model, segments=ledger.write(store), names=names)
    save_trees(model, store, document, inline)
    writer = Writer.begin(
        store,
        document,
        parts_of(model.state, model.metrics, store.part_bytes),
        keep=settings.keep,
        keep_updates=settings.keep_updates,
        restart=restart,
        inline={**inline, **ledger.inline},
    )
    model.url = store.url
    if writer.sequence and not restart:
        note(f"{shown(store.url)}: the run there failed before it saved a row; it is started over")
    return CheckpointManager(model, store, writer, ledger)


def open_ledger(loaded: Loaded) -> tuple[Store, Ledger]:
    """The store of a model that was loaded, and the ledger of its commit."""
    commit = loaded.commit
    writer = commit.versions.get("streamomd", "")
    with upgrade_hint(writer, f"commit {commit.sequence} was "):
        return current(loaded.store), read_ledger(loaded.store, commit)


def take_over(
    model: ModelData, loaded: Loaded, store: Store, ledger: Ledger, *, commits_next: bool = False
) -> CheckpointManager:
    """Fence an older writer: the manager of the commits after the one that was loaded.

    commits_next: the caller commits before anything else, see ``Writer.take_over``.
    """
    try:
        for kind, sha256 in loaded.commit.documents:
            repair(loaded.store, kind, sha256)
    except CorruptionError:
        # The retention of a newer writer deletes what its commits do not name.
        newest = sequences(store)[-1:]
        if newest and newest[0] > loaded.newest:
            raise ConcurrentWriterError(
                f"another streamomd made commit {newest[0]} of {shown(store.url)} since this one "
                f"read commit {loaded.newest}: this run stops here"
            ) from None
        raise
    settings = model.spec.checkpoint
    writer = Writer.take_over(
        store,
        loaded,
        keep=settings.keep,
        keep_updates=settings.keep_updates,
        commits_next=commits_next,
    )
    return CheckpointManager(model, store, writer, ledger)


def resume_checkpoint(
    model: ModelData,
    loaded: Loaded,
    shards: Dataset,
    *,
    accept_new: bool,
    opened: tuple[Store, Ledger] | None = None,
) -> CheckpointManager:
    """Compare the shards with those of the checkpoint, then fence an older writer.

    opened: what ``open_ledger`` gives, if it was read already. Raises ResumeRefusedError with every
    field that differs.
    """
    facts = ledger_facts(shards, named=is_named(model))
    store, ledger = opened or open_ledger(loaded)
    numbers = list_numbers(ledger, model.update.first)
    saved = [ledger.shards[number] for number in numbers]
    differences = compare(saved, facts, accept_new=accept_new)
    refused = [difference for difference in differences if difference.refused]
    if refused:
        raise ResumeRefusedError(
            f"the shards differ from those this run started with:\n{explain(refused)}\n"
            f"{shards.remedy}"
        )
    if len(facts) > len(saved) and model.spec.data.order == "shuffled":
        raise ResumeRefusedError(
            'new shards change the order of those already read, with data.order = "shuffled":\n'
            f"{explain(differences)}\n"
            "remove them, or continue from this state with other rows: train --start URL"
        )
    if differences:
        note(explain(differences))
    model.digests = Digests(ledger.digests(first_needed(model, ledger)))
    ledger.refresh(dict(zip(numbers, facts, strict=False)))
    ledger.append(facts[len(saved) :])
    _count_unread(model, shards)
    return take_over(model, loaded, store, ledger)


def find_current_list(model: ModelData, ledger: Ledger) -> ShardSet:
    """The shards that a model learns now, as the ledger names them."""
    facts = [ledger.shards[number] for number in list_numbers(ledger, model.update.first)]
    found = find_list(model.spec.data, model.plan, facts, ledger.shards)
    return view_shards(found, model.spec.data, model.plan, anywhere=True)


def list_numbers(ledger: Ledger, first: int) -> list[int]:
    """Numbers of the shards of a list: those from the first on that were not skipped."""
    facts = ledger.shards
    return [number for number in range(first, len(facts)) if "skipped" not in facts[number]]


def first_needed(model: ModelData, ledger: Ledger, first: int | None = None) -> int:
    """The ledger's number of the first shard that is still read: of the list that is learned, or
    with data.delay of the rows that wait for their labels. first: of the list; None: the model's.
    """
    first, at = model.update.first if first is None else first, model.teaching.cursor
    if not model.spec.data.delay:
        return first
    waiting = list_numbers(ledger, 0)[at.place :]
    if waiting and at.row == ledger.shards[waiting[0]].get("rows"):
        waiting = waiting[1:]
    return min([first, *waiting[:1]])


def _count_unread(model: ModelData, shards: Dataset) -> None:
    if isinstance(shards, ShardSet):
        model.unread = unread_of(shards)


def divergence(loaded: Loaded) -> str:
    """What was not finite after the commit that was loaded, if the run diverged; else ""."""
    rejected = [reason for _, reason in loaded.rejected if reason.startswith(NOT_FINITE)]
    found = f"the model diverged: {rejected[0].removeprefix(NOT_FINITE)}" if rejected else ""
    return str(loaded.commit.document.get("diverged") or found)


def refuse_diverged_again(model: ModelData, loaded: Loaded) -> None:
    """Raises DivergedError if the run diverged after the commit loaded, and would do so again.

    model: with the job as it is now. Of what may change on resume, only how bad rows are treated
    changes what is learned.
    """
    problem = divergence(loaded)
    before = loaded.commit.document["job"]["data"].get("on_bad_row", "error")
    if problem and before == model.spec.data.on_bad_row:
        raise DivergedError(
            f"{problem}. The last finite commit is {loaded.commit.sequence}, after "
            f"{counted(model.metrics.total_rows, 'row')}; training from it on the same rows "
            f"diverges again.\n{diverged_remedy(model)}"
        )


def change_model_job(
    model: ModelData,
    sets: Mapping[str, Any],
    storage_options: Mapping[str, Any] | None,
    checkpoint_storage_options: Mapping[str, Any] | None,
    *,
    may_skip: bool = False,
    given: Collection[str] = (),
) -> bool:
    """Apply the settings of this command to a loaded model; whether it has more epochs than before.

    may_skip: whether data.on_bad_row may change to "skip", and entries of data.rename may be added
    or replaced. given: keys of which this command has
    values of its own, in addition to ``sets``.
    """
    data = model.spec.data
    secrets = {
        "data.storage_options": options_for(data.shards, storage_options or {}, recorded=True),
        "checkpoint.storage_options": dict(checkpoint_storage_options or {}),
        "checkpoint.url": model.url,
    }
    if "checkpoint.url" in sets:
        raise ResumeRefusedError(
            f"checkpoint.url is {shown(model.url)} and may not change: to continue elsewhere, copy "
            "the whole checkpoint there and resume the copy"
        )
    epochs, on_bad_row = model.spec.train.epochs, model.spec.data.on_bad_row
    more_keys = ("data.on_bad_row", "data.rename") if may_skip else ()
    sets = _with_renames(data.rename, sets)
    model.spec = change_job(model.spec.to_json(), {**sets, **secrets}, more_keys, given)
    _refuse_renames(model, data.rename)
    if on_bad_row == "skip" != model.spec.data.on_bad_row:
        raise ResumeRefusedError(
            "data.on_bad_row cannot change from skip: bad rows may have been skipped already"
        )
    renames = tuple(model.spec.data.rename.items())
    model.plan = replace(model.plan, on_bad_row=model.spec.data.on_bad_row, rename=renames)
    if model.spec.train.epochs < epochs:
        raise ResumeRefusedError(
            f"train.epochs was {epochs} and may only grow; got {model.spec.train.epochs}"
        )
    more = model.spec.train.epochs > epochs
    if more and model.update.first:
        if not model.finished:
            raise ResumeRefusedError(
                f"update {model.update.number} is not finished: resume it without --epochs first; "
                "then more epochs read all shards again"
            )
        model.update = model.update._replace(first=0)
    model.finished = model.finished and not more
    return more


def _with_renames(saved: Mapping[str, str], sets: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a command; texts such as ``a=b`` add to the saved renames, tables replace
    them."""
    return {
        key: {**saved, **as_renames(value)}
        if dotted(key) == "data.rename" and isinstance(value, str) and "{" not in value
        else value
        for key, value in sets.items()
    }


def _refuse_renames(model: ModelData, saved: Mapping[str, str]) -> None:
    """Raise UsageError for a new rename to a column that the model does not have."""
    data = model.spec.data
    known = {*model.plan.columns, *filter_columns(data.where)}
    for name, column in data.rename.items():
        if column not in known and saved.get(name) != column:
            raise UsageError(
                f"data.rename: {name!r} is {column!r}, which is not a column of the model; "
                f"{nearest(column, model.plan.columns)}"
            )
