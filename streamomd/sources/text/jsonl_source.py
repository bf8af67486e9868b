"""JSON lines: an object a line, a column a key; types are inferred from the first block."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from streamomd.core.errors import DataError, UsageError
from streamomd.core.urls import printable
from streamomd.sources.text.text_source import Text, blocks

HEAD = 16 << 20
_ROW = re.compile(r"row (\d+)", re.IGNORECASE)


class JsonlReader:
    """jsonl as one column a key; a key that a line lacks is null there.

    types: {column: Arrow type name} in place of what is inferred from the first 16 MiB of the
    first file. A key that appears later is an error, as is another type.
    """

    size: int | None = None
    size_is_final = True

    def __init__(self, *, types: Mapping[str, str] | None = None) -> None:
        try:
            fields = [(name, pa.type_for_alias(kind)) for name, kind in (types or {}).items()]
        except (ValueError, TypeError) as error:
            raise UsageError(f"types: {error}") from None
        self._types = pa.schema(fields)
        self.schema: pa.Schema = pa.schema([])
        self.known: pa.Schema = pa.schema([])
        """Types of columns, if they are there, unless ``types`` has theirs."""
        self.notes: list[str] = []

    def batches(self, text: Text) -> Iterator[pa.RecordBatch]:
        """The rows of one file; DataError names file, line and problem."""
        any_row = False
        for line, block in blocks(text, HEAD):
            # A block of blank lines would have no columns.
            if not block.strip():
                continue
            any_row = True
            table = self._parsed(block, text.name, line)
            if not self.schema.names:
                self.schema = pa.schema(_without_null_type(field) for field in table.schema)
            yield from table.cast(self.schema).to_batches()
        if not any_row:
            raise DataError(f"{text.name} is empty: expected an object a line")

    def _first_types(self, block: bytes) -> pa.Schema:
        """Of columns that are there: a missing one would be one of nulls."""
        own = [
            one for one in self.known
            if one.name not in self._types.names
            and json.dumps(one.name, ensure_ascii=False).encode() in block
        ]  # fmt: skip
        return pa.schema([*own, *self._types])

    def _parsed(self, block: bytes, name: str, line: int) -> pa.Table:
        import pyarrow.json

        first = not self.schema.names
        known = self._first_types(block) if first else self.schema
        options = pyarrow.json.ParseOptions(
            # After the first block: a new key would change the columns of shards that are written.
            explicit_schema=known,
            unexpected_field_behavior="infer" if first else "error",
        )
        _refuse_other_encodings(block, name, line)
        # One block: two might infer different types.
        reading = pyarrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1)
        try:
            return pyarrow.json.read_json(pa.BufferReader(block), reading, options)
        except pa.ArrowInvalid as error:
            text = str(error).removeprefix("JSON parse error: ")
            row = _ROW.search(text)
            where = f"line {line + int(row[1])}" if row else f"from line {line} on"
            raise DataError(
                f"{name}, {where}: {printable(text[:200])}; expected an object a line with the "
                "keys and types of the first lines"
            ) from None


def _refuse_other_encodings(block: bytes, name: str, line: int) -> None:
    """Raise DataError for bytes that are not UTF-8: pyarrow would take them for text."""
    try:
        if not block.isascii():
            block.decode()
    except UnicodeDecodeError as error:
        at = line + block.count(b"\n", 0, error.start)
        raise DataError(
            f"{name}, line {at}: byte 0x{block[error.start]:02x} is not UTF-8, which JSON is: "
            "convert the file, for example with iconv -f latin1 -t utf-8"
        ) from None


def _without_null_type(field: Any) -> Any:
    return field.with_type(pa.float64()) if pa.types.is_null(field.type) else field
