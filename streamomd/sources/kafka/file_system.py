"""Ranges of a topic's offsets as files, which are read from the brokers when they are opened.

Messages become rows: a JSON object is a row, an Arrow IPC stream is its rows; a message that is
neither is a row of nulls, so that the label's null makes it a bad row. A range is an Arrow file in
the user's cache folder. Its footer has a digest of the messages, so a range that is read from the
brokers again is known to be the same, or not.
"""

from __future__ import annotations

import hashlib
import json
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.compute as pc

from streamomd.core.errors import DataError, StorageError, StreamomdError, TooLargeError, UsageError
from streamomd.core.platform_calls import replace
from streamomd.core.run_events import phase
from streamomd.core.urls import printable, shown
from streamomd.shards.cache.folder import VARIABLE, cache_root, refuse_shared
from streamomd.sources.kafka.broker import Broker, Message
from streamomd.sources.kafka.offset_ranges import KAFKA, Marks, Range, Topic, parse_source
from streamomd.sources.text.arrow_source import plain, plain_schema

DIGEST = b"streamomd.kafka"
TYPES = "types"
"""Storage option that this program adds: the types of columns of JSON messages."""
GROUP_BYTES = 16 << 20
_TAG_LETTERS = 32
_ONE_AT_A_TIME = threading.Lock()
"""The messages of a range are in memory."""
STREAM = b"\xff\xff\xff\xff"
"""The first bytes of an Arrow IPC stream. No JSON begins with them."""
MOST_ROWS = 1_000_000
"""The most rows of a message: a column of nulls takes no bytes in a stream, whatever its length."""
MOST_BYTES = 1 << 30
"""The most bytes of the rows of a range, which are in memory at the same time."""
AT_ONCE, BYTES_AT_ONCE = 1000, 16 << 20
"""JSON messages that are in memory at the same time, and their bytes."""
MOST_LETTERS = 120
_ZONED = r"[ T][0-9:.]+(Z|[+-][0-9:]+)$"
"""A time with its offset of UTC, as ISO 8601 and RFC 3339 write it."""
_INVALID = pa.ArrowException, ValueError, OSError, OverflowError, RecursionError


@dataclass(frozen=True)
class MessageRows:
    """Rows of messages. offsets: of the message of each row. bad: rows of nulls, and why.
    sha256: of offsets and values of the messages."""

    table: pa.Table
    offsets: list[int]
    bad: dict[int, str]
    sha256: str


def schema_of(types: Mapping[str, str]) -> pa.Schema:
    """The columns of a job's types, by name: a saved job has them in another order than the user
    wrote. Raises UsageError."""
    return pa.schema([(name, _type_of(name, types[name])) for name in sorted(types)])


def _type_of(name: str, text: str) -> pa.DataType:
    try:
        found = pa.type_for_alias(text)
        _maker(found)([None])
    except (pa.ArrowException, ValueError):
        raise UsageError(
            f"data.csv.types: {name!r} is {text!r}, a type that JSON messages cannot have; known "
            "are string, int64, float64, float32, bool, date32, timestamp[ms] and timestamp[us]"
        ) from None
    return found


