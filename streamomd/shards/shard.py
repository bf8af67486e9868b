"""Metadata of a file: as a source lists it, and as a shard, known before its rows are read.

Digests of row groups: every later read must equal the first one.

A digest is XXH3-128 over the stored bytes that a row group is decoded from. It detects changed
data. It does not protect against an attacker, who can construct bytes with the same digest.
"""

from __future__ import annotations

import posixpath
import struct
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pyarrow as pa
import xxhash

from streamomd.core.errors import ChangedDataError, DataError
from streamomd.core.urls import shown
from streamomd.core.wording import counted
from streamomd.features.lists import declared
from streamomd.shards.file_schema import Projection, schema_facts
from streamomd.shards.filesystem import FileSystem
from streamomd.shards.formats.parquet_footer import GroupStatistics
from streamomd.shards.row_filter import RowFilter

if TYPE_CHECKING:
    from streamomd.shards.file_schema import TableColumns


class Table(NamedTuple):
    """The table that a file is of, for messages. kind: such as "Delta". url: of its root. missing:
    why a file of it may be missing, with ``{version}`` for that of the commit that added it."""

    kind: str
    url: str
    missing: str


class Listed(NamedTuple):
    """A file of a directory, glob or table, as it is listed.

    path: exact name inside the file system. url: absolute, without userinfo. name: the path
    relative to the source that lists it. size: bytes, −1 if not listed. mtime_ns, etag: where the
    file system has them. partitions: column and text of each partition value (None: null), where a
    table's log records them; None: they are in the name. version: of the table's commit that added
    the file, and its position in that commit. table: of which it is. columns: of a table whose
    columns have ids, by which those of its files are found. origin: the file that it was made of.
    error: why it cannot be read, as its source knows already.
    """

    path: str
    url: str
    name: str
    size: int = -1
    mtime_ns: int | None = None
    etag: str | None = None
    partitions: tuple[tuple[str, str | None], ...] | None = None
    version: tuple[int, int] = (0, 0)
    table: Table | None = None
    columns: TableColumns | None = None
    origin: str = ""
    error: DataError | None = None


SHA256_LETTERS = 64


class Constant(NamedTuple):
    """A column with one value in all rows of a shard, made of the text of a directory.

    kind: as in ``PARTITION_TYPES``. value: int, date or str; None: null, as the text.
    """

    column: str
    kind: str
    text: str | None
    value: Any


