"""make_plan: from the job and the first shard's schema to a Plan, or an error with the reason."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from streamomd.config.data_table import Data
from streamomd.config.field_types import OTHERS
from streamomd.config.model_table import Model
from streamomd.core.errors import SchemaError, UsageError
from streamomd.core.message import Key, Message, PerReader, Words, joined
from streamomd.features.arrow_types import (
    CATEGORIES,
    CROSSED,
    DATES,
    MEASURED,
    MOMENTS,
    NUMBERS,
    SCALARS,
    TEXTS,
    family,
    inside,
    is_category_list,
    is_container,
    is_list_of,
    is_number_list,
    is_text_list,
    is_vector,
    plain,
)
from streamomd.features.hashed import cross_name
from streamomd.features.labels import find_classes
from streamomd.features.lists import METADATA_KEY
from streamomd.features.plan import MOST_MEANS, Plan
from streamomd.features.plan_columns import Column, Date, Partition, SparsePair, Text, Vector
from streamomd.features.plan_lines import (
    DUPLICATE,
    FIRST,
    RefusedColumn,
    refuse,
    refused,
    unnamed,
)
from streamomd.features.times import parts_of
from streamomd.losses import find_loss
from streamomd.rules import find_rule
from streamomd.rules.ranges import ANY, SQUARES, Limits, narrowest

ABSENT = PerReader(" in the first shard; ", " in X; ")
_SIZE_KEY = b"streamomd.size"
_LARGEST = 2**31 - 1


def make_plan(
    data: Data,
    model: Model,
    schema: pa.Schema,
    distinct_labels: Callable[[], list[Any]],
    partitions: tuple[Partition, ...] = (),
    longest_list: Callable[[str], int] | None = None,
) -> Plan:
    """How the columns of ``schema``, the first shard's with the fields of its structs, become
    coordinates.

    distinct_labels: the distinct label values of the first shard; called only for classes that are
    neither given nor boolean. When numeric, hashed, vectors and sparse are all omitted, numbers
    and booleans are numeric, strings, dictionaries and lists of strings hashed, and any other
    column must be named in text, dates or ignore; else columns that are not named are not read.
    partitions: columns of directories, which are in the schema; those of dates need not be named.
    longest_list: the length of the longest list in the first rows of a column, called for vectors
    whose type does not say it; None: they are refused.
    Raises UsageError, SchemaError, and DataError for labels that are no classes.
    """
    _check_names(data, schema)
    unnamed = [column for column, kind in partitions if kind == "date"]
    numeric, hashed = _features(data, schema, unnamed)
    pair = data.sparse
    sparse = SparsePair(pair.indices, pair.values, _sparse_size(data, schema)) if pair else None
    vectors = tuple(_vector(schema.field(name), longest_list) for name in data.vectors)
    label_type = plain(schema.field(data.label).type)
    plan = Plan(
        bias=model.bias,
        label=data.label,
        weight=data.weight,
        numeric=numeric,
        vectors=vectors,
        hashed=hashed,
        sparse=sparse,
        nulls=_nulls(data),
        nulls_by=_nulls_by(data, numeric),
        bits=data.bits,
        hash_seed=data.hash_seed,
        types=(),
        label_type=str(label_type),
        classes=find_classes(model, data.label, label_type, distinct_labels),
        dtype=model.dtype,
        least_label=find_loss(model.loss).least,
        on_bad_row=data.on_bad_row,
        text=tuple(Text(text.column, text.ngrams, text.counts) for text in data.text),
        crosses=data.crosses,
        dates=_dates(data, schema),
        limits=limits_of([model], standardize=data.standardize == "running"),
        partitions=partitions,
        time=data.time,
        rename=tuple(data.rename.items()),
    )
    _check_features(plan)
    return replace(plan, types=tuple(_column(schema, name) for name in plan.columns))


def limits_of(models: Iterable[Model], *, standardize: bool) -> Limits | None:
    """What values every one of these models' rules learns from; None: any that their slots hold.

    standardize: whether columns have a reference, which squares them.
    """
    of = [(find_rule(model.rule).row.range, model.dtype) for model in models]
    squared = [SQUARES.float64] if standardize else []
    limits = narrowest([*(known.of(dtype) for known, dtype in of), *squared])
    return None if limits == narrowest(ANY.of(dtype) for _, dtype in of) else limits


def nearest(name: str, names: Iterable[str]) -> str:
    """The end of a message about an unknown column: similar names, or all of them."""
    known = list(names)
    same = [one for one in known if one.lower() == name.lower()]
    near = same or difflib.get_close_matches(name, known, n=3)
    if near:
        return "did you mean " + " or ".join(map(repr, near)) + "?"
    return "there are: " + (", ".join(map(repr, known[:20])) or "no columns")


def twice(names: Iterable[str]) -> list[str]:
    """Names that occur more than once."""
    return [name for name, times in Counter(names).items() if times > 1]


def _check_names(data: Data, schema: pa.Schema) -> None:
    if twice(schema.names):
        again = twice(schema.names)[0]
        raise SchemaError(Message("duplicate_column", DUPLICATE, shard=FIRST, column=again))
    if not data.label:
        known = nearest("", schema.names)
        raise UsageError(f"data.label is not set: name the label column; {known}")
    named = _named(data)
    needed = [*named, data.time] if data.time else named
    if missing := [name for name in dict.fromkeys(needed) if name not in schema.names]:
        lines = [(f"no column {name!r}", ABSENT, nearest(name, schema.names)) for name in missing]
        text = joined(lines, "\n")
        raise SchemaError(Message("missing_column", "{found}", column=missing[0], found=text))
    if twice(named):
        form = PerReader(
            "column {column!r} is named twice in [data]; give it one role",
            "column {column!r} is named twice; give it one role",
        )
        raise UsageError(Message("two_roles", form, column=twice(named)[0]))
    if data.time in _targets(data):
        raise UsageError(
            f"data.time = {data.time!r} is the label or the weight: name the column of the times"
        )


def _named(data: Data) -> list[str]:
    texts = [text.column for text in data.text]
    roles = [*data.numeric, *data.hashed, *data.vectors, *texts, *data.dates, *data.ignore]
    return [*_targets(data), *_pair(data), *roles]


def _targets(data: Data) -> list[str]:
    return [data.label, data.weight] if data.weight else [data.label]


def _pair(data: Data) -> list[str]:
    return [data.sparse.indices, data.sparse.values] if data.sparse else []


def _features(
    data: Data, schema: pa.Schema, optional: list[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The numeric and the hashed columns, each of a type it can have. optional: no features unless
    they are named."""
    numeric, hashed = data.numeric, data.hashed
    strange: tuple[str, ...] = ()
    if not (numeric or hashed or data.vectors or data.sparse):
        numeric, hashed, strange = _choose(schema, [*_named(data), *optional, data.time])
    made = data.text or data.dates or data.crosses
    if not (numeric or hashed or data.vectors or data.sparse or made or strange):
        remedy: Words = PerReader(
            "name some in numeric, hashed or vectors",
            "pass at least one column that is not ignored",
        )
        raise SchemaError(
            Message("no_features", "no feature column is left; {remedy}", remedy=remedy)
        )
    problems = [unnamed(schema, name) for name in strange]
    problems += _wrong_types(schema, numeric, "numeric", MEASURED)
    flat = tuple(n for n in hashed if not is_category_list(family(schema.field(n).type)))
    problems += _wrong_types(schema, flat, "hashed", CATEGORIES, ", or lists of these")
    problems += _wrong_types(schema, tuple(text.column for text in data.text), "text", TEXTS)
    problems += _wrong_types(schema, data.dates, "dates", DATES)
    problems += [*_wrong_weight(data, schema), *_wrong_crosses(data, schema)]
    if data.time:
        remedy = "name another column, or write it as a timestamp, a date or whole seconds"
        expected = "time takes timestamps, dates, and whole seconds since 1970"
        of = family(schema.field(data.time).type)
        problems += [] if of in MOMENTS else [refused(schema, data.time, expected, remedy)]
    for name in data.vectors:
        if not is_number_list(schema.field(name).type):
            problems.append(refused(schema, name, "vectors takes lists of numbers"))
    if data.sparse:
        problems += _wrong_pair(schema, data.sparse.indices, data.sparse.values)
    refuse(problems, data)
    return numeric, hashed