def message_rows(messages: Iterable[Message], types: Mapping[str, str], where: str) -> MessageRows:
    """The rows of messages, with the columns of ``types``; without types those of Arrow streams.

    where: the topic, partition and offsets, for errors. Raises UsageError for JSON without types,
    DataError if no message has columns, TooLargeError.
    """
    schema, parts, digest = schema_of(types) if types else None, list[Any](), hashlib.sha256()
    offsets, bad, nbytes = list[int](), dict[int, str](), 0

    def add(rows: pa.Table) -> None:
        nonlocal nbytes
        parts.append(rows)
        nbytes += rows.nbytes
        if nbytes > MOST_BYTES:
            raise TooLargeError(
                f"{where}: up to offset {offsets[-1]} the rows have more than {MOST_BYTES:,} "
                "bytes, and all of a range are in memory at the same time: name the columns to "
                "read and their types without the longest ones (--type, data.csv.types)"
            )

    def hashed() -> Iterable[Message]:
        for one in messages:
            text = one.value
            # With lengths: two messages must not have the digest of one with both texts.
            digest.update(f"{one.offset},{-1 if text is None else len(text)},".encode())
            digest.update(text or b"")
            yield one

    for is_stream, group in groupby(hashed(), lambda one: (one.value or b"").startswith(STREAM)):
        if is_stream:
            for one in group:
                found: Any = _of_stream(one.value or b"", schema)
                if isinstance(found, str):
                    bad[len(offsets)] = found
                    offsets.append(one.offset)
                    # Its row of nulls is made later, when the columns are known.
                    parts.append(1)
                    continue
                schema = schema or found.schema
                offsets += [one.offset] * found.num_rows
                add(found)
            continue
        if not types:
            raise UsageError(
                f"{where} has messages that are no Arrow IPC streams, and JSON has no types: name "
                "columns and types, e.g. --type label=string,price=double (data.csv.types)"
            )
        assert schema is not None
        for some in _blocks(group):
            table, wrong = _of_json([one.value for one in some], schema)
            bad |= {len(offsets) + at: why for at, why in wrong.items()}
            offsets += [one.offset for one in some]
            add(table)
    if schema is None:
        raise DataError(f"{where}: no message is a whole Arrow IPC stream, so it has no columns")
    tables = [_nulls(schema, one) if isinstance(one, int) else one for one in parts]
    # With the empty table: a range of no messages has columns, too.
    table = pa.concat_tables([schema.empty_table(), *tables]).combine_chunks()
    return MessageRows(table, offsets, bad, digest.hexdigest())