@dataclass(frozen=True)
class Shard:
    """One file of rows."""

    url: str
    """Absolute, without userinfo: what is shown, saved and compared."""
    path: str
    """Exact name inside the file system: never globbed, never unquoted."""
    format: str
    """``"parquet"`` or ``"arrow"``."""
    size: int
    rows: int
    groups: tuple[int, ...]
    """Rows of each row group or record batch."""
    schema: pa.Schema
    """The columns of its rows, with those of directories, and lists that are stored as binary."""
    footer_sha256: str
    """A hash of the footer; of a shard that a ledger records the first half alone."""
    etag: str | None
    """ETag, generation or version where the store has one."""
    mtime_ns: int | None
    """Advisory."""
    checksums: bool | None = None
    """Whether its first page has a checksum; None: unknown. No part of the fingerprint."""
    name: str = ""
    """Path relative to the source that lists it. No part of the fingerprint."""
    place: int = 0
    """The number by which its hold-out rows are drawn; see ``training.holdout.with_places``."""
    partitions: tuple[tuple[str, str | None], ...] | None = None
    """Column and text of each directory, where a table's log records them; None: in the name."""
    constants: tuple[Constant, ...] = ()
    """Columns of directories that its rows have. No part of the fingerprint."""
    stored: pa.Schema | None = None
    """The schema of the file, where ``schema`` has other columns."""
    projection: Projection | None = None
    """How columns follow from those of the file, where its table's have changed since, or they
    are renamed."""
    statistics: tuple[GroupStatistics, ...] = ()
    """Statistics of the columns that a filter names, for each group; none if they are unknown."""
    row_filter: RowFilter | None = None
    """Which rows are read; None: all. No part of the fingerprint, as the next."""
    unread: frozenset[int] = frozenset()
    """The groups without a row that the filter takes."""

    @property
    def identity(self) -> str:
        """What hold-out knows it by: its name, with the ``key=value`` directories directly above.

        So a directory, a glob and a list of the same files agree, and order does not matter.
        """
        name = self.name or posixpath.basename(self.path)
        above = self.path.removesuffix(name).rstrip("/").split("/")
        while above and "=" in above[-1]:
            name = f"{above.pop()}/{name}"
        return name

    @property
    def is_recorded(self) -> bool:
        """Whether it is as a ledger records it: its footer was not read in this process."""
        return len(self.footer_sha256) < SHA256_LETTERS

    @property
    def stored_schema(self) -> pa.Schema:
        """The schema of the file."""
        return self.schema if self.stored is None else self.stored

    @property
    def own_schema(self) -> pa.Schema:
        """The schema of its rows without the columns of directories."""
        stored = self.stored_schema
        if self.projection is None:
            return schema_facts(stored).fields
        return self.projection.schema(stored)

    @property
    def column_names(self) -> list[str]:
        """The columns of its rows without those of directories and without fields of structs."""
        stored = self.stored_schema
        return stored.names if self.projection is None else self.projection.column_names(stored)

    def stored_name(self, column: str) -> str:
        """The column of the file that is a column of its rows."""
        return column if self.projection is None else self.projection.stored_name(column)

    @property
    def is_view(self) -> bool:
        """Whether its rows are not those of the file: they have columns of directories, of a table
        or lists stored as binary, or are filtered."""
        changed = self.constants or self.binary_lists or self.projection is not None
        return bool(changed) or self.row_filter is not None

    @property
    def binary_lists(self) -> dict[str, pa.DataType]:
        """The columns that are binary in the file and lists in its rows, and their elements."""
        kinds = {} if self.stored is None else declared(self.stored)
        if self.projection is None:
            return kinds
        return {self.projection.column(name): kind for name, kind in kinds.items()
                if name not in self.projection.hidden}  # fmt: skip

    @property
    def read_rows(self) -> int:
        """Rows of the groups that are read."""
        return self.rows - sum(self.groups[number] for number in self.unread)

    def constant(self, column: str) -> Constant | None:
        """The constant column of that name, if there is one."""
        return next((one for one in self.constants if one.column == column), None)

    def fingerprint(self) -> dict[str, Any]:
        """The facts compared on resume, for JSON; without the schema's metadata."""
        facts = schema_facts(self.stored_schema)
        return {
            "url": self.url,
            "format": self.format,
            "size": self.size,
            "rows": self.rows,
            "groups": list(self.groups),
            "schema": facts.columns,
            "types": facts.text,
            "footer_sha256": self.footer_sha256,
            "etag": self.etag,
            "mtime_ns": self.mtime_ns,
            **({} if self.partitions is None else {"partitions": [*map(list, self.partitions)]}),
            **({} if self.projection is None else {"projection": self.projection.text}),
        }


@dataclass(frozen=True)
class ShardSet:
    """Shards of one file system, in order."""

    shards: tuple[Shard, ...]
    fs: FileSystem
    versions: dict[str, object] = field(default_factory=dict, compare=False, repr=False)
    """Versions of local shards, as this process first saw them; see ``Opened``."""
    table_versions: dict[str, int] = field(default_factory=dict, compare=False)
    """Version of each table among the sources, by its URL."""

    remedy: ClassVar[str] = (
        "restore them; a repaired shard is another shard: train --restart starts over, "
        "train --start URL continues from this state with other rows"
    )

    def part_name(self, number: int) -> str:
        """The shard's URL."""
        return self.shards[number].url

    @property
    def rows(self) -> int:
        """Rows of all shards."""
        return sum(shard.rows for shard in self.shards)

    @property
    def unread_rows(self) -> int:
        """Rows of groups that a filter does not read."""
        return sum(shard.rows - shard.read_rows for shard in self.shards if shard.unread)

    def require_rows(self) -> None:
        """Raises DataError if every shard is empty, or has no row that its filter could take."""
        if not self.rows:
            many, url = len(self) > 1, self.shards[0].url
            which = f"all {len(self):,} shards are" if many else f"shard {shown(url)} is"
            raise DataError(f"no rows: {which} empty")
        if self.rows == self.unread_rows:
            raise DataError(
                f"no row of {counted(len(self), 'shard')} satisfies where: their directories and "
                "the statistics of their row groups exclude all of them; check the filter"
            )

    def __len__(self) -> int:
        return len(self.shards)

    def __iter__(self) -> Iterator[Shard]:
        return iter(self.shards)

    def fingerprint(self) -> list[dict[str, Any]]:
        """One dict a shard, in order; see `Shard.fingerprint`."""
        return [shard.fingerprint() for shard in self.shards]


