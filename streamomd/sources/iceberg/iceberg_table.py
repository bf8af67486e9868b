"""List an Iceberg table: the files of a snapshot, or those appended after one, for updates.

Compaction (operation replace) adds files without new rows: they are not appended ones. A snapshot
that deletes or overwrites rows cannot be unlearned: it is refused.

A manifest is an Avro file. That it is whole, and what it unpacks to, is checked before pyiceberg
reads it, which takes one that was cut off for a shorter one, and limits nothing:

    Obj1, a map (pairs in blocks, the last block empty), 16 bytes of a sync marker, then blocks:
    number of rows, number of bytes, these bytes, the sync marker

Numbers are zigzag-coded, 7 bits a byte, the lowest first.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from posixpath import dirname
from typing import Any

import pyarrow as pa

from streamomd.core.errors import ResumeRefusedError, UnsupportedError
from streamomd.core.run_events import same_receivers
from streamomd.core.urls import printable, shown
from streamomd.shards.filesystem import FileSystem
from streamomd.shards.shard import Listed
from streamomd.shards.shard import Table as OfTable
from streamomd.sources.contract import SCHEMA, Request, SourceFiles
from streamomd.sources.delta.appended import ALTERNATIVE, changed_notes
from streamomd.sources.iceberg.metadata import (
    MemoryFiles,
    Table,
    damaged,
    require_pyiceberg,
    schema_changes,
)
from streamomd.sources.tables import ICEBERG_METADATA, check_locations, locate

MAGIC, SYNC = b"Obj\x01", 16
CODEC, WITHOUT_ONE = b"avro.codec", b"null"
MOST_UNPACKED = 1 << 28
"""Bytes of all blocks of a file. In memory their rows are several times as large."""
STEP = 1 << 20


def check_container(data: bytes) -> None:
    """Raise ValueError unless an Avro file ends with a whole block, and unpacks to few bytes."""
    if data[: len(MAGIC)] != MAGIC:
        raise ValueError("it is not an Avro file")
    at, pairs = len(MAGIC), list[bytes]()
    while True:
        count, at = _varint(data, at)
        if count < 0:  # then the block's bytes follow
            count, at = -count, _varint(data, at)[1]
        if not count:
            break
        for _ in range(2 * count):
            length, at = _varint(data, at)
            begin, at = at, _skip(data, at, length)
            pairs.append(data[begin:at])
    codec = dict(zip(pairs[::2], pairs[1::2], strict=True)).get(CODEC, b"deflate")
    # The same bytes end every block: a file that was cut off lacks them.
    sync, at = data[at : at + SYNC], _skip(data, at, SYNC)
    unpacked = 0
    while at < len(data):
        rows, at = _varint(data, at)
        length, at = _varint(data, at)
        begin, at = at, _skip(data, at, length)
        if data[at : at + SYNC] != sync:
            raise ValueError("it was cut off, or a block has no end")
        at = _skip(data, at, SYNC)
        if rows < 0 or (not rows and at < len(data)):  # a reader would stop there
            raise ValueError(f"a block has {rows} rows")
        for size in _unpacked(codec, data[begin : begin + length]):
            # Counted while it is unpacked: a small file may claim, and have, any size.
            unpacked += size
            if unpacked > MOST_UNPACKED:
                raise ValueError(f"unpacked it has more than {MOST_UNPACKED:,} bytes")


def _unpacked(codec: bytes, block: bytes) -> Iterator[int]:
    """The sizes of the parts of a block as it is unpacked. No part is large."""
    if codec == WITHOUT_ONE:
        yield len(block)
    elif codec == b"deflate":
        unpacker = zlib.decompressobj(-15)
        while block and not unpacker.eof:
            yield len(unpacker.decompress(block, STEP))
            block = unpacker.unconsumed_tail
    elif codec in (b"zstandard", b"bzip2"):
        name = {b"zstandard": "zstd", b"bzip2": "bz2"}[codec]
        with pa.input_stream(pa.BufferReader(block), compression=name) as stream:
            while part := stream.read(STEP):
                yield len(part)
    elif codec == b"snappy":  # which begins with its length
        size = 0
        for at, byte in enumerate(block[:5]):
            size |= (byte & 127) << (7 * at)
            if byte < 128:
                break
        yield size
    else:
        raise ValueError("its codec is unknown")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where the next byte is."""
    found = shift = 0
    # Avro's numbers have at most ten bytes of seven bits.
    while at < len(data) and shift < 70:
        byte = data[at]
        found |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return (found >> 1) ^ -(found & 1), at
    raise ValueError("it was cut off")


def _skip(data: bytes, at: int, length: int) -> int:
    if length < 0 or at + length > len(data):
        raise ValueError("it was cut off")
    return at + length


