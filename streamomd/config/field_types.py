"""Types of the keys of a job: what is accepted for each, and what it becomes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator

from streamomd.config import values
from streamomd.config.cluster_choice import is_scheduler_file
from streamomd.config.filter_text import parse_filter
from streamomd.config.job_table import brief
from streamomd.core.errors import UsageError
from streamomd.core.message import Key, Message, PerReader, Words, invalid_value
from streamomd.core.urls import absolute, local_name, protocol, shown
from streamomd.core.wording import job_word, nearest, suggestion

PARTITIONS, PARTITION_KINDS = ("hive", "none"), ("integer", "date", "category")
OTHERS = "*"
"""In ``data.nulls``, all columns that the table does not name."""
SET = PerReader(" = ", "=")
Label = bool | int | float | str
BALANCED = "balanced"
"""In ``model.class_weight``: every class has the same total weight."""


def _as_list(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def as_texts(value: Any) -> Any:
    """The name of a text column alone means its words, counted by presence."""
    given = (value,) if isinstance(value, Mapping) else values.split_list(value)
    is_list = isinstance(given, list | tuple)
    return [{"column": one} if isinstance(one, str) else one for one in given] if is_list else given


def _check_crosses(value: Any) -> Any:
    for cross in value if isinstance(value, list | tuple) else ():
        if (
            not isinstance(cross, list | tuple)
            or len(cross) < 2
            or len({*map(str, cross)}) < len(cross)
        ):
            raise UsageError(
                f"data.crosses contains {brief(cross)}: expected lists of two or more different "
                'columns, e.g. crosses = [["job", "marital"]]'
            )
    return value


def _as_partitions(value: Any) -> Any:
    """A word, or a mapping, which ``--set`` and flags write as a TOML table."""
    given = values.parse_scalar(value) if isinstance(value, str) and "{" in value else value
    if isinstance(given, Mapping):
        for column, kind in given.items():
            if not isinstance(column, str) or kind not in PARTITION_KINDS:
                raise UsageError(
                    f"data.partitions: {column!r} is of kind {brief(kind)}: expected "
                    f"{', '.join(PARTITION_KINDS)}"
                )
        return dict(given)
    if given not in PARTITIONS:
        near = suggestion(str(given), PARTITIONS)
        wanted = (
            f"expected one of {', '.join(PARTITIONS)}, or the kind of each column, such as "
            f'{{ day = "date", hour = "integer" }}; {near}'
        )
        raise UsageError(invalid_value("data.partitions", brief(given), wanted))
    return given


def _as_nulls(value: Any) -> Any:
    """A word, or a word for each column: a table, or ``age=mean,income=zero`` of a flag."""
    given, known = value, ", ".join(values.NULLS)
    if isinstance(value, str) and value.lstrip().startswith("{"):
        given = values.parse_scalar(value)
    elif isinstance(value, str) and "=" in value:
        pairs = [name.rpartition("=") for name in values.split_list(value)]
        given = {column.strip(): word.strip() for column, _, word in pairs}
        if len(given) < len(pairs):
            raise UsageError(_of_nulls(SET, brief(value), "a column is named twice"))
    if isinstance(given, Mapping):
        for column, word in given.items():
            if not column or word not in values.NULLS:
                near = _nearest(word, values.NULLS)
                problem, wanted = f"{column!r} is {brief(word)}", f"expected one of {known}{near}"
                raise UsageError(_of_nulls(": ", problem, wanted))
        return dict(given)
    if given not in values.NULLS:
        near = _nearest(given, values.NULLS)
        example = 'such as { age = "mean", "*" = "zero" }'
        wanted = f"expected one of {known}, or one for each column, {example}{near}"
        raise UsageError(_of_nulls(SET, brief(given), wanted))
    return given


def _of_nulls(form: Words, found: str, expected: str) -> Message:
    sentence = ("{key}", form, "{found}: {expected}")
    key = Key("data.nulls")
    return Message("invalid_value", sentence, key=key, found=found, expected=expected)


def _absolute_file(scheduler: str | None) -> str | None:
    """A scheduler file by its absolute path; an address unchanged."""
    return absolute(scheduler) if scheduler and is_scheduler_file(scheduler) else scheduler


def _numbers_by_name(value: Any, key: str, example: str, of: str = "class") -> Any:
    """A table, or ``yes=5,no=1`` of a flag: a number above 0 for each name, of a class."""
    given = value
    if isinstance(value, str) and value.lstrip().startswith("{"):
        given = values.parse_scalar(value)
    elif isinstance(value, str):
        pairs = [name.rpartition("=") for name in values.split_list(value)]
        given = {name.strip(): values.parse_scalar(number) for name, _, number in pairs}
        if "" in given:
            wanted = f"expected NAME=NUMBER for each {of}, such as {example}"
            raise UsageError(invalid_value(key, brief(value), wanted))
        if len(given) < len(pairs):
            raise UsageError(invalid_value(key, brief(value), f"a {of} is named twice"))
    if not isinstance(given, Mapping):
        return given
    for name, number in given.items():
        real = isinstance(number, int | float) and not isinstance(number, bool)
        if not (name != "" and real and 0.0 < number <= sys.float_info.max):
            raise UsageError(
                f"{key}: {of} {name!r} has {brief(number)}: expected a number above 0 for each "
                f"{of}, such as {example}"
            )
    return {job_word(name): float(number) for name, number in given.items()}


def _as_class_weights(value: Any) -> Any:
    named = isinstance(value, str) and "=" not in value
    if named or not isinstance(value, str | Mapping):
        if value not in ("", BALANCED):
            numbers = "or a number for each class, such as { yes = 5.0, no = 1.0 }"
            wanted = f"expected {BALANCED!r}, {numbers}"
            raise UsageError(invalid_value("model.class_weight", brief(value), wanted))
        return value
    return _numbers_by_name(value, "model.class_weight", "{ yes = 5.0, no = 1.0 }")


def _as_resources(value: Any) -> Any:
    return _numbers_by_name(value, "cluster.resources", "{ GPU = 1 }", "resource")


def _as_shares(value: Any) -> Any:
    given = _numbers_by_name(value, "data.sample", "{ no = 0.1 }")
    for name, share in given.items() if isinstance(given, Mapping) else ():
        if share > 1.0:
            raise UsageError(
                f"data.sample: class {name!r} has {share:g}: expected a share of its rows, above 0 "
                "and at most 1, such as { no = 0.1 }"
            )
    return given


def _as_types(value: Any) -> Any:
    """A table, or ``zip=string,age=int64`` of a flag."""
    return _pairs(value, "data.csv.types", "COLUMN=TYPE, such as zip=string")


def _pairs(value: Any, key: str, expected: str) -> Any:
    """A table, or ``a=b,c=d`` of a flag."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("{"):
        return values.parse_scalar(value)
    pairs = [name.rpartition("=") for name in values.split_list(value)]
    for name, _, other in pairs:
        if not name or not other:
            raise UsageError(invalid_value(key, brief(value), f"expected {expected}"))
    return {name.strip(): other.strip() for name, _, other in pairs}


def as_renames(value: Any) -> Any:
    """A table, or ``amount_eur=amount`` of a flag: the column by its name in files."""
    given = _pairs(value, "data.rename", "FILE=COLUMN, such as amount_eur=amount")
    for name, column in given.items() if isinstance(given, Mapping) else ():
        if not isinstance(column, str) or not name or not column:
            raise UsageError(
                f"data.rename: {name!r} is {brief(column)}: expected a column of the model, such "
                'as { amount_eur = "amount" }'
            )
        if column in given:
            raise UsageError(
                f"data.rename: {column!r} is a file's name and a column's: each file has the "
                "column under one name, so rename to names that are not renamed"
            )
    return given


def _nearest(given: Any, words: tuple[str, ...]) -> str:
    found = nearest(str(given), words)
    return f"; did you mean {found!r}?" if found else ""


def _check_filter(value: str) -> str:
    text = value.strip()
    if text:
        parse_filter(text)
    return text


def _check_cache(value: str) -> str:
    if protocol(value):
        wanted = (
            'expected a folder on a local disk, e.g. "~/.cache/rows"; the cache avoids reading '
            "from a remote store"
        )
        raise UsageError(invalid_value("data.cache", shown(value), wanted))
    return absolute(os.path.expanduser(local_name(value))) if value else ""


def _check_moment(value: str) -> str:
    if value:
        values.nanoseconds(value)
    return value


Locations = Annotated[tuple[str, ...], BeforeValidator(_as_list)]
"""Files or URLs; a comma is part of a name."""
Names = Annotated[tuple[str, ...], BeforeValidator(values.split_list)]
"""Columns; a text ``a,b`` is a list."""
Labels = Annotated[tuple[Label, ...], BeforeValidator(values.split_scalars)]


Shapes = Literal["none", "columns", "pairs", "all"]
Crosses = Annotated[tuple[tuple[str, ...], ...], BeforeValidator(_check_crosses)]
Mebibytes = Annotated[int, BeforeValidator(values.whole_mebibytes)]
Gibibytes = Annotated[float, BeforeValidator(values.gibibytes)]
Scheduler = Annotated[str | None, AfterValidator(_absolute_file)]
Resources = Annotated[dict[str, float], BeforeValidator(_as_resources)]
"""A number for each of Dask's resources."""
Seconds = Annotated[float, BeforeValidator(values.seconds)]
Moment = Annotated[str, BeforeValidator(values.moment_text), AfterValidator(_check_moment)]
"""A time as ISO 8601, or TOML's own; empty: none."""
Partitions = Annotated[str | dict[str, str], BeforeValidator(_as_partitions)]
Nulls = Annotated[str | dict[str, str], BeforeValidator(_as_nulls)]
"""What a missing number becomes: a word, or one for each column."""
ClassWeights = Annotated[str | dict[str, float], BeforeValidator(_as_class_weights)]
"""A word, or a number for each class by its name."""
Shares = Annotated[dict[str, float], BeforeValidator(_as_shares)]
"""Shares of rows, by the name of their class."""
Renames = Annotated[dict[str, str], BeforeValidator(as_renames)]
"""Columns by their names in some files."""
Types = Annotated[dict[str, str], BeforeValidator(_as_types)]
"""Types of columns by name."""
Filter = Annotated[str, AfterValidator(_check_filter)]
Folder = Annotated[str, AfterValidator(_check_cache)]