def _blocks(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """Messages in blocks: their values may be much larger than the columns that are read."""
    block, nbytes = list[Message](), 0
    for one in messages:
        block.append(one)
        nbytes += len(one.value or b"")
        if len(block) == AT_ONCE or nbytes > BYTES_AT_ONCE:
            yield block
            block, nbytes = [], 0
    if block:
        yield block


def _nulls(schema: pa.Schema, rows: int) -> pa.Table:
    return pa.table([pa.nulls(rows, one.type) for one in schema], schema=schema)


def _of_stream(value: bytes, schema: pa.Schema | None) -> pa.Table | str:
    """The rows of a stream, or why there are none."""
    try:
        with pa.ipc.open_stream(pa.BufferReader(value)) as stream:
            own, batches = plain_schema(stream.schema, "the stream"), []
            rows = 0
            for batch in stream:
                rows += batch.num_rows
                if rows > MOST_ROWS:
                    return f"the stream has more than {MOST_ROWS:,} rows"
                # Else offsets of lists could lead to memory that is not the stream's.
                batch.validate(full=True)
                batches.append(plain(batch, own))
        table = pa.Table.from_batches(batches, own)
        if schema is None or own.equals(schema):
            return table
        missing = [name for name in schema.names if name not in own.names]
        if missing:
            return f"the stream has no column {printable(missing[0])!r}"
        return table.select(schema.names).cast(schema)
    except (StreamomdError, *_INVALID) as error:
        return f"no valid Arrow IPC stream: {_line(error)}"


def _of_json(values: Sequence[bytes | None], schema: pa.Schema) -> tuple[pa.Table, dict[int, str]]:
    """A row of each message, of nulls if it is not an object of these columns, and why."""
    rows, bad = list[dict[str, Any]](), dict[int, str]()
    for at, value in enumerate(values):
        found = _object(value)
        if isinstance(found, str):
            bad[at], found = found, {}
        rows.append(found)
    makers = [(one.name, _maker(one.type)) for one in schema]
    columns, wrong = list[pa.Array](), dict[int, str]()
    for name, make in makers:
        try:
            columns.append(make([row.get(name) for row in rows]))
        except _INVALID:
            # One message at a time where a column failed: which of them are wrong?
            wrong |= _wrong(rows, name, make)
            if not wrong:  # no message alone is at fault
                raise
    if wrong:
        for at in wrong:  # the whole message is bad
            rows[at] = {}
        columns = [make([row.get(name) for row in rows]) for name, make in makers]
    return pa.table(columns, schema=schema), bad | wrong


def _object(value: bytes | None) -> dict[str, Any] | str:
    if value is None:
        return "the message has no value (a tombstone)"
    try:
        found = json.loads(value)
    except (ValueError, RecursionError) as error:
        return f"not JSON: {_line(error)}"
    return found if isinstance(found, dict) else f"expected a JSON object, found {_kind(found)}"


def _kind(value: Any) -> str:
    names = {list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _maker(kind: Any) -> Callable[[list[Any]], pa.Array]:
    types = pa.types
    if types.is_timestamp(kind):
        return lambda values: _times(pa.array(values, pa.string()), kind)
    if types.is_temporal(kind):  # text in JSON
        return lambda values: pa.array(values, pa.string()).cast(kind)
    if types.is_floating(kind):
        return lambda values: pa.array(list(map(_number, values)), kind)
    if types.is_integer(kind):
        return lambda values: pa.array(list(map(_integer, values)), kind)
    return lambda values: pa.array(values, kind)


def _times(texts: pa.Array, kind: Any) -> pa.Array:
    """Times in UTC: those with an offset are converted, those without are UTC."""
    is_zoned = pc.match_substring_regex(texts, _ZONED)
    if not pc.any(is_zoned).as_py():
        return texts.cast(kind)
    zoned = pc.if_else(is_zoned, texts, None).cast(pa.timestamp(kind.unit, "UTC"))
    return pc.coalesce(zoned.view(kind), pc.if_else(is_zoned, None, texts).cast(kind))


def _integer(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a boolean, expected a number")
    if isinstance(value, float):  # of which pyarrow would take the whole part
        if not value.is_integer():
            raise ValueError(f"{value}, expected an integer")
        return int(value)
    return value


def _number(value: Any) -> Any:
    if isinstance(value, bool):  # pyarrow would take it for 0 or 1
        raise ValueError("a boolean, expected a number")
    # Of an integer that no double is equal to pyarrow takes none.
    return float(value) if isinstance(value, int) else value


def _wrong(
    rows: Sequence[dict[str, Any]], name: str, make: Callable[[list[Any]], pa.Array]
) -> dict[int, str]:
    """Rows whose value of a column is of another type."""
    found = {}
    for at, row in enumerate(rows):
        try:
            make([row.get(name)])
        except _INVALID as error:
            found[at] = f"column {printable(name)!r}: {_line(error)}"
    return found


def _line(error: Exception) -> str:
    return printable((str(error) or type(error).__name__).split("\n")[0])[:MOST_LETTERS]


class KafkaFileSystem(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """Files ``servers/topic/range``. Options: keys of librdkafka, and types of columns."""

    protocol = KAFKA

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._types: dict[str, str] = dict(options.pop(TYPES, {}))
        self._options = options
        # In this process: a later one lists the topic, and forgets, again.
        self._outdated: set[Path] = set()

    def marks(self, topic: Topic) -> dict[int, Marks]:
        """The offsets that each partition has."""
        return Broker(topic, self._options).marks()

    def topic_id(self, topic: Topic) -> int | None:
        """A number that the topic got when it was made, if the brokers report it."""
        return Broker(topic, self._options).topic_id()

    def forget(self, topic: Topic, offsets: Range) -> None:
        """Read a range from the brokers when it is opened next. A topic of the same name may have
        been deleted since it was last read."""
        # Not removed: another run may read it.
        self._outdated.add(self._file(topic, offsets))

    def info(self, path: str, **more: Any) -> dict[str, Any]:
        """Size and version of a range."""
        topic, offsets = parse_source(self._strip_protocol(path))
        if offsets is None:
            return {"name": path, "size": 0, "type": "directory"}
        file = self._read(topic, offsets)
        try:
            digest = _digest(file)
        except (pa.ArrowException, OSError, KeyError):  # another program damaged it
            self.forget(topic, offsets)
            file = self._read(topic, offsets)
            digest = _digest(file)
        size = file.stat().st_size
        return {"name": path, "size": size, "type": "file", "ETag": digest[:_TAG_LETTERS]}

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **more: Any
    ) -> bytes:
        """Bytes of a range's file."""
        topic, offsets = parse_source(self._strip_protocol(path))
        if offsets is None:
            raise IsADirectoryError(path)
        with self._read(topic, offsets).open("rb") as file:
            file.seek(start or 0)
            return file.read(-1 if end is None else end - (start or 0))

    def _file(self, topic: Topic, offsets: Range) -> Path:
        # The same messages are other rows with other types.
        kind = hashlib.sha256(json.dumps(self._types, sort_keys=True).encode()).hexdigest()[:8]
        return topic_folder(topic) / f"{offsets.name}-{kind}.arrow"

    def _read(self, topic: Topic, offsets: Range) -> Path:
        """The file of a range in the cache."""
        file = self._file(topic, offsets)
        refuse_shared(file.parent)
        with _ONE_AT_A_TIME:
            if file in self._outdated or not file.exists():
                where = f"{shown(topic.url)}, partition {offsets.partition}"
                with phase(f"reading {where}, offsets {offsets.first} to {offsets.last}"):
                    self._write(topic, offsets, file)
                self._outdated.discard(file)
        return file

    def _write(self, topic: Topic, offsets: Range, file: Path) -> None:
        """Copies the messages of a range of offsets to an Arrow file in the cache folder."""
        where = f"{shown(topic.url)}, partition {offsets.partition}"
        messages = Broker(topic, self._options).messages(offsets)
        rows = message_rows(messages, self._types, where)
        table = rows.table.replace_schema_metadata({DIGEST: rows.sha256.encode()})
        step = max(1, table.num_rows * GROUP_BYTES // max(1, table.nbytes))
        scratch = file.with_name(f".{uuid.uuid4().hex}")
        try:
            for own in (cache_root(), file.parent.parent, file.parent):
                own.mkdir(mode=0o700, parents=True, exist_ok=True)
            refuse_shared(file.parent)
            with pa.OSFile(str(scratch), "wb") as to, pa.ipc.new_file(to, table.schema) as writer:
                writer.write_table(table, max_chunksize=step)
            note = {"offsets": runs_of(rows.offsets), "bad": rows.bad}
            # The note first, so that rows never exist without it.
            file.with_suffix(".json").write_text(json.dumps(note), "utf-8")
            replace(scratch, file)
        except OSError as error:
            if isinstance(error, StreamomdError):
                raise
            raise StorageError(
                f"the folder of messages, {file.parent}, cannot be written: {error.strerror}; "
                f"set {VARIABLE}"
            ) from None
        finally:
            scratch.unlink(missing_ok=True)


def runs_of(offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Rows from which on offsets follow each other, and how far they are ahead of the rows.

    >>> runs_of([7, 8, 9, 15, 16])
    [(0, 7), (3, 12)]
    """
    ahead = [offset - row for row, offset in enumerate(offsets)]
    return [(row, one) for row, one in enumerate(ahead) if not row or one != ahead[row - 1]]


def _digest(file: Path) -> str:
    with pa.OSFile(str(file)) as opened, pa.ipc.open_file(opened) as found:
        return str((found.schema.metadata or {})[DIGEST].decode())


def topic_folder(topic: Topic) -> Path:
    """Where the files of a topic's ranges are."""
    return cache_root() / "kafka" / hashlib.sha256(topic.url.encode()).hexdigest()[:24]
