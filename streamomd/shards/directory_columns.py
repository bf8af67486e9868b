"""Columns of key=value directories: found in the names of shards, typed once, added to their rows.

``key=value`` directories below a source are columns, as Hive, Spark and Delta write them: names and
values are percent-decoded, and ``__HIVE_DEFAULT_PARTITION__`` is null. A run types them over all of
its shards, and saves the types in its plan.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from streamomd.core.errors import DataError, SchemaError
from streamomd.core.message import shown_value
from streamomd.core.urls import printable, protocol, redact, shown
from streamomd.core.wording import first_lines
from streamomd.features.arrow_types import DATES, PARTITION_TYPES, SCALARS, family
from streamomd.features.bad_rows import Conflict
from streamomd.features.plan_columns import Partition
from streamomd.shards.row_filter import columns_of
from streamomd.shards.shard import Constant, Shard, ShardSet

_INTEGER = re.compile(r"-?[0-9]{1,19}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_LEAST, _LARGEST = -(2**63), 2**63 - 1


def read_columns(shard: Shard, columns: Sequence[str]) -> list[str]:
    """These columns, and those of the shard's filter."""
    more = columns_of(shard.row_filter) if shard.row_filter is not None else []
    return [*columns, *(name for name in more if name not in columns)]


def stored_columns(shard: Shard, columns: Sequence[str]) -> tuple[str, ...]:
    """What is read of a file for columns of its rows: at least one, because it has the rows."""
    names = shard.stored_schema.names
    constant = {one.column for one in shard.constants}
    wanted = [name for name in columns if not _is_absent(shard, name)]
    stored = [(name, shard.stored_name(name)) for name in wanted]
    found = tuple(file for name, file in stored if name not in constant or file in names)
    flat = [field.name for field in shard.stored_schema if not pa.types.is_nested(field.type)]
    return found or tuple((flat or names)[:1])


def _is_absent(shard: Shard, column: str) -> bool:
    """Whether a column of the rows is one of its table that the file does not have."""
    return shard.projection is not None and shard.projection.null(column) is not None


def with_constant_columns(
    shard: Shard, batch: pa.RecordBatch, columns: Sequence[str]
) -> tuple[pa.RecordBatch, tuple[Conflict, ...]]:
    """Stored rows with the constant columns among ``columns``, in that order; and which rows of
    the file have another value."""
    arrays, conflicts = [], []
    for name in columns:
        constant = shard.constant(name)
        absent = shard.projection and shard.projection.null(name)
        if absent is not None:
            arrays.append(pa.nulls(batch.num_rows, absent))
            continue
        place = batch.schema.get_field_index(shard.stored_name(name))
        if constant is None:
            arrays.append(batch.column(place))
            continue
        arrays.append(_repeated(constant, batch.num_rows))
        if place >= 0:
            conflicts += _conflicts(constant, batch.column(place))
    return pa.RecordBatch.from_arrays(arrays, names=list(columns)), tuple(conflicts)


def _repeated(constant: Constant, rows: int) -> pa.Array:
    kind, value = PARTITION_TYPES[constant.kind], constant.value
    if value is None:
        return pa.nulls(rows, kind)
    if pa.types.is_dictionary(kind):
        indices = pa.array(np.zeros(rows, np.int32))
        return pa.DictionaryArray.from_arrays(indices, pa.array([value], kind.value_type))
    return pa.repeat(pa.scalar(value, kind), rows)


def _conflicts(constant: Constant, stored: pa.Array) -> list[Conflict]:
    """The rows whose stored value is not that of their directory."""
    if pa.types.is_timestamp(stored.type):
        stored = stored.cast(pa.timestamp("us"), safe=False)
    coded = stored if pa.types.is_dictionary(stored.type) else stored.dictionary_encode()
    agree = [_is_value(constant, value) for value in [*coded.dictionary.to_pylist(), None]]
    codes = coded.indices.cast(pa.int64()).fill_null(len(agree) - 1)
    rows = np.flatnonzero(~np.array(agree)[codes.to_numpy(zero_copy_only=False)])
    if not len(rows):
        return []
    text = "null" if constant.text is None else repr(constant.text)
    expected = f"{text}, as its directory {constant.column}=… says"
    return [Conflict(constant.column, rows, lambda row: shown_value(stored[row].as_py()), expected)]


