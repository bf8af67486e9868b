"""Files, directories and globs as a source; directories that are tables are listed as such."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamomd.core.urls import location
from streamomd.sources.contract import Request, Source, SourceFiles
from streamomd.sources.delta.delta_source import describe_version


class FileSource(Source):
    """Names on a disk, in a store or behind http: what no other source takes."""

    name = "file"

    def takes(self, url: str) -> bool:
        """See ``Source``."""
        return True

    def list_files(self, fs: Any, urls: Sequence[str], request: Request) -> Sequence[SourceFiles]:
        """See ``Source``."""
        from streamomd.sources.files.list_names import list_names
        from streamomd.sources.text.text_cache import list_text

        return [*map(list_text, list_names(fs, urls, request), urls)]

    def watched(self, url: str) -> str:
        """See ``Source``."""
        return location(url)

    def place_of(self, url: str, path: str, row: int) -> str:
        """The file and line, where the shard was made of text."""
        from streamomd.sources.text.text_cache import place_in_text

        return place_in_text(path, row)

    def origin(self, path: str) -> str:
        """The text that a shard was made of."""
        from streamomd.sources.text.text_cache import text_of

        return text_of(path)

    def describe(self, url: str, position: int) -> str:
        """The version of a directory that is a table: files have none."""
        return describe_version(url, position)