MANIFESTS_AT_ONCE = 16
ADDED, DELETED = 1, 2
"""Status of an entry."""
DATA, POSITIONS, EQUALITY = 0, 1, 2
"""Content of a file."""
KINDS = {POSITIONS: "position deletes", EQUALITY: "equality deletes"}
REMEDY = (
    "run rewrite_data_files with delete-file-threshold = 1 (Spark), which applies them to the files"
)


@dataclass(frozen=True, slots=True)
class File:
    """An entry of a manifest. sequence: of the commit of its rows. snapshot: that added it."""

    path: str
    format: str
    content: int
    size: int
    rows: int
    sequence: int
    snapshot: int
    spec: int
    status: int
    encrypted: bool


def live_files(table: Table, snapshot: Any) -> list[File]:
    """The data files of a snapshot, in the order in which commits added their rows, then by path.

    Raises UnsupportedError for files with rows that other files delete.
    """
    found = _entries(table, snapshot, lambda manifest: True)
    live = [one for one in found if one.status != DELETED]
    data = [one for one in live if one.content == DATA]
    _refuse_deletes(table, data, [one for one in live if one.content != DATA])
    return _checked(table, data)


def added_files(table: Table, snapshot: Any) -> list[File]:
    """The data files that a snapshot of appended rows added, in the same order."""
    number = snapshot.snapshot_id
    found = _entries(table, snapshot, lambda manifest: manifest.added_snapshot_id == number)
    added = [one for one in found if one.status == ADDED and one.snapshot == number]
    # An append should add none; without this check the deleted rows would be learned.
    deletes = [one for one in added if one.content != DATA]
    if deletes:
        raise _unsupported_deletes(table, deletes)
    return _checked(table, [one for one in added if one.content == DATA])


def _checked(table: Table, files: Sequence[File]) -> list[File]:
    for one in files:
        problem = "is encrypted" * one.encrypted
        if one.format != "PARQUET":
            problem = f"is {printable(one.format)}, and Parquet is read"
        if problem:
            raise UnsupportedError(
                f"Iceberg table {shown(table.source)}: its file {shown(one.path)} {problem}; write "
                "the rows to a table without it"
            )
    return sorted(files, key=lambda one: (one.sequence, one.path.encode()))


def _entries(table: Table, snapshot: Any, wanted: Callable[[Any], bool]) -> list[File]:
    """The entries of a snapshot's manifests."""
    location = snapshot.manifest_list
    try:
        read = require_pyiceberg().read_manifest_list
        manifests = [one for one in read(_whole(table, location)) if wanted(one)]
    except Exception as error:
        raise damaged(location, error) from None
    order = {one.snapshot_id: at for at, one in enumerate(table.metadata.snapshots)}

    def entries(manifest: Any) -> list[File]:
        try:
            files = _whole(table, manifest.manifest_path)
            # With deleted entries, whose status decides here.
            entries_of: Iterable[Any] = manifest.fetch_manifest_entry(files, discard_deleted=False)
            return [_file(entry, order) for entry in entries_of]
        except Exception as error:
            raise damaged(manifest.manifest_path, error) from None

    with ThreadPoolExecutor(MANIFESTS_AT_ONCE, "streamomd-iceberg", **same_receivers()) as pool:
        return [one for some in pool.map(entries, manifests) for one in some]


def _whole(table: Table, location: str) -> MemoryFiles:
    """A manifest or a list of them. Raises ValueError for one that was cut off."""
    data = table.read(location)
    check_container(data)
    return MemoryFiles(data)


def _file(entry: Any, order: dict[int, int]) -> File:
    """Rows of a table of version 1 have no sequence numbers. Theirs are negative here, by the place
    of the snapshot: the table may be of version 2 since, whose commits come after them."""
    file = entry.data_file
    if file is None:
        raise ValueError("an entry has no data_file")
    snapshot = _number(entry, "snapshot_id")
    sequence = _number(entry, "sequence_number")
    return File(
        str(file.file_path),
        str(file.file_format).rpartition(".")[2].upper(),
        _number(file, "content"),
        _number(file, "file_size_in_bytes"),
        _number(file, "record_count"),
        # Sequence numbers of version 2 begin at 1.
        sequence or order.get(snapshot, -1) - len(order),
        snapshot,
        _number(file, "spec_id"),
        _number(entry, "status"),
        file.key_metadata is not None,
    )


def _number(values: Any, key: str) -> int:
    found = getattr(values, key)
    if not isinstance(found, int):
        raise ValueError(f"{key} is {found!r}, expected a whole number")
    return int(found)


def _refuse_deletes(table: Table, data: Sequence[File], deletes: Sequence[File]) -> None:
    """Deletes reach the rows that were there before (positions: with) them. Those of files that
    were rewritten since reach none."""
    first = min((one.sequence for one in data), default=None)
    if first is None:
        return
    reaching = [one for one in deletes if one.sequence >= first + (one.content == EQUALITY)]
    if reaching:
        raise _unsupported_deletes(table, reaching)


