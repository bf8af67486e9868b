"""URLs that a manifest names: printed before they are opened, and checked against an allow-list and
by their sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from streamomd.checkpoint.segments import Facts
from streamomd.config.allow_list import allow_lists, refuse_outside
from streamomd.config.data_table import Data
from streamomd.core.urls import absolute, protocol, shown
from streamomd.features import Plan
from streamomd.shards.filtered_shards import filter_columns
from streamomd.shards.read_footers import recorded_projection
from streamomd.shards.renames import with_projection
from streamomd.shards.shard import Shard, ShardSet
from streamomd.sources.find import find
from streamomd.sources.known_sources import refuse_recorded
from streamomd.sources.tables import TableOptions
from streamomd.training.progress import note

MOST_LINES = 20
"""URLs of one manifest that are printed one by one; of more, a line each folder."""


def find_recorded(
    data: Data, plan: Plan, versions: Mapping[str, int], facts: Sequence[Facts]
) -> ShardSet:
    """The shards that a manifest names: printed, checked, and then found.

    versions: of its tables, as the run started with them. facts: of the run's ledger: the footer of
    a shard that did not change is not read.

    What directories and globs lead to is checked too, links followed, before a file is opened.
    Raises as ``check_sources``, and what ``find`` raises.
    """
    check = check_sources(data.shards, data)
    return find(
        data.shards,
        order=data.order,
        storage_options=data.storage_options,
        tables=TableOptions.of(data),
        versions=versions,
        check=check,
        statistics=filter_columns(data.where, plan.partitions),
        known=by_url(facts),
    )


def find_list(data: Data, plan: Plan, facts: Sequence[Facts]) -> ShardSet:
    """The shards of a list in the ledger, in its order; as ``find_recorded``."""
    urls = [str(one["url"]) for one in facts]
    check = check_sources(urls, data)
    found = find(
        urls,
        order="given",
        storage_options=data.store_options,
        allow_duplicates=True,
        tables=TableOptions(as_files=True),
        check=check,
        statistics=filter_columns(data.where, plan.partitions),
        known=by_url(facts),
    )
    both = zip(found, facts, strict=True)
    return replace(found, shards=tuple(_recorded(shard, one) for shard, one in both))


def check_sources(
    urls: Sequence[str], data: Data, report: Callable[[str], None] = note
) -> Callable[[Sequence[str]], None] | None:
    """Print the URLs that a checkpoint names; what checks those that they lead to, if anything.

    data: of the job, as this command changed it. Raises UsageError for URLs outside an allow-list,
    and for those that their source refuses, as for brokers that this command does not name.
    """
    for line in described(urls):
        report(f"the checkpoint names the shards: {line}")
    lists = allow_lists()
    refuse_outside(urls, lists)
    refuse_recorded(urls, data.storage_options)
    return partial(refuse_outside, lists=lists) if lists else None


def by_url(facts: Sequence[Facts]) -> dict[str, Facts]:
    """What a ledger records of the shards that were learned."""
    return {str(one["url"]): one for one in facts if "skipped" not in one}


def _recorded(shard: Shard, facts: Facts) -> Shard:
    """A shard with what its source said of it when it was listed."""
    values = facts.get("partitions")
    partitions = None if values is None else tuple((column, text) for column, text in values)
    found = replace(shard, name=str(facts.get("name") or shard.name), partitions=partitions)
    return with_projection(found, recorded_projection(facts))


def described(urls: Sequence[str]) -> list[str]:
    """Each URL; of many, each folder with the number of names in it."""
    texts = [shown(url if protocol(url) else absolute(url)) for url in urls]
    if len(texts) <= MOST_LINES:
        return texts
    folders: dict[str, int] = {}
    for text in texts:
        above = text.rpartition("/")[0] + "/"
        folder = text if above.endswith("://") else above
        folders[folder] = folders.get(folder, 0) + 1
    return [f"{folder} ({count:,} names)" for folder, count in folders.items()]
