"""Keys of a job that have no effect on Kafka topics or Iceberg tables: refused, not ignored."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from streamomd.core.errors import UsageError
from streamomd.core.urls import is_iceberg, is_kafka, shown

if TYPE_CHECKING:
    from streamomd.config.spec import Spec

OF_FILES = (
    "data.as_files", "data.partitions", "data.arrival", "update.settle", "update.until",
    "update.ignore_rewritten", "update.moved", "update.accept_duplicates",
)  # fmt: skip
"""Of files that are listed with their times, may be written to, and are named by directories."""
OF_CSV = tuple(
    f"data.csv.{name}" for name in (
        "delimiter", "decimal", "encoding", "date_format", "null_values", "header", "quotes",
    )
)  # fmt: skip
WITHOUT_FLAG = ("data.arrival", "data.csv.header", "data.csv.quotes")


class Kind(NamedTuple):
    """A kind of sources. keys: without effect on it."""

    name: str
    is_one: Callable[[str], bool]
    keys: tuple[str, ...]
    reason: str


KINDS = (
    Kind(
        "a Kafka topic",
        is_kafka,
        ("data.version", "data.as_of", *OF_FILES, "update.appends_only", *OF_CSV),
        "messages are known by their offsets and never change",
    ),
    Kind(
        "an Iceberg table",
        is_iceberg,
        (*OF_FILES, "update.retry_skipped", *OF_CSV, "data.csv.types"),
        "its snapshots list Parquet files that never change",
    ),
)


def refuse_without_effect(shards: Sequence[str], keys: Collection[str]) -> None:
    """Raise UsageError that names all of these dotted keys which have no effect, if the sources are
    all topics, or all tables."""
    for kind in KINDS:
        found = [key for key in kind.keys if key in keys]
        if found and shards and all(map(kind.is_one, shards)):
            raise UsageError(
                f"{shown(shards[0])} is {kind.name}, and {kind.reason}. Leave out what has no "
                f"effect on it: {', '.join(map(_with_flag, found))}"
            )


def changed_keys(spec: Spec) -> set[str]:
    """The keys of a job's tables [data] and [update] that are not the defaults."""
    tables = spec.model_dump(exclude_defaults=True, include={"data", "update"})
    return set(_dotted("", tables))


def _dotted(above: str, table: dict[str, Any]) -> list[str]:
    found = [f"{above}{name}" for name in table]
    for name, value in table.items():
        if isinstance(value, dict):
            found += _dotted(f"{above}{name}.", value)
    return found


def _with_flag(key: str) -> str:
    flag = key.rpartition(".")[2].replace("_", "-").replace("types", "type")
    return key if key in WITHOUT_FLAG else f"{key} (--{flag})"