def _unsupported_deletes(table: Table, deletes: Sequence[File]) -> UnsupportedError:
    kinds = {"deletion vectors" if one.format == "PUFFIN" else
             KINDS.get(one.content, f"content {one.content}") for one in deletes}  # fmt: skip
    return UnsupportedError(
        f"Iceberg table {shown(table.source)} has deleted rows in {len(deletes):,} files of "
        f"{' and '.join(sorted(kinds))}, which are not applied; {REMEDY}"
    )


APPEND, REPLACE = "append", "replace"


def appended_files(
    table: Table, since: int, version: int, *, appends_only: bool
) -> tuple[list[File], list[str]]:
    """Files that snapshots after ``since`` up to ``version`` appended, in their order; and lines to
    print.

    appends_only: skip snapshots that delete or overwrite rows, with all they add. Raises
    ResumeRefusedError for such snapshots otherwise, and for a ``since`` that is not before them.
    """
    found: list[File] = []
    changing: list[str] = []
    for one in _after(table, since, version):
        operation = _operation(one)
        if operation == APPEND:
            found += added_files(table, one)
        elif operation != REPLACE:
            changing.append(f"{one.snapshot_id} ({operation or 'unknown operation'})")
    notes = schema_changes(table, table.snapshot(since), table.snapshot(version))
    text = f"snapshots of Iceberg table {shown(table.source)} delete or overwrite rows: "
    return found, [*notes, *changed_notes(text, changing, "snapshots", appends_only=appends_only)]


def _operation(snapshot: Any) -> str:
    operation = getattr(snapshot.summary, "operation", "")
    return printable(str(getattr(operation, "value", operation)))


def _after(table: Table, since: int, version: int) -> list[Any]:
    """The snapshots after one up to another, the oldest first."""
    passed: list[Any] = []
    at: int | None = version
    while at != since:
        one = None if at is None else table.snapshots.get(at)
        # A parent of itself would make a circle.
        if one is None or len(passed) > len(table.snapshots):
            raise ResumeRefusedError(
                f"snapshot {since} of Iceberg table {shown(table.source)}, which was learned, is "
                f"not before snapshot {version} in its metadata (it was expired, or the table was "
                f"rolled back or made again): what was appended after it is unknown. "
                f"{ALTERNATIVE[0].upper()}{ALTERNATIVE[1:]}, or learn updates more often than "
                "snapshots expire"
            )
        passed.append(one)
        at = one.parent_snapshot_id
    # The learned one must be readable, too: its schema is compared below.
    table.snapshot(since)
    return passed[::-1]


MISSING = "but it does not exist: expiring snapshots deletes"


def list_table(fs: FileSystem, path: str, url: str, source: str, request: Request) -> SourceFiles:
    """The files of a snapshot of a table, or those appended after the recorded snapshot.

    path, url: of its metadata file. source: what the user named. Its columns have the names that
    they had when the run started, else those of the snapshot.
    """
    table = Table.open(fs, path, url, source)
    pinned, since = request.versions.get(source), request.since.get(source)
    # A resumed run reads the snapshot that it began with, whatever the table has now.
    version = table.choose(request.tables) if pinned is None else pinned
    snapshot = table.snapshot(version)
    notes: list[str] = []
    if since is None:
        files = live_files(table, snapshot)
    else:
        files, notes = appended_files(table, since, version, appends_only=request.appends_only)
    key = f"{source}{SCHEMA}"
    recorded = (request.versions, request.since, request.tables.known)
    # Columns that were renamed since are read under the names that the model knows.
    schema = next((known[key] for known in recorded if key in known), None)
    if schema is None:
        schema = table.schema(snapshot if since is None else table.snapshot(since)).schema_id
    listed = _listed(table, snapshot, files, table.names(schema))
    # Each version has a metadata file of its own: its place is the directory above.
    place = f"{dirname(dirname(path))}/"
    return SourceFiles(listed, place, {key: schema, source: version}, notes)


def _listed(
    table: Table, snapshot: Any, files: Sequence[File], names: Mapping[int, str]
) -> list[Listed]:
    locations = [
        locate(table.fs, table.root, table.root_url, one.path, ICEBERG_METADATA) for one in files
    ]
    check_locations(table.source, locations, ICEBERG_METADATA)
    of = OfTable("Iceberg", table.source, MISSING)
    columns = {spec: table.columns(snapshot, spec, names) for spec in {one.spec for one in files}}
    return [
        Listed(
            place.path,
            place.url,
            place.name,
            one.size,
            partitions=(),  # its directories are no columns: those are in the files
            version=(one.sequence, at),
            table=of,
            columns=columns[one.spec],
        )
        for at, (place, one) in enumerate(zip(locations, files, strict=True))
    ]
