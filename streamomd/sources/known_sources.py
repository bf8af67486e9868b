"""Which source a URL is of, and what the sources of a job's URLs say of its keys and options."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from streamomd.core.errors import UsageError
from streamomd.core.installed import load_named
from streamomd.core.urls import protocol, shown
from streamomd.core.wording import SCHEMES
from streamomd.sources.contract import Source
from streamomd.sources.delta.delta_source import DeltaSource
from streamomd.sources.files.file_source import FileSource
from streamomd.sources.iceberg.iceberg_source import IcebergSource
from streamomd.sources.kafka.kafka_source import KafkaSource

GROUP = "streamomd.sources"
FILES = FileSource()
BUILT_IN: tuple[Source, ...] = (KafkaSource(), IcebergSource(), DeltaSource())
"""Those that know their URLs; every other URL names files."""
CHECKED: list[Source] = []
"""Those that ``check_source`` checks now; they need not be installed."""
WITHOUT_FLAG = ("data.arrival", "data.csv.header", "data.csv.quotes")


def source_of(url: str) -> Source:
    """The source of a URL or path: a built-in one, one of an installed package, or files."""
    for source in (*CHECKED, *BUILT_IN):
        if source.takes(url):
            return source
    scheme = protocol(url)
    # The entry points of installed packages are read for schemes that no usual store has.
    if not scheme or scheme in SCHEMES:
        return FILES
    found: Source | None = load_named(GROUP, scheme)
    return FILES if found is None else found


def schemes() -> list[str]:
    """The schemes of built-in sources."""
    return [source.name for source in BUILT_IN if source.takes(f"{source.name}://")]


def by_source(urls: Iterable[str]) -> dict[Source, list[str]]:
    """The URLs of each source, in order."""
    found: dict[Source, list[str]] = {}
    for url in urls:
        found.setdefault(source_of(url), []).append(url)
    return found


def options_for(
    urls: Iterable[str], options: Mapping[str, Any], *, recorded: bool = False
) -> dict[str, Any]:
    """Storage options for URLs that the user gave, or that a checkpoint ``recorded``."""
    for source, own in by_source(urls).items():
        options = source.options(own, options, recorded=recorded)
    return dict(options)


def refuse_recorded(urls: Iterable[str], options: Mapping[str, Any]) -> None:
    """Raise UsageError for URLs that only a checkpoint names and that may not be opened with these
    options."""
    for source, own in by_source(urls).items():
        source.refuse_recorded(own, options)


def read_options(
    urls: Iterable[str], options: Mapping[str, Any], types: Mapping[str, str]
) -> Mapping[str, Any]:
    """Storage options as a reader of the URLs needs them; types: of columns."""
    for source in by_source(urls):
        options = source.read_options(options, types)
    return options


def refuse_without_effect(shards: Sequence[str], keys: Collection[str]) -> None:
    """Raise UsageError that names all of these dotted keys which have no effect, if one source has
    all of the shards."""
    if not shards:
        return
    source = source_of(shards[0])
    found = [key for key in source.without_effect if key in keys]
    if found and all(map(source.takes, shards)):
        raise UsageError(
            f"{shown(shards[0])} is {source.title}, and {source.reason}. Leave out what has no "
            f"effect on it: {', '.join(map(_with_flag, found))}"
        )


def describe_position(position: Mapping[str, int]) -> list[str]:
    """A line on each table, in the version that is read."""
    lines = [source_of(url).describe(url, number) for url, number in position.items()]
    return [line for line in lines if line]


def _with_flag(key: str) -> str:
    flag = key.rpartition(".")[2].replace("_", "-").replace("types", "type")
    return key if key in WITHOUT_FLAG else f"{key} (--{flag})"
