"""Shards as a job or a model reads them: with the columns of directories, and its filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamomd.config.spec import Data
from streamomd.features import Plan
from streamomd.shards.directory_columns import infer_partitions, with_partitions
from streamomd.shards.filtered_shards import filter_columns, with_filter
from streamomd.shards.find import find
from streamomd.shards.shard import ShardSet


def view_shards(shards: ShardSet, data: Data, plan: Plan | None = None) -> ShardSet:
    """The shards of a run as it learns them. plan: of the run, unless it is new.

    Raises SchemaError for directories and columns that do not fit.
    """
    known = infer_partitions(shards, data.partitions) if plan is None else plan.partitions
    return with_filter(with_partitions(shards, known), data.where)


def find_for_model(
    plan: Plan,
    shards: str | Sequence[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    where: str = "",
    order: str = "sorted",
) -> ShardSet:
    """Shards for a trained model: its columns of directories may be anywhere in their paths.

    where: which rows to read. Raises what ``find`` raises, UsageError for ``where``, SchemaError.
    """
    statistics = filter_columns(where)
    found = find(shards, order=order, storage_options=storage_options, statistics=statistics)
    return with_filter(with_partitions(found, plan.partitions, trained=True), where)
