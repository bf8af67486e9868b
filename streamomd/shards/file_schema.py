"""The schema of a file, examined once for all shards that have it; the columns that rows take.

A table of columns with ids (Iceberg) renames, adds and drops columns without writing its files
again. A file's column is the one of its id: under another name, absent (null), or dropped. Of other
files, ``data.rename`` says it.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from streamomd.core.errors import CorruptionError
from streamomd.core.urls import printable
from streamomd.features.arrow_types import with_fields
from streamomd.features.lists import METADATA_KEY, with_lists

OWN = b"streamomd."
"""Begin of the metadata that a schema retains. pandas writes the number of rows into its own, by
which each shard would have another schema."""
MOST_RECENT = 16


class SchemaFacts:
    """The schema of a file, without other programs' metadata.

    fields: with the fields of structs, and with the lists that binary columns are; the same object
    if it has neither. columns: name, type and whether it may be null, of each column. Raises
    UnicodeDecodeError for other names.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.columns = [[one.name, str(one.type), one.nullable] for one in schema]
        self.fields = with_lists(with_fields(schema))

    @cached_property
    def text(self) -> str | None:
        """For a ledger: Arrow's own bytes, in letters; None if it has none. Of the metadata they
        have what lists are stored as binary columns."""
        lists = (self.schema.metadata or {}).get(METADATA_KEY)
        metadata = {METADATA_KEY: lists} if lists is not None else None
        bare = pa.schema([one.remove_metadata() for one in self.schema], metadata)
        try:
            return base64.b64encode(bare.serialize().to_pybytes()).decode()
        except pa.ArrowException:
            return None


_RECENT: deque[tuple[pa.Schema, SchemaFacts]] = deque(maxlen=MOST_RECENT)
_SEEN: deque[tuple[pa.Schema, SchemaFacts]] = deque(maxlen=4 * MOST_RECENT)
"""Objects that were asked for: most are, again and again."""


def schema_facts(schema: pa.Schema) -> SchemaFacts:
    """The facts of a schema; for equal ones, mostly the same object."""
    for known, facts in tuple(_SEEN):
        if known is schema:
            return facts
    found = _equal(schema)
    _SEEN.extendleft([(schema, found), (found.schema, found)])
    return found


def _equal(schema: pa.Schema) -> SchemaFacts:
    own = {key: value for key, value in (schema.metadata or {}).items() if key.startswith(OWN)}
    plain = schema.with_metadata(own or None)
    for known, facts in tuple(_RECENT):
        # Without metadata, pyarrow takes lists for equal whose elements have other names.
        if plain.equals(known, check_metadata=True):
            return facts
    found = SchemaFacts(plain)
    _RECENT.appendleft((plain, found))
    return found


@lru_cache(MOST_RECENT)
def schema_of_text(text: str) -> SchemaFacts | None:
    """The facts of a schema that a ledger records; None for a text that is none."""
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
        return schema_facts(schema)
    except (pa.ArrowException, OSError, UnicodeError, binascii.Error, ValueError):
        return None


def same_columns(one: pa.Schema, other: pa.Schema) -> bool:
    """Whether two files have the same columns: names, types and nulls, in order."""
    return one is other or schema_facts(one).columns == schema_facts(other).columns


ID = b"PARQUET:field_id"
"""Where pyarrow has a column's id, in the metadata of its field."""
Inside = tuple[tuple[str, int, "Inside"], ...]
"""Name and id of each field of a struct, and what is inside it; of a list what its elements are."""


class TableColumn(NamedTuple):
    """A column of a table. filled: rows of files without it have another value than null."""

    id: int
    name: str
    kind: pa.DataType
    inside: Inside = ()
    filled: bool = False


class TableColumns(NamedTuple):
    """The columns of a table. names: ids of the columns of files that have no ids, by name."""

    columns: tuple[TableColumn, ...]
    names: Mapping[str, int]


@dataclass(frozen=True)
class Projection:
    """How the columns of rows follow from those of a file.

    renamed: column and stored column. hidden: stored columns that rows do not have. nulls: columns
    that the file does not have.
    """

    renamed: tuple[tuple[str, str], ...]
    hidden: tuple[str, ...]
    nulls: pa.Schema

    @cached_property
    def _stored(self) -> dict[str, str]:
        return dict(self.renamed)

    def stored_name(self, column: str) -> str:
        """The stored column of a column of the rows."""
        return self._stored.get(column, column)

    def null(self, column: str) -> pa.DataType | None:
        """The type of a column that the file does not have, None for other columns."""
        place = self.nulls.get_field_index(column)
        return self.nulls.field(place).type if place >= 0 else None

    @cached_property
    def _columns(self) -> dict[str, str]:
        return {stored: column for column, stored in self.renamed}

    def column(self, stored: str) -> str:
        """The column of the rows that a stored column is."""
        return self._columns.get(stored, stored)

    def column_names(self, stored: pa.Schema) -> list[str]:
        """The columns of the rows of a file with these ones, without fields of structs."""
        names = [self.column(name) for name in stored.names if name not in self.hidden]
        return [*names, *self.nulls.names]

    def schema(self, stored: pa.Schema) -> pa.Schema:
        """The columns of the rows of a file with these ones, with fields of structs."""
        fields = [one.with_name(self.column(one.name)) for one in with_lists(stored)
                  if one.name not in self.hidden]  # fmt: skip
        return with_fields(pa.schema([*fields, *self.nulls], stored.metadata))

    @cached_property
    def text(self) -> str:
        """For a ledger."""
        nulls = schema_facts(self.nulls).text if len(self.nulls) else ""
        return json.dumps({"renamed": self.renamed, "hidden": self.hidden, "nulls": nulls})


def parse_projection(text: str) -> Projection:
    """The projection that a ledger saves. Raises CorruptionError for another text."""
    try:
        values = json.loads(text)
        if not isinstance(values, dict):
            raise ValueError("it is not a JSON object")
        renamed, hidden, nulls = (values[key] for key in ("renamed", "hidden", "nulls"))
        if not isinstance(renamed, list) or not all(_are_texts(pair, 2) for pair in renamed):
            raise ValueError("renamed are not pairs of texts")
        if not _are_texts(hidden) or not isinstance(nulls, str):
            raise ValueError("a name is not a text")
        known = schema_of_text(nulls) if nulls else None
        if nulls and known is None:
            raise ValueError("its types are not a schema")
        pairs = tuple((column, stored) for column, stored in renamed)
        return Projection(pairs, tuple(hidden), known.schema if known else pa.schema([]))
    except (LookupError, ValueError, RecursionError) as error:
        raise CorruptionError(
            f"a projection of the ledger cannot be read: {printable(str(error))[:200]}"
        ) from None


def _are_texts(values: Any, count: int | None = None) -> bool:
    right = isinstance(values, list) and count in (None, len(values))
    return right and all(isinstance(one, str) for one in values)


def inside_of(kind: pa.DataType) -> Inside:
    """Names and ids of the fields of a file's structs."""
    if pa.types.is_struct(kind):
        return tuple((one.name, id_of(one) or 0, inside_of(one.type)) for one in _fields(kind))
    if pa.types.is_map(kind):
        return inside_of(kind.key_type) + inside_of(kind.item_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return inside_of(kind.value_type)
    return ()


def _fields(kind: pa.DataType) -> Sequence[pa.Field]:
    return [kind.field(at) for at in range(kind.num_fields)]


def id_of(field: Any) -> int | None:
    """The id of a column; None without one."""
    text = (field.metadata or {}).get(ID, b"")
    return int(text) if text.isdigit() else None
