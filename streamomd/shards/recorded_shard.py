"""Shards as the ledger of a run records them: the footer of a file that did not change is not read.

What the ledger says of a footer is compared with it when the shard is opened, before a row of it is
learned; see ``open_shard``.
"""

from __future__ import annotations

from streamomd.checkpoint.segments import HASH_BYTES, TYPES, Facts, groups_of
from streamomd.shards.filesystem import Entry
from streamomd.shards.formats.footer import FORMATS
from streamomd.shards.listed import Listed
from streamomd.shards.projection import Projection, parse_projection, with_projection
from streamomd.shards.schema_facts import schema_of_text
from streamomd.shards.shard import Shard


def is_unchanged(facts: Facts, entry: Entry) -> bool:
    """Whether a file has the recorded size, ETag and time; at least one of the latter two."""
    if entry.etag is None and entry.mtime_ns is None:
        return False
    now = (entry.size, entry.etag, entry.mtime_ns)
    return (facts.get("size"), facts.get("etag"), facts.get("mtime_ns")) == now


def recorded_shard(file: Listed, entry: Entry, facts: Facts) -> Shard | None:
    """The shard of a file that did not change, without its footer; None if that has to be read.

    Earlier versions recorded less, and of a shard of many row groups not all are recorded.
    """
    text, footer = facts.get(TYPES), facts.get("footer_sha256", "")
    if not is_unchanged(facts, entry) or not isinstance(text, str):
        return None
    known, groups = schema_of_text(text), groups_of(facts)
    whole = len(footer) == 2 * HASH_BYTES and any(one.name == facts["format"] for one in FORMATS)
    if known is None or groups is None or not whole or known.columns != facts.get("schema"):
        return None
    shard = Shard(
        url=file.url,
        path=file.path,
        format=facts["format"],
        size=entry.size,
        rows=sum(groups),
        groups=groups,
        schema=known.fields,
        stored=None if known.fields is known.schema else known.schema,
        footer_sha256=footer,
        etag=entry.etag,
        mtime_ns=entry.mtime_ns,
        name=file.name,
        partitions=file.partitions,
    )
    return with_projection(shard, recorded_projection(facts))


def recorded_projection(facts: Facts) -> Projection | None:
    """How a ledger says that columns of rows follow from those of the file."""
    text = facts.get("projection")
    return None if text is None else parse_projection(text)
