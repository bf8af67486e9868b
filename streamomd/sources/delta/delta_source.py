"""Delta tables as a source: commits of a log list the shards; a run records the version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamomd.core.errors import UsageError
from streamomd.core.urls import is_marked, location, shown
from streamomd.sources.contract import Request, Source, SourceFiles


class DeltaSource(Source):
    """``delta+`` before a URL or path. A directory with a log that is named without it is found by
    the source of files, which lists it with ``list_root``."""

    name = "delta"

    def takes(self, url: str) -> bool:
        """See ``Source``."""
        return is_marked(url)

    def list_files(self, fs: Any, urls: Sequence[str], request: Request) -> Sequence[SourceFiles]:
        """See ``Source``."""
        from streamomd.sources.files.paths import PathPattern

        if request.tables.as_files:
            raise UsageError(
                f"{shown(urls[0])} is read as a Delta table, and as_files reads files as they are: "
                "leave out one of delta+ and --as-files (data.as_files)"
            )
        found = [PathPattern(location(url), fs) for url in urls]
        return [
            list_root(fs, one.path.rstrip("/"), one.url(one.path).rstrip("/"), request)
            for one in found
        ]

    def watched(self, url: str) -> str:
        """See ``Source``."""
        return location(url)


def list_root(fs: Any, path: str, url: str, request: Request) -> SourceFiles:
    """What the table in a directory has."""
    from streamomd.sources.delta.appended import list_table  # late: few runs read tables

    return list_table(fs, path, url, request)


def describe_version(url: str, version: int) -> str:
    """A line on the version of the table in a directory."""
    return f"Delta table {shown(url)}: version {version}"
