"""What is known of a schema, computed once for all shards that have it."""

from __future__ import annotations

import base64
import binascii
from collections import deque
from functools import cached_property, lru_cache

import pyarrow as pa

from streamomd.features.binary_lists import METADATA_KEY, with_lists
from streamomd.features.nested import with_fields

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