def checksum_notes(shards: ShardSet) -> list[str]:
    """One line if shards with rows have no page checksums, else none.

    Most writers leave them out, so this is a line of ``plan`` and ``--verbose``, not a warning.
    """
    read = [shard for shard in shards if shard.rows]
    plain = [shard for shard in read if shard.checksums is False]
    if not plain:
        return []
    kinds = {shard.format for shard in plain}
    fix = (
        "Arrow files never have any; `streamomd convert` writes Parquet with them"
        if kinds == {"arrow"}
        else "write Parquet with them (pyarrow: write_page_checksum=True; or `streamomd convert`)"
    )
    which = f"{len(plain):,} of {len(read):,} shards have" if len(read) > 1 else "the shard has"
    return [f"{which} no page checksums: damaged bytes may be learned as other values; {fix}"]


DIGEST_BYTES = 16
WINDOW = 256 << 10
"""Bytes are hashed in windows, and the windows' hashes once more: so a window can be verified
alone, where a row group is too large to stay in memory."""
_RANGE = struct.Struct("<QQ")
_UNKNOWN = bytes(DIGEST_BYTES)
Found = tuple[str, int, bytes]
"""URL of a shard, number of its row group, digest."""


def hash_window(data: object) -> bytes:
    """XXH3-128 of at most ``WINDOW`` bytes."""
    return xxhash.xxh3_128_digest(data)  # type: ignore[arg-type]


def combine(ranges: Iterable[tuple[int, int, Iterable[bytes]]]) -> bytes:
    """The digest of a row group: of each range its offset, its length and its windows' hashes."""
    whole = xxhash.xxh3_128()
    for offset, length, hashes in ranges:
        whole.update(_RANGE.pack(offset, length))
        for one in hashes:
            whole.update(one)
    return whole.digest()


class Digests:
    """Digests by shard and row group; those that are new, in the order in which they came.

    Threads may use one table at the same time.
    """

    def __init__(self, known: Iterable[Found] = ()) -> None:
        self._lock = threading.Lock()
        self._groups: dict[str, bytearray] = {}
        self._found: list[Found] = []
        for url, group, digest in known:
            self._put(url, group, digest)

    def check(self, shard: Shard, group: int, digest: bytes) -> None:
        """Record a digest, or compare it with the recorded one.

        Raises ChangedDataError if the bytes are not those that were read first.
        """
        self.check_found(shard.url, group, digest)

    def check_found(self, url: str, group: int, digest: bytes) -> None:
        """Records or compares a digest that another process computed, as ``check`` does."""
        with self._lock:
            known = self._get(url, group)
            if known is None:
                self._put(url, group, digest)
                self._found.append((url, group, digest))
        if known is not None and known != digest:
            raise ChangedDataError(
                f"shard {shown(url)}, row group {group}: its stored bytes differ from those "
                f"read first (digest {known.hex()[:12]} -> {digest.hex()[:12]}), and its size and "
                "footer are the same. Restore the old file and resume, or start over with "
                "--restart; no commit has a changed row"
            )

    def check_all(self, found: Iterable[Found]) -> None:
        """Records or compares several digests, as ``check_found`` does."""
        for one in found:
            self.check_found(*one)

    def get(self, url: str, group: int) -> bytes | None:
        """The digest of a row group; None if it was not read yet."""
        with self._lock:
            return self._get(url, group)

    def found(self, begin: int = 0) -> list[Found]:
        """Digests that were not known when the table was made, from number ``begin`` on."""
        with self._lock:
            return self._found[begin:]

    def __iter__(self) -> Iterator[Found]:
        """All digests, known and found."""
        with self._lock:
            shards = [(url, bytes(digests)) for url, digests in self._groups.items()]
        for url, digests in shards:
            for group in range(len(digests) // DIGEST_BYTES):
                digest = digests[group * DIGEST_BYTES : (group + 1) * DIGEST_BYTES]
                if digest != _UNKNOWN:
                    yield url, group, digest

    def __reduce__(self) -> Any:
        """For a pickle of a model: a lock cannot be in one."""
        return Digests, ([*self],)

    def _get(self, url: str, group: int) -> bytes | None:
        digests = self._groups.get(url, b"")
        digest = bytes(digests[group * DIGEST_BYTES : (group + 1) * DIGEST_BYTES])
        return digest if digest and digest != _UNKNOWN else None

    def _put(self, url: str, group: int, digest: bytes) -> None:
        # One array a shard: a million row groups take 16 MB, not 200.
        digests = self._groups.setdefault(url, bytearray())
        missing = (group + 1) * DIGEST_BYTES - len(digests)
        if missing > 0:
            digests.extend(bytes(missing))
        digests[group * DIGEST_BYTES : (group + 1) * DIGEST_BYTES] = digest
