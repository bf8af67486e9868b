"""Which runs can be updated, and which new shards an update takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from streamomd.config.job_table import explain
from streamomd.config.run_tables import Update
from streamomd.config.spec import Spec
from streamomd.config.values import nanoseconds
from streamomd.core.errors import UnsupportedError, UsageError
from streamomd.shards.order import COLLECTION, STREAM
from streamomd.sources.find import by_source
from streamomd.sources.new_files import Choice

SHUFFLED = (
    'data.order = "shuffled" permutes all shards of an epoch, so no shard can be added to one: '
    "train on the new shards from this state (train SHARDS --start URL)"
)


def refuse_update(spec: Spec) -> None:
    """Raises UnsupportedError for a run that cannot learn shards that came later."""
    if spec.data.shards[:1] and spec.data.shards[0].startswith(COLLECTION):
        raise UnsupportedError(
            "this run learned a Dask collection, which lists no files: train on the new rows from "
            "its state (streamomd.train(ddf, start=URL))"
        )
    if spec.data.shards[:1] and spec.data.shards[0].startswith(STREAM):
        raise UnsupportedError(
            "this run learned a stream of rows, which lists no files: learn the new rows from its "
            "state (streamomd.train(rows, start=URL))"
        )
    for source, urls in by_source(spec.data.shards).items():
        source.refuse_update(urls)
    if spec.data.order == "shuffled":
        raise UnsupportedError(SHUFFLED)
    if spec.data.held_after is not None:
        raise UnsupportedError(
            f"data.holdout = {spec.data.holdout}: every new row would be held out, and none "
            "learned. Train a run of its own on all rows, with data.holdout as a number, and "
            "update that one"
        )
    if spec.rule.looks(spec.model.params):
        raise UnsupportedError(
            f"rule {spec.model.rule!r} observes all rows before it learns the first, so no row can "
            "be added: train on all shards again, or on the new ones from this state (--start URL)"
        )
    if spec.cluster.learner == "worker":
        raise UnsupportedError(
            'cluster.learner = "worker": update learns in this process, workers may decode; '
            "leave cluster.learner out"
        )


def given_keys(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of [update] among the arguments of a call; None: the job's own."""
    given = {name: arguments.get(name) for name in Update.model_fields}
    return {name: value for name, value in given.items() if value is not None}


def update_table(spec: Spec, given: Mapping[str, Any]) -> Update:
    """A job's table [update], except what this command says. Raises UsageError."""
    try:
        return Update.model_validate({**spec.update.model_dump(), **given})
    except ValidationError as error:
        raise UsageError(explain(error, Update)) from None


def choice_of(spec: Spec, given: Mapping[str, Any] | None = None) -> Choice:
    """What a job says of new shards, except what this command says. Raises UsageError."""
    table = update_table(spec, given or {})
    return Choice(
        settle=table.settle,
        until_ns=nanoseconds(table.until) if table.until else None,
        max_shards=table.max_shards,
        arrival=spec.data.arrival,
        on_bad_shard=spec.data.on_bad_shard,
        ignore_rewritten=table.ignore_rewritten,
        moved=table.moved,
        accept_duplicates=table.accept_duplicates,
        retry_skipped=table.retry_skipped,
    )
