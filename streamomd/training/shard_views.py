"""Shards as a job or a model reads them: with its names of columns, those of directories, and its
filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamomd.config.data_table import Data
from streamomd.features import Plan
from streamomd.shards.directory_columns import infer_partitions, with_partitions
from streamomd.shards.filtered_shards import filter_columns, with_filter
from streamomd.shards.renames import refuse_unknown_renames, with_renames
from streamomd.shards.shard import ShardSet
from streamomd.sources.find import find, source_texts
from streamomd.sources.known_sources import options_for, refuse_without_effect
from streamomd.sources.tables import FILES_OR_TABLES, TableOptions


def view_shards(
    shards: ShardSet, data: Data, plan: Plan | None = None, *, anywhere: bool = False
) -> ShardSet:
    """The shards of a run as it learns them. plan: of the run, unless it is new.

    anywhere: whether columns of directories may be anywhere in the paths, of shards whose source is
    not known.

    Raises SchemaError for directories and columns that do not fit.
    """
    if plan is None:
        refuse_unknown_renames(shards, data.rename)
    shards = with_renames(shards, data.rename)
    known = infer_partitions(shards, data.partitions) if plan is None else plan.partitions
    return with_filter(with_partitions(shards, known, trained=anywhere), data.where)


def find_for_model(
    plan: Plan,
    shards: str | Sequence[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    where: str = "",
    order: str = "sorted",
    tables: TableOptions = FILES_OR_TABLES,
    versions: Mapping[str, int] | None = None,
) -> ShardSet:
    """Shards for a trained model: its columns of directories may be anywhere in their paths.

    where: which rows to read. tables, versions: as in ``find``. Raises what ``find`` raises,
    UsageError for ``where``, SchemaError.
    """
    named = source_texts(shards)
    refuse_without_effect(named, tables.keys)
    found = find(
        named,
        order=order,
        storage_options=options_for(named, storage_options or {}),
        tables=tables,
        versions=versions,
        statistics=filter_columns(where),
    )
    found = with_renames(found, dict(plan.rename))
    return with_filter(with_partitions(found, plan.partitions, trained=True), where)