def _choose(schema: pa.Schema, taken: list[str]) -> tuple[tuple[str, ...], ...]:
    """The columns without a role that are numeric, those that are hashed, and the others. Of a
    struct its fields are columns; none of a struct that has a role itself."""
    numeric: list[str] = []
    hashed: list[str] = []
    strange: list[str] = []
    named = {*taken}
    structs = [one.name for one in schema if one.name in named and is_container(one.type)]
    for field in schema:
        if field.name in named or inside(field.name, structs) or is_container(field.type):
            continue
        of = family(field.type)
        coded = pa.types.is_dictionary(field.type) and of in SCALARS
        if of == "string" or coded or is_text_list(of):
            hashed.append(field.name)
        elif of in MEASURED:
            numeric.append(field.name)
        else:
            strange.append(field.name)
    return tuple(numeric), tuple(hashed), tuple(strange)


def _vector(field: pa.Field, longest_list: Callable[[str], int] | None) -> Vector:
    """A column of lists of numbers, as long as its type or its first lists say."""
    if is_vector(field.type):
        return Vector(field.name, field.type.list_size)
    if longest_list is None:
        raise SchemaError(
            f"column {field.name!r} is {field.type}, whose length is not known before its rows "
            "are: write it as fixed-size lists, or train from Parquet files"
        )
    if not (width := longest_list(field.name)):
        raise SchemaError(
            f"column {field.name!r} is {field.type}, and all of its lists are empty or null: add "
            "it to ignore"
        )
    return Vector(field.name, width)


