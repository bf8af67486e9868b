"""URLs that a manifest names: checked against an allow-list, and what others on the network may
read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from streamomd.checkpoint.segments import Facts
from streamomd.config.allow_list import allow_lists, refuse_outside
from streamomd.config.data_table import Data
from streamomd.config.spec import Spec
from streamomd.core.urls import absolute, is_unencrypted, protocol, shown
from streamomd.features import Plan
from streamomd.shards.filtered_shards import filter_columns
from streamomd.shards.read_footers import recorded_projection
from streamomd.shards.renames import with_projection
from streamomd.shards.shard import Shard, ShardSet
from streamomd.sources.contract import Request
from streamomd.sources.find import by_source, find, refuse_recorded
from streamomd.sources.tables import TableOptions
from streamomd.sources.text.text_cache import as_shards, is_converted
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


def find_list(
    data: Data, plan: Plan, facts: Sequence[Facts], recorded: Sequence[Facts]
) -> ShardSet:
    """The shards of a list in the ledger, in its order; as ``find_recorded``. recorded: all facts
    of the ledger, by which text is converted again where its folder was deleted."""
    urls = [str(one["url"]) for one in facts]
    check = check_sources(urls, data)
    if any(is_converted(url) and not os.path.exists(url) for url in urls):
        tables = TableOptions(csv=data.csv.options())
        ledger = {str(one["url"]): one for one in recorded}
        as_shards(data.shards, Request(tables=tables, check=check, ledger=ledger, with_new=True))
    shards = find(
        urls,
        order="given",
        storage_options=data.store_options,
        allow_duplicates=True,
        tables=TableOptions(as_files=True),
        check=check,
        statistics=filter_columns(data.where, plan.partitions),
        known=by_url(facts),
    )
    both = zip(shards, facts, strict=True)
    return replace(shards, shards=tuple(_recorded(shard, one) for shard, one in both))


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


ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "STORAGE_EMULATOR_HOST")
UNCHECKED = (
    ("verify", False), ("use_ssl", False), ("ssl", False),
)  # fmt: skip


def transport_warnings(spec: Spec, environment: Mapping[str, str]) -> list[str]:
    """What of a job goes over a network so that others may read or change it, a line each.

    It is said and not refused: inside a private network it may be meant.
    """
    stores = {"data": spec.data.storage_options, "checkpoint": spec.checkpoint.storage_options}
    given = [*spec.data.shards, spec.checkpoint.url, spec.model.start]
    if any(map(protocol, given)):
        given += [environment.get(name, "") for name in ENDPOINTS]
    given += [text for options in stores.values() for text in _texts(options)]
    places = dict.fromkeys(
        shown(url) for url in given if protocol(url) == "http" and is_unencrypted(url)
    )
    lines = [
        f"{place} is read and written unencrypted: https:// would encrypt it" for place in places
    ]
    sources = by_source(spec.data.shards)
    unchecked = (*UNCHECKED, *(off for source in sources for off in source.unchecked))
    for name, options in stores.items():
        if any(_has(options, *off) for off in unchecked):
            lines.append(f"{name}.storage_options switch TLS or its check of certificates off")
    return lines + [line for source in sources for line in source.warnings(stores["data"])]


def scheduler_warnings(spec: Spec, address: str) -> list[str]:
    """The same of a job that goes to the workers of a scheduler."""
    options = spec.data.storage_options, spec.checkpoint.storage_options
    addresses = {name for source in by_source(spec.data.shards) for name in source.addresses}
    if not (is_unencrypted(address) and any(one.keys() - addresses for one in options)):
        return []
    return [f"storage options go to {shown(address)} unencrypted: use tls://"]


def _texts(options: Any) -> list[str]:
    """Every text in nested options."""
    if isinstance(options, Mapping):
        return [text for value in options.values() for text in _texts(value)]
    return [options] if isinstance(options, str) else []


def _has(options: Any, key: str, value: object) -> bool:
    if not isinstance(options, Mapping):
        return False
    given = options.get(key)
    same = given.lower() == value if isinstance(given, str) else given is value
    return same or any(_has(one, key, value) for one in options.values())
