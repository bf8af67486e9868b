"""Whether a shard has the stored bytes of another one.

Footers do not show it: those of small files with the same statistics are equal. Equal are an ETag
that is a hash of the content, or the digests of all row groups that are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from streamomd.checkpoint.segments import Facts
from streamomd.shards.filesystem import protocols
from streamomd.shards.shard import Shard

if TYPE_CHECKING:
    import fsspec

IDENTITY = ("footer_sha256", "size", "rows", "schema")
"""What equal files have in common, and what is compared before any of their rows is read."""
_MD5 = re.compile(r"[0-9a-f]{32}(-[0-9]+)?")
_HASHED = {"s3", "s3a"}
"""Stores whose ETags of this form are MD5 sums, of the object or of its parts."""


class Comparison(NamedTuple):
    """equal: None if there is nothing to compare. by: what was compared, for a message."""

    equal: bool | None
    by: str = ""


class Contents:
    """Compares shards of one file system, learned or new; the digests of each are found once.

    recorded: the digests that a ledger has of a shard, by row group, from its number. read: reads
    a shard; its digests by row group.
    """

    def __init__(
        self,
        fs: fsspec.AbstractFileSystem,
        recorded: Callable[[int], Mapping[int, bytes]],
        read: Callable[[Shard], Mapping[int, bytes]],
    ) -> None:
        self._has_hashes = bool(_HASHED.intersection(protocols(fs)))
        self._recorded, self._read = recorded, read
        self._found: dict[str, Mapping[int, bytes]] = {}

    def compare(self, shard: Shard, other: Facts, of_other: int | Shard) -> Comparison:
        """A shard with one whose facts agree. of_other: the ledger's number of it, or the shard.

        Raises what reading the shard raises.
        """
        tag = shard.etag
        # Different ones show nothing: the parts may have other sizes, or the keys of encryption.
        if self._has_hashes and tag and tag == other.get("etag") and _MD5.fullmatch(tag):
            return Comparison(True, "their ETags are equal")
        known = self._digests(of_other) if isinstance(of_other, Shard) else self._recorded(of_other)
        if not known:
            return Comparison(None)
        found = self._digests(shard)
        if not found or not found.keys() <= known.keys():
            return Comparison(None)
        equal = all(known[group] == digest for group, digest in found.items())
        what = "equal" if equal else "different"
        return Comparison(equal, f"the digests of their row groups are {what}")

    def _digests(self, shard: Shard) -> Mapping[int, bytes]:
        if shard.url not in self._found:
            self._found[shard.url] = self._read(shard)
        return self._found[shard.url]


def alike(facts: Facts, others: Iterable[Facts]) -> Sequence[Facts]:
    """Shards that may have the same bytes. Empty files are all alike: none."""
    if not facts["rows"]:
        return []
    return [one for one in others if all(one.get(key) == facts[key] for key in IDENTITY)]