def _nulls(data: Data) -> str:
    """What missing numbers become in columns that are not named."""
    return data.nulls if isinstance(data.nulls, str) else data.nulls.get(OTHERS, "error")


def _nulls_by(data: Data, numeric: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """The columns that ``data.nulls`` names, and what their missing numbers become.

    Raises UsageError that names all that are no numbers.
    """
    if isinstance(data.nulls, str):
        return ()
    named = {column: word for column, word in data.nulls.items() if column != OTHERS}
    known = (*numeric, *data.vectors)
    strange = [column for column in named if column not in known]
    if strange:
        raise UsageError(
            Message(
                "wrong_column",
                "{key} names {found}, expected {expected}; {remedy}",
                key=Key("data.nulls"),
                column=strange[0],
                found=", ".join(map(repr, strange)),
                expected="numeric columns or vectors (a null category is a category of its own)",
                remedy=nearest(strange[0], known),
            )
        )
    return tuple(sorted(named.items()))


def _dates(data: Data, schema: pa.Schema) -> tuple[Date, ...]:
    return tuple(Date(name, parts_of(schema.field(name).type)) for name in data.dates)


def _wrong_crosses(data: Data, schema: pa.Schema) -> list[RefusedColumn]:
    found = []
    parts = [name for date in _dates(data, schema) for name in date.names]
    # A crossed column may have other roles, but a label is never a feature.
    barred = dict.fromkeys(_targets(data), "the label or its weight")
    barred |= dict.fromkeys(data.dates, "a date: cross its parts, such as column.month")
    for name in (name for cross in data.crosses for name in cross if name not in parts):
        if name not in schema.names:
            near = nearest(name, [*schema.names, *parts])
            raise SchemaError(f"data.crosses: no column {name!r} in the first shard; {near}")
        if name in barred:
            raise UsageError(f"data.crosses: column {name!r} is {barred[name]}")
        remedy = "remove it from crosses, or write it as one of these types"
        found += _wrong_types(schema, (name,), "crosses", CROSSED, remedy=remedy)
    return found


def _wrong_types(
    schema: pa.Schema,
    names: tuple[str, ...],
    role: str,
    families: tuple[str, ...],
    more: str = "",
    remedy: Words = "",
) -> list[RefusedColumn]:
    expected = f"{role} takes {', '.join(families)} columns{more}"
    wrong = (name for name in names if family(schema.field(name).type) not in families)
    return [refused(schema, name, expected, remedy) for name in wrong]


def _wrong_weight(data: Data, schema: pa.Schema) -> list[RefusedColumn]:
    if not data.weight or family(schema.field(data.weight).type) in SCALARS:
        return []
    remedy = "name another column, or write its numbers as numbers"
    return [refused(schema, data.weight, "a weight is a number of 0 or more", remedy)]


def _wrong_pair(schema: pa.Schema, indices: str, values: str) -> Iterator[RefusedColumn]:
    if not is_list_of(schema.field(indices).type, ("integer",)):
        remedy = "a column of strings belongs in hashed; write indices as list<int32>"
        remedy = _undeclared(schema, indices) or remedy
        yield refused(schema, indices, "sparse.indices takes lists of integers", remedy)
    if not is_list_of(schema.field(values).type, NUMBERS):
        remedy = _undeclared(schema, values) or "write values as list<float> or list<double>"
        yield refused(schema, values, "sparse.values takes lists of numbers", remedy)


def _undeclared(schema: pa.Schema, name: str) -> str:
    """What to do about a binary column that may be lists."""
    if family(schema.field(name).type) != "binary":
        return ""
    key = METADATA_KEY.decode()
    return f"if its cells are the bytes of lists, say of which numbers in the metadata {key!r}"


def _sparse_size(data: Data, schema: pa.Schema) -> int:
    if data.sparse is None or data.sparse.size:
        return data.sparse.size if data.sparse else 0
    saved = (schema.metadata or {}).get(_SIZE_KEY, b"")
    if saved.isdigit() and len(saved) <= 10 and 0 < int(saved) < _LARGEST:
        return int(saved)
    raise SchemaError(
        f"the size of the sparse pair is not known (schema metadata {_SIZE_KEY.decode()!r} is "
        f"{saved.decode(errors='replace')!r}); set data.sparse.size to one more than the largest "
        f"index, or write it to the schema's metadata under {_SIZE_KEY.decode()!r}"
    )


def _column(schema: pa.Schema, name: str) -> Column:
    kind = schema.field(name).type
    return Column(name, str(kind), family(kind))


def _check_features(plan: Plan) -> None:
    """Two features of one name would have one text, and so one coordinate, a value."""
    parts = [name for date in plan.dates for name in date.names]
    made = [*parts, *map(cross_name, plan.crosses)]
    again = twice([*plan.hashed, *(text.column for text in plan.text), *made])
    if again:
        raise UsageError(f"two features are named {again[0]!r}: omit one, or rename a column")
    if plan.mean_count > MOST_MEANS:
        mean = PerReader('data.nulls = "mean"', 'nulls="mean"')
        rest = f" is for at most {MOST_MEANS:,} coordinates, and there are {plan.mean_count:,}: "
        remedy = "choose zero or indicator for wide vectors"
        form: Words = (mean, rest, "{remedy}")
        raise UsageError(Message("too_many", form, key=Key("data.nulls"), remedy=remedy))
    if plan.size > _LARGEST:
        found = f"{plan.size} coordinates are more than {_LARGEST}; lower "
        form = (found, "{key} or data.sparse.size")
        raise UsageError(Message("too_many", form, key=Key("data.bits")))