def _is_value(constant: Constant, stored: Any) -> bool:
    """Whether a stored value is what the directory's text means in the type of the file."""
    text = constant.text
    if text is None or stored is None:
        return text is stored
    try:
        if isinstance(stored, str):
            return stored == text or parse_value(constant.kind, stored) == constant.value
        if isinstance(stored, bool):
            return str(stored).lower() == text.lower()
        if isinstance(stored, datetime.datetime):
            return stored == datetime.datetime.fromisoformat(text)
        kind = datetime.date.fromisoformat if isinstance(stored, datetime.date) else type(stored)
        return bool(stored == kind(text))
    except ValueError:
        return False


def parse_value(kind: str, text: str) -> Any:
    """The value of a directory's text, None if it is of another kind.

    >>> parse_value("integer", "01"), parse_value("date", "2026-01-31"), parse_value("date", "x")
    (1, datetime.date(2026, 1, 31), None)
    """
    if kind == "integer":
        number = int(text) if _INTEGER.fullmatch(text) else _LARGEST + 1
        return number if _LEAST <= number <= _LARGEST else None
    if kind == "date":
        try:
            return datetime.date.fromisoformat(text) if _DATE.fullmatch(text) else None
        except ValueError:
            return None
    return text


NULL = "__HIVE_DEFAULT_PARTITION__"
MOST_LISTED = 10
_EXPECTED = {"integer": "a 64-bit integer", "date": "an ISO date such as 2026-01-31"}
Wanted = str | Mapping[str, str]
"""A value of the key ``data.partitions``: "hive", "none", or the kind of each column."""
Texts = dict[str, str | None]
Schemas = dict[tuple[int, str | None, tuple[tuple[str, str], ...]], pa.Schema]
"""By the stored schema, projection and columns of directories: most shards have the same."""


def keys_of(name: str) -> list[tuple[str, str | None]]:
    """Column and text of each key=value directory of a name, in order.

    >>> keys_of("day=2026-01-01/city=S%C3%A3o%20Paulo/x=__HIVE_DEFAULT_PARTITION__/a=b.parquet")
    [('day', '2026-01-01'), ('city', 'São Paulo'), ('x', None)]
    """
    found = []
    for directory in name.split("/")[:-1]:
        column, equals, text = directory.partition("=")
        if equals and column:
            found.append((_decoded(column, name), None if text == NULL else _decoded(text, name)))
    return found


def _decoded(text: str, name: str) -> str:
    try:
        decoded = unquote(text, errors="strict")
        decoded.encode()
    except UnicodeError:
        raise DataError(
            f"the directories of {printable(name)} are no UTF-8 text: rename them, or set "
            'data.partitions = "none"'
        ) from None
    return decoded


def infer_partitions(shards: ShardSet, wanted: Wanted) -> tuple[Partition, ...]:
    """The columns of the directories of a new run, and their kinds, by all of its shards.

    An integer column has integers only, a date column ISO dates only; other columns, and those of
    nulls, are categories. Raises SchemaError where shards have different columns.
    """
    if wanted == "none":
        return ()
    if isinstance(wanted, Mapping):
        return tuple(Partition(column, kind) for column, kind in wanted.items())
    texts = [_below_source(shard) for shard in shards]
    columns = list(texts[0])
    for shard, values in zip(shards, texts, strict=True):
        if values.keys() != texts[0].keys():
            raise SchemaError(
                f"{shown(shard.url)} has {_listed(values)}, and {shown(shards.shards[0].url)} has "
                f"{_listed(columns)}: shards of a run have the same columns; name the columns that "
                'all have (data.partitions = { day = "date" }), or set data.partitions = "none"'
            )
    return tuple(Partition(column, _kind(values[column] for values in texts)) for column in columns)


def _listed(columns: Iterable[str]) -> str:
    names = ", ".join(f"{printable(column)}=" for column in columns)
    return f"directories {names}" if names else "no key=value directory"


def _kind(texts: Iterable[str | None]) -> str:
    """The kind of a column with these texts."""
    values = {text for text in texts if text is not None}
    for kind in ("integer", "date"):
        if values and all(parse_value(kind, text) is not None for text in values):
            return kind
    return "category"


def with_partitions(
    shards: ShardSet, partitions: Sequence[Partition], *, trained: bool = False
) -> ShardSet:
    """The shards, whose rows also have these columns.

    trained: for a model, whose columns are looked for in all directories of a path, the last one
    first; a shard may have them in its rows instead. Else they are in the directories below the
    source. Raises SchemaError for a column that is missing, and for values of another kind.
    """
    if not partitions:
        return shards
    problems: list[str] = []
    schemas: Schemas = {}
    found = [_with_constants(shard, partitions, trained, problems, schemas) for shard in shards]
    if problems:
        raise SchemaError("\n".join(first_lines(problems, MOST_LISTED)))
    return replace(shards, shards=tuple(found))


