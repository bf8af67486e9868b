"""The actions of a commit of a Delta table: values of the log, validated."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamomd.core.errors import DataError
from streamomd.core.urls import printable, shown

LINE_BYTES = 64 << 20
"""An action with the statistics of thousands of columns has 1 MiB."""
INVALID = (LookupError, ValueError, RecursionError)
"""What values that are not as expected raise. A TypeError or AttributeError is one of the program.
"""
_ROWS = re.compile(r'\s*\{\s*"numRecords"\s*:\s*(\d{1,18})\b', re.ASCII)
"""All statistics of a file would be parsed for this number alone, of up to millions of files."""
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Add:
    """A file that a commit adds.

    path: as in the log, percent-encoded. modified: in ms. vector: id of its deletion vector. rows:
    None if its statistics do not begin with their number, as all known writers have it.
    """

    path: str
    partitions: Mapping[str, str | None]
    size: int
    modified: int
    changes_data: bool
    vector: str = ""
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Remove:
    """A file that a commit removes. partitions: None if the log does not say."""

    path: str
    changes_data: bool
    vector: str = ""
    partitions: Mapping[str, str | None] | None = None


@dataclass(frozen=True)
class Protocol:
    """What a reader has to support."""

    reader_version: int
    features: tuple[str, ...] = ()


@dataclass(frozen=True)
class Metadata:
    """What a table is. columns: name and type of each, the type as JSON."""

    id: str
    columns: Mapping[str, str]
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str | None]


@dataclass
class Actions:
    """The actions of a commit or checkpoint. adds: with the line, which orders them."""

    adds: list[tuple[int, Add]] = field(default_factory=list)
    removes: list[Remove] = field(default_factory=list)
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    sidecars: list[str] = field(default_factory=list)
    operation: str = ""
    committed: int | None = None
    """In-commit timestamp, in ms."""

    def take(self, line: int, action: Row) -> None:
        """Record one action. Unknown ones are for writers, or the protocol refuses the table."""
        if (add := action.get("add")) is not None:
            self.adds.append((line, _add(_row(add, "add"))))
        if (remove := action.get("remove")) is not None:
            self.removes.append(_remove(_row(remove, "remove")))
        if (protocol := action.get("protocol")) is not None:
            self.protocol = _protocol(_row(protocol, "protocol"))
        if (metadata := action.get("metaData")) is not None:
            self.metadata = _metadata(_row(metadata, "metaData"))
        if (sidecar := action.get("sidecar")) is not None:
            self.sidecars.append(_text(_row(sidecar, "sidecar"), "path"))
        if (commit := action.get("commitInfo")) is not None:
            commit = _row(commit, "commitInfo")
            self.operation = str(commit.get("operation", ""))
            if commit.get("inCommitTimestamp") is not None:
                self.committed = _number(commit, "inCommitTimestamp")


def parse_lines(data: bytes, url: str) -> Actions:
    """The actions of a file of JSON lines. Raises DataError with the line."""
    found = Actions()
    for number, line in _lines(data):
        try:
            if len(line) > LINE_BYTES:
                raise ValueError(f"has {len(line):,} bytes, more than {LINE_BYTES:,}")
            action = json.loads(line)
            if not isinstance(action, dict):
                raise ValueError("is not a JSON object")
            found.take(number, action)
        except INVALID as error:
            raise damaged(url, f"line {number + 1}", error) from None
    return found


def damaged(url: str, place: str, error: Exception) -> DataError:
    """The error for a log that is not as the protocol says."""
    text = printable(str(error) or type(error).__name__)[:200]
    return DataError(f"the log of a Delta table, {shown(url)}, {place}: {text}; restore the file")


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(data.splitlines()):
        if line.strip():
            yield number, line


def _add(row: Row) -> Add:
    stats = row.get("stats")
    # Only the beginning of the text is looked at, see _ROWS.
    match = _ROWS.match(stats) if isinstance(stats, str) else None
    return Add(
        _text(row, "path"),
        _partitions(row.get("partitionValues") or {}),
        _number(row, "size"),
        _number(row, "modificationTime"),
        _flag(row, "dataChange"),
        _vector(row),
        int(match[1]) if match else None,
    )


def _remove(row: Row) -> Remove:
    values = row.get("partitionValues")
    partitions = None if values is None else _partitions(values)
    return Remove(_text(row, "path"), _flag(row, "dataChange"), _vector(row), partitions)


def _partitions(values: Any) -> dict[str, str | None]:
    # The protocol has two texts for null: none, and the empty one.
    return {name: value or None for name, value in _pairs(values, "partitionValues")}


def _pairs(values: Any, key: str) -> list[tuple[str, str | None]]:
    """The entries of a map, which a Parquet file has as a list of pairs."""
    pairs = [*values.items()] if isinstance(values, Mapping) else values
    right = isinstance(pairs, list) and all(
        isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str)
        and isinstance(one[1], str | None) for one in pairs
    )  # fmt: skip
    if not right:
        raise ValueError(f"{key} is {values!r}, expected names and texts")
    return [*pairs]


def _vector(row: Row) -> str:
    if row.get("deletionVector") is None:
        return ""
    vector = _row(row["deletionVector"], "deletionVector")
    # With its offset: several vectors share a file.
    place = f"{_text(vector, 'storageType')}{_text(vector, 'pathOrInlineDv')}"
    return f"{place}@{vector.get('offset')}"


def _protocol(row: Row) -> Protocol:
    return Protocol(_number(row, "minReaderVersion"), _texts(row, "readerFeatures"))


def _metadata(row: Row) -> Metadata:
    fields = _row(json.loads(_text(row, "schemaString")), "schemaString").get("fields")
    if not isinstance(fields, list):
        raise ValueError("schemaString has no list of fields")
    columns = {
        _text(one, "name"): json.dumps(one["type"], sort_keys=True)
        for one in (_row(field, "a field of schemaString") for field in fields)
    }
    configuration = dict(_pairs(row.get("configuration") or {}, "configuration"))
    return Metadata(_text(row, "id"), columns, _texts(row, "partitionColumns"), configuration)


def _row(value: Any, key: str) -> Row:
    if not isinstance(value, Mapping):
        raise ValueError(f"{key} is {value!r}, expected an object")
    return value


def _texts(row: Row, key: str) -> tuple[str, ...]:
    values = row.get(key) or []
    if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
        raise ValueError(f"{key} holds other values than texts")
    return tuple(values)


def _text(row: Row, key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key} is {value!r}, expected a text")
    return value


def _number(row: Row, key: str) -> int:
    value = row.get(key)
    # True is an int in Python, and JSON has numbers of any size.
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise ValueError(f"{key} is {value!r}, expected a whole number of 0 or more")
    return value


def _flag(row: Row, key: str) -> bool:
    value = row.get(key)
    if not isinstance(value, bool):
        raise ValueError(f"{key} is {value!r}, expected true or false")
    return value