def _with_constants(
    shard: Shard,
    partitions: Sequence[Partition],
    trained: bool,
    problems: list[str],
    schemas: Schemas,
) -> Shard:
    """Returns a shard with its columns of directories; appends what is wrong to ``problems``."""
    texts = _anywhere(shard) if trained else _below_source(shard)
    constants = []
    for column, kind in partitions:
        if column in texts:
            value = None if (text := texts[column]) is None else parse_value(kind, text)
            constants.append(Constant(column, kind, text, value))
            if value is None and text is not None:
                problems.append(_other_kind(shard, column, kind, text))
        elif not trained:
            problems.append(
                f"{shown(shard.url)} has no directory {printable(column)}=… below its source: "
                'move it into one, or leave the column out (data.partitions, "none" for no column)'
            )
    stored = shard.stored_schema
    key = id(stored), _changed(shard), tuple((one.column, one.kind) for one in constants)
    if key not in schemas:
        schemas[key] = _with_columns(shard, constants)
    return replace(shard, schema=schemas[key], constants=tuple(constants), stored=stored)


def _changed(shard: Shard) -> str | None:
    return None if shard.projection is None else shard.projection.text


def _other_kind(shard: Shard, column: str, kind: str, text: str) -> str:
    name = printable(column)
    return (
        f"{shown(shard.url)}: directory {name}={printable(text)} is not {_EXPECTED[kind]}, as "
        f"column {name!r} has in this run: rename the directory, or start a new run with "
        f'data.partitions = {{ {name} = "category" }}'
    )


def _with_columns(shard: Shard, constants: Sequence[Constant]) -> pa.Schema:
    schema = shard.own_schema
    for one in constants:
        field = pa.field(one.column, PARTITION_TYPES[one.kind])
        places = schema.get_all_field_indices(one.column)
        for place in places[:1]:
            _refuse_incomparable(shard, schema.field(place))
            schema = schema.set(place, field)
        schema = schema if places else schema.append(field)
    return schema


def _refuse_incomparable(shard: Shard, field: pa.Field) -> None:
    """The rows of a file must agree with its directory, so they have to be comparable."""
    if family(field.type) not in (*SCALARS, *DATES, "string"):
        raise SchemaError(
            f"{shown(shard.url)}: column {printable(field.name)!r} is {field.type}, and a "
            "directory of its path has a value of that name, which cannot be compared: rename "
            'one of them, or set data.partitions = "none"'
        )


def _below_source(shard: Shard) -> Texts:
    """The texts of the directories below the shard's source."""
    if shard.partitions is not None:
        return dict(shard.partitions)
    keys = keys_of(shard.name)
    texts = dict(keys)
    if len(texts) < len(keys):
        raise DataError(
            f"{shown(shard.url)}: two directories of its path are of one column: rename one, or "
            'set data.partitions = "none"'
        )
    return texts


def _anywhere(shard: Shard) -> Texts:
    """The texts of all directories of the shard's path; the last one of a name counts."""
    if shard.partitions is not None:
        return dict(shard.partitions)
    return dict(keys_of(redact(shard.url) if protocol(shard.url) else shard.url))


def values_of(shards: ShardSet, column: str) -> list[Any] | None:
    """The distinct values of a column of directories, sorted; None if it is another column."""
    found: set[Any] = set()
    for shard in shards:
        constant = shard.constant(column)
        if constant is None:
            return None
        if shard.rows and constant.value is not None:
            found.add(constant.value)
    return sorted(found)


def partition_notes(shards: ShardSet, partitions: Sequence[Partition]) -> list[str]:
    """A line where directories above the sources differ between shards: they are no columns.

    So it is with the files that a shell lists for ``data/day=*/*.parquet``.
    """
    named = {column for column, _ in partitions}
    above: dict[str, set[str]] = {}
    for shard in shards:
        for directory in shown(shard.url.removesuffix(shard.name)).split("/")[:-1]:
            column, equals, text = directory.partition("=")
            if equals and column and column not in named:
                above.setdefault(column, set()).add(text)
    lost = [column for column, texts in above.items() if len(texts) > 1]
    if not lost:
        return []
    return [
        f"directories {', '.join(f'{column}=…' for column in lost)} are no columns: they are not "
        "below a source; pass the directory above them, or its name with wildcards in quotes"
    ]
